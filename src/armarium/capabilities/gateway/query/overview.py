"""The response of `GET /api/config`: the caller's servers with their sources, for a user interface."""

from __future__ import annotations

from collections.abc import Sequence

from armarium.capabilities.gateway.access import may_use_source
from armarium.capabilities.gateway.config.entries import OPEN_MODES
from armarium.capabilities.gateway.config.files import ServerSpec
from armarium.capabilities.gateway.contract import error_as_json
from armarium.capabilities.gateway.errors import GatewayError
from armarium.capabilities.gateway.query.discovery import DiscoveryResult
from armarium.foundation.identity import Principal
from armarium.foundation.schema import Json


def overview(principal: Principal, discovered: DiscoveryResult, shown: Sequence[tuple[ServerSpec, Json]]) -> Json:
    """The response. A server that is down remains listed, with its hints as unavailable sources."""
    rag_servers: list[Json] = []
    for server in discovered.servers:
        spec, failure = server.spec, discovered.failed.get(server.spec.name)
        sources = [_source(described, spec.name) for each, described in shown if each.name == spec.name]
        rag_servers.append(_server(spec, sources if failure is None else _hinted(principal, spec), failure))
    return {
        "username": principal.username,
        "groups": list(principal.groups),
        "authorized_servers": [server.spec.name for server in discovered.servers],
        "data_sources": [{**_source(described, spec.name), "server": spec.name} for spec, described in shown],
        "rag_servers": rag_servers,
    }


def _server(spec: ServerSpec, sources: list[Json], failure: GatewayError | None) -> Json:
    described: Json = {
        "server": spec.name,
        "displayName": spec.display_name,
        "icon": spec.ui.icon,
        "description": spec.description or None,
        "selected": spec.ui.default_selected,
        "sources": sources,
        "status": "ready" if failure is None else "unavailable",
        "error": error_as_json(failure) if failure is not None else None,
    }
    return {name: value for name, value in described.items() if value is not None}


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


def _source(described: Json, server: str) -> Json:
    """A source with both ids: the server's own, and the globally unique one that a search accepts."""
    return {
        "id": described["id"].removeprefix(f"{server}:"),
        "resourceId": described["id"],
        "name": described["name"],
        "sourceType": described["sourceType"],
        "authRequired": described["authRequired"],
        "authMode": described["authMode"],
        "selected": described["defaultSelected"],
        "status": described["status"],
    }
