"""How the outcome of a call is told: what became of each server and source, and answers that others wrote."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from armarium.capabilities.gateway import understanding
from armarium.capabilities.gateway.contract import answer, told
from armarium.capabilities.gateway.errors import GatewayError
from armarium.capabilities.gateway.merging import MergedHit
from armarium.capabilities.gateway.model import Json, ServerAnswer
from armarium.capabilities.gateway.resolving import Chosen, Resolution, SourceError
from armarium.foundation.tools import Call


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


def nothing_left(call: Call, errors: Sequence[SourceError]) -> GatewayError:
    """The error of a call of which every source failed: the first, with all of them told."""
    first, *others = [each.error for each in errors]
    call.denials.extend(error for error in others if error.security)
    details = {**first.details, "errors": listed(errors)}
    return type(first)(first.message, hint=first.hint, private=first.private, **details)


def record_denials(call: Call, errors: Iterable[SourceError]) -> None:
    """Put on record what was denied in a call that succeeds otherwise."""
    call.denials.extend(each.error for each in errors if each.error.security)


def answer_of_server(started: float, chosen: Chosen, given: ServerAnswer, errors: Sequence[SourceError]) -> Json:
    """The answer that the one server wrote, with ids that are unique among all servers."""
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
    meta |= {"synthesized_by": name} | ({"model": given.model} if given.model else {})
    return answer(results, meta, artifacts=list(given.artifacts), display=given.display)


def in_words_of(server: str, provided: Sequence[Json] | None) -> Sequence[Json] | None:
    """Hits that came from us, with the ids that the server itself gave its sources."""
    if provided is None:
        return None
    return [
        {**hit, "resourceId": resource.removeprefix(f"{server}:")}
        if isinstance(resource := hit.get("resourceId"), str)
        else hit
        for hit in provided
    ]


def provided_hits(entries: Iterable[Json], resolution: Resolution) -> list[MergedHit]:
    """Hits that the caller chose, as far as they are hits."""
    hits: list[MergedHit] = []
    for place, entry in enumerate(entries):
        hit = understanding.hit(entry, place, "provided")
        if hit is None:
            continue
        server, _, source_id = hit.resource_id.partition(":")
        if source_id and server in resolution.chosen:
            hits.append(MergedHit(replace(hit, resource_id=source_id), server, place + 1, hit.score))
        else:
            hits.append(MergedHit(hit, "", place + 1, hit.score))
    return hits
