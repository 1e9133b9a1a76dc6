"""Reads JSON that nobody vouches for: each value if it is of the kind that is wanted and not too large."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, TypeVar, cast

import orjson

from armarium.foundation.schema import Json

LONGEST_NAME = 500
LARGEST_OBJECT = 8_000
_MOST_TEXTS = 1000

T = TypeVar("T")


def object_in(value: object) -> Json | None:
    """The object, if it is one."""
    return cast(Json, value) if isinstance(value, dict) else None


def list_in(value: object) -> list[Any]:
    """The list; empty where there is none."""
    return cast("list[Any]", value) if isinstance(value, list) else []


def text_of(entry: Mapping[str, Any], name: str, longest: int) -> str | None:
    """A text of an entry, cut to its longest; None where there is none."""
    value = entry.get(name)
    return value[:longest] if isinstance(value, str) and value else None


def texts_in(value: object) -> tuple[str, ...]:
    """The texts in a list, each cut to size."""
    return tuple(each[:LONGEST_NAME] for each in list_in(value)[:_MOST_TEXTS] if isinstance(each, str) and each)


def number_in(value: object) -> float | None:
    """The number, if it is a finite one."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None


def whole_in(value: object) -> int | None:
    """The whole number, if it is one that every reader of JSON can have, and not below zero."""
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**53 else None


def small_object_in(value: object) -> Json | None:
    """The object, if it is not empty and not large."""
    found = object_in(value)
    return found if found and size_of(found) <= LARGEST_OBJECT else None


def size_of(value: object) -> int:
    """How long a value is as JSON."""
    try:
        return len(orjson.dumps(value))
    except TypeError:
        return LARGEST_OBJECT + 1


def is_a(value: object, kind: type) -> bool:
    """Whether a value is of that kind, and no text that is too long."""
    return isinstance(value, kind) and (not isinstance(value, str) or len(value) <= LONGEST_NAME)


def made_of_each(entries: list[Any], make: Callable[[Json, int], T | None]) -> tuple[list[T], int]:
    """What can be made of the entries, and how many were of no use."""
    made: list[T] = []
    for place, entry in enumerate(entries):
        found = object_in(entry)
        one = make(found, place) if found is not None else None
        if one is not None:
            made.append(one)
    return made, len(entries) - len(made)
