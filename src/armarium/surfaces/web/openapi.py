"""Generates the OpenAPI 3.1 document of the JSON API from the schemas of the tools."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any, cast

from armarium import __version__
from armarium.foundation.routes import Route
from armarium.foundation.schema import Json, JsonSchema
from armarium.foundation.tools import ToolSpec

API_ROOT = "/api"
DESCRIPTION_PATH = f"{API_ROOT}/openapi.json"

EVENTS_PATH = f"{API_ROOT}/events"
EVENT_STREAM = "text/event-stream"

_DEFINITIONS = ("$defs", "definitions")
"""Members of a schema with its definitions; the second one is the name in older versions of JSON Schema."""
_REFERENCE = re.compile(rf"#/(?:{'|'.join(map(re.escape, _DEFINITIONS))})/(.+)")
_COMPONENTS = "#/components/schemas/"
_REFUSAL: Json = {
    "type": "object",
    "description": "A rejected request: its key, origin, size or method is not acceptable.",
    "properties": {
        "error": {"type": "string"},
        "code": {"type": "string", "description": "Stable; branch on this, not on the message."},
    },
    "required": ["error", "code"],
}
_EVENTS: Json = {
    "operationId": "events",
    "summary": "Follow the events that the caller may see",
    "description": "A stream of server-sent events, which does not end. `/api/events/ws` sends the same over a "
    "WebSocket, as objects with `event` and `data`.",
    "tags": ["events"],
    "parameters": [],
    "responses": {
        "200": {"description": "The stream.", "content": {EVENT_STREAM: {"schema": {"type": "string"}}}},
        "default": {
            "description": "The stream was not opened; the code says why.",
            "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Refusal"}}},
        },
    },
}
_STREAM = (
    "For `Accept: text/event-stream`: server-sent events with JSON as data. The parts of the answer come as they are "
    "known, then `done` with the whole answer, or `error` with the error."
)
_INTRODUCTION = (
    "The tools of this server over plain HTTP. A route takes the arguments of its tool and returns the answer of the "
    "tool. Errors have the format of their capability. `/api/events` streams events as server-sent events, "
    "`/api/events/ws` over a WebSocket."
)


def openapi_document(routes: Sequence[tuple[str, Route]], further: Mapping[str, Json] | None = None) -> Json:
    """The document for these routes, each with the name of its capability, and for further operations by path."""
    schemas = _Schemas()
    uses = Counter(route.tool.name for _, route in routes)
    paths: Json = {}
    for capability, route in routes:
        name = route.tool.name if uses[route.tool.name] == 1 else f"{route.tool.name}_{route.method.lower()}"
        operations = paths.setdefault(API_ROOT + route.path_of(capability), {})
        operations[route.method.lower()] = _operation(capability, route, name, schemas)
    for path, operations in ({EVENTS_PATH: {"get": _EVENTS}} | dict(further or {})).items():
        paths[path] = paths.get(path, {}) | operations
    return {
        "openapi": "3.1.0",
        "info": {"title": "Armarium", "version": __version__, "description": _INTRODUCTION},
        "paths": paths,
        "components": {
            "schemas": {"Refusal": _REFUSAL, **schemas.by_name},
            "securitySchemes": {"bearer": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{"bearer": []}],
    }


class _Schemas:
    """The component schemas, by names that are unique in the document."""

    def __init__(self) -> None:
        self.by_name: Json = {}

    def add(self, owner: str, schema: JsonSchema) -> Json:
        """A schema of a tool, with its definitions moved to the components of the document."""
        for name, definition in (each for member in _DEFINITIONS for each in schema.get(member, {}).items()):
            self.by_name[_component(owner, name)] = _with_component_references(definition, owner)
        rest = {name: value for name, value in schema.items() if name not in _DEFINITIONS}
        return _with_component_references(rest, owner)

    def error(self, capability: str, tool: ToolSpec) -> Json:
        """A reference to the error schema of the capability, or of the tool if it differs."""
        name, envelope = _component(capability, "Error"), self.add(f"{tool.name}.error", tool.errors.schema)
        if self.by_name.setdefault(name, envelope) != envelope:
            name = _component(tool.name, "Error")
            self.by_name[name] = envelope
        return {"$ref": _COMPONENTS + name}


def _operation(capability: str, route: Route, name: str, schemas: _Schemas) -> Json:
    tool = route.tool
    arguments = schemas.add(f"{tool.name}.arguments", tool.input_schema)
    operation: Json = {
        "operationId": re.sub(r"\W", "_", name),
        "summary": route.summary,
        "description": tool.description,
        "tags": [capability],
        "parameters": _parameters(route, arguments),
        "responses": _responses(capability, route, schemas),
    }
    if (body := _body(route, arguments)) is not None:
        operation["requestBody"] = body
    if route.identify is not None:
        operation["security"] = []
    return operation


def _parameters(route: Route, arguments: Json) -> list[Json]:
    required = set(arguments.get("required", ()))
    parameters: list[Json] = []
    for name, schema in arguments.get("properties", {}).items():
        place = route.place_of(name)
        if place not in ("path", "query"):
            continue
        parameter: Json = {"name": name, "in": place, "required": place == "path" or name in required}
        if "description" in schema:
            parameter["description"] = schema["description"]
        parameters.append(parameter | {"schema": {key: schema[key] for key in schema if key != "description"}})
    return parameters


def _body(route: Route, arguments: Json) -> Json | None:
    properties: Json = arguments.get("properties", {})
    in_body = {name: schema for name, schema in properties.items() if route.place_of(name) == "body"}
    required = [name for name in arguments.get("required", ()) if name in in_body]
    if not in_body:
        return None
    if route.raw_body is not None:
        return {"required": bool(required), "content": {"application/octet-stream": {}}}
    schema: Json
    if route.whole_body is not None:
        schema = in_body[route.whole_body]
    elif in_body == properties:
        schema = arguments
    else:
        schema = {"type": "object", "properties": in_body, "additionalProperties": False}
        if required:
            schema["required"] = required
    return {"required": bool(required), "content": _json(schema)}


def _responses(capability: str, route: Route, schemas: _Schemas) -> Json:
    refusal, error = {"$ref": _COMPONENTS + "Refusal"}, schemas.error(capability, route.tool)
    success: Json = {"description": HTTPStatus(route.success).phrase}
    if route.is_file:
        success["content"] = {route.media_type: {}}
    elif route.success != HTTPStatus.NO_CONTENT:
        success["content"] = _json(schemas.add(f"{route.tool.name}.answer", route.tool.output_schema or {}))
    if route.streams:
        success["content"] |= {EVENT_STREAM: {"schema": {"type": "string", "description": _STREAM}}}
    either = _json({"anyOf": [error, refusal]})
    responses: Json = {
        str(route.success): success,
        "400": {"description": "The arguments are invalid.", "content": _json(error)},
        "401": {"description": "A valid bearer key is required.", "content": _json(refusal)},
    }
    if route.groups:
        responses["403"] = {"description": "The caller is not a member of an allowed group.", "content": either}
    return responses | {"default": {"description": "The call failed; the code says why.", "content": either}}


def _json(schema: Json) -> Json:
    return {"application/json": {"schema": schema}}


def _component(owner: str, name: str) -> str:
    return re.sub(r"[^A-Za-z0-9._-]", "_", f"{owner}.{name}")


def _with_component_references(value: Any, owner: str) -> Any:
    """A part of a schema, with references to its definitions replaced by references to components."""
    if isinstance(value, list):
        return [_with_component_references(each, owner) for each in cast(list[Any], value)]
    if not isinstance(value, dict):
        return value
    parts = {name: _with_component_references(each, owner) for name, each in cast(Json, value).items()}
    reference = parts.get("$ref")
    if isinstance(reference, str) and (found := _REFERENCE.fullmatch(reference)):
        parts["$ref"] = _COMPONENTS + _component(owner, found[1])
    return parts
