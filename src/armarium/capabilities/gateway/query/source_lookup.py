"""Finds out which sources the caller's servers have, from the cache or by asking them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from armarium.capabilities.gateway.arguments import DiscoveryFilters
from armarium.capabilities.gateway.config.files import BUILT_IN_SERVER, ServerSpec
from armarium.capabilities.gateway.errors import GatewayError, UpstreamTimeout, UpstreamUnavailable
from armarium.capabilities.gateway.model import Resource, ResourceList, Secrets
from armarium.capabilities.gateway.query.fan_out import FanOutResult, ask_all
from armarium.capabilities.gateway.query.source_cache import SourceCache
from armarium.capabilities.gateway.servers.remote import RagServer
from armarium.capabilities.gateway.tokens.secret_selector import CacheOwner, SecretSelector
from armarium.foundation.tools import Call


@dataclass(frozen=True, slots=True)
class LookupRequest:
    """The sources of a call, and the servers that may have them."""

    named: Mapping[str, tuple[str | None, str]]
    """By the id that the caller wrote: the server, if it names one, and the server's own id."""
    visible: Mapping[str, RagServer]
    """Every server that the caller may see."""
    searched: Mapping[str, RagServer]
    """The servers in which ids without a server are looked up."""

    @property
    def named_servers(self) -> set[str]:
        return {name for name, _ in self.named.values() if name is not None and name in self.visible}

    @property
    def servers(self) -> set[str]:
        """All servers whose sources must be known."""
        has_bare_ids = any(name is None for name, _ in self.named.values())
        return self.named_servers | (set(self.searched) if has_bare_ids else set())

    def incomplete(self, resources: Mapping[str, Mapping[str, Resource]]) -> set[str]:
        """Servers that may have one of the sources although it is not among these: it may be new."""
        names: set[str] = set()
        for server, source_id in self.named.values():
            candidates = set(self.searched) if server is None else {server} & set(self.visible)
            if not any(source_id in resources.get(name, ()) for name in candidates):
                names |= candidates
        return names


@dataclass(frozen=True, slots=True)
class KnownSources:
    """The sources of each server, or why they are not known."""

    resources: dict[str, Mapping[str, Resource]] = field(default_factory=dict[str, Mapping[str, Resource]])
    failed: dict[str, GatewayError] = field(default_factory=dict[str, GatewayError])
    asked: set[str] = field(default_factory=set[str])
    """Servers that were asked during this lookup."""
    expected: dict[str, set[str]] = field(default_factory=dict[str, set[str]])
    """By failed server: the requested ids that belong to it, by its entry or by an earlier listing."""


class SourceLookup:
    """Asks as few servers as possible, and does not repeat a failed lookup for some seconds."""

    def __init__(self, cache: SourceCache, secret_selector: SecretSelector, *, discover_s: float) -> None:
        self._cache = cache
        self._secret_selector = secret_selector
        self._discover_s = discover_s

    async def look_up(self, call: Call, request: LookupRequest, given: Secrets) -> KnownSources:
        """The sources for this call. Its secrets are used only if it concerns one server."""
        known = KnownSources()
        secrets: Secrets = given if len(request.servers) == 1 else {}
        if len(request.servers) > 1:
            known.failed.update(self._recently_failed(call, request))
        unlisted: list[RagServer] = []
        for name in request.servers - known.failed.keys():
            server = request.visible[name]
            if (cached := self._cache.get(self._owner(call, server.spec), server.spec)) is not None:
                known.resources[name] = cached
            else:
                unlisted.append(server)
        await self._ask(call, unlisted, known, secrets)
        left = request.incomplete(known.resources) - known.asked - known.failed.keys()
        again = [(server, server.spec) for server in map(request.visible.__getitem__, left)]
        # The built-in server is always asked again: that is cheap, and a new project must be found at once.
        outdated = [
            server
            for server, spec in again
            if spec.name == BUILT_IN_SERVER or not self._cache.has_recent_miss(self._owner(call, spec), spec)
        ]
        await self._ask(call, outdated, known, secrets)
        self._record_misses(call, request, known)
        for name in known.failed:
            known.expected[name] = self._expected_sources(call, request, name)
        return known

    async def fetch_all(
        self, call: Call, servers: Sequence[RagServer], filters: DiscoveryFilters, given: Secrets
    ) -> FanOutResult[ResourceList]:
        """The sources that servers list for the caller. Complete listings are cached."""

        async def fetch(server: RagServer) -> ResourceList:
            with self._secret_selector.use(call, server.spec.name, given) as secrets:
                listing = await server.discover(call, filters, secrets)
            if not (filters.types or filters.tags or filters.search):
                self._cache.store(self._owner(call, server.spec), server.spec, listing)
            return listing

        return await ask_all(servers, fetch, lambda server: self._discover_s)

    def _owner(self, call: Call, spec: ServerSpec) -> CacheOwner:
        return self._secret_selector.cache_owner(call, spec.name)

    def _recently_failed(self, call: Call, request: LookupRequest) -> dict[str, GatewayError]:
        """Servers that the caller did not name, that recently did not respond, and that have no cached listing."""
        failed: dict[str, GatewayError] = {}
        for name in request.servers - request.named_servers:
            spec = request.visible[name].spec
            failure = self._cache.recent_failure(self._owner(call, spec), spec)
            if failure is not None and self._cache.get(self._owner(call, spec), spec) is None:
                failed[name] = failure
        return failed

    async def _ask(self, call: Call, servers: Sequence[RagServer], known: KnownSources, secrets: Secrets) -> None:
        result = await self.fetch_all(call, servers, DiscoveryFilters(), secrets)
        known.resources.update({name: listing.by_id for name, listing in result.answered.items()})
        known.failed.update(result.failed)
        known.asked.update(server.spec.name for server in servers)

    def _record_misses(self, call: Call, request: LookupRequest, known: KnownSources) -> None:
        for name in known.asked & (request.incomplete(known.resources) | known.failed.keys()):
            failure = known.failed.get(name)
            if failure is None or isinstance(failure, UpstreamTimeout | UpstreamUnavailable):
                spec = request.visible[name].spec
                self._cache.record_miss(self._owner(call, spec), spec, failure)

    def _expected_sources(self, call: Call, request: LookupRequest, name: str) -> set[str]:
        spec = request.visible[name].spec
        source_ids = {source_id for _, source_id in request.named.values()}
        hinted = {source.id for source in spec.data_sources}
        return {each for each in source_ids if each in hinted or self._cache.had(self._owner(call, spec), spec, each)}
