"""Finds where a change goes: a directory, a name in it, and the state of what stands there."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeVar

from armarium.capabilities.sandbox.errors import Conflict, NotFound
from armarium.capabilities.sandbox.reads.file_content import digest
from armarium.capabilities.sandbox.roots import Root
from armarium.capabilities.sandbox.threads.pool import expect_bytes
from armarium.foundation.cancellation import Cancellation
from armarium.foundation.files.errors import IsADirectory, NotARegularFile

READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_TRIES = 20

ResultT = TypeVar("ResultT")
State = tuple[int, int, int, int, int]
"""Device, inode, size, mtime and ctime."""


@dataclass(frozen=True, slots=True)
class Target:
    """Where a file is written: an open directory and a name in it."""

    dir_fd: int
    name: str
    shown: str
    """The path as the caller gave it, for messages."""

    def status(self) -> os.stat_result | None:
        """The regular file that is there now; anything else is refused."""
        try:
            status = os.stat(self.name, dir_fd=self.dir_fd, follow_symlinks=False)
        except FileNotFoundError:
            return None
        if stat.S_ISDIR(status.st_mode):
            raise IsADirectory(f"is a directory: {self.shown}")
        if stat.S_ISLNK(status.st_mode):
            hint = "remove the link first, or write to another path"
            raise NotFound(f"link leads to nothing: {self.shown}", hint=hint)
        if not stat.S_ISREG(status.st_mode):
            raise NotARegularFile(f"not a regular file: {self.shown}")
        return status


def with_target(root: Root, path: str, shown: str, work: Callable[[Target], ResultT], *, make_parents: bool) -> ResultT:
    """Work on the target that a path leads to, through links that stay inside."""
    real = _real_path(root, path)
    parent, _, name = real.rpartition("/")
    if not name:
        raise IsADirectory("path is the root directory itself")
    if root.ignore:
        root.require_visible(root.resolved(real))

    def at(dir_fd: int) -> ResultT:
        if root.ignore:
            directory = root.confined.locate(dir_fd)
            root.require_visible(f"{directory}/{name}" if directory else name)
        return work(Target(dir_fd, name, shown))

    return in_directory(root, parent, at, make=make_parents)


def in_directory(root: Root, path: str, work: Callable[[int], ResultT], *, make: bool) -> ResultT:
    """Work in an open directory. With `make` it is created with its parents, and they go again if the work fails."""
    for tries_left in reversed(range(_TRIES)):
        made: list[str] = []
        fd = root.confined.make_directories(path, made) if make else root.confined.open_directory(path)
        try:
            return work(fd)
        except BaseException as error:
            # Another caller may have removed the directory again, because its own work failed.
            vanished = isinstance(error, (FileNotFoundError, NotFound)) and os.fstat(fd).st_nlink == 0
            root.confined.remove_empty(made)
            if not (make and vanished and tries_left):
                raise
        finally:
            os.close(fd)
    raise AssertionError("the last try returns or raises")


def _real_path(root: Root, path: str) -> str:
    """Where the path leads once links are followed; the path itself when nothing is there yet."""
    try:
        with root.confined.opened(path, os.O_PATH) as fd:
            # Another writer may replace the file at this very moment; its name stays the target to write to.
            return root.confined.locate(fd, last_known=True)
    except FileNotFoundError:
        return path


def has_parent(root: Root, path: str) -> bool:
    """Whether the directory that would hold the file exists."""
    try:
        with root.confined.opened(path.rpartition("/")[0], os.O_PATH | os.O_DIRECTORY):
            return True
    except FileNotFoundError:
        return False


def same_state(now: os.stat_result | None, before: os.stat_result | None) -> bool:
    """Whether a file is still the one that was looked at, unchanged."""
    if now is None or before is None:
        return now is before
    return is_unchanged(now, state_of(before))


def state_of(status: os.stat_result) -> State:
    """What changes when a file is replaced or written."""
    # Removing another hard link of the file changes its ctime, and nothing that matters.
    changed_ns = status.st_ctime_ns if status.st_nlink == 1 else 0
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, changed_ns


def is_unchanged(now: os.stat_result, before: State) -> bool:
    """Whether a file is still in that state."""
    return (now.st_dev, now.st_ino, now.st_size, now.st_mtime_ns) == before[:4] and before[4] in (0, now.st_ctime_ns)


@dataclass(frozen=True, slots=True)
class Version:
    """A file as it was when it was looked at. While it is open, no other file can get its inode number."""

    fd: int
    """To read its content; -1 where there is no file, or nobody wants to read it."""
    status: os.stat_result | None


@contextmanager
def version_at(dir_fd: int, name: str, *, readable: bool = True) -> Generator[Version]:
    """What is at the name; only a regular file is opened."""
    fd = -1
    try:
        status = os.stat(name, dir_fd=dir_fd, follow_symlinks=False)
        if readable and stat.S_ISREG(status.st_mode):
            fd = os.open(name, READ, dir_fd=dir_fd)
            status = os.fstat(fd)
    except FileNotFoundError:
        status = None
    try:
        yield Version(fd, status)
    finally:
        if fd >= 0:
            os.close(fd)


def require_match(version: Version, if_match: str | None, shown: str, cancellation: Cancellation) -> None:
    """Raise `Conflict` unless the file still has the hash the caller saw."""
    if if_match is None:
        return
    current: str | None = None
    if version.status is not None and stat.S_ISREG(version.status.st_mode):
        expect_bytes(version.status.st_size)
        current = digest(version.fd, "sha256", cancellation)
    if current != if_match.lower():
        raise Conflict(
            f"file has changed since it was read: {shown}" if current else f"no such file to match: {shown}",
            hint="read the file again and decide anew",
            current_sha256=current,
        )


@contextmanager
def matching(
    dir_fd: int, name: str, if_match: str | None, shown: str, cancellation: Cancellation
) -> Generator[Callable[[], None]]:
    """Compare the file with the expected hash before the lock is taken; what is yielded confirms it under the lock."""
    if if_match is None:
        yield lambda: None
        return
    with version_at(dir_fd, name) as seen:
        require_match(seen, if_match, shown, cancellation)

        def confirm() -> None:
            with version_at(dir_fd, name) as now:
                if not same_state(now.status, seen.status):
                    require_match(now, if_match, shown, cancellation)

        yield confirm
