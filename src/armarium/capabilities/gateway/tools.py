"""The gateway's tools and JSON API routes: arguments in, one service call, result out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, Final

from pydantic import Field

from armarium.capabilities.gateway.contract import (
    DEFAULT_PAGE_SIZE,
    DISCOVER,
    OUTPUT_SCHEMAS,
    RAG_ERRORS,
    RAW_RESULTS,
    SYNTHESIZED,
    input_schemas,
)
from armarium.capabilities.gateway.model import DiscoveryFilters, RagQuery, SourceSelection, SynthesisOptions
from armarium.capabilities.gateway.secret_parameters import MAX_SECRET_LENGTH, SECRET_PARAMETERS, secrets_in
from armarium.capabilities.gateway.service import Gateway
from armarium.foundation.rate_limit import RateLimit
from armarium.foundation.routes import Route
from armarium.foundation.schema import Json
from armarium.foundation.tools import (
    Args,
    Call,
    DeclaredTool,
    NoArgs,
    Relayed,
    ToolSpec,
    bind_tools,
    declare_tool,
)

_SECRET_FIELDS: Final = frozenset({*SECRET_PARAMETERS, "token"})
_UNRECORDED_FIELDS: Final = frozenset({"filters", "ranking", "synthesis_params", "provided_context", "hits"})
"""Objects with arbitrary keys, which may be names of secrets."""


class SecretArgs(Args):
    """Arguments that every tool accepts. `username` is ignored; secrets go to one server only."""

    username: str | None = None
    user_token: str | None = Field(default=None, repr=False)
    api_key: str | None = Field(default=None, repr=False)
    bearer: str | None = Field(default=None, repr=False)
    oauth_token: str | None = Field(default=None, repr=False)
    capability_token: str | None = Field(default=None, repr=False)

    def secrets(self) -> dict[str, str]:
        """The secrets among the arguments."""
        return secrets_in({name: getattr(self, name) for name in SECRET_PARAMETERS})


class DiscoveryFilterArgs(Args):
    """Which resources to list."""

    types: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    search: str = ""
    page: int = 1
    page_size: int = DEFAULT_PAGE_SIZE


class DiscoverArgs(SecretArgs):
    """What to list."""

    filters: DiscoveryFilterArgs = DiscoveryFilterArgs()


class RawArgs(SecretArgs):
    """The search and its sources."""

    query: str
    sources: tuple[str, ...]
    servers: tuple[str, ...] = ()
    top_k: int | None = None
    filters: dict[str, Any] | None = None
    ranking: dict[str, Any] | None = None


class ProvidedContextArgs(Args):
    """The hits that the caller selected for the answer."""

    hits: tuple[dict[str, Any], ...] | None = None


class SynthesisArgs(SecretArgs):
    """The question and its sources."""

    query: str
    sources: tuple[str, ...]
    servers: tuple[str, ...] = ()
    top_k: int | None = None
    synthesis_params: dict[str, Any] = Field(default_factory=dict[str, Any])
    provided_context: ProvidedContextArgs | None = None


class ConnectArgs(Args):
    """A token and its server."""

    server: str = Field(min_length=1, max_length=64)
    """The server's name."""
    kind: str = Field(pattern=f"^({'|'.join(SECRET_PARAMETERS)})$")
    """The parameter with which the server receives it."""
    token: str = Field(min_length=1, max_length=MAX_SECRET_LENGTH, repr=False)
    """The token. It is stored in memory only."""
    ttl_s: float | None = Field(default=None, gt=0, le=7 * 86_400)
    """Seconds until it expires, limited by the operator's maximum."""


class DisconnectArgs(Args):
    """The server to disconnect."""

    server: str = Field(min_length=1, max_length=64)
    """The server's name."""


class TokenArgs(Args):
    """The source of the token."""

    source: str = Field(min_length=1, max_length=600)
    """The source's id."""
    ttl_s: int | None = Field(default=None, ge=1, le=86_400)
    """Seconds until it expires, limited by the operator's maximum."""


async def rag_discover_resources(gateway: Gateway, call: Call, args: DiscoverArgs) -> Json:
    """List the sources you may search, over all servers: documents of this server, and of servers behind it. Call it
    first; the `id` of a resource is what the other two tools take as `sources`. Narrow the list with `filters` (types,
    search) and page through it. `meta_data.errors` names servers that did not respond."""
    filters = DiscoveryFilters(args.filters.types, args.filters.tags, args.filters.search)
    return await gateway.discover(
        call, filters, args.secrets(), page=args.filters.page, page_size=args.filters.page_size
    )


async def rag_get_raw_results(gateway: Gateway, call: Call, args: RawArgs) -> Json:
    """Search sources of one or several servers at once. Returns chunks, best first, each with its text, title and uri.
    Use it to read the evidence yourself. Sources that could not be searched are listed in `meta_data.errors`; the
    others still return hits. Scores give the order only, not the quality of a hit."""
    query = RagQuery(args.query, args.top_k or gateway.default_top_k, args.filters, args.ranking)
    return await gateway.search(call, query, SourceSelection(args.sources, args.servers), args.secrets())


async def rag_get_synthesized_results(gateway: Gateway, call: Call, args: SynthesisArgs) -> Json:
    """Get an answer with citations from sources of one or several servers. If one server has all the sources and can
    write answers, it writes this one; otherwise the gateway writes it from the chunks found. Pass hits as
    `provided_context` to have the answer written from those. Check important statements with rag_get_raw_results."""
    provided = None if args.provided_context is None else args.provided_context.hits
    return await gateway.synthesize(
        call,
        RagQuery(args.query, args.top_k or gateway.default_top_k),
        SourceSelection(args.sources, args.servers),
        SynthesisOptions(args.synthesis_params, provided),
        args.secrets(),
    )


def _rag_tool(name: str, title: str, function: Any) -> DeclaredTool[Gateway]:
    return declare_tool(
        name,
        function,
        title=title,
        input_schema=input_schemas()[name],
        output_schema=OUTPUT_SCHEMAS[name],
        read_only=True,
        idempotent=True,
        is_search=name != DISCOVER,
        open_world=True,
        content_fields=_UNRECORDED_FIELDS,
        secret_fields=_SECRET_FIELDS,
        subject=("", ""),
        errors=RAG_ERRORS,
    )


TOOLS: Final = (
    _rag_tool(DISCOVER, "List searchable sources", rag_discover_resources),
    _rag_tool(RAW_RESULTS, "Search sources", rag_get_raw_results),
    _rag_tool(SYNTHESIZED, "Answer from sources", rag_get_synthesized_results),
)
"""The three tools of the RAG contract."""


async def rag_config(gateway: Gateway, call: Call, args: NoArgs) -> dict[str, Any]:
    """Show which servers and sources the caller may use, for a user interface."""
    return await gateway.config(call)


async def rag_connect(gateway: Gateway, call: Call, args: ConnectArgs) -> dict[str, Any]:
    """Store a token for a server, in memory, until it expires or is removed."""
    return await gateway.connect(call, args.server, args.kind, args.token, args.ttl_s)


async def rag_disconnect(gateway: Gateway, call: Call, args: DisconnectArgs) -> dict[str, Any]:
    """Remove the stored token for a server."""
    return await gateway.disconnect(call, args.server)


async def rag_issue_token(gateway: Gateway, call: Call, args: TokenArgs) -> dict[str, Any]:
    """Issue a short-lived capability token for one source that the caller may use."""
    return await gateway.issue_token(call, args.source, args.ttl_s)


SESSION_TOOLS: Final = (
    declare_tool("rag_config", rag_config, title="Configuration for user interfaces", read_only=True),
    declare_tool(
        "rag_connect", rag_connect, title="Store a token", secret_fields=_SECRET_FIELDS, subject=("server", "")
    ),
    declare_tool("rag_disconnect", rag_disconnect, title="Remove a token", subject=("server", "")),
    declare_tool("rag_issue_token", rag_issue_token, title="Issue a capability token", subject=("source", "")),
)
"""Tools for user interfaces. Only the JSON API offers them, not MCP."""


def bind_rag_tools(gateway: Gateway, rate_limit: RateLimit | None = None) -> list[ToolSpec]:
    """The three tools, with the configured maximum of `top_k` in their schemas."""
    schemas = input_schemas(gateway.top_k_max)
    tools = (replace(tool, input_schema=schemas[tool.name]) for tool in bind_tools(TOOLS, gateway))
    return [_rate_limited(tool, rate_limit) for tool in tools]


def bind_session_tools(gateway: Gateway) -> list[ToolSpec]:
    """The session tools. They are not rate limited: a user interface calls them after every event."""
    return bind_tools(SESSION_TOOLS, gateway)


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
