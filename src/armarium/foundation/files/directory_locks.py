"""Locks directories, so that one caller at a time changes their entries, across all threads and processes.

The lock is `flock` on the directory itself: it needs no file, the kernel releases it when a process ends, and every
process that opens the same directory sees it, from any user, container or path.
"""

from __future__ import annotations

import errno
import fcntl
import logging
import os
import random
import threading
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import NamedTuple

_log = logging.getLogger(__name__)

# Errors of network file systems that cannot lock a directory.
_CANNOT_LOCK = frozenset({errno.EBADF, errno.EINVAL, errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.EACCES})
_FIRST_PAUSE_S = 0.0005
_LONGEST_PAUSE_S = 0.01

Identity = tuple[int, int]


class DirectoryBusy(Exception):
    """The directory was locked until the timeout. Nothing was changed."""

    def __init__(self, directory: Identity, *, waited_long: bool) -> None:
        super().__init__("the directory is locked")
        self.directory = directory
        self.waited_long = waited_long
        """Whether the long timeout has passed, so that the call should not be retried."""


class Held(NamedTuple):
    """Locks that a caller holds: locks of this process, and descriptors locked by the kernel."""

    in_process: list[threading.Lock]
    locked: list[int]

    def release(self) -> None:
        """Release all locks."""
        for fd in self.locked:
            fcntl.flock(fd, fcntl.LOCK_UN)
        for lock in self.in_process:
            lock.release()


class DirectoryLocks:
    """Locks for directories. A fixed set of locks inside the process reduces contention for the kernel's locks."""

    def __init__(self, timeout_s: float = 0.25, *, long_timeout_s: float = 10.0) -> None:
        self._timeout_s = timeout_s
        self._long_timeout_s = long_timeout_s
        self._locks = [threading.Lock() for _ in range(256)]
        self._unlockable: set[int] = set()

    def holding(self, *dir_fds: int, wait_long: bool = False) -> AbstractContextManager[None]:
        """Lock the open directories for the block, or raise `DirectoryBusy`.

        The timeout is short, because the caller occupies a thread. `wait_long` selects the long one, for callers that
        would lose much work.
        """
        return _LockContext(self, dir_fds, wait_long)

    def acquire(self, dir_fds: Sequence[int], *, wait_long: bool) -> Held:
        """Lock all of the directories or none; used by `holding`."""
        until = time.monotonic() + (self._long_timeout_s if wait_long else self._timeout_s)
        directories = [(_identity(fd), fd) for fd in dir_fds]
        if len(directories) > 1:
            # Always in the same order, so that two moves in opposite directions cannot deadlock.
            directories = sorted(dict(directories).items())
        mine = sorted({hash(identity) % len(self._locks) for identity, _ in directories})
        held = Held([], [])
        try:
            for index in mine:
                lock = self._locks[index]
                if not lock.acquire(blocking=False) and not lock.acquire(timeout=max(0.0, until - time.monotonic())):
                    raise DirectoryBusy(directories[0][0], waited_long=wait_long)
                held.in_process.append(lock)
            for identity, fd in directories:
                if self._lock(fd, identity, until, waited_long=wait_long):
                    held.locked.append(fd)
        except BaseException:
            held.release()
            raise
        return held

    def _lock(self, fd: int, identity: Identity, until: float, *, waited_long: bool) -> bool:
        """Take the kernel's lock. Returns False if the file system has none."""
        if identity[0] in self._unlockable:
            return False
        pause = _FIRST_PAUSE_S
        while True:
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() >= until:
                    raise DirectoryBusy(identity, waited_long=waited_long) from None
            except OSError as error:
                if error.errno not in _CANNOT_LOCK:
                    raise
                self._unlockable.add(identity[0])
                _log.warning(
                    "a file system cannot lock directories; changes by other processes are not synchronised",
                    extra={"reason": os.strerror(error.errno)},
                )
                return False
            else:
                return True
            # flock has no timeout, so poll.
            time.sleep(pause * random.uniform(0.5, 1))  # noqa: S311 only to spread the attempts
            pause = min(2 * pause, _LONGEST_PAUSE_S)


def _identity(fd: int) -> Identity:
    status = os.fstat(fd)
    return status.st_dev, status.st_ino


class _LockContext:
    # Not a generator-based context manager: this takes half the time, and every change needs it.
    __slots__ = ("_dir_fds", "_held", "_locks", "_wait_long")

    def __init__(self, locks: DirectoryLocks, dir_fds: Sequence[int], wait_long: bool) -> None:
        self._locks = locks
        self._dir_fds = dir_fds
        self._wait_long = wait_long
        self._held: Held | None = None

    def __enter__(self) -> None:
        self._held = self._locks.acquire(self._dir_fds, wait_long=self._wait_long)

    def __exit__(self, *_: object) -> None:
        if self._held is not None:
            self._held.release()
