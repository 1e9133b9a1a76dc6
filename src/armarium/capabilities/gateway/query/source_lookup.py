"""Finds out which sources the caller's servers have: from what they lately told, else by asking them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from armarium.capabilities.gateway.config.files import BUILT_IN_SERVER
from armarium.capabilities.gateway.errors import GatewayError, UpstreamTimeout, UpstreamUnavailable
from armarium.capabilities.gateway.model import DiscoveryFilters, RagServer, Resource, Secrets
from armarium.capabilities.gateway.query.fan_out import Job, ask_all
from armarium.capabilities.gateway.query.source_cache import KnownResources
from armarium.capabilities.gateway.tokens.keyring import Keyring
from armarium.foundation.tools import Call


@dataclass(frozen=True, slots=True)
class Asked:
    """The sources of a call and the servers that come into question for them."""

    named: Mapping[str, tuple[str | None, str]]
    """By what the caller wrote: the server, if it is named, and the id there."""
    visible: Mapping[str, RagServer]
    """Every server that the caller may see."""
    searched: Mapping[str, RagServer]
    """Those of them in which ids without a server are looked for."""

    @property
    def source_ids(self) -> set[str]:
        """The ids, whichever server they are of."""
        return {source_id for _, source_id in self.named.values()}

    @property
    def servers_named(self) -> set[str]:
        """Servers that have to be asked, for the caller says so."""
        return {name for name, _ in self.named.values() if name is not None and name in self.visible}

    @property
    def servers(self) -> set[str]:
        """All whose sources have to be known."""
        has_bare_ids = any(name is None for name, _ in self.named.values())
        return self.servers_named | (set(self.searched) if has_bare_ids else set())

    def lacking(self, resources: Mapping[str, Mapping[str, Resource]]) -> set[str]:
        """Servers that may have got a source since they told of these, because somebody asks for one not among them."""
        names: set[str] = set()
        for server, source_id in self.named.values():
            candidates = set(self.searched) if server is None else {server} & set(self.visible)
            if not any(source_id in resources.get(name, ()) for name in candidates):
                names |= candidates
        return names


@dataclass(frozen=True, slots=True)
class Knowledge:
    """What is known of the caller's servers: their sources, or why they are not known."""

    resources: dict[str, Mapping[str, Resource]] = field(default_factory=dict[str, Mapping[str, Resource]])
    failed: dict[str, GatewayError] = field(default_factory=dict[str, GatewayError])
    asked_now: set[str] = field(default_factory=set[str])
    expected: dict[str, set[str]] = field(default_factory=dict[str, set[str]])
    """Which of the ids asked for belong to a server that does not answer: by its entry, or by what it told before."""


class Learner:
    """Asks as few servers as it can, and none twice within a moment."""

    def __init__(self, known: KnownResources, keyring: Keyring, *, discover_s: float) -> None:
        self._known = known
        self._keyring = keyring
        self._discover_s = discover_s

    async def learn(self, call: Call, asked: Asked, given: Secrets) -> Knowledge:
        """What there is to know for this call. Secrets that it brings are for the one server it is about."""
        knowledge = Knowledge()
        secrets: Secrets = given if len(asked.servers) == 1 else {}
        if len(asked.servers) > 1:
            knowledge.failed.update(self._lately_silent(call, asked))
        first = asked.servers - knowledge.failed.keys()
        await self._ask(call, [asked.visible[name] for name in first], knowledge, secrets)
        again = asked.lacking(knowledge.resources) - knowledge.asked_now - knowledge.failed.keys()
        may_have_more = [server for name in again if not self._was_asked_in_vain(call, server := asked.visible[name])]
        await self._ask(call, may_have_more, knowledge, secrets, anew=True)
        self._remember_who_was_asked_in_vain(call, asked, knowledge)
        for name in knowledge.failed:
            knowledge.expected[name] = self._expected_of(call, asked.visible[name], asked.source_ids)
        return knowledge

    def _lately_silent(self, call: Call, asked: Asked) -> dict[str, GatewayError]:
        """Those of many servers for which the caller waited in vain a moment ago, and of which nothing is known."""
        silent: dict[str, GatewayError] = {}
        for name in asked.servers - asked.servers_named:
            spec = asked.visible[name].spec
            failure = self._known.lately_failed(call.principal, spec)
            if failure is not None and self._known.get(call.principal, spec) is None:
                silent[name] = failure
        return silent

    async def _ask(
        self, call: Call, servers: Iterable[RagServer], knowledge: Knowledge, secrets: Secrets, *, anew: bool = False
    ) -> None:
        jobs: dict[str, Job[Mapping[str, Resource]]] = {}
        for server in servers:
            resources = None if anew else self._known.get(call.principal, server.spec)
            if resources is not None:
                knowledge.resources[server.spec.name] = resources
            else:
                jobs[server.spec.name] = Job(lambda server=server: self._told(call, server, secrets), self._discover_s)
        answers = await ask_all(jobs)
        knowledge.resources.update(answers.answered)
        knowledge.failed.update(answers.failed)
        knowledge.asked_now.update(jobs)

    async def _told(self, call: Call, server: RagServer, given: Secrets) -> Mapping[str, Resource]:
        secrets = {**self._keyring.lent(call.principal, server.spec.name), **given}
        with self._keyring.in_use(call.principal, server.spec.name, secrets):
            listing = await server.discover(call, DiscoveryFilters(), secrets)
        return self._known.learn(call.principal, server.spec, listing)

    def _was_asked_in_vain(self, call: Call, server: RagServer) -> bool:
        """Asking our own costs nothing, and a project that was just made is to be found."""
        return server.spec.name != BUILT_IN_SERVER and self._known.was_asked_in_vain(call.principal, server.spec)

    def _remember_who_was_asked_in_vain(self, call: Call, asked: Asked, knowledge: Knowledge) -> None:
        for name in knowledge.asked_now & (asked.lacking(knowledge.resources) | knowledge.failed.keys()):
            failure = knowledge.failed.get(name)
            if failure is None or isinstance(failure, UpstreamTimeout | UpstreamUnavailable):
                self._known.asked_in_vain(call.principal, asked.visible[name].spec, failure)

    def _expected_of(self, call: Call, server: RagServer, source_ids: set[str]) -> set[str]:
        hinted = {source.id for source in server.spec.data_sources}
        return {each for each in source_ids if each in hinted or self._known.had(call.principal, server.spec, each)}
