"""Describes `/api/raw` in the OpenAPI document."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from armarium.foundation.routes import Route
from armarium.foundation.schema import Json

_REF: Json = {
    "name": "ref",
    "in": "query",
    "required": True,
    "description": "Reference to the file, such as `root://work/a%20b.png` or `store://notes/a.md`. Space and path are "
    "percent-encoded, and the whole once more like any value of a query.",
    "schema": {"type": "string"},
}
_DOWNLOAD: Json = {
    "name": "download",
    "in": "query",
    "required": False,
    "description": "1: for saving. Otherwise browsers show the types that are safe to show.",
    "schema": {"type": "string", "enum": ["0", "1"], "default": "0"},
}
_RANGE: Json = {
    "name": "Range",
    "in": "header",
    "required": False,
    "description": "One range of bytes: `bytes=0-99`, `bytes=100-` or `bytes=-100`.",
    "schema": {"type": "string"},
}
_ANY: Json = {"schema": {"type": "string", "format": "binary"}}
_ERROR: Json = {
    "description": "Nothing was transferred; the code says why.",
    "content": {"application/json": {"schema": {"type": "object"}}},
}
_BYTES: Json = {
    "200": {"description": "The file.", "content": {"*/*": _ANY}},
    "206": {"description": "The range of the file.", "content": {"*/*": _ANY}},
    "304": {"description": "The file is still the one in `If-None-Match`."},
    "default": _ERROR,
}


def raw_operations(routes: Sequence[Route]) -> Json:
    """The operations of `/api/raw`, for these tools."""
    operations: Json = {
        "get": {
            "operationId": "download",
            "summary": "Download a file or a range of it",
            "description": "The bytes of a file, also of binary and very large ones. `ETag`, `If-None-Match`, "
            "`If-Range` and HEAD work as usual.",
            "tags": ["files"],
            "parameters": [_REF, *_parameters(routes, "GET"), _DOWNLOAD, _RANGE],
            "responses": _BYTES,
        }
    }
    for route in (route for route in routes if route.method == "PUT"):
        written: Json = {"application/json": {"schema": {**(route.tool.output_schema or {})}}}
        operations["put"] = {
            "operationId": "upload",
            "summary": "Upload a file",
            "description": route.tool.description,
            "tags": ["files"],
            "parameters": [_REF, *_parameters([route], "PUT")],
            "requestBody": {"required": True, "content": {"application/octet-stream": _ANY}},
            "responses": {
                "200": {"description": "The file was replaced.", "content": written},
                "201": {"description": "The file was created.", "content": written},
                "default": _ERROR,
            },
        }
    return operations


def ticket_operation() -> Json:
    parameters = [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string"}} for name in ("ticket", "name")
    ]
    return {
        "get": {
            "operationId": "download_by_ticket",
            "summary": "Download a file by its ticket",
            "description": "Takes the cookie of the session that created the ticket, and no other proof.",
            "tags": ["files"],
            "security": [],
            "parameters": [*parameters, _RANGE],
            "responses": _BYTES,
        }
    }


def _parameters(routes: Iterable[Route], method: str) -> list[Json]:
    """The arguments in the query, each once."""
    found: dict[str, Json] = {}
    for route in (route for route in routes if route.method == method):
        for name, schema in route.tool.input_schema.get("properties", {}).items():
            if route.place_of(name) == "query":
                plain = {key: value for key, value in schema.items() if key != "description"}
                described = {"description": schema["description"]} if "description" in schema else {}
                found[name] = {"name": name, "in": "query", "required": False, **described, "schema": plain}
    return list(found.values())
