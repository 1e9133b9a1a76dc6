"""Reads typed values from an untrusted report; errors name the place, not the content."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from armarium.capabilities.registry.errors import ValidationError
from armarium.foundation.schema import Json

_NAMES: Mapping[type, str] = {dict: "an object", list: "an array", str: "a text", int: "an integer"}
_HINT = "reports are SARIF 2.1.0, gitleaks' JSON, or Armarium's own; name the one it is with the format"


def refused(problem: str, at: str = "") -> ValidationError:
    """The error for an invalid report; `at` is the place of the problem."""
    return ValidationError(f"the report is not valid: {at}{': ' if at else ''}{problem}", hint=_HINT)


def as_object(value: object, at: str) -> Json:
    return _expected(value, dict, at)


def as_array(value: object, at: str = "") -> list[Any]:
    return _expected(value, list, at)


def object_in(parent: Json, name: str, at: str) -> Json:
    """The object in a field; empty if absent."""
    value = parent.get(name)
    return {} if value is None else _expected(value, dict, f"{at}.{name}")


def array_in(parent: Json, name: str, at: str) -> list[Any]:
    value = parent.get(name)
    return [] if value is None else _expected(value, list, f"{at}.{name}")


def text_in(parent: Json, name: str, at: str) -> str:
    value = parent.get(name)
    return "" if value is None else _expected(value, str, f"{at}.{name}")


def index_in(parent: Json, name: str, at: str) -> int | None:
    """The array index in a field; None if absent, or -1 as SARIF writes it."""
    value = parent.get(name)
    return None if value is None or _expected(value, int, f"{at}.{name}") < 0 else value


def line_in(parent: Json, name: str, at: str) -> int | None:
    """The line number in a field, counted from 1; None if absent, or 0, which means the whole file."""
    value = parent.get(name)
    return None if value is None else _expected(value, int, f"{at}.{name}") or None


def _expected(value: Any, kind: type, at: str) -> Any:
    # An exact comparison, because True is an integer in Python and not in JSON.
    if type(value) is not kind:
        raise refused(f"must be {_NAMES[kind]}", at)
    return value
