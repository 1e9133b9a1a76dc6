"""Validates bodies against the published OpenAPI of providers or, if it is absent, against the fields in use."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema_rs

Json = dict[str, Any]
Check = Callable[[object], str | None]
"""The first complaint about a body, if any."""

_PUBLISHED = Path(__file__).resolve().parents[3] / "shared" / "data" / "openapi"


@cache
def _published(vendor: str) -> Json | None:
    file = _PUBLISHED / f"{vendor}.json"
    if not file.is_file():
        return None
    description = json.loads(file.read_text("utf-8"))
    if vendor == "mistral":
        # The description demands a `data` of chat answers that Mistral does not send.
        description["components"]["schemas"]["ChatCompletionResponse"]["allOf"][1]["required"].remove("data")
    return description


def check(schema: Json) -> Check:
    """A check against a schema."""
    validator = jsonschema_rs.Draft202012Validator(schema)

    def complaint(body: object) -> str | None:
        error = next(iter(validator.iter_errors(body)), None)
        return None if error is None else f"{'/'.join(map(str, error.instance_path))}: {error.message[:300]}"

    return complaint


@cache
def _component(vendor: str, name: str) -> Check | None:
    description = _published(vendor)
    if description is None:
        return None
    return check({"$ref": f"#/components/schemas/{name}", "components": description["components"]})


@cache
def _operation(vendor: str, path: str, part: str) -> Check | None:
    description = _published(vendor)
    if description is None:
        return None
    operation = description["paths"][path]["post"]
    holder = operation["requestBody"] if part == "request" else operation["responses"][part]
    schema = holder["content"]["application/json"]["schema"]
    return check({**schema, "components": description["components"]})


def published_component(vendor: str, name: str, otherwise: Json) -> Check:
    """The check against a named schema of a vendor, or against the small one."""
    return _component(vendor, name) or check(otherwise)


def published_operation(vendor: str, path: str, part: str, otherwise: Json) -> Check:
    """The check against the schema of an operation's request or answer, or against the small one."""
    return _operation(vendor, path, part) or check(otherwise)


def fields(required: Json, optional: Json | None = None, *, closed: bool = False) -> Json:
    """The schema of an object with these fields."""
    return {
        "type": "object",
        "properties": {**required, **(optional or {})},
        "required": list(required),
        "additionalProperties": not closed,
    }


TEXT: Json = {"type": "string"}
COUNT: Json = {"type": "integer", "minimum": 0}
NUMBER: Json = {"type": "number"}


def list_of(items: Json) -> Json:
    """The schema of an array."""
    return {"type": "array", "items": items}


_ROLES: Json = {"enum": ["system", "user", "assistant"]}
_USAGE = fields({"prompt_tokens": COUNT, "total_tokens": COUNT})

EMBEDDING_REQUEST = fields(
    {"model": TEXT, "input": {"anyOf": [TEXT, list_of(TEXT)]}},
    {"output_dimension": COUNT, "dimensions": COUNT, "encoding_format": {"enum": ["float", "base64"]}},
    closed=True,
)
EMBEDDING_ANSWER = fields(
    {"object": TEXT, "data": list_of(fields({"index": COUNT, "embedding": list_of(NUMBER)})), "model": TEXT}
)
CHAT_REQUEST = fields(
    {"model": TEXT, "messages": {**list_of(fields({"role": _ROLES, "content": TEXT}, closed=True)), "minItems": 1}},
    {
        "stream": {"type": "boolean"},
        "max_tokens": COUNT,
        "max_completion_tokens": COUNT,
        "temperature": {"type": "number", "minimum": 0, "maximum": 1.5},
    },
    closed=True,
)
CHAT_ANSWER = fields(
    {
        "id": TEXT,
        "model": TEXT,
        "usage": _USAGE,
        "choices": list_of(fields({"index": COUNT, "message": fields({"role": TEXT}), "finish_reason": TEXT})),
    }
)
CHAT_EVENT = fields(
    {
        "id": TEXT,
        "model": TEXT,
        "choices": list_of(
            fields({"index": COUNT, "delta": {"type": "object"}, "finish_reason": {"type": ["string", "null"]}})
        ),
    }
)
RERANK_REQUEST = fields(
    {"model": TEXT, "query": TEXT, "documents": list_of(TEXT)}, {"top_n": {"type": "integer", "minimum": 1}}
)
RERANK_ANSWER = fields({"results": list_of(fields({"index": COUNT, "relevance_score": NUMBER}))})
