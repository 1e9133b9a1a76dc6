"""Decides which servers and sources a caller may use, by groups."""

from __future__ import annotations

from armarium.capabilities.gateway.config.files import DataSource, ServerSpec
from armarium.capabilities.gateway.model import Resource
from armarium.foundation.security.access import is_member
from armarium.foundation.security.identity import Principal


def may_see_server(principal: Principal, spec: ServerSpec) -> bool:
    """Whether a caller may see and use a server. The caller must be in one of the server's groups; names are
    case-sensitive. A server without groups is visible to all callers."""
    return spec.enabled and is_member(principal, frozenset(spec.groups))


def may_use_source(principal: Principal, spec: ServerSpec, source_id: str, resource: Resource | None = None) -> bool:
    """Whether a caller may search a source. The server must be visible to the caller, and both the groups in the
    configuration and the groups that the server reports for the source must allow it."""
    if not may_see_server(principal, spec):
        return False
    hint = source_hint(spec, source_id)
    if hint is not None and not is_member(principal, frozenset(hint.groups)):
        return False
    return resource is None or is_member(principal, frozenset(resource.groups))


def source_hint(spec: ServerSpec, source_id: str) -> DataSource | None:
    return next((source for source in spec.data_sources if source.id == source_id), None)
