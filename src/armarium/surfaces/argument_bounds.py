"""How many values a message may carry and how deep they may be nested, found out before anything validates them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

from armarium.foundation.errors import InvalidArgument
from armarium.surfaces.caller_limits import CallLimits
from armarium.surfaces.json_text import decoded
from armarium.surfaces.json_threads import in_json_thread

MOST_ARGUMENTS = 256
"""Arguments of one call; no tool has nearly as many."""
MOST_MEMBERS = 5000
"""Members of any object within them: an error about unknown members costs a thousand times what they do."""

_MOST_BESIDE = 5000
"""Values of a message besides the arguments of a call; the SDK looks at all of them on the event loop."""
_LONGEST_BESIDE = 256 * 1024
"""Characters of the same."""
_SHOWN = 80
"""Characters of an argument's name in a message."""
_FEW_VALUES = 512
_SHORT_TEXTS = 512 * 1024
_SHORT_BODY = 256 * 1024
_WINDOW = 1024 * 1024
"""How much of a text is looked at before other threads may run."""
_IN_STRING = re.compile(rb'[^"\\]*(?:\\.[^"\\]*)*', re.DOTALL)


class TooManyValues(Exception):
    """A body has more values than a message may have."""


@dataclass(frozen=True, slots=True)
class Extent:
    """How much the arguments of a call are."""

    values: int
    characters: int
    """Of all texts together, names too."""

    @property
    def is_small(self) -> bool:
        """Whether looking at all of it takes no time worth mentioning."""
        return self.values <= _FEW_VALUES and self.characters <= _SHORT_TEXTS


async def extent_of(arguments: Mapping[str, Any], limits: CallLimits) -> Extent:
    """How much the arguments are; raises `InvalidArgument` when that is more than a call may carry."""
    if len(arguments) > MOST_ARGUMENTS:
        raise InvalidArgument(f"there are {len(arguments)} arguments; no tool takes more than {MOST_ARGUMENTS}")
    deepest = limits.max_argument_depth
    try:
        return _extent(arguments, min(_FEW_VALUES, limits.max_argument_values), deepest)
    except TooManyValues:
        pass
    try:
        return await in_json_thread(_extent, arguments, limits.max_argument_values, deepest)
    except TooManyValues:
        raise InvalidArgument(
            f"the arguments have more than {limits.max_argument_values} values", hint="send them in several calls"
        ) from None


def is_short_beside_arguments(message: Mapping[str, Any], deepest: int) -> bool:
    """Whether all that a message says, but for the arguments of a call, is as little as it always is."""
    params = message.get("params")
    if isinstance(params, dict):
        beside = {name: value for name, value in cast(dict[str, object], params).items() if name != "arguments"}
        message = {**message, "params": beside}
    try:
        return _extent(message, _MOST_BESIDE, deepest).characters <= _LONGEST_BESIDE
    except (TooManyValues, InvalidArgument):
        return False


def _extent(arguments: Mapping[str, Any], most_values: int, deepest: int) -> Extent:
    values = characters = depth = 0
    level: list[object] = [arguments]
    while level:
        depth += 1
        below: list[object] = []
        for holder in level:
            if isinstance(holder, Mapping):
                members = cast(Mapping[str, object], holder)
                if len(members) > MOST_MEMBERS:
                    raise InvalidArgument(f"an object within the arguments has more than {MOST_MEMBERS} members")
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
            raise InvalidArgument(f"`{deep[:_SHOWN]}` is nested more than {deepest} deep")
        level = below
    return Extent(values, characters)


def _is_deeper(value: object, levels: int) -> bool:
    """Whether a value has more levels of objects and lists than that."""
    level = [value]
    for _ in range(levels + 1):
        holders = [
            cast(Mapping[str, object] | list[object], each) for each in level if isinstance(each, Mapping | list)
        ]
        if not holders:
            return False
        level = [inner for holder in holders for inner in (holder.values() if isinstance(holder, Mapping) else holder)]
    return True


async def decoded_body(body: bytes, most_values: int) -> Any:
    """The value of a body; raises `NotJson`, or `TooManyValues` before a large one is parsed."""
    if len(body) <= _SHORT_BODY:
        return decoded(body)
    return await in_json_thread(_decoded_if_few, body, most_values)


async def decoded_line(line: bytes) -> Any:
    """The value of a message whose sender is alone with the server, whatever it carries; raises `NotJson`."""
    return decoded(line) if len(line) <= _SHORT_BODY else await in_json_thread(decoded, line)


def _decoded_if_few(body: bytes, most_values: int) -> Any:
    if not has_few_values(body, most_values):
        raise TooManyValues
    return decoded(body)


def has_few_values(text: bytes, most: int) -> bool:
    """Whether a JSON text has at most so many values, give or take its outermost ones. Any text has an answer."""
    # Every value but the first of a list or an object has a comma before it, and that one a bracket.
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
    """How many commas and opening brackets there are, or some number above `most`."""
    marks = 0
    for begin in range(start, end, _WINDOW):
        marks += sum(text.count(mark, begin, min(begin + _WINDOW, end)) for mark in (b",", b"[", b"{"))
        if marks > most:
            break
    return marks


def _end_of_string(text: bytes, position: int) -> int:
    """The place behind the quote that ends a string."""
    while position < len(text):
        match = _IN_STRING.match(text, position, position + _WINDOW)
        position = match.end() if match else position
        if text[position : position + 1] == b'"':
            return position + 1
        if text[position : position + 1] == b"\\" and len(text) <= position + 1:
            break
    return len(text)
