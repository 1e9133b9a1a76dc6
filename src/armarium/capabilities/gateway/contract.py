"""The contract of the three RAG tools: names, input and output schemas, and the error format."""

from __future__ import annotations

from typing import Any, Final

from armarium import __version__
from armarium.capabilities.gateway.config.entries import AUTH_MODES
from armarium.capabilities.gateway.errors import GatewayError
from armarium.capabilities.gateway.secret_parameters import MAX_SECRET_LENGTH, SECRET_PARAMETERS
from armarium.foundation.errors import ArmariumError
from armarium.foundation.schema import Json
from armarium.foundation.tools import ErrorStyle

CONTRACT_VERSION: Final = "rag-tools-v1"
DISCOVER: Final = "rag_discover_resources"
RAW_RESULTS: Final = "rag_get_raw_results"
SYNTHESIZED: Final = "rag_get_synthesized_results"
DEFAULT_TOP_K: Final = 8
DEFAULT_PAGE_SIZE: Final = 50
MAX_PAGE_SIZE: Final = 500

_STRING: Json = {"type": "string"}
_INTEGER: Json = {"type": "integer"}
_NUMBER: Json = {"type": "number"}
_BOOLEAN: Json = {"type": "boolean"}
_OBJECT: Json = {"type": "object"}
_STRINGS: Json = {"type": "array", "items": _STRING, "maxItems": 1000}


def _with_description(schema: Json, description: str) -> Json:
    return schema | {"description": description}


def _object(properties: Json, required: tuple[str, ...] = (), *, closed: bool = True) -> Json:
    described: Json = {"type": "object", "properties": properties}
    if closed:
        described["additionalProperties"] = False
    return described | ({"required": list(required)} if required else {})


USERNAME: Json = _with_description(_STRING, "Ignored: the authenticated caller's name replaces it.")
_SECRETS: Json = {
    name: {
        "type": "string",
        "maxLength": MAX_SECRET_LENGTH,
        "description": "For the one server of the sources, if it declares the parameter. Never logged or stored.",
    }
    for name in SECRET_PARAMETERS
}
_SOURCES: Json = {
    "type": "array",
    "items": {"type": "string", "minLength": 1, "maxLength": 600},
    "minItems": 1,
    "maxItems": 100,
    "description": "Ids from rag_discover_resources: `<server>:<id>`, or only the id if it is unambiguous.",
}
_SERVERS: Json = {
    "type": "array",
    "items": {"type": "string", "minLength": 1, "maxLength": 64},
    "maxItems": 100,
    "description": "The servers in which ids without a server are looked up. Default: all servers you may use.",
}
_QUERY: Json = {"type": "string", "minLength": 1, "maxLength": 20_000}
_SEARCH_FILTERS: Json = _with_description(
    _object({"date_from": _STRING, "date_to": _STRING, "tags": _STRINGS, "owners": _STRINGS}),
    "Dates are ISO 8601. A source that cannot apply a filter returns no hits; `meta_data` lists the filter in "
    "`unmet_filters`. Sources of this server itself support no filters.",
)


def _top_k(largest: int) -> Json:
    return {"type": "integer", "minimum": 1, "maximum": largest, "default": min(DEFAULT_TOP_K, largest)}


def input_schemas(top_k_max: int = 100) -> dict[str, Json]:
    """The input schema of each tool."""
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
                            "maximum": MAX_PAGE_SIZE,
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


def rag_server_input_schemas(*, capability_token: bool) -> dict[str, Json]:
    """The input schemas of a RAG server: with a required username, and with no secrets except those it verifies."""
    kept = {"capability_token"} if capability_token else set[str]()
    described = input_schemas()
    for schema in described.values():
        for name in {*SECRET_PARAMETERS, "servers"} - kept:
            schema["properties"].pop(name, None)
        schema["properties"]["username"] = _with_description(_STRING, "The caller; set by the gateway.")
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
        "server": _with_description(_STRING, "The server of the resource."),
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
        "server": _with_description(_STRING, "The server that found the hit."),
        "serverRank": _with_description(_INTEGER, "Its rank among that server's hits, from 1."),
        "serverScore": _with_description(_NUMBER, "That server's own score; not comparable with another server's."),
    },
    ("id", "score", "resourceId"),
)
_CITATION: Json = _object(
    {
        "uri": _STRING,
        "title": _STRING,
        "resourceId": _STRING,
        "offsets": {},
        "marker": _with_description(_STRING, "The marker in the answer."),
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


OUTPUT_SCHEMAS: dict[str, Json] = {
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


def contract_answer(results: Json, meta_data: Json, **more: Any) -> Json:
    """A response in the contract's format; empty values in `more` are omitted."""
    known = {"provider": "armarium", "version": __version__, "contract_version": CONTRACT_VERSION}
    body: Json = {"results": results, "meta_data": {**known, **meta_data}}
    body |= {name: value for name, value in more.items() if value}
    return body | {"contract_version": CONTRACT_VERSION}


def error_as_json(error: ArmariumError) -> Json:
    """An error in the contract's format. `reason` is the original code where the contract has none for it."""
    described: Json = {"code": error.code, "message": error.message, "retryable": error.retryable}
    if isinstance(error, GatewayError) and error.contract_code != error.code:
        described |= {"code": error.contract_code, "reason": error.code}
    more = {"hint": error.hint, "retry_after_ms": error.details.get("retry_after_ms")}
    return described | {name: value for name, value in more.items() if value}


def _render_error(error: ArmariumError) -> Json:
    body = contract_answer({"error": error_as_json(error)}, {"error": error_as_json(error)["code"]})
    if isinstance(each := error.details.get("errors"), list):
        body["meta_data"]["errors"] = each
    return body


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
RAG_ERRORS = ErrorStyle(
    _render_error,
    _object(
        {
            "results": _object({"error": _ERROR}, ("error",)),
            "meta_data": _OBJECT,
            "contract_version": {"const": CONTRACT_VERSION},
        },
        ("results", "meta_data", "contract_version"),
    ),
)
