"""From the ids that a caller writes to the servers that have them: what is unknown or forbidden goes no further."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from armarium.capabilities.gateway.access import may_see_server, may_use_source
from armarium.capabilities.gateway.errors import GatewayError, UpstreamTimeout, UpstreamUnavailable
from armarium.capabilities.gateway.fanout import Job, ask_all
from armarium.capabilities.gateway.keyring import Keyring
from armarium.capabilities.gateway.known import KnownResources
from armarium.capabilities.gateway.model import DiscoveryFilters, RagServer, Resource, Secrets, Wanted
from armarium.capabilities.gateway.refusals import InvalidSource, UnauthorizedSource
from armarium.capabilities.gateway.server_files import BUILT_IN_SERVER
from armarium.foundation.tools import Call

_ECHOED = 80


@dataclass(frozen=True, slots=True)
class SourceError:
    """Why one source is not in the answer."""

    source: str
    """As the caller wrote it."""
    server: str | None
    error: GatewayError


@dataclass(slots=True)
class Chosen:
    """What of one server is asked for."""

    server: RagServer
    resources: dict[str, Resource] = field(default_factory=dict[str, Resource])
    asked: dict[str, str] = field(default_factory=dict[str, str])
    """How the caller wrote each id."""


@dataclass(frozen=True, slots=True)
class Resolution:
    """Which servers to ask for what, and what cannot be asked."""

    chosen: Mapping[str, Chosen]
    errors: Sequence[SourceError]


@dataclass(frozen=True, slots=True)
class _Knowledge:
    """What is known of the caller's servers: their sources, or why they are not known."""

    resources: dict[str, Mapping[str, Resource]] = field(default_factory=dict[str, Mapping[str, Resource]])
    failed: dict[str, GatewayError] = field(default_factory=dict[str, GatewayError])
    asked_now: set[str] = field(default_factory=set[str])
    expected: dict[str, set[str]] = field(default_factory=dict[str, set[str]])
    """Which of the ids asked for belong to a server that does not answer: by its entry, or by what it told before."""


class Resolver:
    """Finds sources for callers. Nothing is asked of a server that its caller may not see."""

    def __init__(self, known: KnownResources, keyring: Keyring, *, discover_s: float) -> None:
        self._known = known
        self._keyring = keyring
        self._discover_s = discover_s

    async def resolve(self, call: Call, servers: Mapping[str, RagServer], asked: Wanted, given: Secrets) -> Resolution:
        """`servers` are all there are. Ids are `<server>:<id>`, or the server's own where only one of the caller's
        servers has it, or of those the caller names; a name of a server before a colon always means that server."""
        visible = {name: server for name, server in servers.items() if may_see_server(call.principal, server.spec)}
        searched = {name: server for name, server in visible.items() if not asked.servers or name in asked.servers}
        named = {each: _split(each, servers) for each in dict.fromkeys(asked.sources)}
        knowledge = _Knowledge()
        wanted = {name for name, _ in named.values() if name in visible}
        if any(name is None for name, _ in named.values()):
            wanted |= set(searched)
        addressee = wanted if given and len(wanted) == 1 else set[str]()
        by_name = {name for name, _ in named.values() if name is not None}
        if len(wanted) > 1:
            knowledge.failed.update(self._lately_silent(call, [visible[name] for name in wanted - by_name]))
        awaited = [visible[name] for name in wanted - knowledge.failed.keys()]
        await self._learn(call, awaited, knowledge, given if addressee else {})
        lacking = _lacking(named, visible, searched, knowledge)
        stale = [visible[name] for name in lacking - knowledge.asked_now - knowledge.failed.keys()]
        stale = [server for server in stale if not self._was_asked_in_vain(call, server)]
        await self._learn(call, stale, knowledge, given if addressee else {}, anew=True)
        lacking = _lacking(named, visible, searched, knowledge)
        for name in knowledge.asked_now & (lacking | knowledge.failed.keys()):
            failure = knowledge.failed.get(name)
            if failure is None or isinstance(failure, UpstreamTimeout | UpstreamUnavailable):
                self._known.asked_in_vain(call.principal, visible[name].spec, failure)
        for name in knowledge.failed:
            spec = visible[name].spec
            hinted = {source.id for source in spec.data_sources}
            asked_ids = {source_id for _, source_id in named.values()}
            had = {each for each in asked_ids if self._known.had(call.principal, spec, each)}
            knowledge.expected[name] = (hinted & asked_ids) | had
        return _resolution(call, named, servers, searched, knowledge)

    async def _learn(
        self, call: Call, servers: Iterable[RagServer], knowledge: _Knowledge, given: Secrets, *, anew: bool = False
    ) -> None:
        jobs: dict[str, Job[Mapping[str, Resource]]] = {}
        for server in servers:
            resources = None if anew else self._known.get(call.principal, server.spec)
            if resources is not None:
                knowledge.resources[server.spec.name] = resources
            else:
                jobs[server.spec.name] = Job(lambda server=server: self._told(call, server, given), self._discover_s)
        answers = await ask_all(jobs)
        knowledge.resources.update(answers.answered)
        knowledge.failed.update(answers.failed)
        knowledge.asked_now.update(jobs)

    async def _told(self, call: Call, server: RagServer, given: Secrets) -> Mapping[str, Resource]:
        secrets = {**self._keyring.lent(call.principal, server.spec.name), **given}
        with self._keyring.in_use(call.principal, server.spec.name, secrets):
            listing = await server.discover(call, DiscoveryFilters(), secrets)
        return self._known.learn(call.principal, server.spec, listing)

    def _lately_silent(self, call: Call, servers: Iterable[RagServer]) -> dict[str, GatewayError]:
        """Those of many servers for which the caller waited in vain a moment ago, and of which nothing is known."""
        return {
            server.spec.name: failure
            for server in servers
            if (failure := self._known.lately_failed(call.principal, server.spec)) is not None
            and self._known.get(call.principal, server.spec) is None
        }

    def _was_asked_in_vain(self, call: Call, server: RagServer) -> bool:
        """Asking our own costs nothing, and a project that was just made is to be found."""
        return server.spec.name != BUILT_IN_SERVER and self._known.was_asked_in_vain(call.principal, server.spec)


def _lacking(
    named: Mapping[str, tuple[str | None, str]],
    visible: Mapping[str, RagServer],
    searched: Mapping[str, RagServer],
    knowledge: _Knowledge,
) -> set[str]:
    """Servers that may have got a source since they last told, because somebody asks for one not known."""
    names: set[str] = set()
    for server, source_id in named.values():
        candidates = searched if server is None else {server} & set(visible)
        if not any(source_id in knowledge.resources.get(name, ()) for name in candidates):
            names |= set(candidates)
    return names


def _split(asked: str, servers: Mapping[str, RagServer]) -> tuple[str | None, str]:
    server, colon, source_id = asked.partition(":")
    return (server, source_id) if colon and source_id and server in servers else (None, asked)


def _resolution(
    call: Call,
    named: Mapping[str, tuple[str | None, str]],
    servers: Mapping[str, RagServer],
    searched: Mapping[str, RagServer],
    knowledge: _Knowledge,
) -> Resolution:
    chosen: dict[str, Chosen] = {}
    errors: list[SourceError] = []
    for asked, (name, source_id) in named.items():
        try:
            server = _bare(call, source_id, searched, knowledge) if name is None else servers[name]
            resource = _allowed(call, server, source_id, knowledge)
        except GatewayError as error:
            errors.append(SourceError(asked, name, error))
            continue
        part = chosen.setdefault(server.spec.name, Chosen(server))
        part.resources[source_id] = resource
        part.asked.setdefault(source_id, asked)
    return Resolution(chosen, errors)


def _bare(call: Call, source_id: str, searched: Mapping[str, RagServer], knowledge: _Knowledge) -> RagServer:
    """The one server among those searched that has a source of this id."""
    if not searched:
        raise InvalidSource(
            f"there is nowhere to look for the source {_quoted(source_id)}",
            hint="`servers` names none that you may use; without it, all of yours are looked at",
        )
    having = [name for name in searched if source_id in knowledge.resources.get(name, ())]
    allowed = [
        name
        for name in having
        if may_use_source(call.principal, searched[name].spec, source_id, knowledge.resources[name][source_id])
    ]
    if len(allowed) > 1:
        options = " or ".join(f"{name}:{source_id}"[:_ECHOED] for name in sorted(allowed))
        raise InvalidSource(f"several servers have the source {_quoted(source_id)}", hint=f"say which: {options}")
    if allowed or having:
        return searched[(allowed or having)[0]]
    for name, expected in knowledge.expected.items():
        if name in searched and source_id in expected:
            return searched[name]
    if failed := knowledge.failed.keys() & searched.keys():
        silent = ", ".join(f"`{name}`" for name in sorted(failed))
        raise InvalidSource(
            f"no server that answers has the source {_quoted(source_id)}", hint=f"not answering at present: {silent}"
        )
    raise _unknown(source_id)


def _allowed(call: Call, server: RagServer, source_id: str, knowledge: _Knowledge) -> Resource:
    resource = knowledge.resources.get(server.spec.name, {}).get(source_id)
    if not may_use_source(call.principal, server.spec, source_id, resource):
        raise UnauthorizedSource(
            f"you may not use the source {_quoted(source_id)}",
            hint="rag_discover_resources lists those you may",
            # What the audit trail shows as the place that was denied.
            root=server.spec.name,
            path=source_id,
        )
    if server.spec.name in knowledge.failed:
        raise knowledge.failed[server.spec.name]
    if resource is None:
        raise _unknown(source_id)
    return resource


def _unknown(source_id: str) -> InvalidSource:
    return InvalidSource(
        f"there is no source {_quoted(source_id)}", hint="rag_discover_resources lists those there are"
    )


def _quoted(text: str) -> str:
    return repr(text if len(text) <= _ECHOED else text[:_ECHOED] + "…")
