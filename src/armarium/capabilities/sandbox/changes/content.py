"""Copies the content and the attributes of files, preserving holes, and reports which side failed."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Generator
from contextlib import suppress

from armarium.capabilities.sandbox.errors import DestinationFailed, destination_errors
from armarium.foundation.concurrency.cancellation import Cancellation

_BLOCK = 8 * 1024 * 1024
# The kernel cannot copy here. After EIO, separate reads and writes show which side failed.
_COPY_BY_HAND = frozenset({errno.EXDEV, errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP, errno.EIO, errno.EBADF})
_TARGET_IS_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
_SET_ID = stat.S_ISUID | stat.S_ISGID


def copy_content(source: int, target: int, cancellation: Cancellation) -> int:
    """Copy a file into an empty one, in the kernel if possible, preserving holes. Returns the size."""
    size = os.fstat(source).st_size
    for start, end in _extents(source, size):
        _copy_range(source, target, start, end, cancellation)
    # This also copies what was appended meanwhile, and files whose reported size is 0.
    size = _copy_by_hand(source, target, size, None, cancellation)
    with destination_errors():
        os.ftruncate(target, size)
    return size


def _extents(fd: int, size: int) -> Generator[tuple[int, int]]:
    """Ranges of a file that have data."""
    offset = 0
    while offset < size:
        try:
            start = os.lseek(fd, offset, os.SEEK_DATA)
            end = min(os.lseek(fd, start, os.SEEK_HOLE), size)
        except OSError as error:
            if error.errno != errno.ENXIO:
                yield offset, size
            return
        yield start, end
        offset = end


def _copy_range(source: int, target: int, start: int, end: int, cancellation: Cancellation) -> None:
    try:
        while start < end and (count := os.copy_file_range(source, target, min(_BLOCK, end - start), start, start)):
            start += count
            cancellation.checkpoint(start)
    except OSError as error:
        if error.errno in _TARGET_IS_FULL:
            raise DestinationFailed(error) from error
        if error.errno not in _COPY_BY_HAND:
            raise
    _copy_by_hand(source, target, start, end, cancellation)


def _copy_by_hand(source: int, target: int, start: int, end: int | None, cancellation: Cancellation) -> int:
    """Copy up to `end`, or to the end of the file. Returns the offset reached."""
    while block := os.pread(source, _BLOCK if end is None else min(_BLOCK, end - start), start):
        rest = memoryview(block)
        with destination_errors():
            while rest:
                count = os.pwrite(target, rest, start)
                rest = rest[count:]
                start += count
        cancellation.checkpoint(start)
    return start


def copy_owner_and_mode(fd: int, like: os.stat_result) -> None:
    """Set the owner and mode of the file that is going to be replaced."""
    own = os.fstat(fd)
    if (own.st_uid, own.st_gid) != (like.st_uid, like.st_gid):
        _chown(fd, like)
    os.fchmod(fd, stat.S_IMODE(like.st_mode))


def keep_attributes(source_fd: int, like: os.stat_result, fd: int) -> None:
    """Set everything that a moved file or directory keeps. Skip what this user may not set or the file system lacks."""
    mode = stat.S_IMODE(like.st_mode)
    if not _chown(fd, like):
        mode &= ~_SET_ID  # Under another owner these bits would grant that owner's rights.
    with suppress(OSError):
        os.fchmod(fd, mode)
    with suppress(OSError):
        for name in os.listxattr(source_fd):
            with suppress(OSError):
                os.setxattr(fd, name, os.getxattr(source_fd, name))
    # Last, because everything above may change them.
    with suppress(OSError):
        os.utime(fd, ns=(like.st_atime_ns, like.st_mtime_ns))


def _chown(fd: int, like: os.stat_result) -> bool:
    """Set owner and group; without privileges only the group, if possible. Returns whether the owner was set."""
    try:
        os.fchown(fd, like.st_uid, like.st_gid)
    except PermissionError:
        with suppress(PermissionError):
            os.fchown(fd, -1, like.st_gid)
        return False
    return True
