"""Compiles patterns that are not too expensive, and caches them.

RE2 expressions are thread-safe, so concurrent searches for one pattern share one automaton. Only one pattern is
compiled at a time: threads that wait here do not compete for the GIL, which RE2 holds while it compiles. The cost of
compiling is estimated before. A class of characters is many instructions, because RE2 matches bytes: `\\pL` is 1,200,
and `\\pL{700}` is 700 times that.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from contextlib import suppress
from functools import lru_cache, partial
from typing import Literal

from armarium.capabilities.sandbox.reads.byte_scan import Find
from armarium.capabilities.sandbox.search import syntax
from armarium.capabilities.sandbox.search.literals import requirements
from armarium.capabilities.sandbox.search.regex import finder, program_size, too_expensive
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


_Key = tuple[Literal["line", "path"], str, bool]


class Pattern:
    def __init__(self, key: _Key, node: syntax.Node | None, max_bytes: int) -> None:
        kind, pattern, fold = key
        is_path = kind == "path"
        compiled = partial(finder, fold=fold, max_bytes=max_bytes)
        self._compile_alone = partial(compiled, pattern, across_lines=is_path)
        self.required = requirements(node)
        """The literals that every match contains."""
        self.in_buffer: Find | None = None
        """Finds the pattern in a buffer of many lines; None if lines must be searched one by one."""
        for_buffer = syntax.buffer_pattern(pattern, None if is_path else node, strip_cr=not is_path)
        if for_buffer is not None:
            with suppress(InvalidPattern):  # the original pattern raises the error that the caller understands
                self.in_buffer = compiled(for_buffer)
        # Without anchors one expression serves for both.
        self._alone = self.in_buffer if for_buffer == pattern and not is_path else None
        self._compiling = threading.Lock()
        if self.in_buffer is None:
            self._alone = self._compile_alone()

    @property
    def alone(self) -> Find:
        """Finds the pattern in one line or path. Compiled on first use, because most searches do not need it, and only
        once, because it takes memory."""
        if self._alone is None:
            with self._compiling:
                self._alone = self._alone or self._compile_alone()
        return self._alone


def line_pattern(pattern: str, *, fold: bool) -> Pattern:
    """Compile a pattern for lines without their line ending, or raise `InvalidPattern`."""
    return pattern_cache.find(("line", pattern, fold))


def path_pattern(pattern: str) -> Pattern:
    """Compile a pattern for paths, in which a line feed is an ordinary character, or raise `InvalidPattern`."""
    return pattern_cache.find(("path", pattern, False))


class PatternCache(OrderedDict[_Key, tuple[Pattern, int]]):
    """The patterns that were used last and their memory, which is limited in total."""

    def __init__(self, max_bytes: int) -> None:
        super().__init__()
        self.max_bytes = max_bytes
        self.bytes = 0
        self._lock = threading.Lock()

    def find(self, key: _Key) -> Pattern:
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
            node = syntax.parse(pattern, fold=fold)
            max_bytes = memory_for(estimated_cost(node))
            made = Pattern(key, node, max_bytes)
            self[key] = made, 2 * max_bytes
            self.bytes += 2 * max_bytes
            while self.bytes > self.max_bytes:
                _, (_, evicted) = self.popitem(last=False)
                self.bytes -= evicted
            return made


pattern_cache = PatternCache(CACHE_BYTES)


def memory_for(instructions: int) -> int:
    """Memory limit of RE2 for a pattern, including the automata that it builds during the search."""
    return _MEMORY + _MEMORY_PER_INSTRUCTION * instructions


def estimated_cost(node: syntax.Node | None) -> int:
    """Estimate the number of instructions of a pattern, or raise `InvalidPattern` if there are too many."""
    instructions = _UNREAD_INSTRUCTIONS if node is None else _cost(node, _MAX_INSTRUCTIONS)
    if instructions > _MAX_INSTRUCTIONS:
        raise too_expensive()
    return instructions


def _cost(node: syntax.Node, room: int) -> int:
    """Number of instructions of a node. Counting stops above `room`, so that counting is always cheap."""
    match node:
        case syntax.Char(text, fold):
            # Two ASCII letters have a third form outside ASCII.
            return 4 if fold and text in "ks" else len(text.encode())
        case syntax.Unknown(source, fold):
            return _class_cost(source, fold)
        case syntax.Anchor():
            return 1
        case syntax.Sequence(parts) | syntax.Choice(parts):
            total = 0
            for part in parts:
                total += 1 + _cost(part, room - total)
                if total > room:
                    break
            return total
        case syntax.Repeat(part, least, most):
            times = least + 1 if most is None else max(least, most)
            return 1 if times == 0 else times * (1 + _cost(part, room // times))


@lru_cache(maxsize=512)
def _class_cost(source: str, fold: bool) -> int:
    """Number of instructions of a character class, from RE2, which has the tables. Compiling one class is cheap."""
    size = program_size(source, fold=fold)
    return 1 if size is None else max(1, size - _FIXED_INSTRUCTIONS)
