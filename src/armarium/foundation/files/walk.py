"""Walks a directory tree by descriptor in path order, with selection, ignore rules and limits."""

from __future__ import annotations

import os
import time
from collections.abc import Generator, Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import Literal, NamedTuple, Protocol

from armarium.foundation.concurrency.cancellation import Cancellation
from armarium.foundation.files.beneath import Identity, identity_of
from armarium.foundation.files.confine import open_without_links
from armarium.foundation.files.ignore import GITIGNORE, GitIgnores, IgnoreRules
from armarium.foundation.files.names import drop_staged
from armarium.foundation.files.path_rules import PathRules

OPEN_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
OPEN_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC

EntryKind = Literal["file", "directory", "symlink", "all"]
Entries = list[os.DirEntry[str]]

_ENTRIES_PER_CHECKPOINT = 10_000
_MAX_OPEN_LEVELS = 64
# Every tool rejects longer paths.
_MAX_PATH_CHARS = 4096


class Selection(Protocol):
    """Selects entries of a directory, and below it."""

    def choose(self, entries: Entries, directory: str, /) -> Entries:
        """The selected entries. `directory` is relative to the top, "" or ending in "/"."""
        ...

    def enter(self, name: str, /) -> Selection | None:
        """The selection for a subdirectory; None if nothing below it can be selected."""
        ...


class Everything:
    """Selects all entries at all depths."""

    def choose(self, entries: Entries, directory: str, /) -> Entries:
        return entries

    def enter(self, name: str, /) -> Selection | None:
        return self


class Run(NamedTuple):
    """Selected entries of one directory that are adjacent in path order."""

    directory_fd: int
    """Open until the next run."""
    directory: str
    """Path of the directory for results, "" or ending in "/"."""
    names: list[str]


@dataclass(frozen=True, slots=True)
class Bounds:
    """Limits of a walk."""

    deadline: float
    """Deadline on the clock of `time.monotonic`."""
    max_depth: int | None = None
    """1: only the entries of the top directory itself; 2: those of its subdirectories too; and so on."""
    ignore: IgnoreRules | None = None
    gitignores: GitIgnores | None = None
    """Rules of .gitignore files above the top, to which those below are added. None: ignore .gitignore files."""
    located: str | None = None
    """The resolved path of the top in its root, if results show another path. Rules apply to it."""
    left_out: PathRules | None = None
    """Further rules for paths to leave out."""


@dataclass(slots=True)
class _Level:
    """A directory on the path from the top to the current directory."""

    fd: int
    relative: str
    depth: int
    selection: Selection
    gitignores: GitIgnores | None
    identity: Identity | None = None
    steps: Iterator[str] = field(default_factory=lambda: iter(()))
    """Names to yield, and names with a trailing "/" to enter, in order."""


class Watch:
    """Ends a search: at its deadline with partial results, or at once when it is cancelled."""

    def __init__(self, deadline: float, cancellation: Cancellation) -> None:
        self.timed_out = False
        self.done = 0
        """Number of entries so far."""
        self._deadline = deadline
        self._cancellation = cancellation

    def checkpoint(self) -> None:
        """Check the deadline and the cancellation. Call it in every long loop."""
        self._cancellation.checkpoint(self.done)
        if time.monotonic() >= self._deadline:
            self.timed_out = True


class Walk:
    """One pass over a tree. Directories that cannot be read, or vanish meanwhile, are left out. Plain string order of
    full paths comes from sorting each directory with a "/" behind the names of directories to go into: "a" itself, then
    "a.txt", then what is in "a/"."""

    def __init__(
        self, top_fd: int, prefix: str, selection: Selection, kind: EntryKind, bounds: Bounds, watch: Watch
    ) -> None:
        self._top_fd = top_fd
        self._shown = f"{prefix}/" if prefix else ""
        located = prefix if bounds.located is None else bounds.located
        self._located = f"{located}/" if located else ""
        self._selection = selection
        self._kind: EntryKind = kind
        self._bounds = bounds
        self._watch = watch
        self._levels: list[_Level] = []

    def runs(self) -> Generator[Run]:
        """Selected entries in path order. Close the iterator to close the descriptors."""
        try:
            # A separate descriptor: duplicates of a descriptor share the position in the directory.
            top = os.open(".", OPEN_DIRECTORY, dir_fd=self._top_fd)
            self._push(_Level(top, "", 1, self._selection, self._bounds.gitignores))
            while self._levels and not self._watch.timed_out:
                yield from self._advance(self._levels[-1])
        finally:
            while self._levels:
                self._pop()

    def _advance(self, level: _Level) -> Iterator[Run]:
        names: list[str] = []
        below = None
        for step in level.steps:
            if step[-1] == "/":
                below = step[:-1]
                break
            names.append(step)
        if (names or below is not None) and not self._is_open(level):
            self._pop()
            return
        if names:
            yield Run(level.fd, self._shown + level.relative, names)
        if below is None:
            self._pop()
        else:
            self._enter(level, below)

    def _enter(self, level: _Level, name: str) -> None:
        selection = level.selection.enter(name)
        if selection is None:
            return
        try:
            fd = os.open(name, OPEN_DIRECTORY, dir_fd=level.fd)
        except OSError:
            return
        self._push(_Level(fd, f"{level.relative}{name}/", level.depth + 1, selection, level.gitignores))

    def _push(self, level: _Level) -> None:
        self._levels.append(level)
        try:
            self._read(level)
        except OSError:
            self._pop()
            return
        if len(self._levels) > _MAX_OPEN_LEVELS and (above := self._levels[-1 - _MAX_OPEN_LEVELS]).fd >= 0:
            # A deep tree must not exhaust the descriptors.
            above.identity = identity_of(above.fd)
            os.close(above.fd)
            above.fd = -1

    def _pop(self) -> None:
        level = self._levels.pop()
        if level.fd >= 0:
            os.close(level.fd)

    def _read(self, level: _Level) -> None:
        entries = self._list(level.fd)
        if level.gitignores is not None and any(entry.name == GITIGNORE for entry in entries):
            level.gitignores = level.gitignores.entering(level.fd, self._located + level.relative)
        chosen = _of_kind(level.selection.choose(entries, level.relative), self._kind)
        below = [entry for entry in entries if entry.is_dir(follow_symlinks=False)]
        if self._bounds.max_depth is not None and level.depth >= self._bounds.max_depth:
            below = []
        left_out = self._bounds.left_out
        if left_out is not None and not left_out.may_match_any(entry.name for entry in entries):
            left_out = None
        if self._bounds.ignore is not None or level.gitignores is not None or left_out is not None:
            chosen = [entry for entry in chosen if not self._hides(level, entry, left_out)]
            below = [entry for entry in below if not self._hides(level, entry, left_out)]
        steps = [entry.name for entry in chosen]
        room = _MAX_PATH_CHARS - len(self._located) - len(level.relative)
        enter = level.selection.enter
        steps += [entry.name + "/" for entry in below if len(entry.name) < room and enter(entry.name) is not None]
        steps.sort()
        drop_staged(steps)
        level.steps = iter(steps)

    def _list(self, fd: int) -> Entries:
        watch, entries = self._watch, Entries()
        watch.checkpoint()
        with os.scandir(fd) as listing:
            while not watch.timed_out:
                more = list(islice(listing, _ENTRIES_PER_CHECKPOINT))
                watch.done += len(more)
                entries += more
                if len(more) < _ENTRIES_PER_CHECKPOINT:
                    break
                watch.checkpoint()
        return entries

    def _hides(self, level: _Level, entry: os.DirEntry[str], left_out: PathRules | None) -> bool:
        ignore, gitignores = self._bounds.ignore, level.gitignores
        path = self._located + level.relative + entry.name
        is_directory = entry.is_dir(follow_symlinks=False)
        return (
            (ignore is not None and ignore.hides_entry(path, is_directory))
            or (left_out is not None and left_out.match_entry(path, is_directory))
            or (gitignores is not None and gitignores.hides_entry(path, is_directory))
        )

    def _is_open(self, level: _Level) -> bool:
        """Open the directory again if necessary. Returns False if it is not the one that was read."""
        if level.fd >= 0:
            return True
        try:
            fd = open_without_links(level.relative, OPEN_DIRECTORY, dir_fd=self._top_fd)
        except OSError:
            return False
        if identity_of(fd) != level.identity:
            os.close(fd)
            return False
        level.fd = fd
        return True


def _of_kind(entries: Entries, kind: EntryKind) -> Entries:
    if kind == "file":
        return [entry for entry in entries if entry.is_file(follow_symlinks=False)]
    if kind == "directory":
        return [entry for entry in entries if entry.is_dir(follow_symlinks=False)]
    return [entry for entry in entries if entry.is_symlink()] if kind == "symlink" else entries
