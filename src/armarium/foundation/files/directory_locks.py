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

from armarium.foundation.files.beneath import Identity, identity_of

_log = logging.getLogger(__name__)

# Errors of network file systems that cannot lock a directory.
_CANNOT_LOCK = frozenset({errno.EBADF, errno.EINVAL, errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.EACCES})
_FIRST_PAUSE_S = 0.0005
_LONGEST_PAUSE_S = 0.01


class DirectoryBusy(Exception):
    """The directory was locked until the timeout. Nothing was changed."""

    def __init__(self, directory: Identity, *, waited_long: bool) -> None:
        super().__init__("the directory is locked")
        self.directory = directory
        self.waited_long = waited_long
        """Whether the long timeout has passed, so that the call should not be retried."""


class DirectoryLocks:
    """Locks for directories. A fixed set of locks inside the process reduces contention for the kernel's locks."""

    def __init__(self, timeout_s: float = 0.25, *, long_timeout_s: float = 10.0) -> None:
        self.timeout_s = timeout_s
        self.long_timeout_s = long_timeout_s
        self.in_process = [threading.Lock() for _ in range(256)]
        self._unlockable: set[int] = set()

    def holding(self, *dir_fds: int, wait_long: bool = False) -> AbstractContextManager[None]:
        """Lock the open directories for the block, all or none, or raise `DirectoryBusy`. The timeout is short, because
        the caller occupies a thread. `wait_long` selects the long one, for callers that would lose much work."""
        return _LockContext(self, dir_fds, wait_long)

    def lock_in_kernel(self, fd: int, identity: Identity, until: float, *, waited_long: bool) -> bool:
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


class _LockContext:
    # Not a generator-based context manager: this takes half the time, and every change needs it.
    __slots__ = ("_dir_fds", "_in_process", "_locked", "_locks", "_wait_long")

    def __init__(self, locks: DirectoryLocks, dir_fds: Sequence[int], wait_long: bool) -> None:
        self._locks = locks
        self._dir_fds = dir_fds
        self._wait_long = wait_long
        self._in_process: list[threading.Lock] = []
        self._locked: list[int] = []

    def __enter__(self) -> None:
        locks, wait_long = self._locks, self._wait_long
        until = time.monotonic() + (locks.long_timeout_s if wait_long else locks.timeout_s)
        directories = [(identity_of(fd), fd) for fd in self._dir_fds]
        if len(directories) > 1:
            # Always in the same order, so that two moves in opposite directions cannot deadlock.
            directories = sorted(dict(directories).items())
        try:
            for index in sorted({hash(identity) % len(locks.in_process) for identity, _ in directories}):
                lock = locks.in_process[index]
                if not lock.acquire(blocking=False) and not lock.acquire(timeout=max(0.0, until - time.monotonic())):
                    raise DirectoryBusy(directories[0][0], waited_long=wait_long)
                self._in_process.append(lock)
            for identity, fd in directories:
                if locks.lock_in_kernel(fd, identity, until, waited_long=wait_long):
                    self._locked.append(fd)
        except BaseException:
            self.__exit__()
            raise

    def __exit__(self, *_: object) -> None:
        for fd in self._locked:
            fcntl.flock(fd, fcntl.LOCK_UN)
        for lock in self._in_process:
            lock.release()
