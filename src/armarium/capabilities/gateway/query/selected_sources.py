"""Finds the sources of a call that names none: the selected ones, or all that the caller may see."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from armarium.capabilities.gateway.access import may_see_server
from armarium.capabilities.gateway.arguments import MAX_SELECTED, DiscoveryFilters, Selection
from armarium.capabilities.gateway.errors import InvalidSource
from armarium.capabilities.gateway.model import Secrets
from armarium.capabilities.gateway.query.discovery import discover_sources
from armarium.capabilities.gateway.query.source_lookup import SourceLookup
from armarium.capabilities.gateway.query.source_resolution import SourceError
from armarium.capabilities.gateway.selections.service import exclusion
from armarium.capabilities.gateway.servers.remote import RagServer
from armarium.foundation.tools import Call

_SELECT_HINT = "select sources, or name some in the call: rag_discover_resources lists them"


@dataclass(frozen=True, slots=True)
class SelectedSources:
    ids: Sequence[str]
    within: Sequence[str] = ()
    """The servers in which ids without a server are looked up; empty means all."""
    errors: Sequence[SourceError] = ()
    """Selected servers whose sources are not known."""
    omitted: int = 0
    """The number of sources above the limit of a call."""


async def selected_sources(
    lookup: SourceLookup,
    call: Call,
    servers: Mapping[str, RagServer],
    selection: Selection,
    given: Secrets,
    *,
    only: str | None,
) -> SelectedSources:
    """The selected sources; all sources of selected servers, or of every server, if no sources are selected."""
    if selection.sources is not None:
        ids, within, errors = selection.sources, selection.servers or (), []
    else:
        # An exclusive server is used only if it is selected: it would exclude all others.
        everything = tuple(name for name, server in servers.items() if not server.spec.is_exclusive)
        named = selection.servers if selection.servers is not None else everything if only is None else (only,)
        wanted = [name for name in named if only in (None, name)]
        found = await discover_sources(lookup, call, servers, DiscoveryFilters(), given, within=wanted)
        ids, within = [f"{spec.name}:{resource.id}" for spec, resource in found.resources], ()
        errors = [SourceError("", name, error) for name, error in found.failed.items()]
        for name in selection.servers or ():
            if only not in (None, name):
                errors.append(SourceError("", name, exclusion(only or "")))
            elif name not in servers or not may_see_server(call.principal, servers[name].spec):
                errors.append(SourceError("", name, InvalidSource("there is no such server", hint=_SELECT_HINT)))
    if not ids and not errors:
        raise InvalidSource("no source is selected", hint=_SELECT_HINT)
    return SelectedSources(ids[:MAX_SELECTED], within, errors, max(0, len(ids) - MAX_SELECTED))
