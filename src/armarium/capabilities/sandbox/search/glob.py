"""Finds entries of a directory tree whose path matches a glob or a regular expression."""

from __future__ import annotations

import os
import stat
from contextlib import closing
from dataclasses import dataclass
from typing import NamedTuple

from armarium.capabilities.sandbox.reads.root_files import ENTRY_TYPES
from armarium.capabilities.sandbox.results import EntryType
from armarium.capabilities.sandbox.search.lines import PathSearch
from armarium.foundation.concurrency.cancellation import Cancellation
from armarium.foundation.errors import InvalidArgument
from armarium.foundation.files.glob_patterns import glob_selection
from armarium.foundation.files.walk import Bounds, EntryKind, Selection, Walk, Watch


@dataclass(frozen=True, slots=True)
class NameQuery:
    """A search for paths, with exactly one of `pattern`, a glob, and `regex`, of which the path holds a match."""

    pattern: str | None = None
    regex: str | None = None
    type_filter: EntryKind = "all"
    max_results: int = 100
    offset: int = 0
    """Number of results to skip."""


class FoundEntry(NamedTuple):
    """A matching entry. Links are not followed."""

    path: str
    """Path relative to the root, decoded with `os.fsdecode`."""
    type: EntryType
    size: int
    modified_ns: int


@dataclass(frozen=True, slots=True)
class GlobResult:
    """The first entries in the order of their paths."""

    matches: list[FoundEntry]
    truncated: bool
    """Whether there are more results."""
    timed_out: bool


def glob(top_fd: int, prefix: str, query: NameQuery, *, bounds: Bounds, cancellation: Cancellation) -> GlobResult:
    """Find the entries below a directory whose path, relative to it, matches. The directory itself is never found.

    `prefix` is the path of the directory in its root, "" for the root itself.
    """
    if query.pattern is not None and query.regex is None:
        selection: Selection = glob_selection(query.pattern)
    elif query.regex is not None and query.pattern is None:
        selection = PathSearch(query.regex)
    else:
        raise InvalidArgument("exactly one of pattern or regex must be provided")
    watch = Watch(bounds.deadline, cancellation)
    type_filter, offset = query.type_filter, query.offset
    walk = Walk(top_fd, prefix, selection, type_filter, bounds, watch)
    matches: list[FoundEntry] = []
    with closing(walk.runs()) as runs:
        for run in runs:
            for name in run.names:
                found = _found(run.directory_fd, run.directory, name)
                if found is None or type_filter not in ("all", found.type):
                    continue
                if offset:
                    offset -= 1
                    continue
                if len(matches) == query.max_results:
                    return GlobResult(matches, truncated=True, timed_out=False)
                matches.append(found)
    return GlobResult(matches, truncated=False, timed_out=watch.timed_out)


def _found(directory_fd: int, directory: str, name: str) -> FoundEntry | None:
    try:
        status = os.stat(name, dir_fd=directory_fd, follow_symlinks=False)
    except OSError:
        return None
    kind = ENTRY_TYPES.get(stat.S_IFMT(status.st_mode), "other")
    return FoundEntry(directory + name, kind, status.st_size, status.st_mtime_ns)
