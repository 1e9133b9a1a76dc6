"""Reads values from untrusted JSON: each only if it has the expected type and size."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Mapping
from typing import Any, Final, TypeVar, cast

from armarium.foundation.schema import Json
from armarium.foundation.surrogates import has_unpaired_surrogate, replace_unpaired_surrogates

MAX_NAME_LENGTH = 500
_MAX_OBJECT_CHARS = 8_000
_MAX_DEPTH = 16
_MAX_TEXTS = 1000
_MAX_FURTHER_FIELDS = 20
_VALUE_CHARS = 8
"""What a value other than a text counts, about its size as JSON."""
_MAX_INTEGER = 2**53
_URL_FIELDS: Final = frozenset({"uri", "url", "href", "src", "link"})
_SCRIPT_SCHEMES: Final = ("javascript:", "vbscript:", "data:")
_PLAIN_SCHEMES: Final = ("https:", "http:", "file:")
_IGNORED_IN_SCHEMES: Final = re.compile(r"[\x00-\x20]")

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
    if not isinstance(value, str) or not value:
        return None
    text = value[:max_length]
    # Tested here, because a response can have hundreds of texts, and nearly all of them are ASCII.
    return text if text.isascii() else _encodable(text)


def url_field(entry: Mapping[str, Any], name: str) -> str | None:
    """An address of an entry; None if there is none, or if opening it would run a script."""
    url = text_field(entry, name, 2_000)
    return None if url is None or _runs_script(url) else url


def as_texts(value: object) -> tuple[str, ...]:
    """The texts in a list, each truncated."""
    texts = (each for each in as_list(value)[:_MAX_TEXTS] if isinstance(each, str) and each)
    return tuple(_encodable(each[:MAX_NAME_LENGTH]) for each in texts)


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
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < _MAX_INTEGER else None


def as_small_object(value: object) -> Json | None:
    """The value if it is an object, neither empty nor too large; else None."""
    given = as_object(value)
    return (as_bounded(given) or None) if given else None


class _TooLarge(Exception):
    """The value has too many characters, or is nested too deeply."""


def as_bounded(value: object) -> Any:
    """A copy of any JSON value that is safe to pass on: texts can be encoded, and addresses run no script. None if it
    is too large or nested too deeply."""
    try:
        return _bounded(value, [_MAX_OBJECT_CHARS], _MAX_DEPTH)
    except _TooLarge:
        return None


def further_fields(entry: Json, known: Collection[str]) -> Json:
    """The fields of an entry besides those known; none of them if they are too many or too large."""
    further = {name: value for name, value in entry.items() if name not in known}
    return (as_bounded(further) or {}) if 0 < len(further) <= _MAX_FURTHER_FIELDS else {}


def _bounded(value: object, room: list[int], depth: int) -> Any:
    room[0] -= len(value) + 2 if isinstance(value, str) else _VALUE_CHARS
    if room[0] < 0 or depth < 0:
        raise _TooLarge
    if isinstance(value, str):
        return value if value.isascii() else _encodable(value)
    if isinstance(value, list):
        return [_bounded(each, room, depth - 1) for each in cast("list[object]", value)]
    if isinstance(value, dict):
        return {
            _bounded(name, room, depth): _bounded(each, room, depth - 1)
            for name, each in cast("dict[str, object]", value).items()
            if not (name.casefold() in _URL_FIELDS and isinstance(each, str) and _runs_script(each))
        }
    if isinstance(value, int):
        return value if abs(value) < _MAX_INTEGER else None
    return value if not isinstance(value, float) or math.isfinite(value) else None


def _encodable(text: str) -> str:
    return replace_unpaired_surrogates(text) if has_unpaired_surrogate(text) else text


def _runs_script(url: str) -> bool:
    """Whether a browser would run the address. It ignores spaces and control characters in the scheme."""
    if url.startswith(_PLAIN_SCHEMES):
        return False
    return _IGNORED_IN_SCHEMES.sub("", url[:200]).casefold().startswith(_SCRIPT_SCHEMES)


def is_valid(value: object, kind: type) -> bool:
    """Whether a value has that type and, if it is a text, can be passed on."""
    return isinstance(value, kind) and (
        not isinstance(value, str) or (len(value) <= MAX_NAME_LENGTH and not has_unpaired_surrogate(value))
    )


def parse_each(entries: list[Any], parse: Callable[[Json, int], T | None]) -> tuple[list[T], int]:
    """The parsed entries, and the number of invalid ones."""
    parsed: list[T] = []
    for place, entry in enumerate(entries):
        if isinstance(entry, dict) and (one := parse(cast(Json, entry), place)) is not None:
            parsed.append(one)
    return parsed, len(entries) - len(parsed)
