"""Reports the outcome of a call: metadata, errors per source, audit records, answers of servers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from armarium.capabilities.gateway.errors import GatewayError
from armarium.capabilities.gateway.model import Attachments, RagAnswer
from armarium.capabilities.gateway.query.fan_out import milliseconds_since
from armarium.capabilities.gateway.query.source_resolution import Resolution, ServerSelection, SourceError
from armarium.capabilities.gateway.responses import contract_answer, error_as_json
from armarium.foundation.schema import Json
from armarium.foundation.tools import Call, Part

_PLACE = ("root", "path")
"""The details of an error that the audit trail uses as its place."""
_MAX_ARTIFACTS: Final = 20
_MAX_ARTIFACT_CHARS: Final = 8 * 1024 * 1024
"""Of all artifacts of a response together, as base64."""


def base_metadata(started: float, servers: Mapping[str, Json], errors: Sequence[SourceError]) -> Json:
    """The part of `meta_data` that all three tools share."""
    meta: Json = {"elapsed_ms": milliseconds_since(started), "servers": dict(servers)}
    if incomplete := [f"{name}:{each}" for name, server in servers.items() for each in server.get("incomplete", ())]:
        meta["incomplete"] = incomplete
    return meta | ({"errors": errors_as_json(errors)} if errors else {})


def errors_as_json(errors: Iterable[SourceError]) -> list[Json]:
    """The failed sources in the contract's format."""
    return [
        {name: value for name, value in (("source", each.source), ("server", each.server)) if value}
        | error_as_json(each.error)
        for each in errors
    ]


def emit_failures(call: Call, errors: Sequence[SourceError]) -> None:
    """Tell a caller who follows the call which sources failed, and how to try each alone again."""
    for error, described in zip(errors, errors_as_json(errors), strict=True):
        retry: Json = {"retry": {"sources": [error.source]}} if error.source else {}
        call.emit("source_failed", described | retry)


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
    artifacts, display, per_server = merge_attachments({name: given.attachments})
    more_of_server = {"dropped": given.dropped, "incomplete": dict(given.incomplete)}
    of_server = {key: value for key, value in more_of_server.items() if value}
    meta = base_metadata(started, {name: of_server | per_server[name]}, errors)
    meta |= {"synthesized_by": name, "latency_ms": meta["elapsed_ms"]}
    meta |= {key: value for key, value in (("model", given.model), ("tokens", given.tokens)) if value}
    results = replace(given, citations=citations).results()
    return contract_answer(results, meta | more, artifacts=artifacts, display=display)


def merge_attachments(by_server: Mapping[str, Attachments]) -> tuple[list[Json], Json | None, dict[str, Json]]:
    """The artifacts of all servers, the display of the first one that has one, and the metadata of each server. Names
    become unique. Artifacts beyond the limit of a response are left out and counted."""
    artifacts: list[Json] = []
    display: Json | None = None
    per_server: dict[str, Json] = {}
    taken: set[str] = set()
    room = _MAX_ARTIFACT_CHARS
    for server, attachments in by_server.items():
        names: dict[str, str] = {}
        left_out = attachments.dropped
        for artifact in attachments.artifacts:
            name: str = artifact["name"]
            unique = name if name not in taken else f"{server}-{len(artifacts) + 1}-{name}"
            if len(artifacts) == _MAX_ARTIFACTS or len(artifact["b64"]) > room:
                left_out += 1
                continue
            artifacts.append({**artifact, "name": unique, "server": server})
            room -= len(artifact["b64"])
            taken.add(unique)
            names.setdefault(name, unique)
        details = {"meta_data": attachments.meta_data, "dropped_artifacts": left_out}
        per_server[server] = {key: value for key, value in details.items() if value}
        if display is None and attachments.display:
            display = {**attachments.display, "server": server}
            if (primary := display.pop("primary_file", None)) in names:
                display["primary_file"] = names[primary]
    return artifacts, display, per_server
