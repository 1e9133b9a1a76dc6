"""The gateway's tools and JSON API routes: arguments in, one service call, result out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, Final

from armarium.capabilities.gateway.contract import DISCOVER, RAW_RESULTS, SYNTHESIZED, declare_rag_tool, input_schemas
from armarium.capabilities.gateway.secret_parameters import SECRET_PARAMETERS
from armarium.capabilities.gateway.service import Gateway
from armarium.foundation.rate_limit import RateLimit
from armarium.foundation.routes import Route
from armarium.foundation.schema import Json
from armarium.foundation.tools import Call, Relayed, ToolSpec, bind_tools, declare_tool

_SECRET_FIELDS: Final = frozenset({*SECRET_PARAMETERS, "token"})
_RAG_TRAITS: Final[dict[str, Any]] = {
    "open_world": True,
    # Objects with arbitrary keys, which may be names of secrets.
    "content_fields": frozenset({"filters", "ranking", "synthesis_params", "provided_context", "hits"}),
    "secret_fields": _SECRET_FIELDS,
}

TOOLS: Final = (
    declare_rag_tool(DISCOVER, Gateway.discover, input_schemas(), title="List searchable sources", **_RAG_TRAITS),
    declare_rag_tool(RAW_RESULTS, Gateway.search, input_schemas(), title="Search sources", **_RAG_TRAITS),
    declare_rag_tool(SYNTHESIZED, Gateway.synthesize, input_schemas(), title="Answer from sources", **_RAG_TRAITS),
)
"""The three tools of the RAG contract."""
SESSION_TOOLS: Final = (
    declare_tool("rag_config", Gateway.config, title="Configuration for user interfaces", read_only=True),
    declare_tool(
        "rag_connect", Gateway.connect, title="Store a token", secret_fields=_SECRET_FIELDS, subject=("server", "")
    ),
    declare_tool("rag_disconnect", Gateway.disconnect, title="Remove a token", subject=("server", "")),
    declare_tool("rag_issue_token", Gateway.issue_token, title="Issue a capability token", subject=("source", "")),
)
"""Tools for user interfaces, which call them after every event: not rate limited. Only the JSON API offers them."""


def bind_rag_tools(gateway: Gateway, rate_limit: RateLimit | None = None) -> list[ToolSpec]:
    """The three tools, with the configured maximum of `top_k` in their schemas."""
    schemas = input_schemas(gateway.top_k_max)
    tools = (replace(tool, input_schema=schemas[tool.name]) for tool in bind_tools(TOOLS, gateway))
    return [_rate_limited(tool, rate_limit) for tool in tools]


def gateway_routes(tools: Iterable[ToolSpec]) -> list[Route]:
    """The JSON API. The contract fixes the paths, so they are at the root of the API."""
    tool = {each.name: each for each in tools}
    connection = "/rag/connections/{server}"
    return [
        Route("GET", "/config", tool["rag_config"], "List the caller's servers and sources", at_root=True),
        Route("POST", "/rag/search", tool[RAW_RESULTS], "Search sources", at_root=True),
        Route("POST", "/rag/synthesize", tool[SYNTHESIZED], "Answer from sources", at_root=True),
        Route("POST", connection, tool["rag_connect"], "Store a token for the session", success=201, at_root=True),
        Route("DELETE", connection, tool["rag_disconnect"], "Remove the token", at_root=True),
        Route("POST", "/rag/tokens", tool["rag_issue_token"], "Issue a capability token", success=201, at_root=True),
    ]


def _rate_limited(tool: ToolSpec, rate_limit: RateLimit | None) -> ToolSpec:
    if rate_limit is None:
        return tool

    async def run(call: Call, values: Mapping[str, Any]) -> Json | Relayed:
        rate_limit.take(call.principal.username)
        return await tool.run(call, values)

    return replace(tool, run=run)
