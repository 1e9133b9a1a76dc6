"""Finds lines that match a pattern, in one file or in the files below a directory."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import closing
from dataclasses import dataclass
from typing import Literal, NamedTuple

from armarium.capabilities.sandbox.search.haystack import BUFFER_BYTES, MAX_LINE_BYTES, Haystack, TextBlock
from armarium.capabilities.sandbox.search.line_matches import LineMatch, line_matches
from armarium.capabilities.sandbox.search.lines import LineSearch
from armarium.foundation.cancellation import Cancellation
from armarium.foundation.files.glob_patterns import filter_selection
from armarium.foundation.files.walk import Bounds, Everything, Walk, Watch

Output = Literal["content", "files", "count"]
"""What one result is: a matching line, a file with matches, or a file with its number of matches."""


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


class FileMatches(NamedTuple):
    """A file and the number of its matching lines."""

    file: str
    lines: int


@dataclass(frozen=True, slots=True)
class GrepResult:
    """The first results, in the order of paths and lines."""

    matches: list[LineMatch]
    files: list[FileMatches]
    """The results, instead of `matches`, if one result is a file."""
    truncated: bool
    """Whether there are more results."""
    timed_out: bool
    files_searched: int
    """Number of text files that were read; the last one partially if the search ended early."""


def grep(top_fd: int, prefix: str, query: Query, *, bounds: Bounds, cancellation: Cancellation) -> GrepResult:
    """Search the regular files below a directory. `prefix` is its path relative to the root."""
    search = LineSearch(query.pattern, fold=query.case_insensitive)
    selection = Everything() if query.glob_filter is None else filter_selection(query.glob_filter)
    watch = Watch(bounds.deadline, cancellation)
    walk = Walk(top_fd, prefix, selection, "file", bounds, watch)
    haystack = Haystack(query.context_lines, query.buffer_bytes, query.max_line_bytes)
    with closing(walk.runs()) as runs, closing(haystack.blocks(runs)) as blocks:
        return _search(search, query, blocks, haystack, watch)


def grep_file(file_fd: int, path: str, query: Query, *, bounds: Bounds, cancellation: Cancellation) -> GrepResult:
    """Search one open file, reported as `path`. The filter does not apply."""
    search = LineSearch(query.pattern, fold=query.case_insensitive)
    watch = Watch(bounds.deadline, cancellation)
    haystack = Haystack(query.context_lines, query.buffer_bytes, query.max_line_bytes)
    with closing(haystack.file_blocks(file_fd, path)) as blocks:
        return _search(search, query, blocks, haystack, watch)


def _search(
    search: LineSearch, query: Query, blocks: Iterable[TextBlock], haystack: Haystack, watch: Watch
) -> GrepResult:
    results = _LineResults(query) if query.output == "content" else _FileResults(query)
    last: tuple[str, int] | None = None
    truncated = False
    for block in blocks:
        watch.checkpoint()
        for line in line_matches(search, block, query.context_lines if query.output == "content" else 0):
            if block.first_line is not None and last == line[:2]:
                continue  # the same line, which was searched in parts
            last = line[:2]
            if not results.add(line):
                truncated = True
                break
        if truncated or watch.timed_out:
            break
    timed_out = watch.timed_out and not truncated
    return GrepResult(results.lines, results.files, truncated, timed_out, haystack.files)


class _LineResults:
    """Collects matching lines."""

    def __init__(self, query: Query) -> None:
        self.lines: list[LineMatch] = []
        self.files: list[FileMatches] = []
        self._to_skip = query.offset
        self._max_results = query.max_results
        self._room = query.max_answer_chars

    def add(self, line: LineMatch) -> bool:
        """Add a result. Returns False if a limit is reached."""
        if self._to_skip:
            self._to_skip -= 1
            return True
        self._room -= len(line.line_content) + sum(map(len, line.context_before)) + sum(map(len, line.context_after))
        if len(self.lines) == self._max_results or self._room < 0:
            return False
        self.lines.append(line)
        return True


class _FileResults:
    """Collects files with matching lines."""

    def __init__(self, query: Query) -> None:
        self.lines: list[LineMatch] = []
        self.files: list[FileMatches] = []
        self._to_skip = query.offset
        self._max_results = query.max_results
        self._current: str | None = None

    def add(self, line: LineMatch) -> bool:
        """Count a matching line. Returns False if its file exceeds the limit."""
        if line.file != self._current:
            self._current = line.file
            if self._to_skip:
                self._to_skip -= 1
            elif len(self.files) == self._max_results:
                return False
            else:
                self.files.append(FileMatches(line.file, 0))
        if self.files and self.files[-1].file == line.file:
            self.files[-1] = FileMatches(line.file, self.files[-1].lines + 1)
        return True
