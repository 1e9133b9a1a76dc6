"""The output schemas of the tools, exactly as in the contract."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from armarium.foundation.schema import Json

_STRING: Json = {"type": "string"}
_INTEGER: Json = {"type": "integer"}
_BOOLEAN: Json = {"type": "boolean"}


def _enum(*values: str) -> Json:
    return {"type": "string", "enum": list(values)}


def _array(items: Json) -> Json:
    return {"type": "array", "items": items}


def _object(properties: Json, optional: Collection[str] = (), **more: Any) -> Json:
    required = [name for name in properties if name not in optional]
    return {"type": "object", "additionalProperties": False, "properties": properties, "required": required, **more}


def _span_of(kind: str, *names: str) -> Json:
    return _object({"kind": {"const": kind}} | dict.fromkeys(names, _INTEGER))


SPAN: Json = {
    "type": "object",
    "oneOf": [
        _span_of("lines", "start_line", "end_line"),
        _span_of("page", "page"),
        _span_of("time", "start_ms", "end_ms"),
    ],
}
_SPAN_REFERENCE: Json = {"$ref": "#/definitions/Span"}
HIT: Json = _object(
    {
        "chunk_id": _INTEGER,
        "rel_path": _STRING,
        "doc_type": _STRING,
        "rep_type": _STRING,
        "score": {"type": "number"},
        "snippet": _STRING,
        "span": _SPAN_REFERENCE,
    },
    optional=("doc_type", "rep_type"),
)
_HITS = _array({"$ref": "#/definitions/Hit"})
_COUNTS = ("scanned", "indexed", "skipped", "deleted", "representations", "chunks_total", "embedded_ok", "errors")

OUTPUT: dict[str, Json] = {
    "search": _object(
        {
            "query": _STRING,
            "k": _INTEGER,
            "index_used": _enum("text", "code", "both"),
            "hits": _HITS,
            "indexing_complete": _BOOLEAN,
        },
        optional=("k", "index_used"),
        definitions={"Span": SPAN, "Hit": HIT},
    ),
    "ask": _object(
        {
            "question": _STRING,
            "answer": _STRING,
            "citations": _array(_object({"chunk_id": _INTEGER, "rel_path": _STRING, "span": _SPAN_REFERENCE})),
            "hits": _HITS,
            "indexing_complete": _BOOLEAN,
        },
        optional=("answer",),
        definitions={"Span": SPAN, "Hit": HIT},
    ),
    "open_file": _object(
        {
            "rel_path": _STRING,
            "doc_type": _STRING,
            "span": _SPAN_REFERENCE,
            "content": _STRING,
            "truncated": _BOOLEAN,
        },
        optional=("span",),
        definitions={"Span": SPAN},
    ),
    "list_files": _object(
        {
            **dict.fromkeys(("limit", "offset", "total"), _INTEGER),
            "files": _array(
                _object(
                    {
                        **dict.fromkeys(("rel_path", "doc_type"), _STRING),
                        **dict.fromkeys(("size_bytes", "mtime_unix"), _INTEGER),
                        "status": _enum("ok", "skipped", "error"),
                        "deleted": _BOOLEAN,
                    }
                )
            ),
        }
    ),
    "stats": _object(
        {
            **dict.fromkeys(("root", "state_dir", "protocol_version"), _STRING),
            "indexing": _object(
                {"job_id": _STRING, "running": _BOOLEAN, "mode": _enum("incremental", "full")}
                | dict.fromkeys(_COUNTS, _INTEGER)
            ),
            "models": _object(
                {
                    **dict.fromkeys(("embed_text", "embed_code", "ocr"), _STRING),
                    "stt_provider": _enum("mistral", "elevenlabs"),
                    **dict.fromkeys(("stt_model", "chat"), _STRING),
                }
            ),
        }
    ),
}
