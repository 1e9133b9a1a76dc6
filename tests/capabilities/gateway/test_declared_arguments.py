"""An argument is found wherever a schema declares it, and nowhere else."""

from __future__ import annotations

from typing import Any

import pytest

from armarium.capabilities.gateway.servers.identity import declares

USER: dict[str, Any] = {"properties": {"username": {"type": "string"}}}


@pytest.mark.parametrize(
    "schema",
    [
        USER,
        {"required": ["username"]},
        {"$ref": "#/$defs/Who", "$defs": {"Who": USER}},
        {"$ref": "#/$defs/a~1b~0c", "$defs": {"a/b~c": USER}},
        {"allOf": [{"$ref": "#/definitions/One"}], "definitions": {"One": {"allOf": [{"type": "object"}, USER]}}},
        {"anyOf": [{"type": "object"}, {"oneOf": [True, USER]}]},
        {"if": {"required": ["x"]}, "then": USER},
        {"if": {"required": ["x"]}, "else": USER},
        {"dependentSchemas": {"x": USER}},
        {"allOf": [{"$ref": "#"}, USER]},
    ],
)
def test_an_argument_that_is_spoken_of_is_found(schema: dict[str, Any]) -> None:
    assert declares(schema, "username")
    assert not declares(schema, "user")


@pytest.mark.parametrize(
    "schema",
    [
        {},
        {"properties": {"login": USER}},
        {"$defs": {"Who": USER}},
        {"$ref": "#/$defs/Nobody", "$defs": {"Who": USER}},
        {"$ref": "#/$defs/Who/0", "$defs": {"Who": [USER]}},
        {"$ref": "https://example.com/who.json"},
        {"$ref": "#", "allOf": [{"$ref": "#"}]},
        {"allOf": USER, "anyOf": "username", "properties": ["user"], "required": "username", "$ref": 1},
    ],
)
def test_what_belongs_to_something_else_or_is_no_schema_declares_nothing(schema: dict[str, Any]) -> None:
    assert not declares(schema, "username")
