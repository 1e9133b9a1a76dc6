"""Copies file content between descriptors, preserving holes, and reports which side failed."""

from __future__ import annotations

import errno
import os
from collections.abc import Generator

from armarium.capabilities.sandbox.errors import DestinationFailed
from armarium.foundation.cancellation import Cancellation

_BLOCK = 8 * 1024 * 1024
# The kernel cannot copy here. After EIO, separate reads and writes show which side failed.
_COPY_BY_HAND = frozenset({errno.EXDEV, errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP, errno.EIO, errno.EBADF})
_TARGET_IS_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


def copy_content(source: int, target: int, cancellation: Cancellation) -> int:
    """Copy a file into an empty one, in the kernel if possible, preserving holes. Returns the size."""
    size = os.fstat(source).st_size
    for start, end in _extents(source, size):
        _copy_range(source, target, start, end, cancellation)
    # This also copies what was appended meanwhile, and files whose reported size is 0.
    size = _copy_by_hand(source, target, size, None, cancellation)
    try:
        os.ftruncate(target, size)
    except OSError as error:
        raise DestinationFailed(error) from error
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
        while start < end:
            count = os.copy_file_range(source, target, min(_BLOCK, end - start), start, start)
            if count == 0:
                break
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
    while end is None or start < end:
        block = os.pread(source, _BLOCK if end is None else min(_BLOCK, end - start), start)
        if not block:
            break
        rest = memoryview(block)
        try:
            while rest:
                count = os.pwrite(target, rest, start)
                rest = rest[count:]
                start += count
        except OSError as error:
            raise DestinationFailed(error) from error
        cancellation.checkpoint(start)
    return start


def read_all(fd: int) -> bytes:
    """The content from the descriptor's position on."""
    parts: list[bytes] = []
    while part := os.read(fd, _BLOCK):
        parts.append(part)
    return b"".join(parts)


def write_all(fd: int, content: bytes) -> None:
    """Write all of the content."""
    rest = memoryview(content)
    while rest:
        rest = rest[os.write(fd, rest) :]
