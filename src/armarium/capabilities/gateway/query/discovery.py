"""Lists the sources that a caller may search, over all servers that the caller may see."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from armarium.capabilities.gateway.access import may_see_server, may_use_source, source_hint
from armarium.capabilities.gateway.arguments import DiscoveryFilters
from armarium.capabilities.gateway.config.files import DataSource, ServerSpec
from armarium.capabilities.gateway.errors import GatewayError
from armarium.capabilities.gateway.model import Resource, Secrets
from armarium.capabilities.gateway.query.outcome import merge_attachments
from armarium.capabilities.gateway.query.source_lookup import SourceLookup
from armarium.capabilities.gateway.servers.remote import RagServer
from armarium.capabilities.gateway.tokens.secret_selector import SecretSelector, require_single_server
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
    """Metadata of each server: its own, duration, number of invalid entries, defaults for answers."""
    artifacts: Sequence[Json] = ()
    display: Json | None = None


async def discover_sources(
    lookup: SourceLookup,
    call: Call,
    servers: Mapping[str, RagServer],
    filters: DiscoveryFilters,
    given: Secrets,
    *,
    within: Collection[str] | None = None,
) -> DiscoveryResult:
    """The sources that the caller may search and that match the filters. `within` limits them to these servers."""
    visible = in_display_order(
        server
        for server in servers.values()
        if may_see_server(call.principal, server.spec) and (within is None or server.spec.name in within)
    )
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
    for spec, resource in resources:
        if resource.incomplete is not None:
            per_server[spec.name].setdefault("incomplete", {})[resource.id] = resource.incomplete
    shown = [server.spec.name for server in visible if server.spec.name in result.answered]
    artifacts, display, reported = merge_attachments({name: result.answered[name].attachments for name in shown})
    per_server |= {name: per_server[name] | details for name, details in reported.items()}
    return DiscoveryResult(visible, resources, result.failed, per_server, artifacts, display)


def describe_resource(selector: SecretSelector, call: Call, spec: ServerSpec, resource: Resource) -> Json:
    """A resource in the contract's format, with its globally unique id."""
    hint = source_hint(spec, resource.id)
    counts = {"docs": resource.docs, "chunks": resource.chunks}
    connected = selector.is_connected(call, spec.name, resource)
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
        "defaultSelected": _is_default(spec, hint, resource),
        "status": "ready" if connected else "action_required",
        **_global_hierarchy(spec.name, resource.hierarchy),
    }
    return {name: value for name, value in described.items() if value is not None and value not in ([], {})}


def _is_default(spec: ServerSpec, hint: DataSource | None, resource: Resource) -> bool:
    """Whether a source is selected by default: as its hint says, or else the server's listing, or else its entry."""
    if hint is not None and "default_selected" in hint.model_fields_set:
        return hint.default_selected
    return spec.ui.default_selected if resource.default_selected is None else resource.default_selected


def _global_hierarchy(server: str, hierarchy: Json) -> Json:
    """The hints about a resource's place, with the globally unique ids of its parents."""
    described = dict(hierarchy)
    if "parentId" in described:
        described["parentId"] = f"{server}:{described['parentId']}"
    if "parentIds" in described:
        described["parentIds"] = [f"{server}:{each}" for each in described["parentIds"]]
    return described


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
