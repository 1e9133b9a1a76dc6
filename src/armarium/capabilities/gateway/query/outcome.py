"""How the outcome of a call is told: what became of each server and source, and answers that others wrote."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence

from armarium.capabilities.gateway.contract import answer, told
from armarium.capabilities.gateway.errors import GatewayError
from armarium.capabilities.gateway.model import ServerAnswer
from armarium.capabilities.gateway.query.source_resolution import Chosen, Resolution, SourceError
from armarium.foundation.schema import Json
from armarium.foundation.tools import Call, Part

_PLACE = ("root", "path")
"""What the audit trail takes from an error as the place it is about."""


def meta_of(started: float, servers: Mapping[str, Json], errors: Sequence[SourceError]) -> Json:
    """The part of `meta_data` that all three tools have."""
    meta: Json = {"elapsed_ms": ms_since(started), "servers": dict(servers)}
    return meta | ({"errors": listed(errors)} if errors else {})


def ms_since(started: float) -> float:
    """Milliseconds since a moment of `time.perf_counter`."""
    return round((time.perf_counter() - started) * 1000, 3)


def listed(errors: Iterable[SourceError]) -> list[Json]:
    """Each source that is missing, and why, in the contract's words."""
    return [
        {name: value for name, value in (("source", each.source), ("server", each.server)) if value} | told(each.error)
        for each in errors
    ]


def nothing_left(errors: Sequence[SourceError]) -> GatewayError:
    """The error of a call of which every source failed: the first, with all of them told."""
    first = errors[0].error
    # The place of the first is not that of the call, which is about all of them.
    details = {name: value for name, value in first.details.items() if len(errors) == 1 or name not in _PLACE}
    return type(first)(first.message, hint=first.hint, private=first.private, **details, errors=listed(errors))


def record_denials(call: Call, errors: Iterable[SourceError]) -> None:
    """Put on record which servers refused the caller in a call that succeeds otherwise."""
    call.denials.extend(each.error for each in errors if each.error.security)


def record_sources(
    call: Call, resolution: Resolution, errors: Iterable[SourceError], servers: Mapping[str, Json]
) -> None:
    """Put on record what became of each source that was asked for: allowed or not, found or failed, and how long its
    server took."""
    failed = {each.source: each.error for each in errors}
    for name, chosen in resolution.chosen.items():
        took_ms = servers.get(name, {}).get("elapsed_ms", 0.0)
        call.parts.extend(Part(name, each, failed.get(asked), took_ms) for each, asked in chosen.asked.items())
    for each in resolution.errors:
        call.parts.append(Part(each.server, each.source.removeprefix(f"{each.server}:"), each.error))


def answer_of_server(
    started: float, chosen: Chosen, given: ServerAnswer, errors: Sequence[SourceError], more: Json
) -> Json:
    """The answer that the one server wrote, with ids that are unique among all servers, and `more` in `meta_data`."""
    name = chosen.server.spec.name
    citations: list[Json] = []
    for citation in given.citations:
        resource = citation.get("resourceId")
        known = {"resourceId": f"{name}:{resource}"} if resource in chosen.resources else {}
        rest = {key: value for key, value in citation.items() if key != "resourceId"}
        citations.append({**rest, **known, "server": name})
    results: Json = {"answer": given.answer, "citations": citations}
    if given.limits:
        results["limits"] = given.limits
    meta = meta_of(started, {name: {"dropped": given.dropped} if given.dropped else {}}, errors)
    meta |= {"synthesized_by": name, "latency_ms": meta["elapsed_ms"]}
    meta |= {key: value for key, value in (("model", given.model), ("tokens", given.tokens)) if value}
    return answer(results, meta | more, artifacts=list(given.artifacts), display=given.display)
