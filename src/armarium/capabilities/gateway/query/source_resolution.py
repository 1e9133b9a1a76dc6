"""From the ids that a caller writes to the servers that have them: what is unknown or forbidden goes no further."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from armarium.capabilities.gateway.access import may_see_server, may_use_source
from armarium.capabilities.gateway.errors import GatewayError
from armarium.capabilities.gateway.model import RagServer, Resource, Secrets, Wanted
from armarium.capabilities.gateway.query.source_lookup import Asked, Knowledge, Learner
from armarium.capabilities.gateway.refusals import InvalidSource, UnauthorizedSource
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


class Resolver:
    """Finds sources for callers. Nothing is asked of a server that its caller may not see."""

    def __init__(self, learner: Learner) -> None:
        self._learner = learner

    async def resolve(self, call: Call, servers: Mapping[str, RagServer], wanted: Wanted, given: Secrets) -> Resolution:
        """`servers` are all there are. Ids are `<server>:<id>`, or the server's own where only one of the caller's
        servers has it, or of those the caller names; a name of a server before a colon always means that server."""
        named = {each: _split(each, servers) for each in dict.fromkeys(wanted.sources)}
        visible = {name: server for name, server in servers.items() if may_see_server(call.principal, server.spec)}
        searched = {name: server for name, server in visible.items() if not wanted.servers or name in wanted.servers}
        knowledge = await self._learner.learn(call, Asked(named, visible, searched), given)
        return _resolution(call, named, servers, searched, knowledge)


def _split(asked: str, servers: Mapping[str, RagServer]) -> tuple[str | None, str]:
    server, colon, source_id = asked.partition(":")
    return (server, source_id) if colon and source_id and server in servers else (None, asked)


def _resolution(
    call: Call,
    named: Mapping[str, tuple[str | None, str]],
    servers: Mapping[str, RagServer],
    searched: Mapping[str, RagServer],
    knowledge: Knowledge,
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


def _bare(call: Call, source_id: str, searched: Mapping[str, RagServer], knowledge: Knowledge) -> RagServer:
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


def _allowed(call: Call, server: RagServer, source_id: str, knowledge: Knowledge) -> Resource:
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
