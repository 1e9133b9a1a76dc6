"""Runs grep and glob at a path of a root, and builds their results."""

from __future__ import annotations

import os
import stat
from collections.abc import Generator
from contextlib import contextmanager

from armarium.capabilities.sandbox.arguments import GlobArgs, GrepArgs, SearchArgs
from armarium.capabilities.sandbox.error_context import checked_path
from armarium.capabilities.sandbox.reads.root_files import iso_time
from armarium.capabilities.sandbox.results import FileCount, FoundFile, FoundFiles, Match, Matches
from armarium.capabilities.sandbox.roots import Root
from armarium.capabilities.sandbox.search.glob import NameQuery, glob
from armarium.capabilities.sandbox.search.grep import LineMatch, Query, grep
from armarium.foundation.concurrency.cancellation import Cancellation
from armarium.foundation.errors import InvalidArgument
from armarium.foundation.files.errors import NotADirectory, NotARegularFile
from armarium.foundation.files.ignore import GitIgnores
from armarium.foundation.files.names import escape_name
from armarium.foundation.files.walk import Bounds

MAX_RESULTS = 100_000
"""Maximum number of results of one search."""


def grep_root(root: Root, args: GrepArgs, deadline: float, cancellation: Cancellation) -> Matches:
    """Lines that match, in path order. The path may also be a single file."""
    query = Query(
        args.pattern,
        case_insensitive=args.case_insensitive,
        glob_filter=args.glob_filter,
        context_lines=args.context_lines,
        max_results=min(args.max_results, MAX_RESULTS),
        offset=args.offset,
        output=args.output_mode,
    )
    with _opened(root, args, deadline, reading=True) as (fd, path, bounds):
        mode = os.fstat(fd).st_mode
        if not (stat.S_ISDIR(mode) or stat.S_ISREG(mode)):
            raise NotARegularFile(f"not a directory or a regular file: {args.path}")
        result = grep(fd, path, query, bounds=bounds, cancellation=cancellation)
    found = Matches(
        matches=[_match(line) for line in result.matches],
        total_matches=len(result.matches),
        truncated=result.truncated,
        timed_out=result.timed_out,
        files_searched=result.files_searched,
    )
    if args.output_mode != "content":
        found["total_matches"] = sum(result.files.values())
    if args.output_mode == "files":
        found["files"] = [escape_name(file) for file in result.files]
    elif args.output_mode == "count":
        found["counts"] = [FileCount(file=escape_name(file), count=lines) for file, lines in result.files.items()]
    if result.truncated:
        _add_next_offset(found, args, len(result.matches or result.files))
    return found


def _add_next_offset(found: Matches | FoundFiles, args: SearchArgs, count: int) -> None:
    found["next_offset"] = args.offset + count
    if args.max_results > MAX_RESULTS:
        found["note"] = f"no more than {MAX_RESULTS} results are returned at once"


def glob_root(root: Root, args: GlobArgs, deadline: float, cancellation: Cancellation) -> FoundFiles:
    """Find entries whose path matches, in path order."""
    if (args.pattern is None) == (args.regex is None):
        raise InvalidArgument("exactly one of `pattern` or `regex` must be provided")
    query = NameQuery(args.pattern, args.regex, args.type_filter, min(args.max_results, MAX_RESULTS), args.offset)
    with _opened(root, args, deadline, reading=False) as (fd, path, bounds):
        if not stat.S_ISDIR(os.fstat(fd).st_mode):
            raise NotADirectory(f"not a directory: {args.path}")
        result = glob(fd, path, query, bounds=bounds, cancellation=cancellation)
    matches = [
        FoundFile(path=escape_name(path), type=kind, size=size, modified_at=iso_time(modified_ns))
        for path, kind, size, modified_ns in result.matches
    ]
    found = FoundFiles(
        matches=matches, total_matches=len(matches), truncated=result.truncated, timed_out=result.timed_out
    )
    if result.truncated:
        _add_next_offset(found, args, len(matches))
    return found


@contextmanager
def _opened(root: Root, args: SearchArgs, deadline: float, *, reading: bool) -> Generator[tuple[int, str, Bounds]]:
    """Open the searched path and build the bounds of the walk. Rules apply to the resolved path."""
    confined = root.confined  # the same object even if the root is replaced meanwhile
    with (
        checked_path(root, args.path, what="directory") as path,
        confined.opened(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY) as fd,
    ):
        located = confined.locate(fd) if root.restricts_reading or args.respect_gitignore else path
        require = root.require_readable if reading else root.require_visible
        for each in {path, located}:
            require(each, is_directory=stat.S_ISDIR(os.fstat(fd).st_mode))
        unread = root.credentials if reading else None
        gitignores = GitIgnores.above(confined.fd, located) if args.respect_gitignore else None
        yield fd, path, Bounds(deadline, args.max_depth or None, root.ignore, gitignores, located, unread)


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
