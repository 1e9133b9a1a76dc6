"""Lists the sources that a caller may search, over all servers that the caller may see."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from armarium.capabilities.gateway.access import may_see_server, may_use_source, source_hint
from armarium.capabilities.gateway.arguments import DiscoveryFilters
from armarium.capabilities.gateway.config.entries import OPEN_MODES
from armarium.capabilities.gateway.config.files import ServerSpec
from armarium.capabilities.gateway.contract import error_as_json
from armarium.capabilities.gateway.errors import GatewayError
from armarium.capabilities.gateway.model import Resource, Secrets
from armarium.capabilities.gateway.query.source_lookup import SourceLookup
from armarium.capabilities.gateway.servers.remote import RagServer
from armarium.capabilities.gateway.tokens.secret_selector import SecretSelector, require_single_server
from armarium.foundation.identity import Principal
from armarium.foundation.schema import Json
from armarium.foundation.tools import Call


@dataclass(frozen=True, slots=True)
class DiscoveryResult:
    """The sources of the caller's servers."""

    servers: Sequence[RagServer]
    """The servers that the caller may see, in display order."""
    resources: Sequence[tuple[ServerSpec, Resource]]
    failed: Mapping[str, GatewayError]
    per_server: Mapping[str, Json]
    """Metadata of each server: duration, number of invalid entries, defaults for answers."""


async def discover_sources(
    lookup: SourceLookup, call: Call, servers: Mapping[str, RagServer], filters: DiscoveryFilters, given: Secrets
) -> DiscoveryResult:
    """All sources that the caller may search and that match the filters."""
    visible = in_display_order(server for server in servers.values() if may_see_server(call.principal, server.spec))
    require_single_server(given, [server.spec.name for server in visible])
    result = await lookup.fetch_all(call, visible, filters, given)
    resources = [
        (server.spec, resource)
        for server in visible
        if (listing := result.answered.get(server.spec.name)) is not None
        for resource in listing.resources
        if may_use_source(call.principal, server.spec, resource.id, resource) and _matches(resource, filters)
    ]
    per_server: dict[str, Json] = {name: {"elapsed_ms": took} for name, took in result.elapsed_ms.items()}
    for name, listing in result.answered.items():
        details = {"dropped": listing.dropped, "synthesis_params": listing.synthesis_params}
        per_server[name] |= {key: value for key, value in details.items() if value}
    return DiscoveryResult(visible, resources, result.failed, per_server)


def describe_resource(selector: SecretSelector, principal: Principal, spec: ServerSpec, resource: Resource) -> Json:
    """A resource in the contract's format, with its globally unique id."""
    hint = source_hint(spec, resource.id)
    counts = {"docs": resource.docs, "chunks": resource.chunks}
    connected = selector.is_connected(principal, spec.name, resource)
    described: Json = {
        "id": f"{spec.name}:{resource.id}",
        "name": (hint.name if hint else None) or resource.name,
        "sourceType": resource.source_type,
        "sourceId": resource.source_id or resource.id,
        "authRequired": resource.auth_required,
        "authMode": resource.auth_mode,
        "groups": list(hint.groups if hint and hint.groups else resource.groups),
        "scopes": list(resource.scopes),
        "lastIndexed": resource.last_indexed,
        "counts": {name: count for name, count in counts.items() if count is not None},
        "server": spec.name,
        "defaultSelected": hint.default_selected if hint else spec.ui.default_selected,
        "status": "ready" if connected else "action_required",
    }
    return {name: value for name, value in described.items() if value is not None and value not in ([], {})}


def in_display_order(servers: Iterable[RagServer]) -> list[RagServer]:
    """Servers by the `order` of their entries, then by name."""
    return sorted(servers, key=lambda server: (server.spec.ui.order, server.spec.name))


def _matches(resource: Resource, filters: DiscoveryFilters) -> bool:
    """Whether a resource matches, even if its server ignored the filters. Tags are checked only if it reports them."""
    types = {each.casefold() for each in filters.types}
    if types and resource.source_type.casefold() not in types:
        return False
    if filters.tags and resource.tags is not None and not set(filters.tags) & set(resource.tags):
        return False
    search = filters.search.strip().casefold()
    return not search or search in f"{resource.id}\n{resource.name}\n{resource.source_type}".casefold()


def overview(principal: Principal, discovered: DiscoveryResult, shown: Sequence[Json]) -> Json:
    """The response of `GET /api/config`. A server that is down remains listed, its hints as unavailable sources."""
    rag_servers: list[Json] = []
    for server in discovered.servers:
        spec, failure = server.spec, discovered.failed.get(server.spec.name)
        sources = [_source(described) for described in shown if described["server"] == spec.name]
        details: Json = {
            "server": spec.name,
            "displayName": spec.ui.display_name or spec.name,
            "icon": spec.ui.icon,
            "description": spec.description or None,
            "selected": spec.ui.default_selected,
            "sources": sources if failure is None else _hinted(principal, spec),
            "status": "ready" if failure is None else "unavailable",
            "error": error_as_json(failure) if failure is not None else None,
        }
        rag_servers.append({name: value for name, value in details.items() if value is not None})
    return {
        "username": principal.username,
        "groups": list(principal.groups),
        "authorized_servers": [server.spec.name for server in discovered.servers],
        "data_sources": [{**_source(described), "server": described["server"]} for described in shown],
        "rag_servers": rag_servers,
    }


def _hinted(principal: Principal, spec: ServerSpec) -> list[Json]:
    return [
        {
            "id": hint.id,
            "resourceId": f"{spec.name}:{hint.id}",
            "name": hint.name or hint.id,
            "authRequired": hint.auth_mode not in OPEN_MODES,
            "authMode": hint.auth_mode,
            "selected": False,
            "status": "unavailable",
        }
        for hint in spec.data_sources
        if may_use_source(principal, spec, hint.id)
    ]


def _source(described: Json) -> Json:
    """A source with both ids: the server's own, and the globally unique one that a search accepts."""
    return {
        "id": described["id"].removeprefix(f"{described['server']}:"),
        "resourceId": described["id"],
        **{name: described[name] for name in ("name", "sourceType", "authRequired", "authMode")},
        "selected": described["defaultSelected"],
        "status": described["status"],
    }
