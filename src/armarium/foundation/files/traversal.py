"""Visits the entries of a directory tree by descriptor, without following links."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Generator
from contextlib import closing, suppress
from dataclasses import dataclass
from typing import Literal

from armarium.foundation.cancellation import Cancellation
from armarium.foundation.files.confine import READ_DIRECTORY, open_child_directory
from armarium.foundation.files.staged_names import drop_staged

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
    identity: tuple[int, int] | None = None


class Descent:
    """The path from a top directory down to the current one, with a bounded number of open directories.

    The caller owns the descriptor of the top. The others are closed by `leave` and `close`.
    """

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
            self._close_level(self._levels[-1 - _MAX_OPEN])

    def leave(self) -> None:
        """Return to the parent."""
        child = self._levels.pop()
        parent = self._levels[-1]
        try:
            if parent.fd < 0:
                parent.fd = _parent(child.fd, parent.identity)
        finally:
            os.close(child.fd)

    def close(self) -> None:
        """Close every directory below the top."""
        for level in self._levels[1:]:
            if level.fd >= 0:
                os.close(level.fd)
        del self._levels[1:]

    @staticmethod
    def _close_level(level: _Level) -> None:
        if level.fd < 0:
            return
        status = os.fstat(level.fd)
        level.identity = (status.st_dev, status.st_ino)
        os.close(level.fd)
        level.fd = -1


def _parent(child_fd: int, identity: tuple[int, int] | None) -> int:
    """Open the parent of an open directory. Raise if it is not the one it was entered from."""
    fd = os.open("..", READ_DIRECTORY | os.O_NOFOLLOW, dir_fd=child_fd)
    status = os.fstat(fd)
    if (status.st_dev, status.st_ino) == identity:
        return fd
    os.close(fd)
    raise OSError(errno.ESTALE, "a directory was moved while its tree was read")


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
    """Names to visit, in reverse order."""


def visits(
    top_fd: int, top_path: str, cancellation: Cancellation, *, with_staged: bool = False, only_directories: bool = False
) -> Generator[Visit]:
    """Visit everything below an open directory; errors are raised as `EntryFailed`.

    Entries that are removed meanwhile are skipped, and staged entries unless `with_staged`. `only_directories` is
    cheap: no other entry is examined.
    """
    names_in = _directories if only_directories else _names
    seen = 0
    path = top_path
    with closing(Descent(top_fd)) as descent:
        try:
            levels = [_Directory(top_path, "", None, names_in(top_fd, with_staged))]
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
                    parent_fd = descent.fd
                    entered = Visit("enter", parent_fd, name, path, status)
                    descent.enter(name)
                    try:
                        names = names_in(descent.fd, with_staged)
                    except FileNotFoundError:  # removed since it was opened
                        descent.leave()
                        continue
                    levels.append(_Directory(path, name, status, names))
                    yield entered
        except OSError as error:
            raise EntryFailed(path, error) from error


def _names(dir_fd: int, with_staged: bool) -> list[str]:
    return _in_visiting_order(os.listdir(dir_fd), with_staged)


def _directories(dir_fd: int, with_staged: bool) -> list[str]:
    with os.scandir(dir_fd) as entries:
        return _in_visiting_order([entry.name for entry in entries if entry.is_dir(follow_symlinks=False)], with_staged)


def _in_visiting_order(names: list[str], with_staged: bool) -> list[str]:
    names.sort()
    if not with_staged:
        drop_staged(names)
    names.reverse()
    return names


def remove_contents(top_fd: int, top_path: str, cancellation: Cancellation, *, force: bool = False) -> int:
    """Remove everything below an open directory. Returns the number of removed entries.

    With `force`, also from write-protected directories of this user.
    """
    removed = 0
    for visit in visits(top_fd, top_path, cancellation, with_staged=True):
        try:
            with suppress(FileNotFoundError):
                if visit.kind == "entry":
                    os.unlink(visit.name, dir_fd=visit.dir_fd)
                elif visit.kind == "leave":
                    os.rmdir(visit.name, dir_fd=visit.dir_fd)
                elif force and not visit.status.st_mode & stat.S_IWUSR:
                    _make_writable(visit.dir_fd, visit.name)
        except OSError as error:
            raise EntryFailed(visit.path, error) from error
        removed += visit.kind != "enter"
    return removed


def _make_writable(dir_fd: int, name: str) -> None:
    fd = open_child_directory(dir_fd, name)
    try:
        os.fchmod(fd, stat.S_IRWXU)
    finally:
        os.close(fd)
