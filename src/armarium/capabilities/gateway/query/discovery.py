"""Which sources a caller may search: asked of every server they may see, merged, filtered and paged."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from armarium.capabilities.gateway.access import hint_for, may_see_server, may_use_source
from armarium.capabilities.gateway.config.files import ServerSpec
from armarium.capabilities.gateway.errors import GatewayError
from armarium.capabilities.gateway.model import DiscoveryFilters, Listing, RagServer, Resource, Secrets
from armarium.capabilities.gateway.query.fan_out import Job, ask_all
from armarium.capabilities.gateway.query.source_cache import KnownResources
from armarium.capabilities.gateway.tokens.keyring import Keyring, check_addressee
from armarium.foundation.schema import Json
from armarium.foundation.tools import Call


@dataclass(frozen=True, slots=True)
class Discovered:
    """What the caller's servers told."""

    servers: Sequence[RagServer]
    """Those the caller may see, in the order they are shown."""
    resources: Sequence[tuple[ServerSpec, Resource]]
    failed: Mapping[str, GatewayError]
    per_server: Mapping[str, Json]
    """How long each took, and what else there is to say of it: entries that were no resources, how it answers."""


class Discovery:
    """Asks servers what they have."""

    def __init__(self, known: KnownResources, keyring: Keyring, *, discover_s: float) -> None:
        self._known = known
        self._keyring = keyring
        self._discover_s = discover_s

    async def discover(
        self, call: Call, servers: Mapping[str, RagServer], filters: DiscoveryFilters, given: Secrets
    ) -> Discovered:
        """Everything this caller may search that fits the filters."""
        visible = in_order(server for server in servers.values() if may_see_server(call.principal, server.spec))
        check_addressee(given, [server.spec.name for server in visible])
        answers = await ask_all(
            {
                server.spec.name: Job(lambda server=server: self._told(call, server, filters, given), self._discover_s)
                for server in visible
            }
        )
        resources = [
            (server.spec, resource)
            for server in visible
            if (listing := answers.answered.get(server.spec.name)) is not None
            for resource in listing.resources
            if may_use_source(call.principal, server.spec, resource.id, resource) and _fits(resource, filters)
        ]
        per_server: dict[str, Json] = {name: {"elapsed_ms": took} for name, took in answers.elapsed_ms.items()}
        for name, listing in answers.answered.items():
            told = {"dropped": listing.dropped, "synthesis_params": listing.synthesis_params}
            per_server[name] |= {key: value for key, value in told.items() if value}
        return Discovered(visible, resources, answers.failed, per_server)

    async def _told(self, call: Call, server: RagServer, filters: DiscoveryFilters, given: Secrets) -> Listing:
        secrets = {**self._keyring.lent(call.principal, server.spec.name), **given}
        with self._keyring.in_use(call.principal, server.spec.name, secrets):
            listing = await server.discover(call, filters, secrets)
        if not filters:
            self._known.learn(call.principal, server.spec, listing)
        return listing

    def described(self, call: Call, spec: ServerSpec, resource: Resource) -> Json:
        """A resource as the contract has it, by the id that is unique among all servers."""
        hint = hint_for(spec, resource.id)
        counts = {"docs": resource.docs, "chunks": resource.chunks}
        connected = self._keyring.is_connected(call.principal, spec.name, resource)
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


def in_order(servers: Iterable[RagServer]) -> list[RagServer]:
    """Servers as they are shown: by the order of their entries, then by name."""
    return sorted(servers, key=lambda server: (server.spec.ui.order, server.spec.name))


def _fits(resource: Resource, filters: DiscoveryFilters) -> bool:
    """Whether a resource is wanted, whatever its server made of the filters; tags only the server may know."""
    wanted_types = {each.casefold() for each in filters.types}
    if wanted_types and resource.source_type.casefold() not in wanted_types:
        return False
    if filters.tags and resource.tags is not None and not set(filters.tags) & set(resource.tags):
        return False
    search = filters.search.strip().casefold()
    return not search or search in f"{resource.id}\n{resource.name}\n{resource.source_type}".casefold()
