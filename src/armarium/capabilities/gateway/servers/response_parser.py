"""Makes the contract's shapes of whatever servers answer: what is missing is filled in, what is wrong is left out and
counted, and nothing is larger than it may be, so that a server that lies harms nobody but itself."""

from __future__ import annotations

from collections.abc import Collection
from typing import cast

import orjson

from armarium.capabilities.gateway.config.entries import AUTH_MODES, OPEN_MODES
from armarium.capabilities.gateway.contract import DISPLAY_FIELDS
from armarium.capabilities.gateway.errors import GatewayError, UpstreamProtocol
from armarium.capabilities.gateway.filters import FILTERS
from armarium.capabilities.gateway.model import Hit, Hits, Listing, Resource, ServerAnswer
from armarium.capabilities.gateway.refusals import REFUSALS
from armarium.capabilities.gateway.servers.untrusted_json import (
    LARGEST_OBJECT,
    LONGEST_NAME,
    is_a,
    list_in,
    made_of_each,
    number_in,
    object_in,
    size_of,
    small_object_in,
    text_of,
    texts_in,
    whole_in,
)
from armarium.capabilities.gateway.upstreams.types import CallResult
from armarium.foundation.schema import Json

_LONGEST_ID = 512
_LONGEST_SNIPPET = 4_000
_LONGEST_CHUNK = 50_000
_LONGEST_ANSWER = 200_000
_LONGEST_EXCERPT = 200
_MOST_RESOURCES = 5_000
_MOST_CITATIONS = 200
_MOST_ARTIFACTS = 20
_MOST_COUNTS = 10
_NOBODY = ("",)


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
    results = object_in(body.get("results")) or {}
    if wanted in results:
        return results
    if wanted in body:
        return body
    raise UpstreamProtocol(f"{server} answered without `{wanted}`")


def listing(server: str, body: Json) -> Listing:
    """The resources in an answer."""
    entries = list_in(results_in(server, body, "resources")["resources"])
    resources, dropped = made_of_each(entries[:_MOST_RESOURCES], _resource)
    unique = {resource.id: resource for resource in reversed(resources)}
    kept = [resource for resource in resources if unique[resource.id] is resource]
    dropped += len(resources) - len(kept) + max(0, len(entries) - _MOST_RESOURCES)
    return Listing(kept, dropped, _synthesis_params(body))


def _synthesis_params(body: Json) -> Json:
    told = object_in((object_in(body.get("meta_data")) or {}).get("synthesis_params")) or {}
    params = {"model": text_of(told, "model", 200), "style": text_of(told, "style", 200)}
    params |= {"max_chars": whole_in(told.get("max_chars"))}
    return {name: value for name, value in params.items() if value}


def told_total(body: Json) -> int | None:
    """How many resources there are in all, where the server pages and says so."""
    paging = object_in((object_in(body.get("results")) or body).get("paging")) or {}
    return whole_in(paging.get("total"))


def hits(server: str, body: Json, asked: Collection[str], most: int) -> Hits:
    """The hits in an answer, best first; only those of the sources that were asked."""
    results = results_in(server, body, "hits")
    entries = list_in(results["hits"])
    only = next(iter(asked)) if len(asked) == 1 else None
    found, dropped = made_of_each(entries[: most * 10], lambda entry, place: hit(entry, place, only))
    allowed = [each for each in found if each.resource_id in asked]
    # Stable: what a server gave the same score stays in its order.
    allowed.sort(key=lambda each: -each.score)
    stats = object_in(results.get("stats")) or {}
    unmet = texts_in((object_in(body.get("meta_data")) or {}).get("unmet_filters"))
    return Hits(
        allowed[:most],
        dropped + len(found) - len(allowed),
        whole_in(stats.get("total_found")),
        unmet_filters=[name for name in FILTERS if name in unmet],
    )


def hit(entry: Json, place: int, only_source: str | None = None) -> Hit | None:
    """One hit; None when there is nothing in it to read."""
    snippet, chunk = text_of(entry, "snippet", _LONGEST_SNIPPET), text_of(entry, "chunk", _LONGEST_CHUNK)
    uri, resource_id = text_of(entry, "uri", 2_000), text_of(entry, "resourceId", _LONGEST_ID) or only_source
    if resource_id is None or not (snippet or chunk or uri):
        return None
    return Hit(
        id=text_of(entry, "id", _LONGEST_ID) or uri or f"{resource_id}#{place + 1}",
        score=number_in(entry.get("score")) or 0.0,
        resource_id=resource_id,
        snippet=snippet,
        chunk=chunk,
        title=text_of(entry, "title", LONGEST_NAME),
        uri=uri,
        source_id=text_of(entry, "sourceId", _LONGEST_ID),
        provenance=small_object_in(entry.get("provenance")),
        timestamp=text_of(entry, "timestamp", 100),
    )


def server_answer(server: str, body: Json) -> ServerAnswer:
    """The answer that a server wrote, with what it shows beside it."""
    results = results_in(server, body, "answer")
    answer = results["answer"]
    if not isinstance(answer, str):
        raise UpstreamProtocol(f"{server} answered with an `answer` that is no text")
    citations, dropped = made_of_each(list_in(results.get("citations"))[:_MOST_CITATIONS], _citation)
    artifacts, no_artifacts = made_of_each(list_in(body.get("artifacts"))[:_MOST_ARTIFACTS], _artifact)
    meta = object_in(body.get("meta_data")) or {}
    limits = object_in(results.get("limits")) or {}
    if len(answer) > _LONGEST_ANSWER:
        limits = {"truncated": True, "reason": "the server's answer was longer than the gateway passes on"}
    told = {name: limits[name] for name, kind in (("truncated", bool), ("reason", str)) if is_a(limits.get(name), kind)}
    return ServerAnswer(
        answer=answer[:_LONGEST_ANSWER],
        citations=citations,
        limits=told or None,
        artifacts=artifacts,
        display=_display(body.get("display")),
        model=text_of(meta, "model", 200),
        tokens=_counts(meta.get("tokens")),
        dropped=dropped + no_artifacts,
    )


def _counts(tokens: object) -> Json | None:
    """How many tokens, said as one number or by kinds."""
    if type(tokens) is int:
        return {"total": tokens}
    counts = [(name, count) for name, count in (object_in(tokens) or {}).items() if type(count) is int]
    return {name[:LONGEST_NAME]: count for name, count in counts[:_MOST_COUNTS]} or None


def _refusal(server: str, body: Json) -> GatewayError | None:
    """The error that the contract lets servers put into `results`, into `meta_data`, or beside them."""
    for holder in (body.get("results"), body.get("meta_data"), body):
        found = (object_in(holder) or {}).get("error")
        code = found if isinstance(found, str) else (object_in(found) or {}).get("code")
        if isinstance(code, str):
            message = (object_in(found) or {}).get("message")
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
    resource_id = text_of(entry, "id", _LONGEST_ID)
    if resource_id is None or entry["id"] != resource_id:
        return None
    mode = entry.get("authMode")
    required = entry.get("authRequired")
    counts = object_in(entry.get("counts")) or {}
    known_mode = mode if mode in AUTH_MODES else "none"
    return Resource(
        id=resource_id,
        name=text_of(entry, "name", LONGEST_NAME) or resource_id,
        source_type=text_of(entry, "sourceType", 100) or "unknown",
        auth_mode=known_mode,
        auth_required=required if isinstance(required, bool) else known_mode not in OPEN_MODES,
        source_id=text_of(entry, "sourceId", _LONGEST_ID),
        groups=_groups(entry.get("groups")),
        scopes=texts_in(entry.get("scopes")),
        tags=texts_in(entry["tags"]) if isinstance(entry.get("tags"), list) else None,
        last_indexed=text_of(entry, "lastIndexed", 100),
        docs=whole_in(counts.get("docs")),
        chunks=whole_in(counts.get("chunks")),
    )


def _citation(entry: Json, _: int) -> Json | None:
    described: Json = {
        name: text
        for name, longest in (("uri", 2_000), ("title", LONGEST_NAME), ("resourceId", _LONGEST_ID), ("marker", 100))
        if (text := text_of(entry, name, longest))
    }
    offsets = entry.get("offsets")
    if offsets is not None and size_of(offsets) <= LARGEST_OBJECT:
        described["offsets"] = offsets
    return described or None


def _artifact(entry: Json, _: int) -> Json | None:
    name, b64, mime = entry.get("name"), entry.get("b64"), entry.get("mime")
    if not (isinstance(name, str) and isinstance(b64, str) and isinstance(mime, str) and name and mime):
        return None
    described: Json = {"name": name[:LONGEST_NAME], "b64": b64, "mime": mime[:100]}
    if (size := whole_in(entry.get("size"))) is not None:
        described["size"] = size
    return described | {key: text for key in ("description", "viewer") if (text := text_of(entry, key, LONGEST_NAME))}


def _display(value: object) -> Json | None:
    given = object_in(value) or {}
    kinds = {name: bool if schema["type"] == "boolean" else str for name, schema in DISPLAY_FIELDS.items()}
    return {name: given[name] for name, kind in kinds.items() if is_a(given.get(name), kind)} or None


def _json_in_text(result: CallResult) -> Json | None:
    """The object that a server without structured answers writes as text."""
    for block in result.content:
        text = block.get("text")
        if block.get("type") == "text" and isinstance(text, str):
            try:
                return object_in(orjson.loads(text))
            except orjson.JSONDecodeError:
                return None
    return None


def _said(result: CallResult) -> str:
    texts = (block.get("text") for block in result.content if block.get("type") == "text")
    return excerpt(" ".join(text for text in texts if isinstance(text, str)))


def _groups(value: object) -> tuple[str, ...]:
    """The groups of a resource; one that nobody is in, where something is there that is no list of groups."""
    if value is None or value == []:
        return ()
    groups = texts_in(value)
    return groups if groups and len(groups) == len(list_in(value)) else _NOBODY
