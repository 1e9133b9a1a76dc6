"""How a tool is told to clients, and whether it can be."""

from __future__ import annotations

import logging

import mcp_types as types
import orjson
from mcp_types.methods import serialize_server_result
from mcp_types.version import SUPPORTED_PROTOCOL_VERSIONS

from armarium.foundation.tools import ToolSpec

_log = logging.getLogger(__name__)


def advertised(tool: ToolSpec) -> types.Tool:
    """A tool as the list has it."""
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


def advertised_if_possible(tool: ToolSpec) -> types.Tool | None:
    """The same for a tool of somebody else's; None if it would keep a client from reading the whole list."""
    try:
        told = advertised(tool)
        listing = types.ListToolsResult(tools=[told]).model_dump(by_alias=True, mode="json", exclude_none=True)
        for version in SUPPORTED_PROTOCOL_VERSIONS:
            orjson.dumps(serialize_server_result("tools/list", version, listing))
    except (ValueError, TypeError):
        _log.warning("a tool cannot be listed", extra={"tool": tool.name.encode("utf-8", "backslashreplace").decode()})
        return None
    return told
