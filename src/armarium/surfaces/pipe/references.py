"""Resolves references in the arguments of steps: `${path}` in a string, and `{"$ref": "path"}` for a typed value."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, cast

from armarium.foundation.errors import ArmariumError, InvalidArgument, ResponseTooLarge
from armarium.surfaces.json.text import dumps

_REFERENCE = re.compile(r"\$(\$?)\{([^{}]*)\}")
_MAX_ELEMENTS = 1000
"""The most elements of a path. Values are never nested so deep."""
_VALUE_CHARACTERS = 32
"""The size of a value without its text: about what it takes in memory. It also bounds the time to measure values."""

Environment = Mapping[str, Any]
"""What references can name, by the first element of their path."""


class InvalidReference(ArmariumError, code="INVALID_REFERENCE", http_status=400):
    """A reference in a pipe names something that does not exist."""


@dataclass(slots=True)
class Allowance:
    """What the references of one pipe may yield in all. They are resolved on the event loop, again in every round of a
    `foreach`."""

    characters: int
    references: int = 10_000


class References:
    """Resolves the references of one value. They yield at most so many characters."""

    def __init__(self, environment: Environment, max_characters: int, allowance: Allowance) -> None:
        self._environment = environment
        self._allowance = allowance
        self._characters_left = min(max_characters, allowance.characters)

    def resolve(self, value: Any) -> Any:
        """The value with every reference replaced. What a reference yields is not resolved again."""
        if isinstance(value, str):
            return _REFERENCE.sub(self._as_text, value) if "${" in value else value
        if isinstance(value, list):
            return [self.resolve(each) for each in cast(list[Any], value)]
        if isinstance(value, Mapping):
            members = cast(Mapping[str, Any], value)
            if set(members) == {"$ref"}:
                found = self._find(members["$ref"])
                self._spend(size_of(found, self._characters_left))
                return found
            return {name: self.resolve(each) for name, each in members.items()}
        return value

    def _as_text(self, match: re.Match[str]) -> str:
        escaped, path = match.groups()
        if escaped:
            return match[0][1:]
        found = self._find(path)
        text = found if isinstance(found, str) else "" if found is None else dumps(found).decode()
        self._spend(len(text))
        return text

    def _find(self, path: object) -> Any:
        if not isinstance(path, str):
            raise InvalidReference("the path of `$ref` must be a string")
        self._allowance.references -= 1
        if self._allowance.references < 0:
            raise InvalidArgument("there are too many references in one pipe", hint="use several pipes")
        if path.count(".") >= _MAX_ELEMENTS:
            raise InvalidReference(f"`{path[:200]}` has more than {_MAX_ELEMENTS} elements")
        current: Any = self._environment
        for element in path.split("."):
            element = element.strip()
            try:
                current = current[int(element) if element.isdecimal() and isinstance(current, list) else element]
            except (LookupError, TypeError, ValueError):
                raise InvalidReference(
                    f"`{path[:200]}` does not exist: there is no `{element[:80]}`",
                    hint=f"a path begins with {', '.join(self._environment)}; write $${{ for a literal ${{",
                ) from None
        return current

    def _spend(self, characters: int) -> None:
        self._allowance.characters -= characters
        self._characters_left -= characters
        if self._characters_left < 0:
            raise ResponseTooLarge(
                "the references of one value, or of all, yield too many characters",
                hint="refer to smaller parts of results, or use several pipes",
            )


def size_of(value: object, most: int, deepest: int | None = None) -> int:
    """About how many characters a value takes, or any number above `most`. Every part counts each time it occurs:
    references can repeat a part that an estimate from samples would miss. Raises `InvalidArgument` if it is nested more
    than `deepest` levels."""
    size, depth, level = 0, 0, [value]
    while level and size <= most:
        below: list[object] = []
        for part in level:
            if isinstance(part, str):
                size += len(part)
            elif isinstance(part, dict):
                members = cast(dict[str, object], part)
                size += _VALUE_CHARACTERS * len(members) + sum(map(len, members))
                below.extend(members.values())
            elif isinstance(part, list):
                items = cast(list[object], part)
                size += _VALUE_CHARACTERS * len(items)
                below.extend(items)
            elif isinstance(part, int):
                # It may have thousands of digits.
                size += part.bit_length() // 64 * 20
            if size > most:
                return size
        level, depth = below, depth + 1
        if deepest is not None and depth > deepest + 1:
            raise InvalidArgument(f"a value is nested more than {deepest} levels deep", hint="refer to a part of it")
    return size


def is_true(condition: Any, resolve: Callable[[Any], Any]) -> bool:
    """Whether an `if` holds. `{"$not": value}` negates, `{"$eq": [a, b]}` compares; a path that does not exist, null,
    false, zero and everything empty do not hold."""
    if isinstance(condition, Mapping):
        members = cast(Mapping[str, Any], condition)
        if set(members) == {"$not"}:
            return not is_true(members["$not"], resolve)
        if set(members) == {"$eq"}:
            pair = members["$eq"]
            if not isinstance(pair, list) or len(cast(list[Any], pair)) != 2:
                raise InvalidReference("`$eq` compares a list of two values")
            first, second = (_found(each, resolve) for each in cast(list[Any], pair))
            return first == second
    return bool(_found(condition, resolve))


def _found(value: Any, resolve: Callable[[Any], Any]) -> Any:
    try:
        return resolve(value)
    except InvalidReference:
        return None
