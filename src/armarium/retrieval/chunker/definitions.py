"""Splits code at its definitions, and definitions that are too long at members and statements."""

from __future__ import annotations

import re
import time
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from operator import methodcaller, sub
from typing import TYPE_CHECKING

from armarium.retrieval.chunker.grammars import GRAMMARS, Grammar, parser_for, title, unwrapped
from armarium.retrieval.chunker.segments import Fits, Path, Segment

if TYPE_CHECKING:
    from tree_sitter import Node, Parser

_LINE_BREAK = re.compile(b"\n")
_MAX_PARSED_CHARS = 2_000_000
_MAX_LINE_CHARS = 20_000
_MAX_PATH = 8
_PART_CHARS = 128_000
_MAX_PART_S = 5.0
_SAMPLE_EVERY_CHARS = 32_000
_SAMPLE_CHARS = 2_000
_LARGE_SAMPLE_CHARS = 16_000
_UNSAMPLED_CHARS = 8_000
_SIMPLE_CODE = ("def area(width, height):\n    return width * height\n\n\n" * 320)[:_LARGE_SAMPLE_CHARS]
_SUSPECT_SLOWDOWN = 25
_MAX_SLOWDOWN = 60


@dataclass(slots=True)
class _Level:
    """A node on the path from the root to the current node."""

    children: Iterator[Node]
    path: Path
    comments: tuple[int, int] | None = None
    """The first and last line of pending comments and attributes, which belong to the next node."""


class _Rows:
    """Maps byte offsets of nodes to lines. Replaces `start_point` and `end_point`, which crash in tree-sitter 0.26.0
    because of a reference-counting bug."""

    def __init__(self, source: bytes, first: int) -> None:
        self.first = first
        # The end of the text does not start a line, although empty nodes may be there.
        self._starts: list[int] = [0, *map(methodcaller("end"), _LINE_BREAK.finditer(source, 0, len(source) - 1))]

    def of(self, node: Node) -> tuple[int, int]:
        """The first and the last line, without a trailing line break."""
        start, end = node.start_byte, node.end_byte
        row = bisect_right(self._starts, start) - 1
        return self.first + row, self.first + bisect_right(self._starts, max(start, end - 1), row) - 1


class _Cuts:
    """Collects the lines at which segments start."""

    def __init__(self) -> None:
        self.found: list[tuple[int, Path, bool]] = []
        self.covered = -1
        """The last line of an earlier segment: no segment starts at or before it."""

    def add(self, row: int, last_row: int, path: Path, *, is_definition: bool = False) -> None:
        if row > self.covered:
            self.found.append((row, path, is_definition))
        self.covered = max(self.covered, last_row)


def definitions(text: str, line_starts: Sequence[int], language: str | None, fits: Fits) -> list[Segment] | None:
    """The segments of a source file, in order and without gaps. None: there is no grammar, or the text is generated or
    not code, so that its structure is meaningless."""
    grammar = GRAMMARS.get(language or "")
    starts = [*line_starts, len(text)]
    if grammar is None or language is None or len(text) > _MAX_PARSED_CHARS:
        return None
    if len(text) > _MAX_LINE_CHARS and max(map(sub, starts[1:], starts)) > _MAX_LINE_CHARS:
        return None
    parser = parser_for(language)
    segments: list[Segment] = []
    for first_row, past_row in _parts(text, starts):
        start, end = starts[first_row], starts[past_row]
        if not parses_fast(parser, text, start, end):
            return None
        began = time.thread_time()
        source = text[start:end].encode(errors="replace")
        root = parser.parse(source).root_node
        cuts = _cuts(root, grammar, _Rows(source, first_row), starts, fits)
        edges = [start, *(starts[row] for row, _, _ in cuts[1:]), end]
        segments += [
            Segment(*edge, path, is_definition)
            for edge, (_, path, is_definition) in zip(pairwise(edges), cuts, strict=True)
        ]
        if time.thread_time() - began > _MAX_PART_S:
            return None
    return segments


def _parts(text: str, starts: Sequence[int]) -> Iterator[tuple[int, int]]:
    """The line ranges to parse separately. Parts of a very long file end before an unindented line."""
    first = 0
    while starts[first] + _PART_CHARS < len(text):
        past, boundary = first, 0
        while starts[past] - starts[first] < _PART_CHARS:
            past += 1
            at = starts[past]
            if text[at - 2 : at] == "\n\n" and not text[at : at + 1].isspace():
                boundary = past
        past = boundary or past
        yield first, past
        first = past
    if first < len(starts) - 1:
        yield first, len(starts) - 1


def _cuts(root: Node, grammar: Grammar, rows: _Rows, starts: Sequence[int], fits: Fits) -> list[tuple[int, Path, bool]]:
    cuts = _Cuts()
    cuts.found.append((rows.first, (), False))
    levels = [_Level(iter(root.named_children), ())]
    while levels:
        level = levels[-1]
        if (node := next(level.children, None)) is None:
            _release(level, cuts)
            levels.pop()
            continue
        node_row, last_row = rows.of(node)
        row = node_row
        kind = node.type
        if "comment" in kind or kind in grammar.attached:
            _hold(level, cuts, row, last_row)
            continue
        if level.comments and row <= level.comments[1] + 1:
            row = level.comments[0]
            level.comments = None
        _release(level, cuts)
        inner, name, path = node, None, level.path
        if kind in grammar.named:
            inner = unwrapped(grammar, node)
            name = title(grammar, inner, constants_too=not path and node_row < last_row)
            if name is not None and len(path) < _MAX_PATH:
                path = (*path, name)
        # A node that starts on a line of the previous segment becomes a part of it.
        begin = row if row > cuts.covered else cuts.found[-1][0]
        if row == last_row or fits(starts[begin], starts[last_row + 1]):
            cuts.add(row, last_row, path, is_definition=name is not None)
            continue
        parts = inner.named_children
        below = _Level(iter(parts), path)
        inner_row, _ = rows.of(inner)
        if name is None and parts and rows.of(parts[0])[0] == inner_row:
            # The first part starts the segment, so the comments above belong to it.
            below.comments = (row, inner_row - 1) if row < inner_row else None
        else:
            cuts.add(row, inner_row, path)
        levels.append(below)
    if len(cuts.found) > 1 and cuts.found[1][0] == rows.first:
        del cuts.found[0]
    return cuts.found


def _hold(level: _Level, cuts: _Cuts, row: int, last_row: int) -> None:
    """Hold a comment until the next node is known. A comment behind code on the same line belongs to that code."""
    if row <= cuts.covered:
        cuts.covered = max(cuts.covered, last_row)
    elif level.comments and row <= level.comments[1] + 1:
        level.comments = (level.comments[0], last_row)
    else:
        _release(level, cuts)
        level.comments = (row, last_row)


def _release(level: _Level, cuts: _Cuts) -> None:
    """Add pending comments as a segment of their own."""
    if level.comments:
        cuts.add(*level.comments, level.path)
        level.comments = None


def parses_fast(parser: Parser, text: str, start: int, end: int) -> bool:
    """Whether the parser is fast on text[start:end], by parsing samples of it.

    On text that is not code, error recovery takes the parser quadratic time, and it cannot be interrupted. A slow small
    sample selects the place for a large one. Its time is compared with that of simple code of the same length on this
    machine: real code takes up to 15 times as long, files that would take minutes 200 times or more. The limit is so
    far from both that every machine splits a file in the same way.
    """
    if end - start <= _UNSAMPLED_CHARS:
        return True
    suspects = [
        at
        for at in range(start + _SAMPLE_CHARS, end, _SAMPLE_EVERY_CHARS)
        if _slowdown(parser, text[at : at + _SAMPLE_CHARS]) > _SUSPECT_SLOWDOWN
    ]
    if end - start > 2 * _SAMPLE_EVERY_CHARS:
        suspects.append(start)
    large = (text[at : min(end, at + _LARGE_SAMPLE_CHARS)] for at in suspects)
    # Twice, because the machine may have been busy.
    return not any(all(_slowdown(parser, sample) > _MAX_SLOWDOWN for _ in range(2)) for sample in large)


def _slowdown(parser: Parser, sample: str) -> float:
    """The parse time relative to simple code of the same length."""
    return parse_seconds(parser, sample) / (baseline_s_per_char() * max(1, len(sample)))


@cache
def baseline_s_per_char() -> float:
    """The parse time of simple code on this machine, per character."""
    parser = parser_for("python")
    return min(parse_seconds(parser, _SIMPLE_CODE) for _ in range(5)) / len(_SIMPLE_CODE)


def parse_seconds(parser: Parser, sample: str) -> float:
    began = time.thread_time()
    parser.parse(sample.encode(errors="replace"))
    return time.thread_time() - began
