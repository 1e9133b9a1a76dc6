"""Converts tools to their form in `tools/list`."""

from __future__ import annotations

import logging

import mcp_types as types
import orjson
from mcp_types.methods import serialize_server_result
from mcp_types.version import SUPPORTED_PROTOCOL_VERSIONS

from armarium.foundation.tools import ToolSpec
from armarium.surfaces.prepared_tool import escape_surrogates

_log = logging.getLogger(__name__)


def describe_tool(tool: ToolSpec) -> types.Tool:
    """The tool as clients see it."""
    return types.Tool(
        name=tool.name,
        title=tool.title,
        description=tool.description,
        input_schema=dict(tool.input_schema),
        output_schema=tool.advertised_output(),
        annotations=types.ToolAnnotations(
            title=tool.title,
            read_only_hint=tool.read_only,
            destructive_hint=tool.destructive,
            idempotent_hint=tool.idempotent,
            open_world_hint=tool.open_world,
        ),
    )


def describe_valid_tool(tool: ToolSpec) -> types.Tool | None:
    """The tool of an upstream as clients see it; None if it would make the whole list unreadable for a client."""
    try:
        described = describe_tool(tool)
        listing = types.ListToolsResult(tools=[described]).model_dump(by_alias=True, mode="json", exclude_none=True)
        for version in SUPPORTED_PROTOCOL_VERSIONS:
            orjson.dumps(serialize_server_result("tools/list", version, listing))
    except (ValueError, TypeError):
        _log.warning("an invalid tool is not listed", extra={"tool": escape_surrogates(tool.name)})
        return None
    return described
