"""Compiles patterns and caches them.

RE2 expressions are thread-safe, so concurrent searches for one pattern share one automaton. Only one pattern is
compiled at a time: threads that wait here do not compete for the GIL.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable

from armarium.capabilities.sandbox.search import cost
from armarium.capabilities.sandbox.search.literals import Requirements, requirements
from armarium.capabilities.sandbox.search.regex import Find, line_finder, whole_finder
from armarium.capabilities.sandbox.search.syntax import Node, buffer_pattern, parse
from armarium.foundation.files.errors import InvalidPattern

CACHE_BYTES = 32 * 1024 * 1024


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
        return _pattern(pattern, in_buffer, lambda text: line_finder(text, fold=fold, max_bytes=max_bytes), node)

    return _cache.find(("line", pattern, fold), make)


def path_pattern(pattern: str) -> Pattern:
    """Compile a pattern for paths, in which a line feed is an ordinary character, or raise `InvalidPattern`."""

    def make(node: Node | None, max_bytes: int) -> Pattern:
        in_buffer = buffer_pattern(pattern, None, strip_cr=False)
        found = _pattern(pattern, in_buffer, lambda text: line_finder(text, max_bytes=max_bytes), node)
        return Pattern(found.required, found.in_buffer, lambda: whole_finder(pattern, max_bytes=max_bytes))

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


class PatternCache:
    """A least-recently-used cache of patterns, bounded by memory."""

    def __init__(self, max_bytes: int) -> None:
        self.max_bytes = max_bytes
        self.bytes = 0
        """Memory of the cached patterns."""
        self._patterns: OrderedDict[tuple[str, str, bool], tuple[Pattern, int]] = OrderedDict()
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._patterns)

    def __contains__(self, key: tuple[str, str, bool]) -> bool:
        return key in self._patterns

    def find(self, key: tuple[str, str, bool], make: Callable[[Node | None, int], Pattern]) -> Pattern:
        cost.require_length(key[1])
        with self._lock:
            known = self._patterns.get(key)
            if known is None:
                known = self._made(key, make)
            else:
                self._patterns.move_to_end(key)
            return known[0]

    def _made(self, key: tuple[str, str, bool], make: Callable[[Node | None, int], Pattern]) -> tuple[Pattern, int]:
        _, pattern, fold = key
        node = parse(pattern, fold=fold)
        max_bytes = cost.memory_for(cost.affordable(node))
        made = self._patterns[key] = make(node, max_bytes), 2 * max_bytes
        self.bytes += made[1]
        while self.bytes > self.max_bytes:
            _, (_, evicted) = self._patterns.popitem(last=False)
            self.bytes -= evicted
        return made


_cache = PatternCache(CACHE_BYTES)
