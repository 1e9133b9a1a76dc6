"""The contract of the three RAG tools: their names, what they take and answer, and how they tell an error."""

from __future__ import annotations

from typing import Any, Final

from armarium import __version__
from armarium.capabilities.gateway.config.entries import AUTH_MODES
from armarium.capabilities.gateway.errors import GatewayError
from armarium.capabilities.gateway.secret_parameters import LONGEST_SECRET, SENSITIVE
from armarium.foundation.errors import ArmariumError
from armarium.foundation.schema import Json
from armarium.foundation.tools import ErrorStyle

CONTRACT_VERSION: Final = "rag-tools-v1"
DISCOVER: Final = "rag_discover_resources"
RAW_RESULTS: Final = "rag_get_raw_results"
SYNTHESIZED: Final = "rag_get_synthesized_results"
DEFAULT_TOP_K: Final = 8
DEFAULT_PAGE_SIZE: Final = 50
LARGEST_PAGE: Final = 500

_STRING: Json = {"type": "string"}
_INTEGER: Json = {"type": "integer"}
_NUMBER: Json = {"type": "number"}
_BOOLEAN: Json = {"type": "boolean"}
_OBJECT: Json = {"type": "object"}
_STRINGS: Json = {"type": "array", "items": _STRING, "maxItems": 1000}


def _said(schema: Json, description: str) -> Json:
    return schema | {"description": description}


def _object(properties: Json, required: tuple[str, ...] = (), *, closed: bool = True) -> Json:
    described: Json = {"type": "object", "properties": properties}
    if closed:
        described["additionalProperties"] = False
    return described | ({"required": list(required)} if required else {})


USERNAME: Json = _said(_STRING, "Ignored: the authenticated caller's name always takes its place.")
_SECRETS: Json = {
    name: {
        "type": "string",
        "maxLength": LONGEST_SECRET,
        "description": "For the one server that the sources are of, if it asks for it. Never logged or kept.",
    }
    for name in SENSITIVE
}
_SOURCES: Json = {
    "type": "array",
    "items": {"type": "string", "minLength": 1, "maxLength": 600},
    "minItems": 1,
    "maxItems": 100,
    "description": "Ids from rag_discover_resources, `<server>:<id>`; an id alone where only one server has it.",
}
_SERVERS: Json = {
    "type": "array",
    "items": {"type": "string", "minLength": 1, "maxLength": 64},
    "maxItems": 100,
    "description": "Where ids without a server are looked for; left out or empty, at all servers you may use.",
}
_QUERY: Json = {"type": "string", "minLength": 1, "maxLength": 20_000}
_SEARCH_FILTERS: Json = _said(
    _object({"date_from": _STRING, "date_to": _STRING, "tags": _STRINGS, "owners": _STRINGS}),
    "Dates are ISO 8601. Passed on to servers that take them; what cannot judge one gives no hits and is told as "
    "`unmet_filters` in `meta_data`. Sources of this server itself can judge none.",
)


def _top_k(largest: int) -> Json:
    return {"type": "integer", "minimum": 1, "maximum": largest, "default": min(DEFAULT_TOP_K, largest)}


def inputs(top_k_max: int = 100) -> dict[str, Json]:
    """What each tool takes."""
    return {
        DISCOVER: _object(
            {
                "username": USERNAME,
                "filters": _object(
                    {
                        "types": _STRINGS,
                        "tags": _STRINGS,
                        "search": {"type": "string", "maxLength": 1000},
                        "page": {"type": "integer", "minimum": 1, "maximum": 1_000_000, "default": 1},
                        "page_size": {
                            "type": "integer",
                            "minimum": 1,
                            "maximum": LARGEST_PAGE,
                            "default": DEFAULT_PAGE_SIZE,
                        },
                    }
                ),
                **_SECRETS,
            }
        ),
        RAW_RESULTS: _object(
            {
                "username": USERNAME,
                "query": _QUERY,
                "sources": _SOURCES,
                "servers": _SERVERS,
                "top_k": _top_k(top_k_max),
                "filters": _SEARCH_FILTERS,
                "ranking": _object({"rerank": _BOOLEAN, "model": _STRING}),
                **_SECRETS,
            },
            ("query", "sources"),
        ),
        SYNTHESIZED: _object(
            {
                "username": USERNAME,
                "query": _QUERY,
                "sources": _SOURCES,
                "servers": _SERVERS,
                "top_k": _top_k(top_k_max),
                "synthesis_params": _object(
                    {
                        "model": _STRING,
                        "style": {"type": "string", "maxLength": 1000},
                        "max_chars": {"type": "integer", "minimum": 1, "maximum": 1_000_000},
                    }
                ),
                "provided_context": _object(
                    {"hits": {"type": "array", "items": _OBJECT, "maxItems": 200}},
                ),
                **_SECRETS,
            },
            ("query", "sources"),
        ),
    }


def standalone_inputs(*, capability_token: bool) -> dict[str, Json]:
    """What a server of the three tools takes: it is told the username, and asks for no secret it does not need."""
    kept = {"capability_token"} if capability_token else set[str]()
    described = inputs()
    for schema in described.values():
        for name in {*SENSITIVE, "servers"} - kept:
            schema["properties"].pop(name, None)
        schema["properties"]["username"] = _said(_STRING, "Who asks; the gateway fills it in.")
        schema["required"] = ["username", *schema.get("required", ())]
    return described


_RESOURCE: Json = _object(
    {
        "id": _STRING,
        "name": _STRING,
        "sourceType": _STRING,
        "sourceId": _STRING,
        "authRequired": _BOOLEAN,
        "authMode": {"type": "string", "enum": list(AUTH_MODES)},
        "groups": _STRINGS,
        "scopes": _STRINGS,
        "lastIndexed": _STRING,
        "counts": _object({"docs": _INTEGER, "chunks": _INTEGER}),
        "server": _said(_STRING, "The server that has it."),
        "defaultSelected": _BOOLEAN,
        "status": {"type": "string", "enum": ["ready", "action_required"]},
    },
    ("id", "name", "sourceType", "authRequired", "authMode"),
)
_HIT: Json = _object(
    {
        "id": _STRING,
        "score": _NUMBER,
        "snippet": _STRING,
        "chunk": _STRING,
        "title": _STRING,
        "uri": _STRING,
        "resourceId": _STRING,
        "sourceId": _STRING,
        "provenance": _OBJECT,
        "timestamp": _STRING,
        "server": _said(_STRING, "The server that found it."),
        "serverRank": _said(_INTEGER, "Its place among that server's hits, from 1."),
        "serverScore": _said(_NUMBER, "That server's own score; not comparable with another server's."),
    },
    ("id", "score", "resourceId"),
)
_CITATION: Json = _object(
    {
        "uri": _STRING,
        "title": _STRING,
        "resourceId": _STRING,
        "offsets": {},
        "marker": _said(_STRING, "How the answer names it."),
        "server": _STRING,
    }
)
_PAGING: Json = _object({"page": _INTEGER, "page_size": _INTEGER, "total": _INTEGER}, ("page", "page_size"))
_STATS: Json = _object(
    {"total_found": _INTEGER, "top_k": _INTEGER, "elapsed_ms": _NUMBER}, ("top_k", "elapsed_ms"), closed=False
)
_ARTIFACT: Json = _object(
    {"name": _STRING, "b64": _STRING, "mime": _STRING, "size": _INTEGER, "description": _STRING, "viewer": _STRING},
    ("name", "b64", "mime"),
)
DISPLAY_FIELDS: Json = {
    "open_canvas": _BOOLEAN,
    "primary_file": _STRING,
    "mode": _STRING,
    "viewer_hint": _STRING,
}


def _output(results: Json) -> Json:
    return _object(
        {
            "results": results,
            "meta_data": _OBJECT,
            "artifacts": {"type": "array", "items": _ARTIFACT},
            "display": _object(DISPLAY_FIELDS),
            "contract_version": {"const": CONTRACT_VERSION},
        },
        ("results", "meta_data", "contract_version"),
    )


OUTPUT: dict[str, Json] = {
    DISCOVER: _output(_object({"resources": {"type": "array", "items": _RESOURCE}, "paging": _PAGING}, ("resources",))),
    RAW_RESULTS: _output(_object({"hits": {"type": "array", "items": _HIT}, "stats": _STATS}, ("hits",))),
    SYNTHESIZED: _output(
        _object(
            {
                "answer": _STRING,
                "citations": {"type": "array", "items": _CITATION},
                "limits": _object({"truncated": _BOOLEAN, "reason": _STRING}),
            },
            ("answer",),
        )
    ),
}


def answer(results: Json, meta_data: Json, **more: Any) -> Json:
    """An answer as the contract has it; what is None or empty in `more` is left out."""
    known = {"provider": "armarium", "version": __version__, "contract_version": CONTRACT_VERSION}
    body: Json = {"results": results, "meta_data": {**known, **meta_data}}
    body |= {name: value for name, value in more.items() if value}
    return body | {"contract_version": CONTRACT_VERSION}


def told(error: ArmariumError) -> Json:
    """An error in the contract's words; what it has no word for keeps its own code beside them."""
    described: Json = {"code": error.code, "message": error.message, "retryable": error.retryable}
    if isinstance(error, GatewayError) and error.contract_code != error.code:
        described |= {"code": error.contract_code, "reason": error.code}
    more = {"hint": error.hint, "retry_after_ms": error.details.get("retry_after_ms")}
    return described | {name: value for name, value in more.items() if value}


def _rendered(error: ArmariumError) -> Json:
    body = answer({"error": told(error)}, {"error": told(error)["code"]})
    if isinstance(each := error.details.get("errors"), list):
        body["meta_data"]["errors"] = each
    return body


_ERROR: Json = _object(
    {
        "code": _said(_STRING, "Stable; branch on this, not on the message."),
        "message": _STRING,
        "retryable": _BOOLEAN,
        "hint": _STRING,
        "reason": _STRING,
        "retry_after_ms": _said(_INTEGER, "How long to wait before another try."),
    },
    ("code", "message", "retryable"),
)
RAG_ERRORS = ErrorStyle(
    _rendered,
    _object(
        {
            "results": _object({"error": _ERROR}, ("error",)),
            "meta_data": _OBJECT,
            "contract_version": {"const": CONTRACT_VERSION},
        },
        ("results", "meta_data", "contract_version"),
    ),
)
