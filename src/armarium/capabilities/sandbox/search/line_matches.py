"""Converts matching lines to results: file, line number, text and context."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from typing import NamedTuple

from armarium.capabilities.sandbox.reads.newlines import count_newlines
from armarium.capabilities.sandbox.search.haystack import TextBlock
from armarium.capabilities.sandbox.search.lines import LineSearch

MAX_SHOWN_BYTES = 4096
"""Longer lines are truncated, so that a minified file does not produce megabytes of results."""
_SHOWN_BEFORE_MATCH = 512
_CARRIAGE_RETURN = 13


class LineMatch(NamedTuple):
    """A matching line. Bytes that are not UTF-8 become replacement characters."""

    file: str
    line_number: int
    line_content: str
    """The line without its line ending; of a very long line, the part around the match."""
    context_before: tuple[str, ...]
    context_after: tuple[str, ...]
    line_truncated: bool
    """`line_content` is only a part of the line."""


def line_matches(search: LineSearch, block: TextBlock, context_lines: int) -> Iterator[LineMatch]:
    """The matching lines of a block, in order."""
    buffer, starts = block.buffer, block.starts
    path = ""
    file_start = file_end = number = counted = 0
    for match, start, newline in search.lines(buffer, block.begin, block.end):
        if start >= file_end:
            index = bisect_right(starts, start) - 1
            path = block.paths[index]
            file_start = counted = starts[index]
            file_end = starts[index + 1] if index + 1 < len(starts) else block.readable_end
            number = 1
            if block.first_line is not None:
                number, counted = block.first_line(), block.begin
        number += count_newlines(buffer, counted, start)
        counted = start
        text, cut = _shown(buffer, start, newline, match)
        before = after = ()
        if context_lines:
            before = _lines_before(buffer, file_start, start, context_lines)
            after = _lines_after(buffer, newline + 1, file_end, context_lines)
        yield LineMatch(path, number, text, before, after, cut)


def _shown(buffer: bytearray, start: int, stop: int, match: int) -> tuple[str, bool]:
    if stop > start and buffer[stop - 1] == _CARRIAGE_RETURN:
        stop -= 1
    if stop - start <= MAX_SHOWN_BYTES:
        return buffer[start:stop].decode("utf-8", "replace"), False
    start = max(start, min(match - _SHOWN_BEFORE_MATCH, stop - MAX_SHOWN_BYTES))
    # Remove the replacement characters of characters that were cut at either end.
    return buffer[start : start + MAX_SHOWN_BYTES].decode("utf-8", "replace").strip("\ufffd"), True


def _lines_before(buffer: bytearray, file_start: int, start: int, count: int) -> tuple[str, ...]:
    lines: list[str] = []
    while start > file_start and len(lines) < count:
        stop = start - 1
        start = buffer.rfind(b"\n", file_start, stop) + 1 or file_start
        lines.append(_shown(buffer, start, stop, start)[0])
    return tuple(reversed(lines))


def _lines_after(buffer: bytearray, start: int, file_end: int, count: int) -> tuple[str, ...]:
    lines: list[str] = []
    while start < file_end and len(lines) < count:
        stop = buffer.find(b"\n", start, file_end)
        if stop < 0:
            stop = file_end
        lines.append(_shown(buffer, start, stop, start)[0])
        start = stop + 1
    return tuple(lines)
