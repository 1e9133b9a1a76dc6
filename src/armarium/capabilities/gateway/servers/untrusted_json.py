"""Reads values from untrusted JSON: each only if it has the expected type and size."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, TypeVar, cast

import orjson

from armarium.foundation.schema import Json

MAX_NAME_LENGTH = 500
MAX_OBJECT_BYTES = 8_000
_MAX_TEXTS = 1000

T = TypeVar("T")


def as_object(value: object) -> Json:
    """The value if it is an object, else an empty object."""
    return cast(Json, value) if isinstance(value, dict) else {}


def as_list(value: object) -> list[Any]:
    """The value if it is a list, else an empty list."""
    return cast("list[Any]", value) if isinstance(value, list) else []


def text_field(entry: Mapping[str, Any], name: str, max_length: int) -> str | None:
    """A text of an entry, truncated; None if there is none."""
    value = entry.get(name)
    return value[:max_length] if isinstance(value, str) and value else None


def as_texts(value: object) -> tuple[str, ...]:
    """The texts in a list, each truncated."""
    return tuple(each[:MAX_NAME_LENGTH] for each in as_list(value)[:_MAX_TEXTS] if isinstance(each, str) and each)


def as_number(value: object) -> float | None:
    """The value if it is a finite number, else None."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None


def as_count(value: object) -> int | None:
    """The value if it is an integer from 0 to 2**53 - 1, which every JSON parser can represent; else None."""
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**53 else None


def as_small_object(value: object) -> Json | None:
    """The value if it is an object, neither empty nor too large; else None."""
    found = as_object(value)
    return found if found and json_size(found) <= MAX_OBJECT_BYTES else None


def json_size(value: object) -> int:
    try:
        return len(orjson.dumps(value))
    except TypeError:
        return MAX_OBJECT_BYTES + 1


def is_valid(value: object, kind: type) -> bool:
    """Whether a value has that type and, if it is a text, is not too long."""
    return isinstance(value, kind) and (not isinstance(value, str) or len(value) <= MAX_NAME_LENGTH)


def parse_each(entries: list[Any], parse: Callable[[Json, int], T | None]) -> tuple[list[T], int]:
    """The parsed entries, and the number of invalid ones."""
    parsed: list[T] = []
    for place, entry in enumerate(entries):
        if isinstance(entry, dict) and (one := parse(cast(Json, entry), place)) is not None:
            parsed.append(one)
    return parsed, len(entries) - len(parsed)
