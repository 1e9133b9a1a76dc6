"""Which servers and which of their sources a caller may see."""

from __future__ import annotations

from collections.abc import Iterable

from armarium.capabilities.gateway.config.files import DataSource, ServerSpec
from armarium.capabilities.gateway.model import Resource
from armarium.foundation.identity import Principal


def may_see_server(principal: Principal, spec: ServerSpec) -> bool:
    """Whether a caller may know that the server is there and ask it anything.

    One of the server's groups must be one of the caller's, letter for letter. A server without groups is everybody's,
    unless it is exclusive: then nobody sees it until it is given groups.
    """
    if not spec.enabled:
        return False
    if not spec.groups:
        return not spec.is_exclusive
    return _has_one_of(principal, spec.groups)


def may_use_source(principal: Principal, spec: ServerSpec, source_id: str, told: Resource | None = None) -> bool:
    """Whether a caller may search a source: by the groups that the registry gives it, and by those that its server
    told of it. Both must allow it, and the server itself must be one the caller sees.
    """
    if not may_see_server(principal, spec):
        return False
    hint = hint_for(spec, source_id)
    if hint is not None and hint.groups and not _has_one_of(principal, hint.groups):
        return False
    return told is None or not told.groups or _has_one_of(principal, told.groups)


def hint_for(spec: ServerSpec, source_id: str) -> DataSource | None:
    """What the registry says of a source."""
    return next((source for source in spec.data_sources if source.id == source_id), None)


def _has_one_of(principal: Principal, groups: Iterable[str]) -> bool:
    return not frozenset(groups).isdisjoint(principal.groups)
