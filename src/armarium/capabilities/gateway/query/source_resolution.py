"""Resolves the source ids of a call to servers; unknown and forbidden sources become errors."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from armarium.capabilities.gateway.access import may_see_server, may_use_source
from armarium.capabilities.gateway.errors import GatewayError, InvalidSource, UnauthorizedSource
from armarium.capabilities.gateway.model import Resource, Secrets
from armarium.capabilities.gateway.query.source_lookup import KnownSources, LookupRequest, SourceLookup
from armarium.capabilities.gateway.selections.service import exclusion, require_not_excluded
from armarium.capabilities.gateway.servers.remote import RagServer
from armarium.foundation.tools import Call

_MAX_ECHO = 80


@dataclass(frozen=True, slots=True)
class SourceError:
    """Why one source is missing from the result."""

    source: str
    """As the caller wrote it."""
    server: str | None
    error: GatewayError


@dataclass(slots=True)
class ServerSelection:
    """The sources of one server to search."""

    server: RagServer
    resources: dict[str, Resource] = field(default_factory=dict[str, Resource])
    asked: dict[str, str] = field(default_factory=dict[str, str])
    """The id that the caller wrote, by the server's own id."""


@dataclass(frozen=True, slots=True)
class Resolution:
    """The sources to search by server, and the sources that failed."""

    selections: Mapping[str, ServerSelection]
    errors: Sequence[SourceError]


async def resolve_sources(
    lookup: SourceLookup,
    call: Call,
    servers: Mapping[str, RagServer],
    sources: Iterable[str],
    given: Secrets,
    *,
    within: Collection[str] = (),
    only: str | None = None,
) -> Resolution:
    """Resolve `<server>:<id>`, or an id that only one server has: of those in `within`, else of all that the caller may
    see. `servers` are all servers; a server name before a colon always refers to that server. A server that the caller
    may not see is never asked. With `only`, neither is any server besides that one."""
    named = {each: _split(each, servers) for each in dict.fromkeys(sources)}
    visible = {
        name: server
        for name, server in servers.items()
        if may_see_server(call.principal, server.spec) and only in (None, name)
    }
    searched = {name: server for name, server in visible.items() if not within or name in within}
    known = await lookup.look_up(call, LookupRequest(named, visible, searched), given)
    selections: dict[str, ServerSelection] = {}
    errors: list[SourceError] = []
    for asked, (name, source_id) in named.items():
        try:
            server = _server_of_bare_id(call, source_id, searched, known) if name is None else servers[name]
            require_not_excluded(server.spec.name, only)
            resource = _resource(call, server, source_id, known)
        except GatewayError as error:
            errors.append(SourceError(asked, name, error))
            continue
        part = selections.setdefault(server.spec.name, ServerSelection(server))
        part.resources[source_id] = resource
        part.asked.setdefault(source_id, asked)
    _exclude_others(selections, errors)
    return Resolution(selections, errors)


def _exclude_others(selections: dict[str, ServerSelection], errors: list[SourceError]) -> None:
    """Leave only an exclusive server, if the call names one together with others."""
    exclusive = next((name for name, each in selections.items() if each.server.spec.is_exclusive), None)
    for name in [each for each in selections if exclusive not in (None, each)]:
        asked = selections.pop(name).asked.values()
        errors += [SourceError(each, name, exclusion(exclusive or "")) for each in asked]


def _split(asked: str, servers: Mapping[str, RagServer]) -> tuple[str | None, str]:
    server, colon, source_id = asked.partition(":")
    return (server, source_id) if colon and source_id and server in servers else (None, asked)


def _server_of_bare_id(call: Call, source_id: str, searched: Mapping[str, RagServer], known: KnownSources) -> RagServer:
    """The only server that has a source with this id."""
    if not searched:
        raise InvalidSource(
            f"there is no server in which to look up the source {_quoted(source_id)}",
            hint="`servers` contains none that you may use; omit it to search all of yours",
        )
    having = [name for name in searched if source_id in known.resources.get(name, ())]
    allowed = [
        name
        for name in having
        if may_use_source(call.principal, searched[name].spec, source_id, known.resources[name][source_id])
    ]
    if len(allowed) > 1:
        options = " or ".join(f"{name}:{source_id}"[:_MAX_ECHO] for name in sorted(allowed))
        raise InvalidSource(f"several servers have the source {_quoted(source_id)}", hint=f"use {options}")
    if allowed or having:
        return searched[(allowed or having)[0]]
    for name, expected in known.expected.items():
        if name in searched and source_id in expected:
            return searched[name]
    if failed := known.failed.keys() & searched.keys():
        failed_names = ", ".join(f"`{name}`" for name in sorted(failed))
        raise InvalidSource(
            f"no available server has the source {_quoted(source_id)}", hint=f"currently unavailable: {failed_names}"
        )
    raise _unknown(source_id)


def _resource(call: Call, server: RagServer, source_id: str, known: KnownSources) -> Resource:
    resource = known.resources.get(server.spec.name, {}).get(source_id)
    if not may_use_source(call.principal, server.spec, source_id, resource):
        raise UnauthorizedSource(
            f"you may not use the source {_quoted(source_id)}",
            hint="rag_discover_resources lists those you may",
            # The audit trail shows these as the denied place.
            root=server.spec.name,
            path=source_id,
        )
    if server.spec.name in known.failed:
        raise known.failed[server.spec.name]
    if resource is None:
        raise _unknown(source_id)
    return resource


def _unknown(source_id: str) -> InvalidSource:
    return InvalidSource(f"there is no source {_quoted(source_id)}", hint="rag_discover_resources lists the sources")


def _quoted(text: str) -> str:
    return repr(text if len(text) <= _MAX_ECHO else text[:_MAX_ECHO] + "…")
