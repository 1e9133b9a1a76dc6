"""Visits the entries of a directory tree by descriptor, without following links."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Generator
from contextlib import closing, suppress
from dataclasses import dataclass
from typing import Literal

from armarium.foundation.concurrency.cancellation import Cancellation
from armarium.foundation.files.beneath import Identity, closed_after, identity_of
from armarium.foundation.files.confine import READ_DIRECTORY, open_child_directory
from armarium.foundation.files.names import drop_staged

_MAX_OPEN = 64


class EntryFailed(Exception):
    """An operating system error about one entry of a tree."""

    def __init__(self, path: str, error: OSError) -> None:
        super().__init__(path)
        self.path = path
        self.error = error


@dataclass(slots=True)
class _Level:
    fd: int
    identity: Identity | None = None
    """Set when the descriptor is closed, to recognise the directory."""

    def close(self) -> None:
        if self.fd >= 0:
            self.identity = identity_of(self.fd)
            os.close(self.fd)
            self.fd = -1


class Descent:
    """The path from a top directory down to the current one, with a bounded number of open directories. The caller owns
    the descriptor of the top. The others are closed by `leave` and `close`."""

    def __init__(self, top_fd: int) -> None:
        self._levels = [_Level(top_fd)]

    @property
    def fd(self) -> int:
        """The current directory."""
        return self._levels[-1].fd

    def enter(self, name: str) -> None:
        """Enter a child directory; links are not followed."""
        self._levels.append(_Level(open_child_directory(self.fd, name)))
        if len(self._levels) > _MAX_OPEN + 1:
            self._levels[-1 - _MAX_OPEN].close()

    def leave(self) -> None:
        """Return to the parent. Raise if it is not the directory that was entered."""
        child = self._levels.pop()
        parent = self._levels[-1]
        with closed_after(child.fd):
            if parent.fd < 0:
                fd = os.open("..", READ_DIRECTORY | os.O_NOFOLLOW, dir_fd=child.fd)
                if identity_of(fd) != parent.identity:
                    os.close(fd)
                    raise OSError(errno.ESTALE, "a directory was moved while its tree was read")
                parent.fd = fd

    def close(self) -> None:
        """Close every directory below the top."""
        for level in self._levels[1:]:
            level.close()
        del self._levels[1:]


@dataclass(frozen=True, slots=True)
class Visit:
    """One step of a traversal: an entry that is not a directory, or entering or leaving a directory."""

    kind: Literal["entry", "enter", "leave"]
    dir_fd: int
    """The directory that contains the name, open until the next step."""
    name: str
    path: str
    status: os.stat_result

    def landing(self, top_path: str, target_path: str) -> str:
        """The path of the entry if the tree at `top_path` is copied to `target_path`."""
        below = self.path[len(top_path) :].lstrip("/")
        return f"{target_path}/{below}" if target_path else below


@dataclass(slots=True)
class _Directory:
    path: str
    name: str
    status: os.stat_result | None
    names: list[str]


def visits(
    top_fd: int, top_path: str, cancellation: Cancellation, *, with_staged: bool = False, only_directories: bool = False
) -> Generator[Visit]:
    """Visit everything below an open directory; errors are raised as `EntryFailed`. Entries that are removed meanwhile
    are skipped, and staged entries unless `with_staged`. `only_directories` is cheap: no other entry is examined."""
    seen = 0
    path = top_path
    with closing(Descent(top_fd)) as descent:
        try:
            levels = [_Directory(top_path, "", None, _names(top_fd, with_staged, only_directories))]
            while levels:
                current = levels[-1]
                if not current.names:
                    levels.pop()
                    if current.status is not None:
                        path = current.path
                        descent.leave()
                        yield Visit("leave", descent.fd, current.name, current.path, current.status)
                    continue
                name = current.names.pop()
                seen += 1
                cancellation.checkpoint(seen)
                path = f"{current.path}/{name}" if current.path else name
                with suppress(FileNotFoundError):
                    status = os.stat(name, dir_fd=descent.fd, follow_symlinks=False)
                    if not stat.S_ISDIR(status.st_mode):
                        yield Visit("entry", descent.fd, name, path, status)
                        continue
                    entered = Visit("enter", descent.fd, name, path, status)
                    descent.enter(name)
                    try:
                        names = _names(descent.fd, with_staged, only_directories)
                    except FileNotFoundError:  # removed since it was opened
                        descent.leave()
                        continue
                    levels.append(_Directory(path, name, status, names))
                    yield entered
        except OSError as error:
            raise EntryFailed(path, error) from error


def listings(top_fd: int, top_path: str, cancellation: Cancellation) -> Generator[tuple[str, list[os.DirEntry[str]]]]:
    """The entries of every directory at and below an open one, with its path. Cheaper than `visits`: nothing but
    directories is examined. Errors are raised as `EntryFailed`."""
    seen, path = 0, top_path
    with closing(Descent(top_fd)) as descent:
        pending: list[str | None] = [""]
        try:
            while pending:
                name = pending.pop()
                if name is None:
                    descent.leave()
                    path = path.rpartition("/")[0]
                    continue
                if name:
                    path = f"{path}/{name}" if path else name
                    try:
                        descent.enter(name)
                    except (FileNotFoundError, NotADirectoryError):
                        path = path.rpartition("/")[0]
                        continue
                    pending.append(None)
                with os.scandir(descent.fd) as listing:
                    entries = list(listing)
                seen += len(entries)
                cancellation.checkpoint(seen)
                yield path, entries
                pending += [entry.name for entry in entries if entry.is_dir(follow_symlinks=False)]
        except OSError as error:
            raise EntryFailed(path, error) from error


def _names(dir_fd: int, with_staged: bool, only_directories: bool) -> list[str]:
    """The names to visit, in reverse order."""
    if only_directories:
        with os.scandir(dir_fd) as entries:
            names = [entry.name for entry in entries if entry.is_dir(follow_symlinks=False)]
    else:
        names = os.listdir(dir_fd)
    names.sort()
    if not with_staged:
        drop_staged(names)
    names.reverse()
    return names


def remove_contents(top_fd: int, top_path: str, cancellation: Cancellation, *, force: bool = False) -> int:
    """Remove everything below an open directory. Returns the number of removed entries. With `force`, also from
    write-protected directories of this user."""
    removed = 0
    for visit in visits(top_fd, top_path, cancellation, with_staged=True):
        try:
            with suppress(FileNotFoundError):
                if visit.kind == "entry":
                    os.unlink(visit.name, dir_fd=visit.dir_fd)
                elif visit.kind == "leave":
                    os.rmdir(visit.name, dir_fd=visit.dir_fd)
                elif force and not visit.status.st_mode & stat.S_IWUSR:
                    with closed_after(open_child_directory(visit.dir_fd, visit.name)) as fd:
                        os.fchmod(fd, stat.S_IRWXU)
        except OSError as error:
            raise EntryFailed(visit.path, error) from error
        removed += visit.kind != "enter"
    return removed
