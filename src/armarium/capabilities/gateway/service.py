"""The gateway's service: discover, search and answer over all servers that the caller may see."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from armarium.capabilities.gateway.access import may_see_server
from armarium.capabilities.gateway.contract import DEFAULT_PAGE_SIZE, DEFAULT_TOP_K, contract_answer
from armarium.capabilities.gateway.errors import DENIALS, InvalidSource, UpstreamBusy, UpstreamTimeout
from armarium.capabilities.gateway.filters import check_filters
from armarium.capabilities.gateway.model import (
    ConfiguredServer,
    DiscoveryFilters,
    RagQuery,
    RagServer,
    Secrets,
    ServerAnswer,
    SourceSelection,
    SynthesisOptions,
)
from armarium.capabilities.gateway.query.discovery import Discovery
from armarium.capabilities.gateway.query.fan_out import Job, ask_all
from armarium.capabilities.gateway.query.outcome import (
    base_metadata,
    milliseconds_since,
    record_denials,
    record_sources,
    server_answer_as_json,
    total_failure,
)
from armarium.capabilities.gateway.query.overview import overview
from armarium.capabilities.gateway.query.provided_hits import select_provided_hits
from armarium.capabilities.gateway.query.search import RerankPolicy, SearchOutcome, SourceSearch, hit_as_json
from armarium.capabilities.gateway.query.source_cache import SourceCache
from armarium.capabilities.gateway.query.source_lookup import SourceLookup
from armarium.capabilities.gateway.query.source_resolution import Resolution, SourceError, SourceResolver
from armarium.capabilities.gateway.query.synthesis import (
    TOO_LONG,
    AnswerWriter,
    truncate_answer,
    write_answer,
    writer_metadata,
)
from armarium.capabilities.gateway.servers.remote import Deadlines, RemoteServer
from armarium.capabilities.gateway.tokens.capability_tokens import CapabilityTokens
from armarium.capabilities.gateway.tokens.lent_tokens import LentTokens
from armarium.capabilities.gateway.tokens.secret_selector import SecretSelector, require_single_server
from armarium.foundation.errors import InvalidArgument
from armarium.foundation.schema import Json
from armarium.foundation.tools import Call

ConfiguredServers = Callable[[], Mapping[str, ConfiguredServer]]
"""Returns the current servers by name. It is called for every request, since the configuration may change."""


@dataclass(frozen=True, slots=True)
class GatewayPolicy:
    """Deadlines, cache time and limits."""

    deadlines: Deadlines = field(default_factory=Deadlines)
    discovery_kept_s: float = 60.0
    top_k_max: int = 100


class Gateway:
    """The three tools over many servers. The first argument of every method identifies the caller."""

    def __init__(
        self,
        configured: ConfiguredServers,
        built_in: RagServer | None,
        policy: GatewayPolicy,
        lent_tokens: LentTokens,
        capability_tokens: CapabilityTokens,
        *,
        rerank_policy: RerankPolicy | None = None,
        writer: AnswerWriter | None = None,
    ) -> None:
        self.top_k_max = policy.top_k_max
        self.default_top_k = min(DEFAULT_TOP_K, policy.top_k_max)
        self._configured = configured
        self._built_in = built_in
        self._deadlines = policy.deadlines
        self._lent_tokens = lent_tokens
        self._capability_tokens = capability_tokens
        self._writer = writer
        self._cache = SourceCache(ttl_s=policy.discovery_kept_s)
        self._secret_selector = SecretSelector(lent_tokens, capability_tokens)
        discover_s = policy.deadlines.discover_s
        self._discovery = Discovery(self._cache, self._secret_selector, discover_s=discover_s)
        self._resolver = SourceResolver(SourceLookup(self._cache, self._secret_selector, discover_s=discover_s))
        self._search = SourceSearch(self._secret_selector, call_s=policy.deadlines.call_s, rerank_policy=rerank_policy)
        self.servers_changed()

    async def discover(
        self,
        call: Call,
        filters: DiscoveryFilters,
        given: Secrets,
        *,
        page: int = 1,
        page_size: int = DEFAULT_PAGE_SIZE,
    ) -> Json:
        """One page of the sources that the caller may search."""
        started = time.perf_counter()
        discovered = await self._discovery.discover(call, self._servers(), filters, given)
        first = (page - 1) * page_size
        shown = discovered.resources[first : first + page_size]
        errors = [SourceError("", name, error) for name, error in discovered.failed.items()]
        record_denials(call, errors)
        return contract_answer(
            {
                "resources": [self._discovery.describe(call, spec, resource) for spec, resource in shown],
                "paging": {"page": page, "page_size": page_size, "total": len(discovered.resources)},
            },
            base_metadata(started, discovered.per_server, errors),
        )

    async def search(self, call: Call, query: RagQuery, wanted: SourceSelection, given: Secrets) -> Json:
        """The best hits in the selected sources, and the sources that could not be searched."""
        started = time.perf_counter()
        _check_query(query)
        check_filters(query.filters)
        resolution = await self._resolve(call, wanted, given)
        found = await self._search_sources(call, query, resolution, given)
        stats = {"total_found": found.total_found, "top_k": query.top_k, "elapsed_ms": milliseconds_since(started)}
        metadata = base_metadata(started, found.per_server, found.errors) | {"reranked": found.reranked}
        return contract_answer({"hits": [hit_as_json(each) for each in found.hits], "stats": stats}, metadata)

    async def synthesize(
        self, call: Call, query: RagQuery, wanted: SourceSelection, options: SynthesisOptions, given: Secrets
    ) -> Json:
        """An answer. If one server has all the sources and can write answers, it writes this one."""
        started = time.perf_counter()
        _check_query(query)
        resolution = await self._resolve(call, wanted, given)
        provided = None if options.provided is None else select_provided_hits(options.provided, resolution)
        more: Json = {} if provided is None else {"provided_context": provided.summary()}
        style, max_chars = options.params.get("style"), options.params.get("max_chars")
        if len(resolution.selections) == 1:
            (selection,) = resolution.selections.values()
            passed = SynthesisOptions(options.params, None if provided is None else provided.for_server())
            server_answer = await self._answer_of_server(call, query, resolution, passed, given)
            if server_answer is not None:
                truncated = truncate_answer(server_answer, max_chars)
                return server_answer_as_json(started, selection, truncated, resolution.errors, more)
        if provided is not None:
            hits, errors = provided.hits, resolution.errors
            per_server: Mapping[str, Json] = {}
            record_sources(call, resolution, errors, per_server)
        else:
            found = await self._search_sources(call, query, resolution, given)
            hits, per_server, errors = found.hits, found.per_server, found.errors
        answer = await write_answer(self._writer, query.query, hits, style=style, max_chars=max_chars)
        results: Json = {"answer": answer.text, "citations": list(answer.citations)}
        if answer.truncated:
            results["limits"] = dict(TOO_LONG)
        metadata = base_metadata(started, per_server, errors)
        metadata |= {"synthesized_by": "armarium", **writer_metadata(answer)}
        return contract_answer(results, metadata | more)

    async def config(self, call: Call) -> Json:
        """The caller's servers and sources, for a user interface."""
        discovered = await self._discovery.discover(call, self._servers(), DiscoveryFilters(), {})
        shown = [(spec, self._discovery.describe(call, spec, each)) for spec, each in discovered.resources]
        return overview(call.principal, discovered, shown)

    async def connect(self, call: Call, server: str, kind: str, token: str, ttl_s: float | None) -> Json:
        """Store the caller's token for one server, in memory, until it expires."""
        self._require_visible(call, server)
        actual_ttl_s = self._lent_tokens.store(call.principal, server, kind, token, ttl_s)
        self._cache.remove(call.principal, server)
        return {"server": server, "kind": kind, "expires_in_s": actual_ttl_s}

    async def disconnect(self, call: Call, server: str) -> Json:
        """Remove the caller's token."""
        removed = self._lent_tokens.remove(call.principal, server)
        self._cache.remove(call.principal, server)
        return {"server": server, "forgotten": removed}

    async def issue_token(self, call: Call, source: str, ttl_s: int | None) -> Json:
        """A capability token for one source that the caller may use."""
        resolution = await self._resolve(call, SourceSelection([source]), {})
        record_sources(call, resolution, resolution.errors, {})
        (selection,) = resolution.selections.values()
        name = selection.server.spec.name
        if selection.server is self._built_in:
            raise InvalidArgument(f"the sources of {name} itself need no token", field="source")
        token, expires_at = self._capability_tokens.issue(
            name, call.principal.username, list(selection.resources), ttl_s=ttl_s
        )
        return {"capability_token": token, "expires_at": expires_at, "server": name, "source": source}

    def servers_changed(self) -> None:
        """Remove the tokens for servers that were removed or replaced by a reload."""
        self._lent_tokens.update_servers({name: server.spec.transport for name, server in self._servers().items()})

    def _servers(self) -> dict[str, RagServer]:
        """All current servers, visible or not. The built-in server takes precedence over another with its name."""
        servers: dict[str, RagServer] = {
            name: RemoteServer(server, self._deadlines)
            for name, server in self._configured().items()
            if server.spec.kind == "rag" and server.spec.enabled
        }
        if self._built_in is not None:
            servers[self._built_in.spec.name] = self._built_in
        return servers

    def _require_visible(self, call: Call, name: str) -> None:
        server = self._servers().get(name)
        if server is None or not may_see_server(call.principal, server.spec):
            raise InvalidSource("there is no such server", hint="GET /api/config lists those you may use")

    async def _resolve(self, call: Call, wanted: SourceSelection, given: Secrets) -> Resolution:
        resolution = await self._resolver.resolve(call, self._servers(), wanted, given)
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
        self, call: Call, query: RagQuery, resolution: Resolution, options: SynthesisOptions, given: Secrets
    ) -> ServerAnswer | None:
        """The answer of the only selected server; None if it writes no answers or fails."""
        (selection,) = resolution.selections.values()
        server, name = selection.server, selection.server.spec.name
        secrets = self._secret_selector.for_sources(call.principal, name, selection.resources.values(), given)

        async def ask() -> ServerAnswer | None:
            if not await server.can_synthesize():
                return None
            with self._secret_selector.in_use(call.principal, name, secrets):
                return await server.synthesize(call, query, list(selection.resources), options, secrets)

        within_s = server.spec.timeouts.call_s or self._deadlines.call_s
        result = await ask_all({name: Job(ask, within_s)})
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


def _check_query(query: RagQuery) -> None:
    if not query.query.strip():
        raise InvalidArgument("`query` is empty", field="query")
