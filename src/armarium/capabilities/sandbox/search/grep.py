"""Finds lines that match a pattern, in one file or in the files below a directory."""

from __future__ import annotations

import os
import stat
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass
from typing import Literal, NamedTuple

from armarium.capabilities.sandbox.reads.byte_scan import count_newlines
from armarium.capabilities.sandbox.search.haystack import BUFFER_BYTES, MAX_LINE_BYTES, Haystack, TextBlock
from armarium.capabilities.sandbox.search.lines import LineSearch
from armarium.foundation.concurrency.cancellation import Cancellation
from armarium.foundation.files.glob_patterns import filter_selection
from armarium.foundation.files.walk import Bounds, Everything, Walk, Watch

Output = Literal["content", "files", "count"]
"""What one result is: a matching line, a file with matches, or a file with its number of matches."""

MAX_SHOWN_BYTES = 4096
"""Longer lines are truncated, so that a minified file does not produce megabytes of results."""
_SHOWN_BEFORE_MATCH = 512
_CARRIAGE_RETURN = 13


@dataclass(frozen=True, slots=True)
class Query:
    """A search in the content of files.

    The pattern has RE2 syntax and is matched against each line separately, without its line ending (LF or CR LF). No
    character class matches bytes that are not UTF-8.
    """

    pattern: str
    case_insensitive: bool = False
    glob_filter: str | None = None
    """Which files to search: by name at any depth, or with a "/" by path below the searched directory."""
    context_lines: int = 0
    max_results: int = 100
    offset: int = 0
    """Number of results to skip."""
    output: Output = "content"
    buffer_bytes: int = BUFFER_BYTES
    max_answer_chars: int = 8 * 1024 * 1024
    """Limit for the text of all matches together; with more, the result is truncated."""
    max_line_bytes: int = MAX_LINE_BYTES
    """Longer lines are searched in parts of about this size. A match across two parts is not found."""


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


@dataclass(frozen=True, slots=True)
class GrepResult:
    """The first results, in the order of paths and lines."""

    matches: list[LineMatch]
    files: dict[str, int]
    """The results, instead of `matches`, if one result is a file: the number of its matching lines."""
    truncated: bool
    timed_out: bool
    files_searched: int
    """Number of text files that were read; the last one partially if the search ended early."""


def grep(fd: int, path: str, query: Query, *, bounds: Bounds, cancellation: Cancellation) -> GrepResult:
    """Search an open file, to which the filter does not apply, or the regular files below an open directory. `path` is
    relative to the root."""
    search = LineSearch(query.pattern, fold=query.case_insensitive)
    watch = Watch(bounds.deadline, cancellation)
    haystack = Haystack(query.context_lines, query.buffer_bytes, query.max_line_bytes)
    with ExitStack() as opened:
        if stat.S_ISDIR(os.fstat(fd).st_mode):
            selection = Everything() if query.glob_filter is None else filter_selection(query.glob_filter)
            runs = opened.enter_context(closing(Walk(fd, path, selection, "file", bounds, watch).runs()))
            blocks = haystack.blocks(runs)
        else:
            blocks = haystack.file_blocks(fd, path)
        return _search(search, query, opened.enter_context(closing(blocks)), haystack, watch)


def _search(
    search: LineSearch, query: Query, blocks: Iterable[TextBlock], haystack: Haystack, watch: Watch
) -> GrepResult:
    results = _Results(query)
    add, context_lines = results.add_file, 0
    if query.output == "content":
        add, context_lines = results.add_line, query.context_lines
    last: tuple[str, int] | None = None
    truncated = False
    for block in blocks:
        watch.checkpoint()
        for line in _line_matches(search, block, context_lines):
            if block.first_line is not None and last == line[:2]:
                continue  # the same line, which was searched in parts
            last = line[:2]
            if not add(line):
                truncated = True
                break
        if truncated or watch.timed_out:
            break
    timed_out = watch.timed_out and not truncated
    return GrepResult(results.lines, results.files, truncated, timed_out, haystack.files)


class _Results:
    """Collects matching lines, or files with matching lines. Adding returns False if a limit is reached."""

    def __init__(self, query: Query) -> None:
        self.lines: list[LineMatch] = []
        self.files: dict[str, int] = {}
        self._to_skip = query.offset
        self._max_results = query.max_results
        self._room = query.max_answer_chars
        self._current: str | None = None

    def add_line(self, line: LineMatch) -> bool:
        if self._to_skip:
            self._to_skip -= 1
            return True
        self._room -= len(line.line_content) + sum(map(len, line.context_before)) + sum(map(len, line.context_after))
        if len(self.lines) == self._max_results or self._room < 0:
            return False
        self.lines.append(line)
        return True

    def add_file(self, line: LineMatch) -> bool:
        if line.file != self._current:
            self._current = line.file
            if self._to_skip:
                self._to_skip -= 1
            elif len(self.files) == self._max_results:
                return False
            else:
                self.files[line.file] = 0
        if line.file in self.files:
            self.files[line.file] += 1
        return True


def _line_matches(search: LineSearch, block: TextBlock, context_lines: int) -> Iterator[LineMatch]:
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
