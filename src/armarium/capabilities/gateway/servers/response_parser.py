"""Parses responses of untrusted servers into the contract's types; drops and counts invalid parts, limits sizes."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import cast

import orjson

from armarium.capabilities.gateway.arguments import FILTERS
from armarium.capabilities.gateway.config.entries import AUTH_MODES, OPEN_MODES
from armarium.capabilities.gateway.contract import CITATION_FIELDS, HIT_FIELDS
from armarium.capabilities.gateway.errors import CONTRACT_ERRORS, GatewayError, UpstreamProtocol
from armarium.capabilities.gateway.model import RagAnswer, RagHit, RagHits, Resource, ResourceList
from armarium.capabilities.gateway.servers.attachments import parse_attachments
from armarium.capabilities.gateway.servers.untrusted_json import (
    MAX_NAME_LENGTH,
    as_bounded,
    as_count,
    as_list,
    as_number,
    as_object,
    as_small_object,
    as_texts,
    further_fields,
    is_valid,
    parse_each,
    text_field,
    url_field,
)
from armarium.foundation.schema import Json
from armarium.foundation.surrogates import replace_unpaired_surrogates
from armarium.foundation.tools import Relayed

_MAX_ID = 512
_MAX_SNIPPET = 4_000
_MAX_CHUNK = 50_000
_MAX_ANSWER = 200_000
_MAX_EXCERPT = 200
_MAX_RESOURCES = 5_000
_MAX_CITATIONS = 200
_MAX_COUNTS = 10
_NO_ONE = ("",)


def parse_body(server: str, result: Relayed) -> Json:
    """The body as JSON. Raises the error if the server reports one of the contract's error codes."""
    body = result.structured if result.structured is not None else _json_in_text(result)
    if body is not None and list(body) == ["result"] and isinstance(body["result"], dict):
        # Some frameworks wrap the return value of a function.
        body = cast(Json, body["result"])
    if body is not None and (error := _contract_error(server, body)) is not None:
        raise error
    if result.is_error:
        texts = [block.get("text") for block in result.content if block.get("type") == "text"]
        said = excerpt(" ".join(text for text in texts if isinstance(text, str)))
        raise UpstreamProtocol(f"{server} reported an error", private={"said": said})
    if body is None:
        raise UpstreamProtocol(f"{server} sent a response that is not JSON")
    return body


def _results(server: str, body: Json, wanted: str) -> Json:
    """The object that contains `wanted`: `results`, or the body itself for older servers."""
    results = as_object(body.get("results"))
    if wanted in results:
        return results
    if wanted in body:
        return body
    raise UpstreamProtocol(f"{server} sent a response without `{wanted}`")


def parse_listing(server: str, body: Json) -> ResourceList:
    entries = as_list(_results(server, body, "resources")["resources"])
    reasons = as_object(as_object(body.get("meta_data")).get("incomplete"))
    resources, dropped = parse_each(entries[:_MAX_RESOURCES], lambda entry, _: _resource(entry, reasons))
    unique = {resource.id: resource for resource in reversed(resources)}
    kept = [resource for resource in resources if unique[resource.id] is resource]
    dropped += len(resources) - len(kept) + max(0, len(entries) - _MAX_RESOURCES)
    paging = as_object((as_object(body.get("results")) or body).get("paging"))
    total = as_count(paging.get("total"))
    return ResourceList(kept, dropped, _synthesis_params(body), total, parse_attachments(body))


def _synthesis_params(body: Json) -> Json:
    reported = as_object(as_object(body.get("meta_data")).get("synthesis_params"))
    params: Json = {name: text_field(reported, name, 200) for name in ("model", "style")}
    params["max_chars"] = as_count(reported.get("max_chars"))
    return {name: value for name, value in params.items() if value}


def parse_hits(server: str, body: Json, asked: Collection[str], most: int) -> RagHits:
    """The hits in a response, best first; hits from other sources than those requested are dropped."""
    results = _results(server, body, "hits")
    entries = as_list(results["hits"])
    only = next(iter(asked)) if len(asked) == 1 else None
    found, dropped = parse_each(entries[: most * 10], lambda entry, place: parse_hit(entry, place, only))
    allowed = [each for each in found if each.resource_id in asked]
    # A stable sort keeps the server's order among equal scores.
    allowed.sort(key=lambda each: -each.score)
    total = as_count(as_object(results.get("stats")).get("total_found"))
    meta = as_object(body.get("meta_data"))
    unmet = as_texts(meta.get("unmet_filters"))
    unmet_filters = [name for name in FILTERS if name in unmet]
    return RagHits(
        allowed[:most],
        dropped + len(found) - len(allowed),
        total,
        unmet_filters=unmet_filters,
        attachments=parse_attachments(body),
        incomplete=_incomplete(meta, asked),
    )


def _incomplete(meta: Json, asked: Iterable[str]) -> dict[str, str]:
    """Why documents of the requested sources may be missing, by source."""
    reasons = as_object(meta.get("incomplete"))
    return {each: reason for each in asked if (reason := text_field(reasons, each, _MAX_EXCERPT)) is not None}


def parse_hit(entry: Json, place: int, only_source: str | None = None) -> RagHit | None:
    """One hit; None if it has no content or no source."""
    snippet, chunk = text_field(entry, "snippet", _MAX_SNIPPET), text_field(entry, "chunk", _MAX_CHUNK)
    uri, resource_id = url_field(entry, "uri"), text_field(entry, "resourceId", _MAX_ID) or only_source
    if resource_id is None or not (snippet or chunk or uri):
        return None
    return RagHit(
        id=text_field(entry, "id", _MAX_ID) or uri or f"{resource_id}#{place + 1}",
        score=as_number(entry.get("score")) or 0.0,
        resource_id=resource_id,
        snippet=snippet,
        chunk=chunk,
        title=text_field(entry, "title", MAX_NAME_LENGTH),
        uri=uri,
        source_id=text_field(entry, "sourceId", _MAX_ID),
        provenance=as_small_object(entry.get("provenance")),
        timestamp=text_field(entry, "timestamp", 100),
        further=further_fields(entry, HIT_FIELDS),
    )


def parse_answer(server: str, body: Json, asked: Iterable[str]) -> RagAnswer:
    """A server's answer with its citations and artifacts."""
    results = _results(server, body, "answer")
    answer = results["answer"]
    if not isinstance(answer, str):
        raise UpstreamProtocol(f"{server} sent an `answer` that is not a text")
    citations, dropped = parse_each(as_list(results.get("citations"))[:_MAX_CITATIONS], _citation)
    meta = as_object(body.get("meta_data"))
    limits = as_object(results.get("limits"))
    if len(answer) > _MAX_ANSWER:
        limits = {"truncated": True, "reason": "the server's answer exceeds the gateway's limit"}
    return RagAnswer(
        answer=replace_unpaired_surrogates(answer[:_MAX_ANSWER]),
        citations=citations,
        limits=_typed_fields(limits, {"truncated": bool, "reason": str}),
        attachments=parse_attachments(body),
        model=text_field(meta, "model", 200),
        tokens=_counts(meta.get("tokens")),
        dropped=dropped,
        incomplete=_incomplete(meta, asked),
    )


def _counts(tokens: object) -> Json | None:
    """Token usage, as a total or by kind."""
    if type(tokens) is int and as_count(tokens) is not None:
        return {"total": tokens}
    counts = [(name, count) for name, count in as_object(as_bounded(tokens)).items() if type(count) is int]
    return {name[:MAX_NAME_LENGTH]: count for name, count in counts[:_MAX_COUNTS]} or None


def _contract_error(server: str, body: Json) -> GatewayError | None:
    """The error in `results`, in `meta_data`, or in the body itself."""
    for holder in (body.get("results"), body.get("meta_data"), body):
        found = as_object(holder).get("error")
        code = found if isinstance(found, str) else as_object(found).get("code")
        if isinstance(code, str):
            message = as_object(found).get("message")
            error_type = CONTRACT_ERRORS.get(code)
            if error_type is None:
                return UpstreamProtocol(f"{server} failed: {excerpt(code)}")
            detail = f": {excerpt(message)}" if isinstance(message, str) and message.strip() else ""
            return error_type(f"{server} reports {code}{detail}", root=server)
    return None


def excerpt(text: str) -> str:
    """The beginning of a text from a server, on one line and without control characters."""
    line = " ".join(text.split())
    clean = "".join(character if character.isprintable() else " " for character in line)
    return clean if len(clean) <= _MAX_EXCERPT else clean[:_MAX_EXCERPT] + "…"


def _resource(entry: Json, reasons: Json) -> Resource | None:
    resource_id = text_field(entry, "id", _MAX_ID)
    if resource_id is None or entry["id"] != resource_id:
        return None
    required, counts = entry.get("authRequired"), as_object(entry.get("counts"))
    mode = entry["authMode"] if entry.get("authMode") in AUTH_MODES else "none"
    return Resource(
        id=resource_id,
        name=text_field(entry, "name", MAX_NAME_LENGTH) or resource_id,
        source_type=text_field(entry, "sourceType", 100) or "unknown",
        auth_mode=mode,
        auth_required=required if isinstance(required, bool) else mode not in OPEN_MODES,
        source_id=text_field(entry, "sourceId", _MAX_ID),
        groups=_groups(entry.get("groups")),
        scopes=as_texts(entry.get("scopes")),
        tags=as_texts(entry["tags"]) if isinstance(entry.get("tags"), list) else None,
        last_indexed=text_field(entry, "lastIndexed", 100),
        docs=as_count(counts.get("docs")),
        chunks=as_count(counts.get("chunks")),
        default_selected=entry["defaultSelected"] if isinstance(entry.get("defaultSelected"), bool) else None,
        incomplete=text_field(reasons, resource_id, _MAX_EXCERPT),
        hierarchy=_hierarchy(entry),
    )


def _hierarchy(entry: Json) -> Json:
    hints: Json = {
        "parentId": text_field(entry, "parentId", _MAX_ID),
        "parentIds": list(as_texts(entry.get("parentIds"))),
        "path": list(as_texts(entry.get("path"))) or text_field(entry, "path", _MAX_ID),
    }
    return {name: value for name, value in hints.items() if value}


def _citation(entry: Json, _: int) -> Json | None:
    described: Json = {
        name: text
        for name, max_length in (("title", MAX_NAME_LENGTH), ("resourceId", _MAX_ID), ("marker", 100))
        if (text := text_field(entry, name, max_length))
    }
    if uri := url_field(entry, "uri"):
        described["uri"] = uri
    if (offsets := as_bounded(entry.get("offsets"))) is not None:
        described["offsets"] = offsets
    return further_fields(entry, CITATION_FIELDS) | described or None


def _typed_fields(given: Json, types: Mapping[str, type]) -> Json | None:
    return {name: given[name] for name, kind in types.items() if is_valid(given.get(name), kind)} or None


def _json_in_text(result: Relayed) -> Json | None:
    """The object that a server without structured results sends as text."""
    for block in result.content:
        text = block.get("text")
        if block.get("type") == "text" and isinstance(text, str):
            try:
                parsed = orjson.loads(text)
            except orjson.JSONDecodeError:
                return None
            return cast(Json, parsed) if isinstance(parsed, dict) else None
    return None


def _groups(value: object) -> tuple[str, ...]:
    """The groups of a resource. An invalid value becomes a group that no caller is in."""
    if value is None or value == []:
        return ()
    groups = as_texts(value)
    return groups if groups and len(groups) == len(as_list(value)) else _NO_ONE
