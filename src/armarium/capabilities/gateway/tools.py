"""The gateway's tools and JSON API routes: arguments in, one service call, result out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, Final

from armarium.capabilities.gateway.admin.service import administration_routes
from armarium.capabilities.gateway.contract import (
    ASK_OUTPUT_SCHEMA,
    DISCOVER,
    RAW_RESULTS,
    SYNTHESIZED,
    ask_input_schema,
    input_schemas,
)
from armarium.capabilities.gateway.downloads.links import DOWNLOAD_PATH
from armarium.capabilities.gateway.downloads.service import Downloads
from armarium.capabilities.gateway.responses import RAG_ERRORS, declare_rag_tool
from armarium.capabilities.gateway.secret_parameters import SECRET_PARAMETERS
from armarium.capabilities.gateway.service import Gateway
from armarium.capabilities.gateway.session_tools import SessionTools
from armarium.foundation.concurrency.rate_limit import RateLimit
from armarium.foundation.routes import Identify, Route
from armarium.foundation.schema import Json
from armarium.foundation.security.access import Access
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
ASK: Final = declare_tool(
    "rag_ask",
    Gateway.ask,
    title="Ask sources",
    question_argument="query",
    input_schema=ask_input_schema(),
    output_schema=ASK_OUTPUT_SCHEMA,
    read_only=True,
    idempotent=True,
    is_search=True,
    subject=("", ""),
    errors=RAG_ERRORS,
    **_RAG_TRAITS | {"content_fields": _RAG_TRAITS["content_fields"] | {"query", "earlier"}},
)
"""An answer with its hits, to questions that may refer to earlier ones. Only the JSON API offers it."""
SESSION_TOOLS: Final = (
    declare_tool("rag_config", SessionTools.config, title="Configuration for user interfaces", read_only=True),
    declare_tool("gateway_servers", SessionTools.servers, title="Servers the caller may use", read_only=True),
    declare_tool("rag_resources", SessionTools.resources, title="Search the list of sources", read_only=True),
    declare_tool("rag_connections", SessionTools.connections, title="Stored tokens", read_only=True),
    declare_tool("rag_selection", SessionTools.selection, title="Show the selection", read_only=True),
    declare_tool("rag_select", SessionTools.select, title="Store the selection", idempotent=True),
    declare_tool("rag_deselect", SessionTools.deselect, title="Remove the selection", idempotent=True),
    declare_tool(
        "rag_connect", SessionTools.connect, title="Store a token", secret_fields=_SECRET_FIELDS, subject=("server", "")
    ),
    declare_tool("rag_disconnect", SessionTools.disconnect, title="Remove a token", subject=("server", "")),
    declare_tool("rag_issue_token", SessionTools.issue_token, title="Issue a capability token", subject=("source", "")),
)
"""Tools for user interfaces, which call them after every event: not rate limited. Only the JSON API offers them."""


def _no_text(answer: Json) -> list[str]:
    return []


DOWNLOAD: Final = declare_tool(
    "gateway_download",
    Downloads.download,
    title="Fetch a file by its link",
    read_only=True,
    # The tool that reads the file checks whether its caller may read it.
    for_every_caller=True,
    secret_fields=_SECRET_FIELDS,
    subject=("", "name"),
    text=_no_text,
)
"""Only the JSON API offers it, to whoever has a link."""


def bind_rag_tools(
    gateway: Gateway, rate_limit: RateLimit | None = None, access: Access | None = None
) -> list[ToolSpec]:
    """The three tools, with the configured maximum of `top_k` in their schemas."""
    schemas = input_schemas(gateway.limits.top_k_max)
    tools = (replace(tool, input_schema=schemas[tool.name]) for tool in bind_tools(TOOLS, gateway, access))
    return [_rate_limited(tool, rate_limit) for tool in tools]


def bind_ask_tool(gateway: Gateway, rate_limit: RateLimit | None = None, access: Access | None = None) -> ToolSpec:
    """`ASK`, like the three tools."""
    tool = replace(ASK.bind(gateway, access), input_schema=ask_input_schema(gateway.limits.top_k_max))
    return _rate_limited(tool, rate_limit)


def download_route(tool: ToolSpec, identify: Identify) -> Route:
    """The route of the links. It needs no key, since a link has a token."""
    path = f"{DOWNLOAD_PATH}/{{name}}"
    return Route("GET", path, tool, "Fetch a file by its link", at_root=True, identify=identify, is_file=True)


def gateway_routes(tools: Iterable[ToolSpec]) -> list[Route]:
    """The JSON API. The contract fixes the paths, so they are at the root of the API."""
    tool = {each.name: each for each in tools}
    connection, selection = "/rag/connections/{server}", "/rag/selection"
    return [
        Route("GET", "/config", tool["rag_config"], "List the caller's servers and sources", at_root=True),
        Route("GET", "/gateway/servers", tool["gateway_servers"], "List all servers the caller may use", at_root=True),
        Route("GET", "/rag/resources", tool["rag_resources"], "Search the list of sources", at_root=True),
        Route("POST", "/rag/search", tool[RAW_RESULTS], "Search sources", at_root=True),
        Route("POST", "/rag/synthesize", tool[SYNTHESIZED], "Answer from sources", at_root=True, streams=True),
        Route("POST", "/rag/ask", tool[ASK.spec.name], "Ask sources", at_root=True, streams=True),
        Route("GET", selection, tool["rag_selection"], "Show the selected servers and sources", at_root=True),
        Route("PUT", selection, tool["rag_select"], "Select servers and sources", at_root=True),
        Route("DELETE", selection, tool["rag_deselect"], "Remove a selection", at_root=True),
        Route("GET", "/rag/connections", tool["rag_connections"], "List the stored tokens", at_root=True),
        Route("POST", connection, tool["rag_connect"], "Store a token for a server", success=201, at_root=True),
        Route("DELETE", connection, tool["rag_disconnect"], "Remove the token", at_root=True),
        Route("POST", "/rag/tokens", tool["rag_issue_token"], "Issue a capability token", success=201, at_root=True),
    ]


def declared_routes() -> list[Route]:
    """All routes, without services behind them. The administrators have the name of the default."""
    no_service: Any = None
    return [
        *gateway_routes(tool.spec for tool in (*TOOLS, ASK, *SESSION_TOOLS)),
        download_route(DOWNLOAD.spec, lambda name, token: None),
        *administration_routes(no_service, admin_group="admin"),
    ]


def _rate_limited(tool: ToolSpec, rate_limit: RateLimit | None) -> ToolSpec:
    if rate_limit is None:
        return tool

    async def run(call: Call, values: Mapping[str, Any]) -> Json | Relayed:
        rate_limit.take(call.principal.username)
        return await tool.run(call, values)

    return replace(tool, run=run)
