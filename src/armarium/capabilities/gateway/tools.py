"""The gateway's tools: arguments in, one service call, answer out. The docstrings are what a model reads."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final

from pydantic import Field

from armarium.capabilities.gateway.contract import (
    DEFAULT_PAGE_SIZE,
    DEFAULT_TOP_K,
    DISCOVER,
    OUTPUT,
    RAG_ERRORS,
    RAW_RESULTS,
    SYNTHESIZED,
    inputs,
)
from armarium.capabilities.gateway.model import DiscoveryFilters, Question, Synthesis, Wanted
from armarium.capabilities.gateway.secret_parameters import LONGEST_SECRET, SENSITIVE, secrets_in
from armarium.capabilities.gateway.service import Gateway
from armarium.foundation.schema import Json
from armarium.foundation.tools import Args, Call, NoArgs, ToolSpec, local_tool

_SECRETS: Final = frozenset({*SENSITIVE, "token"})
_NOT_WRITTEN_DOWN: Final = frozenset({"filters", "ranking", "synthesis_params", "provided_context", "hits"})
"""Whatever has names of its own inside, which could be those of secrets."""


class SecretArgs(Args):
    """What every tool may be given besides: the name is not listened to, and secrets go to one server only."""

    username: str | None = None
    user_token: str | None = Field(default=None, repr=False)
    api_key: str | None = Field(default=None, repr=False)
    bearer: str | None = Field(default=None, repr=False)
    oauth_token: str | None = Field(default=None, repr=False)
    capability_token: str | None = Field(default=None, repr=False)

    def secrets(self) -> dict[str, str]:
        """The secrets among the arguments."""
        return secrets_in({name: getattr(self, name) for name in SENSITIVE})


class DiscoveryFilterArgs(Args):
    """Which resources are wanted."""

    types: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    search: str = ""
    page: int = 1
    page_size: int = DEFAULT_PAGE_SIZE


class DiscoverArgs(SecretArgs):
    """What to list."""

    filters: DiscoveryFilterArgs = DiscoveryFilterArgs()


class RawArgs(SecretArgs):
    """What to search for."""

    query: str
    sources: tuple[str, ...]
    servers: tuple[str, ...] = ()
    top_k: int | None = None
    filters: dict[str, Any] | None = None
    ranking: dict[str, Any] | None = None


class ProvidedContextArgs(Args):
    """What the caller chose to have the answer made from."""

    hits: tuple[dict[str, Any], ...] | None = None


class SynthesisArgs(SecretArgs):
    """What to answer."""

    query: str
    sources: tuple[str, ...]
    servers: tuple[str, ...] = ()
    top_k: int | None = None
    synthesis_params: dict[str, Any] = Field(default_factory=dict[str, Any])
    provided_context: ProvidedContextArgs | None = None


def rag_tools(gateway: Gateway, *, top_k_max: int = 100) -> list[ToolSpec]:
    """The three tools of the contract."""
    usual_top_k = min(DEFAULT_TOP_K, top_k_max)

    async def rag_discover_resources(call: Call, args: DiscoverArgs) -> Json:
        """List the sources you may search, over all servers: documents of this server, and of servers behind it. Call
        it first; the `id` of a resource is what the other two tools take as `sources`. Narrow it with `filters`
        (types, search) and page through it. `meta_data.errors` names servers that did not answer."""
        wanted = args.filters
        filters = DiscoveryFilters(wanted.types, wanted.tags, wanted.search)
        return await gateway.discover(call, filters, args.secrets(), page=wanted.page, page_size=wanted.page_size)

    async def rag_get_raw_results(call: Call, args: RawArgs) -> Json:
        """Search sources of one or several servers at once and get passages, best first, each with its text, title and
        uri. Use it when you want to read the evidence yourself. Sources that could not be searched are told in
        `meta_data.errors`; the others answer all the same. Scores tell the order, not how good a hit is."""
        question = Question(args.query, args.top_k or usual_top_k, args.filters, args.ranking)
        return await gateway.search(call, question, Wanted(args.sources, args.servers), args.secrets())

    async def rag_get_synthesized_results(call: Call, args: SynthesisArgs) -> Json:
        """Get an answer with citations from sources of one or several servers. A server that writes answers itself
        writes this one; otherwise it is made from the passages found. Give hits you chose as `provided_context` to have
        the answer made from those. Check what matters with rag_get_raw_results."""
        chosen = args.provided_context
        synthesis = Synthesis(args.synthesis_params, None if chosen is None else chosen.hits)
        question = Question(args.query, args.top_k or usual_top_k)
        wanted = Wanted(args.sources, args.servers)
        return await gateway.synthesize(call, question, wanted, synthesis, args.secrets())

    taken = inputs(top_k_max)

    def tool(name: str, title: str, function: Callable[[Call, Any], Awaitable[Json]]) -> ToolSpec:
        return local_tool(
            name,
            function,
            title=title,
            input_schema=taken[name],
            output_schema=OUTPUT[name],
            read_only=True,
            idempotent=True,
            is_search=name != DISCOVER,
            open_world=True,
            content_fields=_NOT_WRITTEN_DOWN,
            secret_fields=_SECRETS,
            subject=("", ""),
            errors=RAG_ERRORS,
        )

    return [
        tool(DISCOVER, "List searchable sources", rag_discover_resources),
        tool(RAW_RESULTS, "Search sources", rag_get_raw_results),
        tool(SYNTHESIZED, "Answer from sources", rag_get_synthesized_results),
    ]


class ConnectArgs(Args):
    """A token, and for which server."""

    server: str = Field(min_length=1, max_length=64)
    """The server's name."""
    kind: str = Field(pattern=f"^({'|'.join(SENSITIVE)})$")
    """As which parameter the server takes it."""
    token: str = Field(min_length=1, max_length=LONGEST_SECRET, repr=False)
    """The token. It is kept in memory alone."""
    ttl_s: float | None = Field(default=None, gt=0, le=7 * 86_400)
    """Seconds to keep it for; never longer than the operator allows."""


class DisconnectArgs(Args):
    """Which server."""

    server: str = Field(min_length=1, max_length=64)
    """The server's name."""


class TokenArgs(Args):
    """For which source."""

    source: str = Field(min_length=1, max_length=600)
    """Its id."""
    ttl_s: int | None = Field(default=None, ge=1, le=86_400)
    """Seconds it is good for; never longer than the operator allows."""


def session_tools(gateway: Gateway) -> list[ToolSpec]:
    """What only the JSON API offers: it is for user interfaces, not for models."""

    async def rag_config(call: Call, args: NoArgs) -> dict[str, Any]:
        """Tell which servers and sources the caller may use, as a user interface shows them."""
        return await gateway.config(call)

    async def rag_connect(call: Call, args: ConnectArgs) -> dict[str, Any]:
        """Keep a token for a server, in memory, until it expires or is taken back."""
        return await gateway.connect(call, args.server, args.kind, args.token, args.ttl_s)

    async def rag_disconnect(call: Call, args: DisconnectArgs) -> dict[str, Any]:
        """Forget the token that is kept for a server."""
        return await gateway.disconnect(call, args.server)

    async def rag_issue_token(call: Call, args: TokenArgs) -> dict[str, Any]:
        """Issue a short-lived capability token for one source that the caller may use."""
        return await gateway.issue_token(call, args.source, args.ttl_s)

    return [
        local_tool("rag_config", rag_config, title="Configuration for user interfaces", read_only=True),
        local_tool("rag_connect", rag_connect, title="Keep a token", secret_fields=_SECRETS, subject=("server", "")),
        local_tool("rag_disconnect", rag_disconnect, title="Forget a token", subject=("server", "")),
        local_tool("rag_issue_token", rag_issue_token, title="Issue a capability token", subject=("source", "")),
    ]
