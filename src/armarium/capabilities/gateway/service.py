"""The gateway as its tools see it: discover, search and answer over all servers that the caller may see."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from armarium.capabilities.gateway.access import may_see_server
from armarium.capabilities.gateway.contract import DEFAULT_PAGE_SIZE, answer
from armarium.capabilities.gateway.errors import UpstreamBusy, UpstreamTimeout
from armarium.capabilities.gateway.filters import check_filters
from armarium.capabilities.gateway.model import (
    DiscoveryFilters,
    Member,
    Question,
    RagServer,
    Secrets,
    ServerAnswer,
    Synthesis,
    Wanted,
)
from armarium.capabilities.gateway.query.discovery import Discovery
from armarium.capabilities.gateway.query.fan_out import Job, ask_all
from armarium.capabilities.gateway.query.outcome import (
    answer_of_server,
    meta_of,
    ms_since,
    nothing_left,
    record_denials,
    record_sources,
)
from armarium.capabilities.gateway.query.overview import overview
from armarium.capabilities.gateway.query.provided_hits import allowed_among
from armarium.capabilities.gateway.query.search import Found, Searching, SecondLook, hit_as_json
from armarium.capabilities.gateway.query.source_cache import KnownResources
from armarium.capabilities.gateway.query.source_lookup import Learner
from armarium.capabilities.gateway.query.source_resolution import Resolution, Resolver, SourceError
from armarium.capabilities.gateway.query.synthesis import TOO_LONG, Writer, told_of_writing, within, written
from armarium.capabilities.gateway.refusals import DENIALS, InvalidSource
from armarium.capabilities.gateway.servers.remote import Deadlines, RemoteServer
from armarium.capabilities.gateway.tokens.capability_tokens import CapabilityTokens
from armarium.capabilities.gateway.tokens.keyring import Keyring, check_addressee
from armarium.capabilities.gateway.tokens.lent_tokens import Connections
from armarium.foundation.errors import InvalidArgument
from armarium.foundation.schema import Json
from armarium.foundation.tools import Call

Current = Callable[[], Mapping[str, Member]]
"""The servers of the registry as they are now, by name. Asked anew for every call, so that they can change."""


@dataclass(frozen=True, slots=True)
class Rules:
    """How long things may take and are kept."""

    deadlines: Deadlines = field(default_factory=Deadlines)
    discovery_kept_s: float = 60.0


class Gateway:
    """The three tools over many servers. Every method begins with who calls."""

    def __init__(
        self,
        current: Current,
        own: RagServer | None,
        rules: Rules,
        connections: Connections,
        tokens: CapabilityTokens,
        *,
        second_look: SecondLook | None = None,
        writer: Writer | None = None,
    ) -> None:
        self._current = current
        self._own = own
        self._deadlines = rules.deadlines
        self._connections = connections
        self._tokens = tokens
        self._writer = writer
        self._known = KnownResources(kept_s=rules.discovery_kept_s)
        self._keyring = Keyring(connections, tokens)
        discover_s = rules.deadlines.discover_s
        self._discovery = Discovery(self._known, self._keyring, discover_s=discover_s)
        self._resolver = Resolver(Learner(self._known, self._keyring, discover_s=discover_s))
        self._searching = Searching(self._keyring, call_s=rules.deadlines.call_s, second_look=second_look)
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
        return answer(
            {
                "resources": [self._discovery.described(call, spec, resource) for spec, resource in shown],
                "paging": {"page": page, "page_size": page_size, "total": len(discovered.resources)},
            },
            meta_of(started, discovered.per_server, errors),
        )

    async def search(self, call: Call, question: Question, wanted: Wanted, given: Secrets) -> Json:
        """The best hits in the sources named, and which of them could not be searched."""
        started = time.perf_counter()
        _check_query(question)
        check_filters(question.filters)
        resolution = await self._resolved(call, wanted, given)
        found = await self._searched(call, question, resolution, given)
        stats = {"total_found": found.total_found, "top_k": question.top_k, "elapsed_ms": ms_since(started)}
        meta = meta_of(started, found.per_server, found.errors)
        return answer(
            {"hits": [hit_as_json(each) for each in found.hits], "stats": stats}, meta | {"reranked": found.reranked}
        )

    async def synthesize(
        self, call: Call, question: Question, wanted: Wanted, synthesis: Synthesis, given: Secrets
    ) -> Json:
        """An answer: the server's own where one server has all the sources and writes answers, else ours."""
        started = time.perf_counter()
        _check_query(question)
        resolution = await self._resolved(call, wanted, given)
        provided = None if synthesis.provided is None else allowed_among(synthesis.provided, resolution)
        more: Json = {} if provided is None else {"provided_context": provided.told()}
        style, max_chars = synthesis.params.get("style"), synthesis.params.get("max_chars")
        if len(resolution.chosen) == 1:
            chosen = next(iter(resolution.chosen.values()))
            passed = Synthesis(synthesis.params, None if provided is None else provided.for_server())
            own_answer = await self._by_server(call, question, resolution, passed, given)
            if own_answer is not None:
                return answer_of_server(started, chosen, within(own_answer, max_chars), resolution.errors, more)
        if provided is not None:
            hits, errors = provided.hits, resolution.errors
            per_server: Mapping[str, Json] = {}
            record_sources(call, resolution, errors, per_server)
        else:
            found = await self._searched(call, question, resolution, given)
            hits, per_server, errors = found.hits, found.per_server, found.errors
        ours = await written(self._writer, question.query, hits, style=style, max_chars=max_chars)
        results: Json = {"answer": ours.text, "citations": list(ours.citations)}
        if ours.truncated:
            results["limits"] = dict(TOO_LONG)
        meta = meta_of(started, per_server, errors) | {"synthesized_by": "armarium", **told_of_writing(ours)}
        return answer(results, meta | more)

    async def config(self, call: Call) -> Json:
        """What a user interface shows: the caller's servers with their sources, and the sources alone."""
        discovered = await self._discovery.discover(call, self._servers(), DiscoveryFilters(), {})
        shown = [(spec, self._discovery.described(call, spec, each)) for spec, each in discovered.resources]
        return overview(call.principal, discovered, shown)

    async def connect(self, call: Call, server: str, kind: str, token: str, ttl_s: float | None) -> Json:
        """Keep a token of the caller's for one server, in memory, for a while."""
        self._visible(call, server)
        kept_s = self._connections.keep(call.principal, server, kind, token, ttl_s)
        self._known.forget(call.principal, server)
        return {"server": server, "kind": kind, "expires_in_s": kept_s}

    async def disconnect(self, call: Call, server: str) -> Json:
        """Let go of it."""
        forgotten = self._connections.forget(call.principal, server)
        self._known.forget(call.principal, server)
        return {"server": server, "forgotten": forgotten}

    async def issue_token(self, call: Call, source: str, ttl_s: int | None) -> Json:
        """A capability token for one source that the caller may use."""
        resolution = await self._resolved(call, Wanted([source]), {})
        record_sources(call, resolution, resolution.errors, {})
        (chosen,) = resolution.chosen.values()
        name = chosen.server.spec.name
        if chosen.server is self._own:
            raise InvalidArgument(f"{name}'s own sources are searched without a token", field="source")
        token, expires_at = self._tokens.issue(name, call.principal.username, list(chosen.resources), ttl_s=ttl_s)
        return {"capability_token": token, "expires_at": expires_at, "server": name, "source": source}

    def servers_changed(self) -> None:
        """Hear that the registry was read anew: what was lent for a server is not for another of its name."""
        self._connections.follow({name: server.spec.transport for name, server in self._servers().items()})

    def _servers(self) -> dict[str, RagServer]:
        """Every server there is now, whoever may see it; ours goes before one that takes its name."""
        servers: dict[str, RagServer] = {
            name: RemoteServer(member, self._deadlines)
            for name, member in self._current().items()
            if member.spec.kind == "rag" and member.spec.enabled
        }
        if self._own is not None:
            servers[self._own.spec.name] = self._own
        return servers

    def _visible(self, call: Call, name: str) -> RagServer:
        server = self._servers().get(name)
        if server is None or not may_see_server(call.principal, server.spec):
            raise InvalidSource("there is no such server", hint="GET /api/config lists those you may use")
        return server

    async def _resolved(self, call: Call, wanted: Wanted, given: Secrets) -> Resolution:
        resolution = await self._resolver.resolve(call, self._servers(), wanted, given)
        check_addressee(given, list(resolution.chosen))
        if not resolution.chosen:
            record_sources(call, resolution, resolution.errors, {})
            raise nothing_left(resolution.errors)
        return resolution

    async def _searched(self, call: Call, question: Question, resolution: Resolution, given: Secrets) -> Found:
        found = await self._searching.search(call, question, resolution, given)
        record_sources(call, resolution, found.errors, found.per_server)
        refused = {error.source for error in found.errors}
        asked = {each for chosen in resolution.chosen.values() for each in chosen.asked.values()}
        if asked <= refused:
            raise nothing_left(found.errors)
        return found

    async def _by_server(
        self, call: Call, question: Question, resolution: Resolution, synthesis: Synthesis, given: Secrets
    ) -> ServerAnswer | None:
        """The own answer of the one server chosen; None when it writes none, or cannot now."""
        (chosen,) = resolution.chosen.values()
        server, name = chosen.server, chosen.server.spec.name
        secrets = self._keyring.for_sources(call.principal, name, chosen.resources.values(), given)

        async def ask() -> ServerAnswer | None:
            if not await server.can_synthesize():
                return None
            with self._keyring.in_use(call.principal, name, secrets):
                return await server.synthesize(call, question, list(chosen.resources), synthesis, secrets)

        within_s = server.spec.timeouts.call_s or self._deadlines.call_s
        answers = await ask_all({name: Job(ask, within_s)})
        failure, answered = answers.failed.get(name), answers.answered.get(name)
        took = {name: {"elapsed_ms": answers.elapsed_ms[name]}}
        # A search would be denied as well, or wait for a server that has had its time.
        if isinstance(failure, (*DENIALS, UpstreamBusy, UpstreamTimeout)):
            failed = [SourceError(asked, name, failure) for asked in chosen.asked.values()]
            record_sources(call, resolution, failed, took)
            # First what the server said: it had the last word about what was left to ask.
            raise nothing_left([*failed, *resolution.errors])
        if answered is not None:
            record_sources(call, resolution, resolution.errors, took)
        return answered


def _check_query(question: Question) -> None:
    if not question.query.strip():
        raise InvalidArgument("`query` has no words in it", field="query")
