"""inotify watches for a tree of directories. Names are bytes, as in the kernel.

The available library fails on names that are not UTF-8, watches excluded directories, and gives up on the whole tree if
one directory is unreadable.
"""

from __future__ import annotations

import ctypes
import errno
import os
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final, Self

_ACCESS: Final = 0x02 | 0x04 | 0x08  # IN_MODIFY, IN_ATTRIB, IN_CLOSE_WRITE
_MOVED_FROM: Final = 0x40
_MOVED_TO: Final = 0x80
_CREATE: Final = 0x100
_DELETE: Final = 0x200
_OVERFLOW: Final = 0x4000
_IGNORED: Final = 0x8000
_ONLY_DIRECTORIES: Final = 0x01000000
_DO_NOT_FOLLOW: Final = 0x02000000
_NO_UNLINKED: Final = 0x04000000
_IS_DIRECTORY: Final = 0x40000000
_MASK: Final = _ACCESS | _MOVED_FROM | _MOVED_TO | _CREATE | _DELETE | _ONLY_DIRECTORIES | _DO_NOT_FOLLOW | _NO_UNLINKED
_HEADER: Final = struct.Struct("iIII")
_READ_BYTES: Final = 1 << 18


@dataclass(slots=True)
class Changes:
    """The changes found by one read."""

    paths: set[str] = field(default_factory=set[str])
    """Relative to the root, decoded by `os.fsdecode`."""
    overflowed: bool = False
    """The kernel dropped events: anything may have changed."""


class TreeWatch:
    """Watches all directories below a root that are not excluded. Not thread-safe."""

    def __init__(self, root: str, excludes: Callable[[str], bool]) -> None:
        """`excludes` receives directories relative to the root. Raises `OSError` without inotify instances left."""
        self._root = os.fsencode(root)
        self._excludes = excludes
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._directories: dict[int, bytes] = {}
        self._watches: dict[bytes, int] = {}
        self.unwatched: dict[str, int] = {}
        """Directories without a watch, with the error number."""
        self.fd: int = self._libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        if self.fd < 0:
            raise _os_error()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self.fd)

    def watch_all(self) -> None:
        """Watch the whole tree, as far as permissions and the system's limit allow."""
        self._watch_below(b"")

    def read(self) -> Changes:
        """The changes since the last read. New directories are watched from now on."""
        changes = Changes()
        for watch, mask, name in self._events():
            if mask & _OVERFLOW:
                changes.overflowed = True
            elif mask & _IGNORED:
                self._forget(watch)
            elif watch in self._directories and name:
                path = _joined(self._directories[watch], name)
                if mask & _IS_DIRECTORY:
                    self._follow(path, mask)
                changes.paths.add(os.fsdecode(path))
        return changes

    def _follow(self, directory: bytes, mask: int) -> None:
        if mask & _MOVED_FROM:
            self._unwatch_below(directory)
        elif mask & (_CREATE | _MOVED_TO) or os.fsdecode(directory) in self.unwatched:
            # Watched before it is reported: the caller's scan finds what appears in it until then.
            self._watch_below(directory)

    def _events(self) -> Iterator[tuple[int, int, bytes]]:
        while True:
            try:
                data = os.read(self.fd, _READ_BYTES)
            except BlockingIOError:
                return
            at = 0
            while at < len(data):
                watch, mask, _, length = _HEADER.unpack_from(data, at)
                at += _HEADER.size + length
                yield watch, mask, data[at - length : at].rstrip(b"\0")

    def _watch_below(self, top: bytes) -> None:
        waiting = [top]
        while waiting:
            directory = waiting.pop()
            if directory and self._excludes(os.fsdecode(directory)):
                continue
            place = os.path.join(self._root, directory) if directory else self._root
            if not self.watch(directory, place):
                continue
            try:
                with os.scandir(place) as entries:
                    below = [entry.name for entry in entries if entry.is_dir(follow_symlinks=False)]
            except OSError:
                # The directory is gone or cannot be listed, so it contains nothing to index.
                continue
            waiting.extend(_joined(directory, name) for name in below)

    def watch(self, directory: bytes, place: bytes) -> bool:
        """Watch one directory. Returns whether to continue below it."""
        watch = self._libc.inotify_add_watch(self.fd, place, _MASK)
        if watch >= 0:
            self._directories[watch] = directory
            self._watches[directory] = watch
            self.unwatched.pop(os.fsdecode(directory), None)
            return True
        error = _os_error()
        if not directory:
            raise error
        self.unwatched.pop(os.fsdecode(directory), None)
        if error.errno in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP):
            return False
        # The whole subtree stays unwatched: without watches left, all others would fail too.
        self.unwatched[os.fsdecode(directory)] = error.errno or errno.EIO
        return False

    def _unwatch_below(self, top: bytes) -> None:
        """Remove the watches of a moved directory. They would report its old path."""
        below = top + b"/"
        for directory in [each for each in self._watches if each == top or each.startswith(below)]:
            watch = self._watches.pop(directory)
            self._directories.pop(watch, None)
            self._libc.inotify_rm_watch(self.fd, watch)
        gone = os.fsdecode(top)
        for directory in [each for each in self.unwatched if each == gone or each.startswith(f"{gone}/")]:
            del self.unwatched[directory]

    def _forget(self, watch: int) -> None:
        directory = self._directories.pop(watch, None)
        if directory is not None and self._watches.get(directory) == watch:
            del self._watches[directory]


def _joined(directory: bytes, name: bytes) -> bytes:
    return directory + b"/" + name if directory else name


def _os_error() -> OSError:
    number = ctypes.get_errno()
    return OSError(number, os.strerror(number))
