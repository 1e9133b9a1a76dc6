"""The gateway's tools: arguments in, one service call, result out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from armarium.capabilities.gateway.contract import (
    DISCOVER,
    RAW_RESULTS,
    SYNTHESIZED,
    input_schemas,
)
from armarium.capabilities.gateway.responses import declare_rag_tool
from armarium.capabilities.gateway.secret_parameters import SECRET_PARAMETERS
from armarium.capabilities.gateway.service import Gateway
from armarium.foundation.concurrency.rate_limit import RateLimit
from armarium.foundation.schema import Json
from armarium.foundation.security.access import Access
from armarium.foundation.tools import Call, Relayed, ToolSpec, bind_tools

SECRET_FIELDS: Final = frozenset({*SECRET_PARAMETERS, "token"})
RAG_TRAITS: Final[dict[str, Any]] = {
    "open_world": True,
    # Objects with arbitrary keys, which may be names of secrets.
    "content_fields": frozenset({"filters", "ranking", "synthesis_params", "provided_context", "hits"}),
    "secret_fields": SECRET_FIELDS,
}

TOOLS: Final = (
    declare_rag_tool(DISCOVER, Gateway.discover, input_schemas(), title="List searchable sources", **RAG_TRAITS),
    declare_rag_tool(RAW_RESULTS, Gateway.search, input_schemas(), title="Search sources", **RAG_TRAITS),
    declare_rag_tool(SYNTHESIZED, Gateway.synthesize, input_schemas(), title="Answer from sources", **RAG_TRAITS),
)
"""The three tools of the RAG contract."""


def bind_rag_tools(
    gateway: Gateway, rate_limit: RateLimit | None = None, access: Access | None = None
) -> list[ToolSpec]:
    """The three tools, with the configured maximum of `top_k` in their schemas."""
    schemas = input_schemas(gateway.limits.top_k_max)
    tools = (replace(tool, input_schema=schemas[tool.name]) for tool in bind_tools(TOOLS, gateway, access))
    return [rate_limited(tool, rate_limit) for tool in tools]


def rate_limited(tool: ToolSpec, rate_limit: RateLimit | None) -> ToolSpec:
    if rate_limit is None:
        return tool

    async def run(call: Call, values: Mapping[str, Any]) -> Json | Relayed:
        rate_limit.take(call.principal.username)
        return await tool.run(call, values)

    return replace(tool, run=run)
