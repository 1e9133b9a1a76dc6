"""Limits how many values a message carries and how deeply they nest, before they are validated."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

from armarium.foundation.errors import InvalidArgument
from armarium.foundation.settings.model import LimitSettings
from armarium.surfaces.json.text import decode
from armarium.surfaces.json.threads import run_in_json_thread

MAX_ARGUMENTS = 256
"""The most arguments of one call. Every tool has far fewer."""
MAX_MEMBERS = 5000
"""The most members of an object in the arguments. A validation error about unknown members costs a thousand times
what they cost themselves."""

_MAX_ENVELOPE_VALUES = 5000
"""The most values of a message without the arguments of its call. The SDK validates them on the event loop."""
_MAX_ENVELOPE_CHARACTERS = 256 * 1024
_MAX_ENVELOPE_DEPTH = 64
_MAX_NAME_SHOWN = 80
"""How many characters of an argument's name an error message shows."""
_SMALL_VALUES = 512
_SMALL_CHARACTERS = 512 * 1024
_SMALL_BODY_BYTES = 256 * 1024
_WINDOW = 1024 * 1024
"""How many bytes are scanned before other threads get the interpreter lock."""
_IN_STRING = re.compile(rb'[^"\\]*(?:\\.[^"\\]*)*', re.DOTALL)


class TooManyValues(Exception):
    """A body has more values than the limit."""


@dataclass(frozen=True, slots=True)
class ArgumentSize:
    values: int
    characters: int
    """In all strings and names together."""

    @property
    def is_small(self) -> bool:
        """Whether the arguments can be validated on the event loop."""
        return self.values <= _SMALL_VALUES and self.characters <= _SMALL_CHARACTERS


async def measure_arguments(arguments: Mapping[str, Any], limits: LimitSettings) -> ArgumentSize:
    """Measure the arguments; raises `InvalidArgument` if they exceed the limits of a call."""
    if len(arguments) > MAX_ARGUMENTS:
        raise InvalidArgument(f"there are {len(arguments)} arguments; no tool takes more than {MAX_ARGUMENTS}")
    deepest = limits.max_argument_depth
    try:
        return _measure(arguments, min(_SMALL_VALUES, limits.max_argument_values), deepest)
    except TooManyValues:
        pass
    try:
        return await run_in_json_thread(_measure, arguments, limits.max_argument_values, deepest)
    except TooManyValues:
        raise InvalidArgument(
            f"the arguments have more than {limits.max_argument_values} values", hint="send them in several calls"
        ) from None


def is_envelope_small(message: Mapping[str, Any]) -> bool:
    """Whether a message, without the arguments of its call, is as small as messages normally are."""
    params = message.get("params")
    if isinstance(params, dict):
        envelope = {name: value for name, value in cast(dict[str, object], params).items() if name != "arguments"}
        message = {**message, "params": envelope}
    try:
        return _measure(message, _MAX_ENVELOPE_VALUES, _MAX_ENVELOPE_DEPTH).characters <= _MAX_ENVELOPE_CHARACTERS
    except (TooManyValues, InvalidArgument):
        return False


def _measure(arguments: Mapping[str, Any], most_values: int, deepest: int) -> ArgumentSize:
    values = characters = depth = 0
    level: list[object] = [arguments]
    while level:
        depth += 1
        below: list[object] = []
        for holder in level:
            if isinstance(holder, Mapping):
                members = cast(Mapping[str, object], holder)
                if len(members) > MAX_MEMBERS:
                    raise InvalidArgument(f"an object within the arguments has more than {MAX_MEMBERS} members")
                characters += sum(map(len, members))
                inner = members.values()
            else:
                inner = cast(list[object], holder)
            values += len(inner)
            if values > most_values:
                raise TooManyValues
            for value in inner:
                if isinstance(value, str):
                    characters += len(value)
                elif isinstance(value, Mapping | list):
                    below.append(value)  # pyright: ignore[reportUnknownArgumentType] any JSON
        if below and depth >= deepest:
            deep = next(name for name, value in arguments.items() if _is_deeper(value, deepest - 1))
            raise InvalidArgument(f"`{deep[:_MAX_NAME_SHOWN]}` is nested more than {deepest} levels deep")
        level = below
    return ArgumentSize(values, characters)


def _is_deeper(value: object, levels: int) -> bool:
    """Whether a value has more than that many levels of objects and lists."""
    level = [value]
    for _ in range(levels + 1):
        holders = [
            cast(Mapping[str, object] | list[object], each) for each in level if isinstance(each, Mapping | list)
        ]
        if not holders:
            return False
        level = [inner for holder in holders for inner in (holder.values() if isinstance(holder, Mapping) else holder)]
    return True


async def decode_body(body: bytes, most_values: int | None) -> Any:
    """Decode a request. Raises `NotJson`, and `TooManyValues` before a large body is parsed. None means no limit, for a
    line from stdio: its sender is the only client."""
    if len(body) <= _SMALL_BODY_BYTES:
        return decode(body)
    if most_values is not None and not await run_in_json_thread(has_at_most_values, body, most_values):
        raise TooManyValues
    return await run_in_json_thread(decode, body)


def has_at_most_values(text: bytes, most: int) -> bool:
    """Whether a text has at most about so many JSON values. It need not be valid JSON."""
    # The first value of a list or an object follows a bracket, every other value a comma.
    if _marks(text, 0, len(text), most) <= most:
        return True
    position = marks = 0
    while True:
        quote = text.find(b'"', position)
        marks += _marks(text, position, len(text) if quote < 0 else quote, most)
        if marks > most:
            return False
        if quote < 0:
            return True
        position = _end_of_string(text, quote + 1)


def _marks(text: bytes, start: int, end: int, most: int) -> int:
    """The number of commas and opening brackets, or any number above `most`."""
    marks = 0
    for begin in range(start, end, _WINDOW):
        marks += sum(text.count(mark, begin, min(begin + _WINDOW, end)) for mark in (b",", b"[", b"{"))
        if marks > most:
            break
    return marks


def _end_of_string(text: bytes, position: int) -> int:
    """The position behind the quote that ends a string."""
    while position < len(text):
        match = _IN_STRING.match(text, position, position + _WINDOW)
        position = match.end() if match else position
        if text[position : position + 1] == b'"':
            return position + 1
        if text[position : position + 1] == b"\\" and len(text) <= position + 1:
            break
    return len(text)
