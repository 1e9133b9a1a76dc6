"""Lists the sources that a caller may search, over all servers that the caller may see."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from armarium.capabilities.gateway.access import may_see_server, may_use_source, source_hint
from armarium.capabilities.gateway.arguments import DiscoveryFilters
from armarium.capabilities.gateway.config.files import ServerSpec
from armarium.capabilities.gateway.errors import GatewayError
from armarium.capabilities.gateway.model import RagServer, Resource, Secrets
from armarium.capabilities.gateway.query.source_lookup import SourceLookup
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
    """Metadata of each server: duration, number of invalid entries, defaults for answers."""


class Discovery:
    """Asks servers for their sources."""

    def __init__(self, lookup: SourceLookup, secret_selector: SecretSelector) -> None:
        self._lookup = lookup
        self._secret_selector = secret_selector

    async def discover(
        self, call: Call, servers: Mapping[str, RagServer], filters: DiscoveryFilters, given: Secrets
    ) -> DiscoveryResult:
        """All sources that the caller may search and that match the filters."""
        visible = in_display_order(server for server in servers.values() if may_see_server(call.principal, server.spec))
        require_single_server(given, [server.spec.name for server in visible])
        result = await self._lookup.fetch_all(call, visible, filters, given)
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

    def describe(self, call: Call, spec: ServerSpec, resource: Resource) -> Json:
        """A resource in the contract's format, with its globally unique id."""
        hint = source_hint(spec, resource.id)
        counts = {"docs": resource.docs, "chunks": resource.chunks}
        connected = self._secret_selector.is_connected(call.principal, spec.name, resource)
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
