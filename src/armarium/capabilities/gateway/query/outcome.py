"""Reports the outcome of a call: metadata, errors per source, audit records, answers of servers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from armarium.capabilities.gateway.contract import contract_answer, error_as_json
from armarium.capabilities.gateway.errors import GatewayError
from armarium.capabilities.gateway.model import RagAnswer
from armarium.capabilities.gateway.query.fan_out import milliseconds_since
from armarium.capabilities.gateway.query.source_resolution import Resolution, ServerSelection, SourceError
from armarium.foundation.schema import Json
from armarium.foundation.tools import Call, Part

_PLACE = ("root", "path")
"""The details of an error that the audit trail uses as its place."""


def base_metadata(started: float, servers: Mapping[str, Json], errors: Sequence[SourceError]) -> Json:
    """The part of `meta_data` that all three tools share."""
    meta: Json = {"elapsed_ms": milliseconds_since(started), "servers": dict(servers)}
    return meta | ({"errors": errors_as_json(errors)} if errors else {})


def errors_as_json(errors: Iterable[SourceError]) -> list[Json]:
    """The failed sources in the contract's format."""
    return [
        {name: value for name, value in (("source", each.source), ("server", each.server)) if value}
        | error_as_json(each.error)
        for each in errors
    ]


def total_failure(errors: Sequence[SourceError]) -> GatewayError:
    """The error of a call whose sources all failed: the first one, with all of them in its details."""
    first = errors[0].error
    # With several errors, the place of the first is not the place of the call.
    details = {name: value for name, value in first.details.items() if len(errors) == 1 or name not in _PLACE}
    return type(first)(first.message, hint=first.hint, private=first.private, **details, errors=errors_as_json(errors))


def record_sources(
    call: Call, resolution: Resolution, errors: Iterable[SourceError], servers: Mapping[str, Json]
) -> None:
    """Record the outcome of each requested source, with the duration of its server."""
    failed = {each.source: each.error for each in errors}
    for name, selection in resolution.selections.items():
        took_ms = servers.get(name, {}).get("elapsed_ms", 0.0)
        call.parts.extend(Part(name, each, failed.get(asked), took_ms) for each, asked in selection.asked.items())
    for each in resolution.errors:
        call.parts.append(Part(each.server, each.source.removeprefix(f"{each.server}:"), each.error))


def server_answer_as_json(
    started: float, selection: ServerSelection, given: RagAnswer, errors: Sequence[SourceError], more: Json
) -> Json:
    """A server's answer in the contract's format, with globally unique ids; `more` is added to `meta_data`."""
    name = selection.server.spec.name
    citations: list[Json] = []
    for citation in given.citations:
        resource = citation.get("resourceId")
        known = {"resourceId": f"{name}:{resource}"} if resource in selection.resources else {}
        rest = {key: value for key, value in citation.items() if key != "resourceId"}
        citations.append({**rest, **known, "server": name})
    meta = base_metadata(started, {name: {"dropped": given.dropped} if given.dropped else {}}, errors)
    meta |= {"synthesized_by": name, "latency_ms": meta["elapsed_ms"]}
    meta |= {key: value for key, value in (("model", given.model), ("tokens", given.tokens)) if value}
    results = replace(given, citations=citations).results()
    return contract_answer(results, meta | more, artifacts=list(given.artifacts), display=given.display)
