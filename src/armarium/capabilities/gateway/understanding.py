"""Makes the contract's shapes of whatever servers answer: what is missing is filled in, what is wrong is left out and
counted, and nothing is larger than it may be, so that a server that lies harms nobody but itself."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping
from typing import Any, TypeVar, cast

import orjson

from armarium.capabilities.gateway.contract import DISPLAY_FIELDS
from armarium.capabilities.gateway.errors import GatewayError, UpstreamProtocol
from armarium.capabilities.gateway.filters import FILTERS
from armarium.capabilities.gateway.model import Hit, Hits, Json, Listing, Resource, ServerAnswer
from armarium.capabilities.gateway.refusals import REFUSALS
from armarium.capabilities.gateway.server_entries import AUTH_MODES, OPEN_MODES
from armarium.capabilities.gateway.upstreams.answers import CallResult

_LONGEST_NAME = 500
_LONGEST_ID = 512
_LONGEST_SNIPPET = 4_000
_LONGEST_CHUNK = 50_000
_LONGEST_ANSWER = 200_000
_LONGEST_EXCERPT = 200
_LARGEST_PROVENANCE = 8_000
_MOST_RESOURCES = 5_000
_MOST_CITATIONS = 200
_MOST_ARTIFACTS = 20
_MOST_COUNTS = 10
_NOBODY = ("",)

T = TypeVar("T")


def body_of(server: str, result: CallResult) -> Json:
    """The answer as JSON; a refusal that the server told in the contract's words is raised as what it is."""
    body = result.structured if result.structured is not None else _json_in_text(result)
    if body is not None and list(body) == ["result"] and isinstance(body["result"], dict):
        # Some frameworks wrap what a function returns.
        body = cast(Json, body["result"])
    if body is not None and (refusal := _refusal(server, body)) is not None:
        raise refusal
    if result.is_error:
        raise UpstreamProtocol(f"{server} answered with an error of its own", private={"said": _said(result)})
    if body is None:
        raise UpstreamProtocol(f"{server} answered with something that is not JSON")
    return body


def results_in(server: str, body: Json, wanted: str) -> Json:
    """`results`, in which `wanted` must be; older servers put it in the answer itself."""
    results = _object(body.get("results")) or {}
    if wanted in results:
        return results
    if wanted in body:
        return body
    raise UpstreamProtocol(f"{server} answered without `{wanted}`")


def listing(server: str, body: Json) -> Listing:
    """The resources in an answer."""
    entries = _list(results_in(server, body, "resources")["resources"])
    resources, dropped = _each(entries[:_MOST_RESOURCES], _resource)
    unique = {resource.id: resource for resource in reversed(resources)}
    kept = [resource for resource in resources if unique[resource.id] is resource]
    dropped += len(resources) - len(kept) + max(0, len(entries) - _MOST_RESOURCES)
    return Listing(kept, dropped, _synthesis_params(body))


def _synthesis_params(body: Json) -> Json:
    told = _object((_object(body.get("meta_data")) or {}).get("synthesis_params")) or {}
    params = {"model": _text(told, "model", 200), "style": _text(told, "style", 200)}
    params |= {"max_chars": _whole(told.get("max_chars"))}
    return {name: value for name, value in params.items() if value}


def told_total(body: Json) -> int | None:
    """How many resources there are in all, where the server pages and says so."""
    paging = _object((_object(body.get("results")) or body).get("paging")) or {}
    return _whole(paging.get("total"))


def hits(server: str, body: Json, asked: Collection[str], most: int) -> Hits:
    """The hits in an answer, best first; only those of the sources that were asked."""
    results = results_in(server, body, "hits")
    entries = _list(results["hits"])
    only = next(iter(asked)) if len(asked) == 1 else None
    found, dropped = _each(entries[: most * 10], lambda entry, place: hit(entry, place, only))
    allowed = [each for each in found if each.resource_id in asked]
    # Stable: what a server gave the same score stays in its order.
    allowed.sort(key=lambda each: -each.score)
    stats = _object(results.get("stats")) or {}
    unmet = _texts((_object(body.get("meta_data")) or {}).get("unmet_filters"))
    return Hits(
        allowed[:most],
        dropped + len(found) - len(allowed),
        _whole(stats.get("total_found")),
        unmet_filters=[name for name in FILTERS if name in unmet],
    )


def hit(entry: Json, place: int, only_source: str | None = None) -> Hit | None:
    """One hit; None when there is nothing in it to read."""
    snippet, chunk = _text(entry, "snippet", _LONGEST_SNIPPET), _text(entry, "chunk", _LONGEST_CHUNK)
    uri, resource_id = _text(entry, "uri", 2_000), _text(entry, "resourceId", _LONGEST_ID) or only_source
    if resource_id is None or not (snippet or chunk or uri):
        return None
    return Hit(
        id=_text(entry, "id", _LONGEST_ID) or uri or f"{resource_id}#{place + 1}",
        score=_number(entry.get("score")) or 0.0,
        resource_id=resource_id,
        snippet=snippet,
        chunk=chunk,
        title=_text(entry, "title", _LONGEST_NAME),
        uri=uri,
        source_id=_text(entry, "sourceId", _LONGEST_ID),
        provenance=_small_object(entry.get("provenance")),
        timestamp=_text(entry, "timestamp", 100),
    )


def server_answer(server: str, body: Json) -> ServerAnswer:
    """The answer that a server wrote, with what it shows beside it."""
    results = results_in(server, body, "answer")
    answer = results["answer"]
    if not isinstance(answer, str):
        raise UpstreamProtocol(f"{server} answered with an `answer` that is no text")
    citations, dropped = _each(_list(results.get("citations"))[:_MOST_CITATIONS], lambda entry, _: _citation(entry))
    artifacts, no_artifacts = _each(_list(body.get("artifacts"))[:_MOST_ARTIFACTS], lambda entry, _: _artifact(entry))
    meta = _object(body.get("meta_data")) or {}
    limits = _object(results.get("limits")) or {}
    if len(answer) > _LONGEST_ANSWER:
        limits = {"truncated": True, "reason": "the server's answer was longer than the gateway passes on"}
    told = {name: limits[name] for name, kind in (("truncated", bool), ("reason", str)) if _is(limits.get(name), kind)}
    return ServerAnswer(
        answer=answer[:_LONGEST_ANSWER],
        citations=citations,
        limits=told or None,
        artifacts=artifacts,
        display=_display(body.get("display")),
        model=_text(meta, "model", 200),
        tokens=_counts(meta.get("tokens")),
        dropped=dropped + no_artifacts,
    )


def _counts(tokens: object) -> Json | None:
    """How many tokens, said as one number or by kinds."""
    if type(tokens) is int:
        return {"total": tokens}
    counts = [(name, count) for name, count in (_object(tokens) or {}).items() if type(count) is int]
    return {name[:_LONGEST_NAME]: count for name, count in counts[:_MOST_COUNTS]} or None


def _refusal(server: str, body: Json) -> GatewayError | None:
    """The error that the contract lets servers put into `results`, into `meta_data`, or beside them."""
    for holder in (body.get("results"), body.get("meta_data"), body):
        found = (_object(holder) or {}).get("error")
        code = found if isinstance(found, str) else (_object(found) or {}).get("code")
        if isinstance(code, str):
            message = (_object(found) or {}).get("message")
            refusal = REFUSALS.get(code)
            if refusal is None:
                return UpstreamProtocol(f"{server} failed: {excerpt(code)}")
            said = f": {excerpt(message)}" if isinstance(message, str) and message.strip() else ""
            return refusal(f"{server} says {code}{said}", root=server)
    return None


def excerpt(text: str) -> str:
    """A short piece of what a server said, on one line and without control characters."""
    line = " ".join(text.split())
    clean = "".join(character if character.isprintable() else " " for character in line)
    return clean if len(clean) <= _LONGEST_EXCERPT else clean[:_LONGEST_EXCERPT] + "…"


def _resource(entry: Json, _: int) -> Resource | None:
    resource_id = _text(entry, "id", _LONGEST_ID)
    if resource_id is None or entry["id"] != resource_id:
        return None
    mode = entry.get("authMode")
    required = entry.get("authRequired")
    counts = _object(entry.get("counts")) or {}
    known_mode = mode if mode in AUTH_MODES else "none"
    return Resource(
        id=resource_id,
        name=_text(entry, "name", _LONGEST_NAME) or resource_id,
        source_type=_text(entry, "sourceType", 100) or "unknown",
        auth_mode=known_mode,
        auth_required=required if isinstance(required, bool) else known_mode not in OPEN_MODES,
        source_id=_text(entry, "sourceId", _LONGEST_ID),
        groups=_groups(entry.get("groups")),
        scopes=_texts(entry.get("scopes")),
        tags=_texts(entry["tags"]) if isinstance(entry.get("tags"), list) else None,
        last_indexed=_text(entry, "lastIndexed", 100),
        docs=_whole(counts.get("docs")),
        chunks=_whole(counts.get("chunks")),
    )


def _citation(entry: Json) -> Json | None:
    described: Json = {
        name: text
        for name, longest in (("uri", 2_000), ("title", _LONGEST_NAME), ("resourceId", _LONGEST_ID), ("marker", 100))
        if (text := _text(entry, name, longest))
    }
    offsets = entry.get("offsets")
    if offsets is not None and _size(offsets) <= _LARGEST_PROVENANCE:
        described["offsets"] = offsets
    return described or None


def _artifact(entry: Json) -> Json | None:
    name, b64, mime = entry.get("name"), entry.get("b64"), entry.get("mime")
    if not (isinstance(name, str) and isinstance(b64, str) and isinstance(mime, str) and name and mime):
        return None
    described: Json = {"name": name[:_LONGEST_NAME], "b64": b64, "mime": mime[:100]}
    if (size := _whole(entry.get("size"))) is not None:
        described["size"] = size
    return described | {key: text for key in ("description", "viewer") if (text := _text(entry, key, _LONGEST_NAME))}


def _display(value: object) -> Json | None:
    given = _object(value) or {}
    kinds = {name: bool if schema["type"] == "boolean" else str for name, schema in DISPLAY_FIELDS.items()}
    return {name: given[name] for name, kind in kinds.items() if _is(given.get(name), kind)} or None


def _each(entries: list[Any], make: Callable[[Json, int], T | None]) -> tuple[list[T], int]:
    """What can be made of the entries, and how many were of no use."""
    made: list[T] = []
    for place, entry in enumerate(entries):
        found = _object(entry)
        one = make(found, place) if found is not None else None
        if one is not None:
            made.append(one)
    return made, len(entries) - len(made)


def _json_in_text(result: CallResult) -> Json | None:
    """The object that a server without structured answers writes as text."""
    for block in result.content:
        text = block.get("text")
        if block.get("type") == "text" and isinstance(text, str):
            try:
                return _object(orjson.loads(text))
            except orjson.JSONDecodeError:
                return None
    return None


def _said(result: CallResult) -> str:
    texts = (block.get("text") for block in result.content if block.get("type") == "text")
    return excerpt(" ".join(text for text in texts if isinstance(text, str)))


def _object(value: object) -> Json | None:
    return cast(Json, value) if isinstance(value, dict) else None


def _list(value: object) -> list[Any]:
    return cast("list[Any]", value) if isinstance(value, list) else []


def _text(entry: Mapping[str, Any], name: str, longest: int) -> str | None:
    value = entry.get(name)
    return value[:longest] if isinstance(value, str) and value else None


def _texts(value: object) -> tuple[str, ...]:
    return tuple(each[:_LONGEST_NAME] for each in _list(value)[:1000] if isinstance(each, str) and each)


def _groups(value: object) -> tuple[str, ...]:
    """The groups of a resource; one that nobody is in, where something is there that is no list of groups."""
    if value is None or value == []:
        return ()
    groups = _texts(value)
    return groups if groups and len(groups) == len(_list(value)) else _NOBODY


def _number(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None


def _whole(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**53 else None


def _small_object(value: object) -> Json | None:
    found = _object(value)
    return found if found and _size(found) <= _LARGEST_PROVENANCE else None


def _size(value: object) -> int:
    try:
        return len(orjson.dumps(value))
    except TypeError:
        return _LARGEST_PROVENANCE + 1


def _is(value: object, kind: type) -> bool:
    return isinstance(value, kind) and (not isinstance(value, str) or len(value) <= _LONGEST_NAME)
