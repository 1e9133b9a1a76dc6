"""Messages about values that do not match their schema."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from armarium.foundation.errors import InvalidArgument
from armarium.foundation.schema import SchemaCheck

SCHEMA = {
    "type": "object",
    "properties": {
        "path": {"type": "string", "minLength": 1, "maxLength": 10},
        "count": {"type": "integer", "minimum": 1, "maximum": 100},
        "ratio": {"type": "number"},
        "deep": {"type": "boolean"},
        "names": {"type": "array", "items": {"type": "string"}, "minItems": 1, "maxItems": 2},
        "pair": {"type": "array", "minItems": 2},
        "kind": {"type": "string", "enum": ["file", "directory"]},
        "algorithm": {"type": "string", "enum": ["md5", "sha256"], "title": "hash algorithm"},
        "where": {"type": "object", "properties": {"line": {"type": "integer"}}, "required": ["line"]},
        "code": {"type": "string", "pattern": "^[a-z]+$"},
        "either": {"type": ["string", "integer"]},
        "odd": {"multipleOf": 2},
        "wanted": {"$ref": "#/$defs/Wanted"},
        "each": {"type": "array", "items": {"$ref": "#/$defs/Wanted"}},
    },
    "required": ["path"],
    "additionalProperties": False,
    "$defs": {"Wanted": {"type": "object", "properties": {"tags": {}}, "additionalProperties": False}},
}
CHECK = SchemaCheck(SCHEMA)


def complaint(value: object) -> InvalidArgument:
    with pytest.raises(InvalidArgument) as mistake:
        CHECK.check(value)
    assert mistake.value.code == "INVALID_ARGUMENT"
    return mistake.value


def test_a_value_that_fits_is_left_alone() -> None:
    CHECK.check({"path": "a", "count": 3, "names": ["x"], "where": {"line": 1, "more": 2}, "either": 1})


@pytest.mark.parametrize(
    ("arguments", "message", "field"),
    [
        ({}, "`path` is required", None),
        ({"path": 1}, "`path` must be a string, not a number", "path"),
        ({"path": None}, "`path` must be a string, not null", "path"),
        ({"path": {}}, "`path` must be a string, not an object", "path"),
        ({"path": ""}, "`path` must not be empty", "path"),
        ({"path": "x" * 11}, "`path` must have at most 10 characters", "path"),
        ({"path": "a", "count": 0}, "`count` must be at least 1", "count"),
        ({"path": "a", "count": 101}, "`count` must be at most 100", "count"),
        ({"path": "a", "count": "3"}, "`count` must be an integer, not a string", "count"),
        ({"path": "a", "count": True}, "`count` must be an integer, not true or false", "count"),
        ({"path": "a", "ratio": []}, "`ratio` must be a number, not a list", "ratio"),
        ({"path": "a", "deep": 1}, "`deep` must be true or false, not a number", "deep"),
        ({"path": "a", "names": "x"}, "`names` must be a list, not a string", "names"),
        ({"path": "a", "names": []}, "`names` must not be empty", "names"),
        ({"path": "a", "names": ["x", "y", "z"]}, "`names` must have at most 2 items", "names"),
        ({"path": "a", "names": ["x", 1]}, "`names.1` must be a string, not a number", "names.1"),
        ({"path": "a", "pair": [1]}, "`pair` must have at least 2 items", "pair"),
        ({"path": "a", "kind": "fifo"}, "unsupported kind: fifo; supported: file, directory", "kind"),
        ({"path": "a", "algorithm": "crc"}, "unsupported hash algorithm: crc; supported: md5, sha256", "algorithm"),
        ({"path": "a", "where": {}}, "`where.line` is required", "where"),
        ({"path": "a", "where": {"line": "x"}}, "`where.line` must be an integer, not a string", "where.line"),
        ({"path": "a", "where": 1}, "`where` must be an object, not a number", "where"),
        ({"path": "a", "code": "A"}, "`code` does not have the required form", "code"),
        ({"path": "a", "either": []}, "`either` must be ", "either"),
        ({"path": "a", "odd": 3}, "`odd` is not valid (multipleOf)", "odd"),
        ({"path": "a", "cuont": 3}, "unknown argument `cuont`; did you mean `count`?", None),
        ({"path": "a", "zzzzzz": 3}, "unknown argument `zzzzzz`", None),
        ({"path": "a", "wanted": {"zzzzzz": 3}}, "unknown argument `wanted.zzzzzz`", "wanted"),
        ({"path": "a", "wanted": {"tag": 3}}, "unknown argument `wanted.tag`; did you mean `wanted.tags`?", "wanted"),
        ({"path": "a", "each": [{"tag": 3}]}, "unknown argument `each.0.tag`; did you mean `each.0.tags`?", "each.0"),
        (
            {"path": "a", "wanted": {"count": 3}},
            "unknown argument `wanted.count`; `count` belongs beside `wanted`, not in it",
            "wanted",
        ),
    ],
)
def test_a_mistake_is_told_in_words_with_its_field(arguments: dict[str, Any], message: str, field: str | None) -> None:
    mistake = complaint(arguments)
    assert mistake.message.startswith(message)
    assert mistake.details["field"] == field


def test_an_argument_that_is_missing_is_named_although_it_has_no_field() -> None:
    assert complaint({}).details["argument"] == "path"
    assert complaint({"path": 1}).details["argument"] is None
    assert complaint({"path": "a", "where": {}}).details["argument"] is None


@pytest.mark.parametrize("value", [None, [], "text", 7])
def test_what_are_no_arguments_at_all_is_told_so(value: object) -> None:
    assert complaint(value).message.startswith("the arguments must be an object, not ")


def test_hostile_names_and_values_are_not_echoed_at_length() -> None:
    assert len(complaint({"path": "a", "x" * 100_000: 1}).message) < 200
    assert len(complaint({"path": "a", "kind": "x" * 100_000}).message) < 200


@pytest.mark.parametrize(
    ("schema", "arguments", "message"),
    [
        ({"type": "object", "additionalProperties": False}, {"x": 1}, "unknown argument `x`"),
        ({"type": "object", "properties": {}, "additionalProperties": False}, {"x": 1}, "unknown argument `x`"),
        ({"properties": {"a": {"additionalProperties": False}}}, {"a": {"x": 1}}, "unknown argument `a.x`"),
        ({"properties": {"a": False}}, {"a": 1}, "unknown argument `a`"),
        ({"items": {"additionalProperties": False}}, [{}, {"x": 1}], "unknown argument `1.x`"),
    ],
)
def test_what_a_schema_without_such_arguments_refuses_is_named(
    schema: dict[str, Any], arguments: object, message: str
) -> None:
    with pytest.raises(InvalidArgument) as mistake:
        SchemaCheck(schema).check(arguments)
    assert mistake.value.message == message


@given(st.recursive(st.none() | st.booleans() | st.floats() | st.integers() | st.text(), st.lists, max_leaves=5))
def test_any_value_either_fits_or_is_told_to_be_wrong(value: object) -> None:
    if isinstance(value, str) and 1 <= len(value) <= 10:
        CHECK.check({"path": value})
    else:
        assert complaint({"path": value}).details["field"] == "path"


def test_a_schema_reads_nothing_from_elsewhere(tmp_path: Path) -> None:
    other = tmp_path / "other.json"
    other.write_text('{"type": "string"}')
    with pytest.raises(ValueError, match="retriev"):
        SchemaCheck({"type": "object", "properties": {"a": {"$ref": other.as_uri()}}})
