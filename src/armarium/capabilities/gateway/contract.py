"""The contract of the three RAG tools: names, and the schemas of arguments, results and errors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from armarium.capabilities.gateway.arguments import DEFAULT_PAGE_SIZE, MAX_PAGE_SIZE, MAX_SELECTED, MAX_SOURCES
from armarium.capabilities.gateway.config.entries import AUTH_MODES
from armarium.capabilities.gateway.secret_parameters import MAX_SECRET_LENGTH, SECRET_PARAMETERS
from armarium.foundation.schema import Json
from armarium.retrieval.search.follow_ups import MAX_EARLIER

CONTRACT_VERSION: Final = "rag-tools-v1"
DISCOVER: Final = "rag_discover_resources"
RAW_RESULTS: Final = "rag_get_raw_results"
SYNTHESIZED: Final = "rag_get_synthesized_results"
RAG_TOOLS: Final = frozenset({DISCOVER, RAW_RESULTS, SYNTHESIZED})
DEFAULT_TOP_K: Final = 8

_STRING: Json = {"type": "string"}
_INTEGER: Json = {"type": "integer"}
_NUMBER: Json = {"type": "number"}
_BOOLEAN: Json = {"type": "boolean"}
_OBJECT: Json = {"type": "object"}


def _strings(*names: str) -> Json:
    return dict.fromkeys(names, _STRING)


def _list(items: Json, **limits: int) -> Json:
    return {"type": "array", "items": items, **limits}


def _count(maximum: int, **more: int) -> Json:
    return {"type": "integer", "minimum": 1, "maximum": maximum, **more}


def _with_description(schema: Json, description: str) -> Json:
    return schema | {"description": description}


def _object(properties: Json, required: tuple[str, ...] = (), *, closed: bool = True) -> Json:
    described: Json = {"type": "object", "properties": properties}
    if closed:
        described["additionalProperties"] = False
    return described | ({"required": list(required)} if required else {})


_STRINGS: Json = _list(_STRING, maxItems=1000)
_OPTIONAL_TEXT: Json = {"type": "string", "maxLength": 1000}
_USERNAME: Json = _with_description(_STRING, "Ignored: the authenticated caller's name replaces it.")
_SECRET: Json = {
    "type": "string",
    "maxLength": MAX_SECRET_LENGTH,
    "description": "For the one server of the sources, if it declares the parameter. Never logged or stored.",
}
_SOURCES: Json = _with_description(
    _list({"type": "string", "minLength": 1, "maxLength": 600}, minItems=1, maxItems=MAX_SOURCES),
    "Ids from rag_discover_resources: `<server>:<id>`, or only the id if it is unambiguous. May be omitted if the user "
    "has selected sources; for an answer, default: all sources you may use.",
)
_SERVERS: Json = _with_description(
    _list({"type": "string", "minLength": 1, "maxLength": 64}, maxItems=100),
    "The servers in which ids without a server are looked up. Default: all servers you may use.",
)
_SEARCH_FILTERS: Json = _with_description(
    _object({"date_from": _STRING, "date_to": _STRING, "tags": _STRINGS, "owners": _STRINGS}),
    "Dates are ISO 8601. A source that cannot apply a filter returns no hits; `meta_data` lists the filter in "
    "`unmet_filters`. The sources of this server itself support dates, and projects of the store also owners.",
)
_DISCOVERY_FILTERS: Json = _object(
    {
        "types": _STRINGS,
        "tags": _STRINGS,
        "search": _OPTIONAL_TEXT,
        "page": _count(1_000_000, default=1),
        "page_size": _count(MAX_PAGE_SIZE, default=DEFAULT_PAGE_SIZE),
    }
)
_SELECTION: Json = _with_description(
    _object(
        {
            "selectedServers": _list({"type": "string", "minLength": 1, "maxLength": 64}, maxItems=MAX_SOURCES),
            "selectedResourceIds": _list({"type": "string", "minLength": 1, "maxLength": 600}, maxItems=MAX_SELECTED),
            "top_k": _count(1000),
            "session": {"type": "string", "minLength": 1, "maxLength": 200},
        }
    ),
    "The user's selection, as message metadata. It applies where the call itself names no `sources` or `top_k`. "
    "Applications send it as `_meta.rag`, which precedes this.",
)
_SYNTHESIS_PARAMS: Json = _object({"model": _STRING, "style": _OPTIONAL_TEXT, "max_chars": _count(1_000_000)})


def input_schemas(top_k_max: int = 100) -> dict[str, Json]:
    secrets = dict.fromkeys(SECRET_PARAMETERS, _SECRET)
    search: Json = {
        "username": _USERNAME,
        "query": {"type": "string", "minLength": 1, "maxLength": 20_000},
        "sources": _SOURCES,
        "servers": _SERVERS,
        "top_k": _count(top_k_max, default=min(DEFAULT_TOP_K, top_k_max)),
        "rag": _SELECTION,
    }
    ranking = _object({"rerank": _BOOLEAN, "model": _STRING})
    context = _object({"hits": _list(_OBJECT, maxItems=200)})
    required = ("query",)
    return {
        DISCOVER: _object({"username": _USERNAME, "filters": _DISCOVERY_FILTERS, "rag": _SELECTION, **secrets}),
        RAW_RESULTS: _object({**search, "filters": _SEARCH_FILTERS, "ranking": ranking, **secrets}, required),
        SYNTHESIZED: _object(
            {**search, "synthesis_params": _SYNTHESIS_PARAMS, "provided_context": context, **secrets}, required
        ),
    }


def ask_input_schema(top_k_max: int = 100) -> Json:
    """The input schema of `ASK`: that of an answer, and the earlier questions."""
    schema = input_schemas(top_k_max)[SYNTHESIZED]
    earlier = _list({"type": "string", "maxLength": 20_000}, maxItems=MAX_EARLIER)
    described = _with_description(earlier, "The earlier questions of the conversation, oldest first.")
    return {**schema, "properties": {**schema["properties"], "earlier": described}}


def rag_server_input_schemas(*, capability_token: bool) -> dict[str, Json]:
    """The input schemas of a RAG server: with a required username, and with no secrets except those it verifies."""
    removed = {*SECRET_PARAMETERS, "servers", "rag"} - ({"capability_token"} if capability_token else set())
    described = input_schemas()
    for schema in described.values():
        for name in removed:
            schema["properties"].pop(name, None)
        schema["properties"]["username"] = _with_description(_STRING, "The caller; set by the gateway.")
        schema["required"] = ["username", *schema.get("required", ())]
        if "sources" in schema["properties"]:
            schema["required"].append("sources")
    return described


_RESOURCE: Json = _object(
    {
        **_strings("id", "name", "sourceType", "sourceId"),
        "authRequired": _BOOLEAN,
        "authMode": {"type": "string", "enum": list(AUTH_MODES)},
        "groups": _STRINGS,
        "scopes": _STRINGS,
        "lastIndexed": _STRING,
        "counts": _object({"docs": _INTEGER, "chunks": _INTEGER}),
        "server": _with_description(_STRING, "The server of the resource."),
        "defaultSelected": _BOOLEAN,
        "status": {"type": "string", "enum": ["ready", "action_required"]},
        "parentId": _with_description(_STRING, "The id of the resource that contains it."),
        "parentIds": _STRINGS,
        "path": _with_description({"type": ["string", "array"], "items": _STRING}, "Its place in a hierarchy."),
    },
    ("id", "name", "sourceType", "authRequired", "authMode"),
)
_HIT: Json = _object(
    {
        "id": _STRING,
        "score": _NUMBER,
        **_strings("snippet", "chunk", "title", "uri", "resourceId", "sourceId"),
        "provenance": _OBJECT,
        "timestamp": _STRING,
        "server": _with_description(_STRING, "The server that found the hit."),
        "serverRank": _with_description(_INTEGER, "Its rank among that server's hits, from 1."),
        "serverScore": _with_description(_NUMBER, "That server's own score; not comparable with another server's."),
    },
    ("id", "score", "resourceId"),
    # A server may add fields of its own.
    closed=False,
)
HIT_FIELDS: Final = frozenset(_HIT["properties"])
_CITATION: Json = _object(
    {
        **_strings("uri", "title", "resourceId"),
        "offsets": {},
        "marker": _with_description(_STRING, "The marker in the answer."),
        "server": _STRING,
    },
    closed=False,
)
CITATION_FIELDS: Final = frozenset(_CITATION["properties"])
_PAGING: Json = _object({"page": _INTEGER, "page_size": _INTEGER, "total": _INTEGER}, ("page", "page_size"))
_STATS: Json = _object(
    {"total_found": _INTEGER, "top_k": _INTEGER, "elapsed_ms": _NUMBER}, ("top_k", "elapsed_ms"), closed=False
)
_ARTIFACT: Json = _object(
    {
        **_strings("name", "b64", "mime", "description", "viewer"),
        "size": _INTEGER,
        "server": _with_description(_STRING, "The server that made it."),
    },
    ("name", "b64", "mime"),
)
DISPLAY_CHOICES: Final = {
    "mode": ("replace", "append", "split"),
    "viewer_hint": ("auto", "image", "pdf", "html", "code"),
}
CANVAS_CHOICES: Final = {"persistence": ("session", "ephemeral", "pinned")}


def _choices(choices: Mapping[str, tuple[str, ...]]) -> Json:
    return {name: {"type": "string", "enum": list(allowed)} for name, allowed in choices.items()}


_CANVAS: Json = _object(
    {"type": {"const": "iframe"}, **_strings("url", "id", "title", "token"), **_choices(CANVAS_CHOICES)},
    ("type", "url"),
)
_DISPLAY: Json = _object(
    {
        "open_canvas": _BOOLEAN,
        "primary_file": _with_description(_STRING, "The artifact to show first."),
        **_choices(DISPLAY_CHOICES),
        "canvas": _with_description(_CANVAS, "A page of the server to embed."),
        "server": _with_description(_STRING, "The server that asks for it."),
    }
)
_LIMITS: Json = _object({"truncated": _BOOLEAN, "reason": _STRING})


def _response(results: Json, required: tuple[str, ...], **more: Json) -> Json:
    version: Json = {"const": CONTRACT_VERSION}
    return _object(
        {"results": _object(results, required), "meta_data": _OBJECT, **more, "contract_version": version},
        ("results", "meta_data", "contract_version"),
    )


def _output(results: Json, required: str) -> Json:
    return _response(results, (required,), artifacts=_list(_ARTIFACT), display=_DISPLAY)


OUTPUT_SCHEMAS: dict[str, Json] = {
    DISCOVER: _output({"resources": _list(_RESOURCE), "paging": _PAGING}, "resources"),
    RAW_RESULTS: _output({"hits": _list(_HIT), "stats": _STATS}, "hits"),
    SYNTHESIZED: _output({"answer": _STRING, "citations": _list(_CITATION), "limits": _LIMITS}, "answer"),
}

ASK_OUTPUT_SCHEMA: Final = _response(
    {
        "answer": _STRING,
        "citations": _list(_CITATION),
        "limits": _LIMITS,
        "hits": _list(_HIT),
        "searched_for": _with_description(_STRING, "What was searched for instead of the question, if it refers."),
    },
    ("answer", "hits", "searched_for"),
    artifacts=_list(_ARTIFACT),
    display=_DISPLAY,
)
"""Of `ASK`: an answer with the hits it is based on."""

_ERROR: Json = _object(
    {
        "code": _with_description(_STRING, "Stable; branch on this, not on the message."),
        "message": _STRING,
        "retryable": _BOOLEAN,
        "hint": _STRING,
        "reason": _STRING,
        "retry_after_ms": _with_description(_INTEGER, "How long to wait before a retry."),
    },
    ("code", "message", "retryable"),
)
ERROR_SCHEMA: Final = _response({"error": _ERROR}, ("error",))
