"""Resolves references in the arguments of steps: `${path}` in a string, and `{"$ref": "path"}` for a typed value."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, cast

import orjson

from armarium.foundation.errors import ArmariumError, ResponseTooLarge
from armarium.surfaces.response_encoder import estimate_size

_REFERENCE = re.compile(r"\$(\$?)\{([^{}]*)\}")

Environment = Mapping[str, Any]
"""What references can name, by the first element of their path."""


class InvalidReference(ArmariumError):
    """A reference in a pipe names something that does not exist."""

    code, http_status = "INVALID_REFERENCE", 400


class References:
    """Resolves the references of one value. The result has at most so many characters."""

    def __init__(self, environment: Environment, max_characters: int) -> None:
        self._environment = environment
        self._max_characters = max_characters
        self._left = max_characters

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
                self._spend(estimate_size(found))
                return found
            return {name: self.resolve(each) for name, each in members.items()}
        return value

    def _as_text(self, match: re.Match[str]) -> str:
        escaped, path = match.groups()
        if escaped:
            return match[0][1:]
        found = self._find(path)
        text = found if isinstance(found, str) else "" if found is None else orjson.dumps(found).decode()
        self._spend(len(text))
        return text

    def _find(self, path: object) -> Any:
        if not isinstance(path, str):
            raise InvalidReference("the path of `$ref` must be a string")
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
        self._left -= characters
        if self._left < 0:
            raise ResponseTooLarge(
                f"what the references yield has more than {self._max_characters} characters",
                hint="refer to a smaller part of a result",
            )


def is_true(condition: Any, environment: Environment, max_characters: int) -> bool:
    """Whether an `if` holds. `{"$not": value}` negates, `{"$eq": [a, b]}` compares; a path that does not exist, null,
    false, zero and everything empty do not hold."""
    if isinstance(condition, Mapping):
        members = cast(Mapping[str, Any], condition)
        if set(members) == {"$not"}:
            return not is_true(members["$not"], environment, max_characters)
        if set(members) == {"$eq"}:
            pair = members["$eq"]
            if not isinstance(pair, list) or len(cast(list[Any], pair)) != 2:
                raise InvalidReference("`$eq` compares a list of two values")
            first, second = (_found(each, environment, max_characters) for each in cast(list[Any], pair))
            return first == second
    return bool(_found(condition, environment, max_characters))


def _found(value: Any, environment: Environment, max_characters: int) -> Any:
    try:
        return References(environment, max_characters).resolve(value)
    except InvalidReference:
        return None
