"""Targets of changes: a directory, a name in it, and the state of the entry there."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from typing import TypeVar

from armarium.capabilities.sandbox.errors import Conflict, NotFound
from armarium.capabilities.sandbox.reads.file_content import digest
from armarium.capabilities.sandbox.roots import Root
from armarium.capabilities.sandbox.threads.pool import expect_bytes
from armarium.foundation.concurrency.cancellation import Cancellation
from armarium.foundation.files.beneath import closed_after
from armarium.foundation.files.confine import open_child_directory
from armarium.foundation.files.directory_locks import DirectoryLocks
from armarium.foundation.files.errors import IsADirectory, NotARegularFile

READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_TRIES = 20

ResultT = TypeVar("ResultT")
State = tuple[int, int, int, int, int]
"""Device, inode, size, mtime and ctime."""


@dataclass(frozen=True, slots=True)
class ChangeContext:
    """What every step of a change needs."""

    if_match: str | None
    """The hash that the file must have; None if any content will do."""
    locks: DirectoryLocks
    cancellation: Cancellation


def opened_directory(dir_fd: int, name: str) -> AbstractContextManager[int]:
    """A child directory, open for listing. A link is not followed."""
    return closed_after(open_child_directory(dir_fd, name))


def status_at(dir_fd: int, name: str) -> os.stat_result | None:
    """Status of the entry at the name, without following a link; None if there is none."""
    try:
        return os.stat(name, dir_fd=dir_fd, follow_symlinks=False)
    except FileNotFoundError:
        return None


@dataclass(frozen=True, slots=True)
class Target:
    """Where to write a file: an open directory and a name in it."""

    dir_fd: int
    name: str
    shown: str
    """The path as the caller gave it, for messages."""
    splits_links: bool = False
    """Whether a change must not reach other hard links of the file, because one may be at a denied path."""

    def status(self) -> os.stat_result | None:
        """Status of the regular file that is there now, or None. Raise for anything else."""
        status = status_at(self.dir_fd, self.name)
        if status is None or stat.S_ISREG(status.st_mode):
            return status
        if stat.S_ISDIR(status.st_mode):
            raise IsADirectory(f"is a directory: {self.shown}")
        if stat.S_ISLNK(status.st_mode):
            hint = "remove the link first, or write to another path"
            raise NotFound(f"link leads to nothing: {self.shown}", hint=hint)
        raise NotARegularFile(f"not a regular file: {self.shown}")


def with_target(root: Root, path: str, shown: str, work: Callable[[Target], ResultT], *, make_parents: bool) -> ResultT:
    """Run `work` on the target of a path, following links that stay inside the root."""
    root.require_writable(path)
    real, exists = _real_path(root, path)
    parent, _, name = real.rpartition("/")
    if not name:
        raise IsADirectory("path is the root directory itself")
    if root.restricts_writing and not exists:
        root.require_writable(root.resolved(real))

    def at(dir_fd: int) -> ResultT:
        if root.restricts_writing:
            directory = root.confined.locate(dir_fd)
            root.require_writable(f"{directory}/{name}" if directory else name)
        return work(Target(dir_fd, name, shown, splits_links=root.denied is not None))

    return in_directory(root, parent, at, make=make_parents)


def in_directory(root: Root, path: str, work: Callable[[int], ResultT], *, make: bool) -> ResultT:
    """Run `work` in an open directory. With `make`, create it and its parents first; remove them if the work fails."""
    for tries_left in reversed(range(_TRIES)):
        made: list[str] = []
        fd = root.confined.make_directories(path, made) if make else root.confined.open_directory(path)
        try:
            return work(fd)
        except BaseException as error:
            # Another caller may have removed the directory because its own work failed.
            vanished = isinstance(error, (FileNotFoundError, NotFound)) and os.fstat(fd).st_nlink == 0
            root.confined.remove_empty(made)
            if not (make and vanished and tries_left):
                raise
        finally:
            os.close(fd)
    raise AssertionError("the last try returns or raises")


def require_place(root: Root, dir_fd: int, path: str) -> None:
    """Raise if an open directory is not the one above `path`, for which the rules were checked."""
    if root.restricts_writing and root.confined.locate(dir_fd) != path.rpartition("/")[0]:
        raise Conflict("a parent directory was moved meanwhile; nothing was changed", hint="try again")


def _real_path(root: Root, path: str) -> tuple[str, bool]:
    """The path with links resolved if something is there, and whether it is."""
    with suppress(FileNotFoundError), root.confined.opened(path, os.O_PATH) as fd:
        # Another writer may replace the file at this moment; the name stays the same.
        return root.confined.locate(fd, last_known=True), True
    return path, False


def has_parent(root: Root, path: str) -> bool:
    with suppress(FileNotFoundError), root.confined.opened(path.rpartition("/")[0], os.O_PATH | os.O_DIRECTORY):
        return True
    return False


def same_state(now: os.stat_result | None, before: os.stat_result | None) -> bool:
    """Whether two statuses are of the same, unchanged file."""
    if now is None or before is None:
        return now is before
    return is_unchanged(now, state_of(before))


def state_of(status: os.stat_result) -> State:
    """The part of a status that changes when a file is replaced or written."""
    # Removing another hard link of the file changes its ctime, but not the file.
    changed_ns = status.st_ctime_ns if status.st_nlink == 1 else 0
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, changed_ns


def is_unchanged(now: os.stat_result, before: State) -> bool:
    return (now.st_dev, now.st_ino, now.st_size, now.st_mtime_ns) == before[:4] and before[4] in (0, now.st_ctime_ns)


@dataclass(frozen=True, slots=True)
class Version:
    """A file at one moment. While it is open, no other file can get its inode number."""

    fd: int
    """Descriptor for reading; -1 if there is no file or it was not opened."""
    status: os.stat_result | None


@contextmanager
def version_at(dir_fd: int, name: str, *, readable: bool = True) -> Generator[Version]:
    """The current version of the file at a name. Only a regular file is opened."""
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


def require_match(version: Version, shown: str, context: ChangeContext) -> None:
    """Raise `Conflict` unless the file has the hash that the caller expects."""
    if context.if_match is None:
        return
    current: str | None = None
    if version.status is not None and stat.S_ISREG(version.status.st_mode):
        expect_bytes(version.status.st_size)
        current = digest(version.fd, "sha256", context.cancellation)
    if current != context.if_match.lower():
        raise Conflict(
            f"file has changed since it was read: {shown}" if current else f"no such file to match: {shown}",
            hint="read the file again, then decide",
            current_sha256=current,
        )


@contextmanager
def matching(dir_fd: int, name: str, shown: str, context: ChangeContext) -> Generator[Callable[[], None]]:
    """Compare the file with the expected hash before locking. The yielded function checks it again under the lock."""
    if context.if_match is None:
        yield lambda: None
        return
    with version_at(dir_fd, name) as seen:
        require_match(seen, shown, context)

        def confirm() -> None:
            with version_at(dir_fd, name) as now:
                if not same_state(now.status, seen.status):
                    require_match(now, shown, context)

        yield confirm
