"""The schemas of the tools, exactly as in the contract, plus one argument: `chunk_id` of open_file."""

from __future__ import annotations

from typing import Any

from armarium.foundation.schema import Json


def _object(properties: Json, required: list[str] | None = None, **more: Any) -> Json:
    described: Json = {"type": "object", "additionalProperties": False, "properties": properties}
    return described | ({"required": required} if required else {}) | more


_STRING: Json = {"type": "string"}
_INTEGER: Json = {"type": "integer"}
_BOOLEAN: Json = {"type": "boolean"}
_TEXT: Json = {"type": "string", "minLength": 1}


def _span_of(kind: str, *names: str) -> Json:
    return _object({"kind": {"const": kind}} | dict.fromkeys(names, _INTEGER), ["kind", *names])


SPAN: Json = {
    "type": "object",
    "oneOf": [
        _span_of("lines", "start_line", "end_line"),
        _span_of("page", "page"),
        _span_of("time", "start_ms", "end_ms"),
    ],
}
HIT: Json = _object(
    {
        "chunk_id": _INTEGER,
        "rel_path": _STRING,
        "doc_type": _STRING,
        "rep_type": _STRING,
        "score": {"type": "number"},
        "snippet": _STRING,
        "span": {"$ref": "#/definitions/Span"},
    },
    ["chunk_id", "rel_path", "score", "snippet", "span"],
)
_HITS: Json = {"type": "array", "items": {"$ref": "#/definitions/Hit"}}
_SPAN_AND_HIT: Json = {"Span": SPAN, "Hit": HIT}

_K: Json = {"type": "integer", "minimum": 1, "maximum": 50, "default": 10}
_INDEX: Json = {"type": "string", "enum": ["auto", "text", "code", "both"], "default": "auto"}
_FILTERS: Json = {
    "path_prefix": _STRING,
    "file_glob": _STRING,
    "doc_types": {"type": "array", "items": _STRING},
}

_SEARCH_INPUT = _object({"query": _TEXT, "k": _K, "index": _INDEX, **_FILTERS}, ["query"])
_SEARCH_OUTPUT = _object(
    {
        "query": _STRING,
        "k": _INTEGER,
        "index_used": {"type": "string", "enum": ["text", "code", "both"]},
        "hits": _HITS,
        "indexing_complete": _BOOLEAN,
    },
    ["query", "hits", "indexing_complete"],
    definitions=_SPAN_AND_HIT,
)

_ASK_INPUT = _object(
    {
        "question": _TEXT,
        "k": _K,
        "mode": {"type": "string", "enum": ["answer", "search_only"], "default": "answer"},
        "index": _INDEX,
        **_FILTERS,
    },
    ["question"],
)
_CITATION = _object(
    {"chunk_id": _INTEGER, "rel_path": _STRING, "span": {"$ref": "#/definitions/Span"}},
    ["chunk_id", "rel_path", "span"],
)
_ASK_OUTPUT = _object(
    {
        "question": _STRING,
        "answer": _STRING,
        "citations": {"type": "array", "items": _CITATION},
        "hits": _HITS,
        "indexing_complete": _BOOLEAN,
    },
    ["question", "citations", "hits", "indexing_complete"],
    definitions=_SPAN_AND_HIT,
)

_OPEN_FILE_INPUT = _object(
    {
        "rel_path": _TEXT,
        "start_line": {"type": "integer", "minimum": 1},
        "end_line": {"type": "integer", "minimum": 1},
        "page": {"type": "integer", "minimum": 1},
        "start_ms": {"type": "integer", "minimum": 0},
        "end_ms": {"type": "integer", "minimum": 0},
        "max_chars": {"type": "integer", "minimum": 200, "maximum": 50000, "default": 20000},
        # Not in the contract: two chunks of one long line have the same span, and only the id distinguishes them.
        "chunk_id": {"type": "integer", "minimum": 0},
    },
    ["rel_path"],
)
_OPEN_FILE_OUTPUT = _object(
    {
        "rel_path": _STRING,
        "doc_type": _STRING,
        "span": {"$ref": "#/definitions/Span"},
        "content": _STRING,
        "truncated": _BOOLEAN,
    },
    ["rel_path", "doc_type", "content", "truncated"],
    definitions={"Span": SPAN},
)

_LIST_FILES_INPUT = _object(
    {
        "path_prefix": _STRING,
        "glob": _STRING,
        "limit": {"type": "integer", "minimum": 1, "maximum": 5000, "default": 200},
        "offset": {"type": "integer", "minimum": 0, "default": 0},
    }
)
_LISTED_FILE = _object(
    {
        "rel_path": _STRING,
        "doc_type": _STRING,
        "size_bytes": _INTEGER,
        "mtime_unix": _INTEGER,
        "status": {"type": "string", "enum": ["ok", "skipped", "error"]},
        "deleted": _BOOLEAN,
    },
    ["rel_path", "doc_type", "size_bytes", "mtime_unix", "status", "deleted"],
)
_LIST_FILES_OUTPUT = _object(
    {
        "limit": _INTEGER,
        "offset": _INTEGER,
        "total": _INTEGER,
        "files": {"type": "array", "items": _LISTED_FILE},
    },
    ["limit", "offset", "total", "files"],
)

_STATS_INPUT: Json = {"type": "object", "additionalProperties": False}
_COUNTS = [
    "scanned",
    "indexed",
    "skipped",
    "deleted",
    "representations",
    "chunks_total",
    "embedded_ok",
    "errors",
]
_INDEXING = _object(
    {
        "job_id": _STRING,
        "running": _BOOLEAN,
        "mode": {"type": "string", "enum": ["incremental", "full"]},
        **dict.fromkeys(_COUNTS, _INTEGER),
    },
    ["job_id", "running", "mode", *_COUNTS],
)
_MODELS = _object(
    {
        "embed_text": _STRING,
        "embed_code": _STRING,
        "ocr": _STRING,
        "stt_provider": {"type": "string", "enum": ["mistral", "elevenlabs"]},
        "stt_model": _STRING,
        "chat": _STRING,
    },
    ["embed_text", "embed_code", "ocr", "stt_provider", "stt_model", "chat"],
)
_STATS_OUTPUT = _object(
    {
        "root": _STRING,
        "state_dir": _STRING,
        "protocol_version": _STRING,
        "indexing": _INDEXING,
        "models": _MODELS,
    },
    ["root", "state_dir", "protocol_version", "indexing", "models"],
)

INPUT: dict[str, Json] = {
    "search": _SEARCH_INPUT,
    "ask": _ASK_INPUT,
    "open_file": _OPEN_FILE_INPUT,
    "list_files": _LIST_FILES_INPUT,
    "stats": _STATS_INPUT,
}
OUTPUT: dict[str, Json] = {
    "search": _SEARCH_OUTPUT,
    "ask": _ASK_OUTPUT,
    "open_file": _OPEN_FILE_OUTPUT,
    "list_files": _LIST_FILES_OUTPUT,
    "stats": _STATS_OUTPUT,
}
