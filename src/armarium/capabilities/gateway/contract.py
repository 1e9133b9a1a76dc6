"""The contract of the three RAG tools: names, input and output schemas, and the error format."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

from armarium import __version__
from armarium.capabilities.gateway.arguments import DEFAULT_PAGE_SIZE
from armarium.capabilities.gateway.config.entries import AUTH_MODES
from armarium.capabilities.gateway.errors import GatewayError
from armarium.capabilities.gateway.secret_parameters import MAX_SECRET_LENGTH, SECRET_PARAMETERS
from armarium.foundation.errors import ArmariumError
from armarium.foundation.schema import Json
from armarium.foundation.tools import Call, DeclaredTool, ErrorStyle, ServiceT, declare_tool

CONTRACT_VERSION: Final = "rag-tools-v1"
DISCOVER: Final = "rag_discover_resources"
RAW_RESULTS: Final = "rag_get_raw_results"
SYNTHESIZED: Final = "rag_get_synthesized_results"
DEFAULT_TOP_K: Final = 8
MAX_PAGE_SIZE: Final = 500

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
    _list({"type": "string", "minLength": 1, "maxLength": 600}, minItems=1, maxItems=100),
    "Ids from rag_discover_resources: `<server>:<id>`, or only the id if it is unambiguous.",
)
_SERVERS: Json = _with_description(
    _list({"type": "string", "minLength": 1, "maxLength": 64}, maxItems=100),
    "The servers in which ids without a server are looked up. Default: all servers you may use.",
)
_SEARCH_FILTERS: Json = _with_description(
    _object({"date_from": _STRING, "date_to": _STRING, "tags": _STRINGS, "owners": _STRINGS}),
    "Dates are ISO 8601. A source that cannot apply a filter returns no hits; `meta_data` lists the filter in "
    "`unmet_filters`. Sources of this server itself support no filters.",
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
_SYNTHESIS_PARAMS: Json = _object({"model": _STRING, "style": _OPTIONAL_TEXT, "max_chars": _count(1_000_000)})


def input_schemas(top_k_max: int = 100) -> dict[str, Json]:
    """The input schema of each tool."""
    secrets = dict.fromkeys(SECRET_PARAMETERS, _SECRET)
    search: Json = {
        "username": _USERNAME,
        "query": {"type": "string", "minLength": 1, "maxLength": 20_000},
        "sources": _SOURCES,
        "servers": _SERVERS,
        "top_k": _count(top_k_max, default=min(DEFAULT_TOP_K, top_k_max)),
    }
    ranking = _object({"rerank": _BOOLEAN, "model": _STRING})
    context = _object({"hits": _list(_OBJECT, maxItems=200)})
    required = ("query", "sources")
    return {
        DISCOVER: _object({"username": _USERNAME, "filters": _DISCOVERY_FILTERS, **secrets}),
        RAW_RESULTS: _object({**search, "filters": _SEARCH_FILTERS, "ranking": ranking, **secrets}, required),
        SYNTHESIZED: _object(
            {**search, "synthesis_params": _SYNTHESIS_PARAMS, "provided_context": context, **secrets}, required
        ),
    }


def rag_server_input_schemas(*, capability_token: bool) -> dict[str, Json]:
    """The input schemas of a RAG server: with a required username, and with no secrets except those it verifies."""
    removed = {*SECRET_PARAMETERS, "servers"} - ({"capability_token"} if capability_token else set())
    described = input_schemas()
    for schema in described.values():
        for name in removed:
            schema["properties"].pop(name, None)
        schema["properties"]["username"] = _with_description(_STRING, "The caller; set by the gateway.")
        schema["required"] = ["username", *schema.get("required", ())]
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
)
_CITATION: Json = _object(
    {
        **_strings("uri", "title", "resourceId"),
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
DISPLAY_FIELDS: Json = {"open_canvas": _BOOLEAN, "primary_file": _STRING, "mode": _STRING, "viewer_hint": _STRING}
_LIMITS: Json = _object({"truncated": _BOOLEAN, "reason": _STRING})


def _response(results: Json, required: tuple[str, ...], **more: Json) -> Json:
    version: Json = {"const": CONTRACT_VERSION}
    return _object(
        {"results": _object(results, required), "meta_data": _OBJECT, **more, "contract_version": version},
        ("results", "meta_data", "contract_version"),
    )


def _output(results: Json, required: str) -> Json:
    return _response(results, (required,), artifacts=_list(_ARTIFACT), display=_object(DISPLAY_FIELDS))


OUTPUT_SCHEMAS: dict[str, Json] = {
    DISCOVER: _output({"resources": _list(_RESOURCE), "paging": _PAGING}, "resources"),
    RAW_RESULTS: _output({"hits": _list(_HIT), "stats": _STATS}, "hits"),
    SYNTHESIZED: _output({"answer": _STRING, "citations": _list(_CITATION), "limits": _LIMITS}, "answer"),
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
    described = error_as_json(error)
    body = contract_answer({"error": described}, {"error": described["code"]})
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
_ERRORS: Final = ErrorStyle(_render_error, _response({"error": _ERROR}, ("error",)))


def declare_rag_tool(
    name: str,
    function: Callable[[ServiceT, Call, Any], Awaitable[Json]],
    schemas: Mapping[str, Json],
    **traits: Any,
) -> DeclaredTool[ServiceT]:
    """Declare one of the three tools, for the gateway or for a RAG server."""
    return declare_tool(
        name,
        function,
        input_schema=schemas[name],
        output_schema=OUTPUT_SCHEMAS[name],
        read_only=True,
        idempotent=True,
        is_search=name != DISCOVER,
        subject=("", ""),
        errors=_ERRORS,
        **traits,
    )
