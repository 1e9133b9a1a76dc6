"""Finds the lines of files that a pattern matches, below a directory or in one file."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import closing
from dataclasses import dataclass
from typing import Literal, NamedTuple

from armarium.capabilities.sandbox.search.haystack import BUFFER_BYTES, MAX_LINE_BYTES, Chunk, Haystack
from armarium.capabilities.sandbox.search.line_matches import Hit, hits
from armarium.capabilities.sandbox.search.lines import LineSearch
from armarium.foundation.cancellation import Cancellation
from armarium.foundation.files.glob_patterns import filter_selection
from armarium.foundation.files.walk import Bounds, Everything, Walk, Watch

Output = Literal["content", "files", "count"]
"""What a result is: a matching line, a file that has one, or a file with how many it has."""


@dataclass(frozen=True, slots=True)
class Query:
    """What to look for.

    The pattern is RE2 syntax and is matched against each line by itself, without its line end (LF or CR LF). Bytes
    that are no UTF-8 are matched by no character class.
    """

    pattern: str
    case_insensitive: bool = False
    glob_filter: str | None = None
    """Which files to look into: by name at any depth, or by path below the searched directory if it has a "/"."""
    context_lines: int = 0
    max_results: int = 100
    offset: int = 0
    """Results to leave out before the first."""
    output: Output = "content"
    buffer_bytes: int = BUFFER_BYTES
    max_answer_chars: int = 8 * 1024 * 1024
    """What is shown of all matches together; with more, the result is truncated."""
    max_line_bytes: int = MAX_LINE_BYTES
    """Longer lines are searched in parts of about this size, and a match across two parts is missed."""


class FileHits(NamedTuple):
    """A file and how many of its lines match."""

    file: str
    lines: int


@dataclass(frozen=True, slots=True)
class GrepResult:
    """The first matching lines in the order of paths and lines."""

    matches: list[Hit]
    files: list[FileHits]
    """Instead of `matches`, where a result is a file."""
    truncated: bool
    """There are more."""
    timed_out: bool
    files_searched: int
    """Text files that were read, wholly or, when the search ended early, in part."""


def grep(top_fd: int, prefix: str, query: Query, *, bounds: Bounds, cancellation: Cancellation) -> GrepResult:
    """Search the regular files below a directory. `prefix` is its path in its root, "" for the root itself."""
    search = LineSearch(query.pattern, fold=query.case_insensitive)
    selection = Everything() if query.glob_filter is None else filter_selection(query.glob_filter)
    watch = Watch(bounds.deadline, cancellation)
    walk = Walk(top_fd, prefix, selection, "file", bounds, watch)
    haystack = Haystack(query.context_lines, query.buffer_bytes, query.max_line_bytes)
    with closing(walk.runs()) as runs, closing(haystack.chunks(runs)) as chunks:
        return _search(search, query, chunks, haystack, watch)


def grep_file(file_fd: int, path: str, query: Query, *, bounds: Bounds, cancellation: Cancellation) -> GrepResult:
    """Search one freshly opened file, shown as `path`. It was named expressly, so no filter applies."""
    search = LineSearch(query.pattern, fold=query.case_insensitive)
    watch = Watch(bounds.deadline, cancellation)
    haystack = Haystack(query.context_lines, query.buffer_bytes, query.max_line_bytes)
    with closing(haystack.chunks_of_file(file_fd, path)) as chunks:
        return _search(search, query, chunks, haystack, watch)


def _search(search: LineSearch, query: Query, chunks: Iterable[Chunk], haystack: Haystack, watch: Watch) -> GrepResult:
    results = _Lines(query) if query.output == "content" else _Files(query)
    last: tuple[str, int] | None = None
    truncated = False
    for chunk in chunks:
        watch.checkpoint()
        for hit in hits(search, chunk, query.context_lines if query.output == "content" else 0):
            if chunk.first_line is not None and last == hit[:2]:
                continue  # the same line, too long to be searched at once
            last = hit[:2]
            if not results.add(hit):
                truncated = True
                break
        if truncated or watch.timed_out:
            break
    timed_out = watch.timed_out and not truncated
    return GrepResult(results.lines, results.files, truncated, timed_out, haystack.files)


class _Lines:
    """Every matching line is a result."""

    def __init__(self, query: Query) -> None:
        self.lines: list[Hit] = []
        self.files: list[FileHits] = []
        self._left_out = query.offset
        self._most = query.max_results
        self._room = query.max_answer_chars

    def add(self, hit: Hit) -> bool:
        """Take the result; False when there is no room for it."""
        if self._left_out:
            self._left_out -= 1
            return True
        self._room -= len(hit.line_content) + sum(map(len, hit.context_before)) + sum(map(len, hit.context_after))
        if len(self.lines) == self._most or self._room < 0:
            return False
        self.lines.append(hit)
        return True


class _Files:
    """Every file with a matching line is a result."""

    def __init__(self, query: Query) -> None:
        self.lines: list[Hit] = []
        self.files: list[FileHits] = []
        self._left_out = query.offset
        self._most = query.max_results
        self._current: str | None = None

    def add(self, hit: Hit) -> bool:
        """Count the line; False when it is in a file for which there is no room."""
        if hit.file != self._current:
            self._current = hit.file
            if self._left_out:
                self._left_out -= 1
            elif len(self.files) == self._most:
                return False
            else:
                self.files.append(FileHits(hit.file, 0))
        if self.files and self.files[-1].file == hit.file:
            self.files[-1] = FileHits(hit.file, self.files[-1].lines + 1)
        return True
