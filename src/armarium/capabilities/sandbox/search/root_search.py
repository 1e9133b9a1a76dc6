"""Runs grep and glob at a path of a root, and builds their results."""

from __future__ import annotations

import os
import stat
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, replace

from armarium.capabilities.sandbox.error_context import checked_path
from armarium.capabilities.sandbox.reads.root_files import iso_time
from armarium.capabilities.sandbox.results import FileCount, FoundFile, FoundFiles, Match, Matches
from armarium.capabilities.sandbox.roots import Root
from armarium.capabilities.sandbox.search.glob import NameQuery, glob
from armarium.capabilities.sandbox.search.grep import LineMatch, Query, grep, grep_file
from armarium.foundation.cancellation import Cancellation
from armarium.foundation.files.errors import NotADirectory, NotARegularFile
from armarium.foundation.files.ignore import GitIgnores
from armarium.foundation.files.names import escape_name
from armarium.foundation.files.walk import Bounds

MAX_RESULTS = 100_000
"""Maximum number of results of one search."""


@dataclass(frozen=True, slots=True)
class Scope:
    """Limits of a search that the caller sets."""

    timeout_seconds: int
    max_depth: int | None
    respect_gitignore: bool


def grep_root(
    root: Root, path: str, query: Query, scope: Scope, deadline: float, cancellation: Cancellation
) -> Matches:
    """Lines that match, in path order. The path may also be a single file."""
    limited = replace(query, max_results=min(query.max_results, MAX_RESULTS))
    with checked_path(root, path, what="directory") as normal, _opened(root, normal, scope, deadline) as (fd, bounds):
        mode = os.fstat(fd).st_mode
        if stat.S_ISDIR(mode):
            result = grep(fd, normal, limited, bounds=bounds, cancellation=cancellation)
        elif stat.S_ISREG(mode):
            result = grep_file(fd, normal, limited, bounds=bounds, cancellation=cancellation)
        else:
            raise NotARegularFile(f"not a directory or a regular file: {path}")
    found = Matches(
        matches=[_match(line) for line in result.matches],
        total_matches=len(result.matches),
        truncated=result.truncated,
        timed_out=result.timed_out,
        files_searched=result.files_searched,
    )
    if query.output != "content":
        found["total_matches"] = sum(result.files.values())
    if query.output == "files":
        found["files"] = [escape_name(file) for file in result.files]
    elif query.output == "count":
        found["counts"] = [FileCount(file=escape_name(file), count=lines) for file, lines in result.files.items()]
    if result.truncated:
        _add_next_offset(found, query.offset + len(result.matches or result.files), query.max_results)
    return found


def _add_next_offset(found: Matches | FoundFiles, next_offset: int, asked: int) -> None:
    found["next_offset"] = next_offset
    if asked > MAX_RESULTS:
        found["note"] = f"no more than {MAX_RESULTS} results are returned at once"


def glob_root(
    root: Root, path: str, query: NameQuery, scope: Scope, deadline: float, cancellation: Cancellation
) -> FoundFiles:
    """Find entries whose path matches, in path order."""
    with checked_path(root, path, what="directory") as normal, _opened(root, normal, scope, deadline) as (fd, bounds):
        if not stat.S_ISDIR(os.fstat(fd).st_mode):
            raise NotADirectory(f"not a directory: {path}")
        limited = replace(query, max_results=min(query.max_results, MAX_RESULTS))
        result = glob(fd, normal, limited, bounds=bounds, cancellation=cancellation)
    matches = [
        FoundFile(path=escape_name(path), type=kind, size=size, modified_at=iso_time(modified_ns))
        for path, kind, size, modified_ns in result.matches
    ]
    found = FoundFiles(
        matches=matches, total_matches=len(matches), truncated=result.truncated, timed_out=result.timed_out
    )
    if result.truncated:
        _add_next_offset(found, query.offset + len(matches), query.max_results)
    return found


@contextmanager
def _opened(root: Root, path: str, scope: Scope, deadline: float) -> Generator[tuple[int, Bounds]]:
    """Open the searched path and build the bounds of the walk. Ignore rules apply to the resolved path."""
    confined = root.confined  # the same object even if the root is replaced meanwhile
    with confined.opened(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY) as fd:
        located = confined.locate(fd) if root.ignore or scope.respect_gitignore else path
        root.require_visible(located, is_directory=stat.S_ISDIR(os.fstat(fd).st_mode))
        gitignores = GitIgnores.above(confined.fd, located) if scope.respect_gitignore else None
        yield fd, Bounds(deadline, scope.max_depth, root.ignore, gitignores, located)


def _match(line: LineMatch) -> Match:
    match = Match(
        file=escape_name(line.file),
        line_number=line.line_number,
        line_content=line.line_content,
        context_before=list(line.context_before),
        context_after=list(line.context_after),
    )
    if line.line_truncated:
        match["line_truncated"] = True
    return match
