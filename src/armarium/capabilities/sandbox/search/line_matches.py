"""Turns matching lines into what is shown of them: file, line number, text, and the lines around."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from typing import NamedTuple

from armarium.capabilities.sandbox.reads.newlines import count_newlines
from armarium.capabilities.sandbox.search.haystack import Chunk
from armarium.capabilities.sandbox.search.lines import LineSearch

MAX_SHOWN_BYTES = 4096
"""Longer lines are cut, so that a minified file does not make an answer of megabytes."""
_SHOWN_BEFORE_MATCH = 512
_CARRIAGE_RETURN = 13


class Hit(NamedTuple):
    """A matching line. Text that is no UTF-8 has replacement characters."""

    file: str
    line_number: int
    line_content: str
    """Without its line end; of a very long line, the part around the match."""
    context_before: tuple[str, ...]
    context_after: tuple[str, ...]
    line_truncated: bool
    """`line_content` is only a part of the line."""


def hits(search: LineSearch, chunk: Chunk, context_lines: int) -> Iterator[Hit]:
    """The matching lines of a chunk in order."""
    buffer, starts = chunk.buffer, chunk.starts
    path = ""
    file_start = file_end = number = counted = 0
    for match, start, newline in search.lines(buffer, chunk.begin, chunk.end):
        if start >= file_end:
            index = bisect_right(starts, start) - 1
            path = chunk.paths[index]
            file_start = counted = starts[index]
            file_end = starts[index + 1] if index + 1 < len(starts) else chunk.readable_end
            number = 1
            if chunk.first_line is not None:
                number, counted = chunk.first_line(), chunk.begin
        number += count_newlines(buffer, counted, start)
        counted = start
        text, cut = _shown(buffer, start, newline, match)
        before = after = ()
        if context_lines:
            before = _lines_before(buffer, file_start, start, context_lines)
            after = _lines_after(buffer, newline + 1, file_end, context_lines)
        yield Hit(path, number, text, before, after, cut)


def _shown(buffer: bytearray, start: int, stop: int, match: int) -> tuple[str, bool]:
    if stop > start and buffer[stop - 1] == _CARRIAGE_RETURN:
        stop -= 1
    if stop - start <= MAX_SHOWN_BYTES:
        return buffer[start:stop].decode("utf-8", "replace"), False
    start = max(start, min(match - _SHOWN_BEFORE_MATCH, stop - MAX_SHOWN_BYTES))
    # A character cut in two at either end would only show as damage.
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
