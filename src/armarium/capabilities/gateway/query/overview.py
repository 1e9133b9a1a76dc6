"""Describes a caller's servers and sources for user interfaces, in the format of the contract."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set

from armarium.capabilities.gateway.access import may_use_source
from armarium.capabilities.gateway.arguments import Selection
from armarium.capabilities.gateway.config.entries import OPEN_MODES
from armarium.capabilities.gateway.config.files import ServerSpec
from armarium.capabilities.gateway.errors import GatewayError, TokenExpired, UnauthorizedSource, UnauthorizedUser
from armarium.capabilities.gateway.query.discovery import DiscoveryResult
from armarium.capabilities.gateway.responses import error_as_json
from armarium.foundation.schema import Json
from armarium.foundation.security.identity import Principal


def overview(
    principal: Principal,
    discovered: DiscoveryResult,
    shown: Sequence[Json],
    selection: Selection,
    refused: Mapping[str, Set[str]],
    locked: Iterable[ServerSpec],
) -> Json:
    """The response of `GET /api/config`. A server that is down remains listed, its hints as unavailable sources.
    `refused` are the ids of the sources that the caller may not search, by server, and `locked` the servers."""
    sources = [_source(described, selection, refused) for described in shown]
    rag_servers: list[Json] = []
    for server in discovered.servers:
        spec, failure = server.spec, discovered.failed.get(server.spec.name)
        own = [
            {name: value for name, value in each.items() if name != "server"}
            for each in sources
            if each["server"] == spec.name
        ]
        status = "ready" if failure is None else _status_of(failure)
        listed = own if failure is None else _hinted(principal, spec, status)
        unlisted = refused[spec.name] - {each["id"] for each in listed}
        details: Json = {
            "server": spec.name,
            "displayName": spec.ui.display_name or spec.name,
            "icon": spec.ui.icon,
            "description": spec.description or None,
            "is_exclusive": spec.is_exclusive or None,
            "selected": spec.name in selection.named_servers if selection.chooses else spec.ui.default_selected,
            "sources": [*listed, *_unlisted(spec.name, unlisted, selection)],
            "status": status,
            "error": error_as_json(failure) if failure is not None else None,
        }
        rag_servers.append({name: value for name, value in details.items() if value is not None})
    return {
        "username": principal.username,
        "groups": list(principal.groups),
        "authorized_servers": [server.spec.name for server in discovered.servers],
        "data_sources": sources,
        "rag_servers": rag_servers + [_locked(spec) for spec in locked],
    }


def _status_of(failure: GatewayError) -> str:
    match failure:
        case TokenExpired():
            return "action_required"
        case UnauthorizedUser() | UnauthorizedSource():
            return "locked"
        case _:
            return "unavailable"


def _locked(spec: ServerSpec) -> Json:
    """A server outside of the caller's groups, for an administrator."""
    return {
        "server": spec.name,
        "displayName": spec.ui.display_name or spec.name,
        "selected": False,
        "sources": [],
        "status": "locked",
        "groups": list(spec.groups),
    }


def _unlisted(server: str, refused: Set[str], selection: Selection) -> list[Json]:
    """Sources that the server does not list for the caller, who has asked for them by name."""
    return [
        {
            "id": each,
            "resourceId": f"{server}:{each}",
            "name": each,
            "selected": selection.chooses and _is_selected(selection, server, each),
            "status": "locked",
        }
        for each in sorted(refused)
    ]


def _hinted(principal: Principal, spec: ServerSpec, status: str) -> list[Json]:
    return [
        {
            "id": hint.id,
            "resourceId": f"{spec.name}:{hint.id}",
            "name": hint.name or hint.id,
            "authRequired": hint.auth_mode not in OPEN_MODES,
            "authMode": hint.auth_mode,
            "selected": False,
            "status": status,
        }
        for hint in spec.data_sources
        if may_use_source(principal, spec, hint.id)
    ]


def _source(described: Json, selection: Selection, refused: Mapping[str, Set[str]]) -> Json:
    """A source with both ids: the server's own, and the globally unique one that a search accepts."""
    server: str = described["server"]
    source_id = described["id"].removeprefix(f"{server}:")
    return {
        "id": source_id,
        "resourceId": described["id"],
        **{name: described[name] for name in ("name", "sourceType", "authRequired", "authMode")},
        "selected": _is_selected(selection, server, source_id) if selection.chooses else described["defaultSelected"],
        "status": "locked" if source_id in refused[server] else described["status"],
        "server": server,
        **{name: described[name] for name in ("counts", "lastIndexed") if name in described},
    }


def _is_selected(selection: Selection, server: str, source_id: str) -> bool:
    in_servers = selection.servers is None or server in selection.servers
    if selection.sources is None:
        return in_servers
    return f"{server}:{source_id}" in selection.sources or (in_servers and source_id in selection.sources)
