"""Helpers for tests of walks, globs and greps."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from armarium.capabilities.sandbox.search.glob import GlobResult, NameQuery, glob
from armarium.capabilities.sandbox.search.grep import GrepResult, Query, grep
from armarium.foundation.concurrency.cancellation import Cancellation
from armarium.foundation.files.ignore import GitIgnores, IgnoreRules
from armarium.foundation.files.walk import Bounds, EntryKind
from support.descriptors import none_left_open

FAR = 60.0


def plant(base: Path, files: dict[str, bytes]) -> Path:
    """Create files and their parent directories; a path that ends in "/" is a directory."""
    for path, content in files.items():
        target = base / path
        if path.endswith("/"):
            target.mkdir(parents=True, exist_ok=True)
        else:
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(content)
    return base


@contextmanager
def opened(directory: Path) -> Iterator[int]:
    """A descriptor of the directory. At the end no other descriptor may be open."""
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        with none_left_open(directory):
            yield fd
    finally:
        os.close(fd)


def bounds(
    *,
    max_depth: int | None = None,
    ignore: IgnoreRules | None = None,
    gitignores: GitIgnores | None = None,
    seconds: float = FAR,
) -> Bounds:
    return Bounds(time.monotonic() + seconds, max_depth, ignore, gitignores)


def globbed(
    directory: Path,
    pattern: str | None = None,
    *,
    regex: str | None = None,
    prefix: str = "",
    type_filter: EntryKind = "all",
    max_results: int = 1_000_000,
    limits: Bounds | None = None,
    cancellation: Cancellation | None = None,
) -> GlobResult:
    with opened(directory) as fd:
        query = NameQuery(pattern, regex, type_filter, max_results)
        return glob(fd, prefix, query, bounds=limits or bounds(), cancellation=cancellation or Cancellation())


def paths(result: GlobResult) -> list[str]:
    return [found.path for found in result.matches]


def grepped(
    directory: Path,
    query: Query | str,
    *,
    prefix: str = "",
    limits: Bounds | None = None,
    cancellation: Cancellation | None = None,
) -> GrepResult:
    if isinstance(query, str):
        query = Query(query, max_results=1_000_000)
    with opened(directory) as fd:
        return grep(fd, prefix, query, bounds=limits or bounds(), cancellation=cancellation or Cancellation())


def lines(result: GrepResult) -> list[tuple[str, int, str]]:
    return [(hit.file, hit.line_number, hit.line_content) for hit in result.matches]


class StoppingCancellation(Cancellation):
    """Cancels the work at the given checkpoint."""

    def __init__(self, checkpoints: int) -> None:
        super().__init__()
        self.left = checkpoints

    def checkpoint(self, done: int) -> None:
        self.left -= 1
        if self.left <= 0:
            self.cancel()
        super().checkpoint(done)


class CountingCancellation(Cancellation):
    """Records the reported progress."""

    def __init__(self) -> None:
        super().__init__()
        self.done = 0

    def checkpoint(self, done: int) -> None:
        super().checkpoint(done)
        self.done = done
