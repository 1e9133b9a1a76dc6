"""Compiles patterns that are not too expensive, and caches them.

RE2 expressions are thread-safe, so concurrent searches for one pattern share one automaton. Only one pattern is
compiled at a time: threads that wait here do not compete for the GIL, which RE2 holds while it compiles. The cost of
compiling is estimated before. A class of characters is many instructions, because RE2 matches bytes: `\\pL` is 1,200,
and `\\pL{700}` is 700 times that.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from functools import lru_cache, partial

from armarium.capabilities.sandbox.reads.byte_scan import Find
from armarium.capabilities.sandbox.search.literals import Requirements, requirements
from armarium.capabilities.sandbox.search.regex import finder, program_size, too_expensive
from armarium.capabilities.sandbox.search.syntax import (
    Anchor,
    Char,
    Choice,
    Node,
    Repeat,
    Sequence,
    Unknown,
    buffer_pattern,
    parse,
)
from armarium.foundation.files.errors import InvalidPattern

CACHE_BYTES = 32 * 1024 * 1024
_MAX_LENGTH = 10_000
_MAX_INSTRUCTIONS = 30_000
"""About 15 ms of compilation."""
_UNREAD_INSTRUCTIONS = 2_500
"""A guess for a pattern that could not be read: RE2 gets no more memory than for so many."""
_FIXED_INSTRUCTIONS = 4
"""Instructions of every program in addition to those of its pattern."""
_MEMORY = 2 * 1024 * 1024
_MEMORY_PER_INSTRUCTION = 800
"""With half of it, RE2 runs out of memory for its automaton on ordinary text and becomes thirty times slower."""


class Pattern:
    """A compiled pattern."""

    def __init__(self, required: Requirements, in_buffer: Find | None, alone: Callable[[], Find]) -> None:
        self.required = required
        """The literals that every match contains."""
        self.in_buffer = in_buffer
        """Finds the pattern in a buffer of many lines; None if lines must be searched one by one."""
        self._compile_alone = alone
        self._alone: Find | None = None
        self._compiling = threading.Lock()

    @property
    def alone(self) -> Find:
        """Finds the pattern in one line or path. Compiled on first use, because most searches do not need it."""
        if self._alone is None:
            with self._compiling:
                self._alone = self._alone or self._compile_alone()
        return self._alone


def line_pattern(pattern: str, *, fold: bool) -> Pattern:
    """Compile a pattern for lines without their line ending, or raise `InvalidPattern`."""

    def make(node: Node | None, max_bytes: int) -> Pattern:
        in_buffer = buffer_pattern(pattern, node, strip_cr=True)
        return _pattern(pattern, in_buffer, lambda text: finder(text, fold=fold, max_bytes=max_bytes), node)

    return _cache.find(("line", pattern, fold), make)


def path_pattern(pattern: str) -> Pattern:
    """Compile a pattern for paths, in which a line feed is an ordinary character, or raise `InvalidPattern`."""

    def make(node: Node | None, max_bytes: int) -> Pattern:
        in_buffer = buffer_pattern(pattern, None, strip_cr=False)
        found = _pattern(pattern, in_buffer, lambda text: finder(text, max_bytes=max_bytes), node)
        alone = partial(finder, pattern, max_bytes=max_bytes, across_lines=True)
        return Pattern(found.required, found.in_buffer, alone)

    return _cache.find(("path", pattern, False), make)


def _pattern(pattern: str, in_buffer: str | None, compiled: Callable[[str], Find], node: Node | None) -> Pattern:
    find = None
    if in_buffer is not None:
        try:
            find = compiled(in_buffer)
        except InvalidPattern:
            find = None  # compiling the original pattern raises the error that the caller understands
    if find is None:
        alone = compiled(pattern)
        return Pattern(requirements(node), None, lambda: alone)
    # Without anchors one expression serves for both.
    return Pattern(requirements(node), find, (lambda: find) if in_buffer == pattern else (lambda: compiled(pattern)))


class PatternCache(OrderedDict[tuple[str, str, bool], tuple[Pattern, int]]):
    """The patterns that were used last and their memory, which is limited in total."""

    def __init__(self, max_bytes: int) -> None:
        super().__init__()
        self.max_bytes = max_bytes
        self.bytes = 0
        self._lock = threading.Lock()

    def find(self, key: tuple[str, str, bool], make: Callable[[Node | None, int], Pattern]) -> Pattern:
        _, pattern, fold = key
        if len(pattern) > _MAX_LENGTH:
            raise InvalidPattern(
                f"invalid pattern: invalid regex: longer than {_MAX_LENGTH} characters",
                hint="search for fewer alternatives at once",
                limit=_MAX_LENGTH,
            )
        with self._lock:
            if (known := self.get(key)) is not None:
                self.move_to_end(key)
                return known[0]
            node = parse(pattern, fold=fold)
            max_bytes = memory_for(estimated_cost(node))
            made = make(node, max_bytes)
            self[key] = made, 2 * max_bytes
            self.bytes += 2 * max_bytes
            while self.bytes > self.max_bytes:
                _, (_, evicted) = self.popitem(last=False)
                self.bytes -= evicted
            return made


_cache = PatternCache(CACHE_BYTES)


def memory_for(instructions: int) -> int:
    """Memory limit of RE2 for a pattern, including the automata that it builds during the search."""
    return _MEMORY + _MEMORY_PER_INSTRUCTION * instructions


def estimated_cost(node: Node | None) -> int:
    """Estimate the number of instructions of a pattern, or raise `InvalidPattern` if there are too many."""
    instructions = _UNREAD_INSTRUCTIONS if node is None else _cost(node, _MAX_INSTRUCTIONS)
    if instructions > _MAX_INSTRUCTIONS:
        raise too_expensive()
    return instructions


def _cost(node: Node, room: int) -> int:
    """Number of instructions of a node. Counting stops above `room`, so that counting is always cheap."""
    match node:
        case Char(text, fold):
            # Two ASCII letters have a third form outside ASCII.
            return 4 if fold and text in "ks" else len(text.encode())
        case Unknown(source, fold):
            return _class_cost(source, fold)
        case Anchor():
            return 1
        case Sequence(parts) | Choice(parts):
            total = 0
            for part in parts:
                total += 1 + _cost(part, room - total)
                if total > room:
                    break
            return total
        case Repeat(part, least, most):
            times = least + 1 if most is None else max(least, most)
            return 1 if times == 0 else times * (1 + _cost(part, room // times))


@lru_cache(maxsize=512)
def _class_cost(source: str, fold: bool) -> int:
    """Number of instructions of a character class, from RE2, which has the tables. Compiling one class is cheap."""
    size = program_size(source, fold=fold)
    return 1 if size is None else max(1, size - _FIXED_INSTRUCTIONS)
