"""The JSON schema of `rag-mcp.json` and `mcp.json`, for editors."""

from __future__ import annotations

from armarium.capabilities.gateway.config.entries import SERVER_NAME, ServerEntry
from armarium.capabilities.gateway.config.files import BUILT_IN_SERVER, SCHEMA_KEY
from armarium.foundation.schema import JsonSchema

_ENTRY: JsonSchema = {"$ref": "#/$defs/ServerEntry"}
_WRAPPED = "mcpServers"


def _with(key: str, value: JsonSchema) -> JsonSchema:
    return {"required": [key], "properties": {key: value}}


# null counts as absent.
_COMMAND = _with("command", {"type": "string"})
_URL = _with("url", {"type": "string"})
_TRANSPORT_RULES: list[JsonSchema] = [
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
"""The rules of `ServerEntry` across keys: one transport, with only the keys of that transport."""


def server_config_schema() -> JsonSchema:
    """The schema of both files: servers by name, at the top or below `mcpServers`."""
    entry = ServerEntry.model_json_schema(by_alias=True)
    definitions = entry.pop("$defs", {})
    entry["allOf"] = [*_TRANSPORT_RULES]
    name: JsonSchema = {"pattern": f"^{SERVER_NAME}$", "not": {"const": BUILT_IN_SERVER}}
    by_name: JsonSchema = {"type": "object", "propertyNames": name, "additionalProperties": _ENTRY}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Servers behind the gateway, by name",
        "type": "object",
        "propertyNames": {"anyOf": [{"const": SCHEMA_KEY}, name]},
        "properties": {
            SCHEMA_KEY: {"type": "string", "description": "The location of this schema, for editors."},
            _WRAPPED: by_name | {"description": "The servers, if they are not at the top level."},
        },
        "additionalProperties": _ENTRY,
        "dependentSchemas": {_WRAPPED: {"propertyNames": {"enum": [SCHEMA_KEY, _WRAPPED]}}},
        "$defs": {**definitions, "ServerEntry": entry},
    }
