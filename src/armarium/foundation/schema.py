"""Validates JSON values against a JSON Schema, with readable error messages."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import Any, NoReturn

import jsonschema_rs

from armarium.foundation.errors import ArgumentOutOfRange, InvalidArgument, MissingArgument

Json = dict[str, Any]
"""A JSON object."""
JsonSchema = Mapping[str, Any]

_TYPE_NAMES = {"string": "a string", "integer": "an integer", "number": "a number", "boolean": "true or false",
               "array": "a list", "object": "an object", "null": "null"}  # fmt: skip
_TYPES_IN_WORDS: dict[type, str] = {type(None): "null", bool: "true or false", str: "a string", int: "a number",
                                    float: "a number", list: "a list"}  # fmt: skip
_LONGEST_ECHO = 60
_RANGES = frozenset({"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "maxLength", "minItems", "maxItems"})


class SchemaCheck:
    """A compiled schema. An invalid schema, or one with external references, raises `ValueError`."""

    def __init__(self, schema: JsonSchema) -> None:
        self._schema = schema
        self._validator = jsonschema_rs.validator_for(dict(schema), retriever=_refuse_reference)

    def check(self, value: object) -> None:
        """Raise `InvalidArgument`, or a subclass for the kind of mismatch, if the value does not match the schema."""
        try:
            # Stops at the first error. Collecting all errors can take a thousand times as long.
            self._validator.validate(value)
        except jsonschema_rs.ValidationError as error:
            rule, argument, refusal = error.kind.name, None, InvalidArgument
            if rule == "required":
                refusal = MissingArgument
                argument = None if error.instance_path else str(error.kind.as_dict()["property"])
            elif rule in _RANGES:
                refusal = ArgumentOutOfRange
            raise refusal(self._in_words(error, value), field=_field_of(error) or None, argument=argument) from None

    def misfits(self, value: Mapping[str, Any]) -> frozenset[str]:
        """Names of the arguments that do not match the schema."""
        try:
            errors = list(self._validator.iter_errors(value))
        except ValueError:
            # An unpaired surrogate: treat all arguments as invalid.
            return frozenset(value)
        return frozenset(str(error.instance_path[0]) for error in errors if error.instance_path)

    def _in_words(self, error: jsonschema_rs.ValidationError, value: object) -> str:
        field, facts = _field_of(error), error.kind.as_dict()
        rule, limit = error.kind.name, facts.get("limit")
        subject = f"`{field}`" if field else "the arguments"
        match rule:
            case "required":
                return f"`{_joined(field, str(facts['property']))}` is required"
            case "additionalProperties":
                return self._unknown_argument(error)
            case "falseSchema":
                return f"unknown argument `{_shortened(_refused_name(error, value))}`"
            case "type":
                expected = " or ".join(_TYPE_NAMES.get(str(name), str(name)) for name in facts["types"])
                return f"{subject} must be {expected}, not {type_in_words(error.instance)}"
            case "enum":
                what = self._schema.get("properties", {}).get(field, {}).get("title") or field
                refusal = "invalid" if what.endswith(" mode") else "unsupported"
                supported = ", ".join(str(option) for option in facts["options"])
                return f"{refusal} {what}: {_shortened(str(error.instance))}; supported: {supported}"
            case "minimum":
                return f"{subject} must be at least {limit}"
            case "maximum":
                return f"{subject} must be at most {limit}"
            case "minLength" | "minItems":
                return f"{subject} must not be empty" if limit == 1 else f"{subject} must have at least {limit} items"
            case "maxLength":
                return f"{subject} must have at most {limit} characters"
            case "maxItems":
                return f"{subject} must have at most {limit} items"
            case "pattern":
                return f"{subject} does not have the required form"
            case _:
                return f"{subject} is not valid ({rule})"

    def _unknown_argument(self, error: jsonschema_rs.ValidationError) -> str:
        unknown, field = str(error.kind.as_dict()["unexpected"][0]), _field_of(error)
        message = f"unknown argument `{_joined(field, _shortened(unknown))}`"
        if field and unknown in self._schema.get("properties", {}):
            return f"{message}; `{unknown}` belongs beside `{error.instance_path[0]}`, not in it"
        near = difflib.get_close_matches(unknown, self._known_beside(error), n=1)
        return f"{message}; did you mean `{_joined(field, near[0])}`?" if near else message

    def _known_beside(self, error: jsonschema_rs.ValidationError) -> list[str]:
        """Known names at the location of an unknown one."""
        holder: Any = self._schema
        try:
            for step in error.schema_path[:-1]:
                holder = holder[step]
        except (LookupError, TypeError):
            # A remote tool's schema may have a structure that the path does not fit.
            return []
        return [str(name) for name in holder.get("properties", {})]


def _refuse_reference(uri: str) -> NoReturn:
    """Refuse external references: schemas may come from untrusted servers."""
    raise ValueError("the schema has an external reference")


def _field_of(error: jsonschema_rs.ValidationError) -> str:
    return ".".join(str(step) for step in error.instance_path)


def _refused_name(error: jsonschema_rs.ValidationError, value: object) -> str:
    """The name that a schema rejects. One without `properties` rejects every name, and the error has none."""
    field = _field_of(error)
    if not error.schema_path or error.schema_path[-1] != "additionalProperties":
        return field
    holder: Any = value
    for step in error.instance_path:
        holder = holder[step]
    return _joined(field, str(next(iter(holder))))


def _joined(parent: str, name: str) -> str:
    return f"{parent}.{name}" if parent else name


def type_in_words(value: object) -> str:
    return _TYPES_IN_WORDS.get(type(value), "an object")


def _shortened(text: str) -> str:
    return text if len(text) <= _LONGEST_ECHO else text[:_LONGEST_ECHO] + "…"
