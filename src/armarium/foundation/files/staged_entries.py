"""Staged entries: files and directories in progress, renamed to their final name when complete.

The owner of a staged entry holds a lock (`flock`) on it. An entry without a lock is stale and can be removed.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, closing, suppress

from armarium.foundation.concurrency.cancellation import Cancellation
from armarium.foundation.files.beneath import closed_after
from armarium.foundation.files.confine import open_child_directory, rename_noreplace
from armarium.foundation.files.names import is_staged, new_staged_name
from armarium.foundation.files.traversal import Descent, EntryFailed, remove_contents

_NEW_FILE = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_OPEN_ENTRY = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_MAX_TRIES = 100
_OLD_ENOUGH_S = 24 * 3600.0
"""Age at which an entry that cannot be locked counts as stale."""
_PAUSE_AFTER_S = 0.005
_PAUSE_RATIO = 4


class Staged(AbstractContextManager["Staged"]):
    """A staged entry and its open descriptor. As a context manager, it removes the entry at the end unless it was
    renamed to its final name."""

    def __init__(self, dir_fd: int, name: str, fd: int) -> None:
        self.fd = fd
        self._dir_fd = dir_fd
        self._name = name
        self._placed = False

    def put(self, name: str, *, exclusive: bool = False) -> None:
        """Rename the entry to its final name; with `exclusive`, only if that name is free (`FileExistsError`)."""
        if exclusive:
            self._put_if_free(name)
        else:
            os.rename(self._name, name, src_dir_fd=self._dir_fd, dst_dir_fd=self._dir_fd)
        self._placed = True

    def _put_if_free(self, name: str) -> None:
        try:
            rename_noreplace(self._dir_fd, self._name, self._dir_fd, name)
        except OSError as error:
            if error.errno != errno.ENOTSUP:
                raise
            if stat.S_ISDIR(os.fstat(self.fd).st_mode):
                # This can only replace an empty directory.
                os.rename(self._name, name, src_dir_fd=self._dir_fd, dst_dir_fd=self._dir_fd)
                return
            os.link(self._name, name, src_dir_fd=self._dir_fd, dst_dir_fd=self._dir_fd, follow_symlinks=False)
            os.unlink(self._name, dir_fd=self._dir_fd)

    def remove_empty(self) -> None:
        os.rmdir(self._name, dir_fd=self._dir_fd)
        self._placed = True

    def __exit__(self, *_: object) -> None:
        try:
            if not self._placed:
                with suppress(OSError, EntryFailed):
                    _remove(self._dir_fd, self._name, self.fd)
        finally:
            self.close()

    def close(self) -> None:
        """Close the descriptor, which releases the lock."""
        os.close(self.fd)


def staged_file(dir_fd: int, mode: int) -> Staged:
    """A new file in the directory, removed at the end of the block unless it was renamed."""
    return _staged(dir_fd, lambda name: os.open(name, _NEW_FILE, mode, dir_fd=dir_fd))


def staged_directory(dir_fd: int, mode: int) -> Staged:
    """A new directory in the directory, removed at the end of the block unless it was renamed."""

    def make(name: str) -> int:
        os.mkdir(name, mode | stat.S_IRWXU, dir_fd=dir_fd)
        return open_child_directory(dir_fd, name)

    return _staged(dir_fd, make)


def set_aside(dir_fd: int, name: str) -> Staged:
    """Rename an existing directory to a staged name. The caller closes it, and removes it or renames it back."""
    fd = open_child_directory(dir_fd, name)
    try:
        _lock(fd)
        hidden = new_staged_name()
        os.rename(name, hidden, src_dir_fd=dir_fd, dst_dir_fd=dir_fd)
    except BaseException:
        os.close(fd)
        raise
    return Staged(dir_fd, hidden, fd)


def _staged(dir_fd: int, make: Callable[[str], int]) -> Staged:
    """Create an entry and lock it. If a sweep removes it in between, create another."""
    for _ in range(_MAX_TRIES):
        name = new_staged_name()
        try:
            fd = make(name)
        except FileNotFoundError:
            # A sweep removed the entry, or the directory no longer exists; the next attempt shows which.
            continue
        if _lock(fd) is not False and os.fstat(fd).st_nlink > 0:
            return Staged(dir_fd, name, fd)
        os.close(fd)
    raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))


def _lock(fd: int) -> bool | None:
    """Lock the entry. Returns False if it is locked already, and None if the file system has no locks."""
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return None
    return True


def sweep(top_fd: int, cancellation: Cancellation, prune: Callable[[str], bool]) -> int:
    """Remove stale staged entries below an open directory. Returns their number. `prune` decides whether to skip the
    directory at a path. The sweep pauses often, because it is not urgent."""
    resumed = time.monotonic()
    with closing(Descent(top_fd)) as descent:
        below, removed = _sweep_directory(descent.fd)
        levels = [("", below)]
        while levels:
            path, below = levels[-1]
            cancellation.checkpoint(removed)
            if (worked := time.monotonic() - resumed) > _PAUSE_AFTER_S:
                time.sleep(_PAUSE_RATIO * worked)
                resumed = time.monotonic()
            if not below:
                levels.pop()
                if levels:
                    descent.leave()
                continue
            name = below.pop()
            inside = f"{path}/{name}" if path else name
            if prune(inside):
                continue
            try:
                descent.enter(name)
            except OSError:
                continue
            below, count = _sweep_directory(descent.fd)
            levels.append((inside, below))
            removed += count
    return removed


def _sweep_directory(dir_fd: int) -> tuple[list[str], int]:
    """Remove the stale entries of a directory. Returns its subdirectories, and how many entries were removed."""
    below, staged = list[str](), list[str]()
    with suppress(OSError), os.scandir(dir_fd) as entries:
        for entry in entries:
            if is_staged(entry.name):
                staged.append(entry.name)
            elif entry.is_dir(follow_symlinks=False):
                below.append(entry.name)
    return below, sum(remove_if_stale(dir_fd, name) for name in staged)


def remove_if_stale(dir_fd: int, name: str) -> bool:
    """Remove a staged entry if it is stale. Returns whether it was removed."""
    try:
        status = os.stat(name, dir_fd=dir_fd, follow_symlinks=False)
        if not (stat.S_ISREG(status.st_mode) or stat.S_ISDIR(status.st_mode)):
            # A link cannot be locked, and is staged only for an instant.
            if time.time() - status.st_ctime < _OLD_ENOUGH_S:
                return False
            os.unlink(name, dir_fd=dir_fd)
            return True
        with closed_after(os.open(name, _OPEN_ENTRY, dir_fd=dir_fd)) as fd:
            locked = _lock(fd)
            if locked is False or (locked is None and time.time() - status.st_ctime <= _OLD_ENOUGH_S):
                return False
            # Another file may have the name since it was opened.
            if not os.path.samestat(os.fstat(fd), os.stat(name, dir_fd=dir_fd, follow_symlinks=False)):
                return False
            _remove(dir_fd, name, fd)
            return True
    except (OSError, EntryFailed):
        return False


def _remove(dir_fd: int, name: str, fd: int) -> None:
    if stat.S_ISDIR(os.fstat(fd).st_mode):
        os.fchmod(fd, stat.S_IRWXU)
        remove_contents(fd, "", Cancellation(), force=True)
        os.rmdir(name, dir_fd=dir_fd)
    else:
        os.unlink(name, dir_fd=dir_fd)
