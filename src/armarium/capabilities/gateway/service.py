"""The gateway's service: discover, search and answer over all servers that the caller may see."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from armarium.capabilities.gateway.access import may_see_server
from armarium.capabilities.gateway.arguments import (
    ConnectArgs,
    DiscoverArgs,
    DiscoveryFilters,
    QueryArgs,
    RawArgs,
    ServerArgs,
    SynthesisArgs,
    TokenArgs,
    check_filters,
    check_query,
)
from armarium.capabilities.gateway.contract import DEFAULT_TOP_K, contract_answer
from armarium.capabilities.gateway.errors import DENIALS, InvalidSource, UpstreamBusy, UpstreamTimeout
from armarium.capabilities.gateway.model import RagAnswer, RagQuery, Secrets
from armarium.capabilities.gateway.query.discovery import describe_resource, discover_sources, overview
from armarium.capabilities.gateway.query.fan_out import milliseconds_since
from armarium.capabilities.gateway.query.outcome import (
    base_metadata,
    record_sources,
    server_answer_as_json,
    total_failure,
)
from armarium.capabilities.gateway.query.rank_fusion import MergedHit, RerankPolicy
from armarium.capabilities.gateway.query.search import (
    SearchOutcome,
    SourceSearch,
    hit_as_json,
    hit_fields,
    select_provided_hits,
)
from armarium.capabilities.gateway.query.source_cache import SourceCache
from armarium.capabilities.gateway.query.source_lookup import SourceLookup
from armarium.capabilities.gateway.query.source_resolution import Resolution, SourceError, resolve_sources
from armarium.capabilities.gateway.query.synthesis import AnswerWriter, truncate_answer, write_answer
from armarium.capabilities.gateway.servers.remote import RagServer, RemoteServer
from armarium.capabilities.gateway.settings import GatewayLimits
from armarium.capabilities.gateway.tokens.capability_tokens import CapabilityTokens
from armarium.capabilities.gateway.tokens.lent_tokens import LentTokens
from armarium.capabilities.gateway.tokens.secret_selector import SecretSelector, require_single_server
from armarium.capabilities.gateway.upstreams.upstream import Upstream
from armarium.foundation.errors import InvalidArgument
from armarium.foundation.schema import Json
from armarium.foundation.tools import Call, NoArgs


class Gateway:
    """The tools over many servers: each public method with arguments is one, and its docstring is what models read."""

    def __init__(
        self,
        upstreams: Callable[[], Iterable[Upstream]],
        built_in: RagServer | None,
        limits: GatewayLimits,
        lent_tokens: LentTokens,
        capability_tokens: CapabilityTokens,
        *,
        rerank_policy: RerankPolicy | None = None,
        writer: AnswerWriter | None = None,
    ) -> None:
        """`upstreams` is called for every request, since the configuration may change."""
        self.top_k_max = limits.top_k_max
        self._upstreams = upstreams
        self._built_in = built_in
        self._limits = limits
        self._lent_tokens = lent_tokens
        self._capability_tokens = capability_tokens
        self._writer = writer
        self._cache = SourceCache(ttl_s=limits.discovery_kept_s)
        self._secret_selector = SecretSelector(lent_tokens, capability_tokens)
        self._lookup = SourceLookup(self._cache, self._secret_selector, discover_s=limits.discover_timeout_s)
        self._search = SourceSearch(self._secret_selector, call_s=limits.call_timeout_s, rerank_policy=rerank_policy)
        self.servers_changed()

    async def discover(self, call: Call, args: DiscoverArgs) -> Json:
        """List the sources you may search, over all servers: documents of this server, and of servers behind it. Call
        it first; the `id` of a resource is what the other two tools take as `sources`. Narrow the list with `filters`
        (types, search) and page through it. `meta_data.errors` names servers that did not respond."""
        started = time.perf_counter()
        filters = args.filters
        discovered = await discover_sources(self._lookup, call, self._servers(), filters, args.secrets())
        first = (filters.page - 1) * filters.page_size
        shown = discovered.resources[first : first + filters.page_size]
        resources = [describe_resource(self._secret_selector, call.principal, *each) for each in shown]
        paging = {"page": filters.page, "page_size": filters.page_size, "total": len(discovered.resources)}
        errors = [SourceError("", name, error) for name, error in discovered.failed.items()]
        call.denials.extend(each.error for each in errors if each.error.security)
        metadata = base_metadata(started, discovered.per_server, errors)
        return contract_answer({"resources": resources, "paging": paging}, metadata)

    async def search(self, call: Call, args: RawArgs) -> Json:
        """Search sources of one or several servers at once. Returns chunks, best first, each with its text, title and
        uri. Use it to read the evidence yourself. Sources that could not be searched are listed in `meta_data.errors`;
        the others still return hits. Scores give the order only, not the quality of a hit."""
        started = time.perf_counter()
        query = self._query(args, args.filters, args.ranking)
        check_filters(query.filters)
        resolution = await self._resolve(call, args.sources, args.servers, args.secrets())
        found = await self._search_sources(call, query, resolution, args.secrets())
        stats = {"total_found": found.total_found, "top_k": query.top_k, "elapsed_ms": milliseconds_since(started)}
        metadata = base_metadata(started, found.per_server, found.errors) | {"reranked": found.reranked}
        return contract_answer({"hits": [hit_as_json(each) for each in found.hits], "stats": stats}, metadata)

    async def synthesize(self, call: Call, args: SynthesisArgs) -> Json:
        """Get an answer with citations from sources of one or several servers. If one server has all the sources and
        can write answers, it writes this one; otherwise the gateway writes it from the chunks found. Pass hits as
        `provided_context` to have the answer written from those. Check important statements with
        rag_get_raw_results."""
        started = time.perf_counter()
        query, given, params = self._query(args), args.secrets(), args.synthesis_params
        resolution = await self._resolve(call, args.sources, args.servers, given)
        more: Json = {}
        provided: list[MergedHit] | None = None
        if (selected := args.provided_context.hits) is not None:
            provided = select_provided_hits(selected, resolution)
            more = {"provided_context": {"used": len(provided), "dropped": len(selected) - len(provided)}}
        if len(resolution.selections) == 1:
            (selection,) = resolution.selections.values()
            # With the server's own ids and only the contract's fields, since others may be for another server.
            passed = None if provided is None else [hit_fields(each.hit) for each in provided]
            asked = replace(query, synthesis_params=params, provided=passed)
            server_answer = await self._answer_of_server(call, asked, resolution, given)
            if server_answer is not None:
                truncated = truncate_answer(server_answer, params.get("max_chars"))
                return server_answer_as_json(started, selection, truncated, resolution.errors, more)
        if provided is not None:
            found = SearchOutcome(provided, resolution.errors, {}, len(provided))
            record_sources(call, resolution, found.errors, {})
        else:
            found = await self._search_sources(call, query, resolution, given)
        answer, writer_metadata = await write_answer(
            self._writer, query.query, found.hits, style=params.get("style"), max_chars=params.get("max_chars")
        )
        metadata = base_metadata(started, found.per_server, found.errors)
        metadata |= {"synthesized_by": "armarium", **writer_metadata}
        return contract_answer(answer.results(), metadata | more)

    async def config(self, call: Call, args: NoArgs) -> Json:
        """Show which servers and sources the caller may use, for a user interface."""
        discovered = await discover_sources(self._lookup, call, self._servers(), DiscoveryFilters(), {})
        shown = [describe_resource(self._secret_selector, call.principal, *each) for each in discovered.resources]
        return overview(call.principal, discovered, shown)

    async def connect(self, call: Call, args: ConnectArgs) -> Json:
        """Store a token for a server, in memory, until it expires or is removed."""
        server = self._servers().get(args.server)
        if server is None or not may_see_server(call.principal, server.spec):
            raise InvalidSource("there is no such server", hint="GET /api/config lists those you may use")
        actual_ttl_s = self._lent_tokens.store(call.principal, args.server, args.kind, args.token, args.ttl_s)
        self._cache.remove(call.principal, args.server)
        return {"server": args.server, "kind": args.kind, "expires_in_s": actual_ttl_s}

    async def disconnect(self, call: Call, args: ServerArgs) -> Json:
        """Remove the stored token for a server."""
        removed = self._lent_tokens.remove(call.principal, args.server)
        self._cache.remove(call.principal, args.server)
        return {"server": args.server, "forgotten": removed}

    async def issue_token(self, call: Call, args: TokenArgs) -> Json:
        """Issue a short-lived capability token for one source that the caller may use."""
        resolution = await self._resolve(call, [args.source], (), {})
        record_sources(call, resolution, resolution.errors, {})
        (selection,) = resolution.selections.values()
        name = selection.server.spec.name
        if selection.server is self._built_in:
            raise InvalidArgument(f"the sources of {name} itself need no token", field="source")
        token, expires_at = self._capability_tokens.issue(
            name, call.principal.username, list(selection.resources), ttl_s=args.ttl_s
        )
        return {"capability_token": token, "expires_at": expires_at, "server": name, "source": args.source}

    def servers_changed(self) -> None:
        """Remove the tokens for servers that were removed or replaced by a reload."""
        self._lent_tokens.update_servers({name: server.spec.transport for name, server in self._servers().items()})

    def _servers(self) -> dict[str, RagServer]:
        """All current servers, visible or not. The built-in server takes precedence over another with its name."""
        servers: dict[str, RagServer] = {
            upstream.spec.name: RemoteServer(upstream, self._limits)
            for upstream in self._upstreams()
            if upstream.spec.kind == "rag" and upstream.spec.enabled
        }
        if self._built_in is not None:
            servers[self._built_in.spec.name] = self._built_in
        return servers

    def _query(self, args: QueryArgs, filters: Json | None = None, ranking: Json | None = None) -> RagQuery:
        check_query(args.query)
        return RagQuery(args.query, args.top_k or min(DEFAULT_TOP_K, self.top_k_max), filters, ranking)

    async def _resolve(self, call: Call, sources: Iterable[str], within: Sequence[str], given: Secrets) -> Resolution:
        servers = self._servers()
        resolution = await resolve_sources(self._lookup, call, servers, sources, given, within=within)
        require_single_server(given, list(resolution.selections))
        if not resolution.selections:
            record_sources(call, resolution, resolution.errors, {})
            raise total_failure(resolution.errors)
        return resolution

    async def _search_sources(
        self, call: Call, query: RagQuery, resolution: Resolution, given: Secrets
    ) -> SearchOutcome:
        found = await self._search.search(call, query, resolution, given)
        record_sources(call, resolution, found.errors, found.per_server)
        failed = {error.source for error in found.errors}
        asked = {each for selection in resolution.selections.values() for each in selection.asked.values()}
        if asked <= failed:
            raise total_failure(found.errors)
        return found

    async def _answer_of_server(
        self, call: Call, query: RagQuery, resolution: Resolution, given: Secrets
    ) -> RagAnswer | None:
        """The answer of the only selected server; None if it writes no answers or fails."""
        (selection,) = resolution.selections.values()
        name = selection.server.spec.name
        result = await self._search.ask_selected(
            call, resolution, given, lambda server, sources, secrets: server.synthesize(call, query, sources, secrets)
        )
        failure, answered = result.failed.get(name), result.answered.get(name)
        took = {name: {"elapsed_ms": result.elapsed_ms[name]}}
        # A search would be denied as well, or would wait for a server that has already timed out.
        if isinstance(failure, (*DENIALS, UpstreamBusy, UpstreamTimeout)):
            failed = [SourceError(asked, name, failure) for asked in selection.asked.values()]
            record_sources(call, resolution, failed, took)
            # The server's error first: it is about the sources that were left to search.
            raise total_failure([*failed, *resolution.errors])
        if answered is not None:
            record_sources(call, resolution, resolution.errors, took)
        return answered
