"""The JSON schema of `rag-mcp.json` and `mcp.json`: what an editor needs to complete them and to mark mistakes."""

from __future__ import annotations

from armarium.capabilities.gateway.config.entries import SERVER_NAME, ServerEntry
from armarium.capabilities.gateway.config.files import BUILT_IN_SERVER, SCHEMA_KEY
from armarium.foundation.schema import JsonSchema

_ENTRY: JsonSchema = {"$ref": "#/$defs/ServerEntry"}
_WRAPPED = "mcpServers"


def _with(key: str, value: JsonSchema) -> JsonSchema:
    return {"required": [key], "properties": {key: value}}


# What is null is as good as left out.
_COMMAND = _with("command", {"type": "string"})
_URL = _with("url", {"type": "string"})
_ONE_WAY: list[JsonSchema] = [
    {"not": {"allOf": [_COMMAND, _URL]}},
    {"anyOf": [_COMMAND, _URL, _with("enabled", {"const": False})]},
    {"not": {"allOf": [_URL, _with("type", {"const": "stdio"})]}},
    {"not": {"allOf": [_COMMAND, _with("type", {"const": "http"})]}},
    {
        "if": _COMMAND,
        "else": {"properties": {"args": {"maxItems": 0}, "env": {"maxProperties": 0}, "cwd": {"type": "null"}}},
    },
    {"if": _URL, "else": {"properties": {"headers": {"maxProperties": 0}}}},
]
"""What `ServerEntry` asks of several keys together: a server is reached one way, with what belongs to that way."""


def registry_schema() -> JsonSchema:
    """The schema of either file: servers by name, or the same below `mcpServers`, as most clients write it."""
    entry = ServerEntry.model_json_schema(by_alias=True)
    definitions = entry.pop("$defs", {})
    entry["allOf"] = [*_ONE_WAY]
    name: JsonSchema = {"pattern": f"^{SERVER_NAME}$", "not": {"const": BUILT_IN_SERVER}}
    by_name: JsonSchema = {"type": "object", "propertyNames": name, "additionalProperties": _ENTRY}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Servers behind the gateway, by name",
        "type": "object",
        "propertyNames": {"anyOf": [{"const": SCHEMA_KEY}, name]},
        "properties": {
            SCHEMA_KEY: {"type": "string", "description": "Where this schema is; for editors."},
            _WRAPPED: by_name | {"description": "The servers, when they do not stand at the top."},
        },
        "additionalProperties": _ENTRY,
        "dependentSchemas": {_WRAPPED: {"propertyNames": {"enum": [SCHEMA_KEY, _WRAPPED]}}},
        "$defs": {**definitions, "ServerEntry": entry},
    }
