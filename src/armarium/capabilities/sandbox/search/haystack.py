"""Reads the content of files into memory for a search: many small files at once, a large one in parts.

The buffer is small enough to stay in the processor's cache between reading and searching, and it is all the memory
that files of any size take.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Generator, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial

from armarium.foundation.files.walk import OPEN_FILE, Run

BUFFER_BYTES = 512 * 1024
MAX_LINE_BYTES = 8 * 1024 * 1024
_BINARY_PROBE_BYTES = 8192
_COUNT_BYTES = 256 * 1024
_NEWLINE = 10


@dataclass(slots=True)
class TextBlock:
    """Complete lines to search, in [begin, end) of the buffer. The lines around them serve as context."""

    buffer: bytearray
    begin: int = 0
    end: int = 0
    readable_end: int = 0
    """Lines between `end` and this offset belong to the same file."""
    starts: list[int] = field(default_factory=list[int])
    """Offset of each file."""
    paths: list[str] = field(default_factory=list[str])
    first_line: Callable[[], int] | None = None
    """Number of the line at `begin`, unless the block is the beginning of its file."""


class Haystack:
    """Reads files into blocks. Skips binary files, which have a NUL byte in their first 8 KB."""

    def __init__(self, context_lines: int, buffer_bytes: int = BUFFER_BYTES, max_line_bytes: int = MAX_LINE_BYTES):
        self.files = 0
        self._context = context_lines
        self._max_line = max_line_bytes
        self._buffer = bytearray(buffer_bytes)
        self._view = memoryview(self._buffer)
        self._limit = buffer_bytes - 1  # the last byte is for the line end that a last line may lack
        self._batch = TextBlock(self._buffer)

    def blocks(self, runs: Iterable[Run]) -> Generator[TextBlock]:
        """The content of the files of a walk, in its order. A block is valid until the next one is requested."""
        open_file, close, append = os.open, os.close, self._append
        for directory_fd, directory, names in runs:
            for name in names:
                try:
                    fd = open_file(name, OPEN_FILE, dir_fd=directory_fd)
                except OSError:
                    continue
                try:
                    if not append(fd, directory, name):
                        yield from self._flush()
                        if not append(fd, directory, name):
                            yield from self._pieces(fd, directory + name)
                finally:
                    close(fd)
        yield from self._flush()

    def file_blocks(self, fd: int, path: str) -> Generator[TextBlock]:
        if self._append(fd, "", path):
            yield from self._flush()
        else:
            yield from self._pieces(fd, path)

    def _append(self, fd: int, directory: str, name: str) -> bool:
        """Read a file behind those already there. False: it is too large for the room that is left.

        Some ten thousand files make a gigabyte: each call that is made here costs one percent of a search.
        """
        buffer = self._buffer
        start = self._batch.end
        try:
            status = os.fstat(fd)
            size = status.st_size
            if not stat.S_ISREG(status.st_mode):
                return True
            if start + size > self._limit:
                return False
            end = start + os.readv(fd, (self._view[start : self._limit],))
            if end - start != size:
                while more := os.readv(fd, (self._view[end : self._limit],)):
                    end += more
                if end == self._limit:
                    os.lseek(fd, 0, os.SEEK_SET)  # it grew meanwhile, and there may be more of it than was read
                    return False
        except OSError:
            return True
        if end == start or buffer.find(b"\0", start, min(end, start + _BINARY_PROBE_BYTES)) >= 0:
            return True
        if buffer[end - 1] != _NEWLINE:
            buffer[end] = _NEWLINE
            end += 1
        batch = self._batch
        batch.starts.append(start)
        batch.paths.append(directory + name)
        batch.end = batch.readable_end = end
        self.files += 1
        return True

    def _flush(self) -> Generator[TextBlock]:
        if self._batch.starts:
            yield self._batch
            self._batch = TextBlock(self._buffer)

    def _pieces(self, fd: int, path: str) -> Generator[TextBlock]:
        """A large file in parts. Each ends with a line, and the buffer also holds the context of its lines."""
        buffer, view = self._buffer, self._view
        counter = _LineCounter(fd)
        offset = begin = filled = 0
        while True:
            limit = len(buffer) - 1
            got = 0
            if filled < limit:
                with suppress(OSError):
                    got = os.readv(fd, [view[filled:limit]])
            if offset == filled == 0:
                if buffer.find(b"\0", 0, min(got, _BINARY_PROBE_BYTES)) >= 0:
                    return
                self.files += got > 0
            at_end = filled < limit and not got
            filled += got
            if at_end:
                break
            if filled < limit:
                continue
            end = self._end_of_piece(buffer, begin, filled)
            if end is not None:
                yield TextBlock(buffer, begin, end, filled, [0], [path], partial(counter.line_at, offset + begin))
                kept = self._start_of_context(buffer, end)
                view[: filled - kept] = view[kept:filled]
                offset, begin, filled = offset + kept, end - kept, filled - kept
            if filled > limit // 2 and len(buffer) < self._max_line:
                buffer = buffer + bytearray(len(buffer))
                view = memoryview(buffer)
        if filled > begin:
            if buffer[filled - 1] != _NEWLINE:
                buffer[filled] = _NEWLINE
                filled += 1
            yield TextBlock(buffer, begin, filled, filled, [0], [path], partial(counter.line_at, offset + begin))

    def _end_of_piece(self, buffer: bytearray, begin: int, filled: int) -> int | None:
        """Where the part ends, so that the context after a match is in the buffer. None if the buffer is too small."""
        end = filled
        for _ in range(self._context + 1):
            end = buffer.rfind(b"\n", begin, end)
            if end < 0:
                break
        if end >= 0:
            return end + 1
        if len(buffer) < self._max_line:
            return None
        # Memory is limited: context is truncated, and a longer line is searched in parts.
        return buffer.rfind(b"\n", begin, filled) + 1 or filled

    def _start_of_context(self, buffer: bytearray, end: int) -> int:
        """From where to keep searched content, for the context before a match."""
        if buffer[end - 1] != _NEWLINE:
            return end
        furthest = max(0, end - len(buffer) // 2) if len(buffer) >= self._max_line else 0
        start = end
        for _ in range(self._context):
            if start == 0:
                break
            above = buffer.rfind(b"\n", 0, start - 1) + 1
            if above < furthest:
                break
            start = above
        return start


class _LineCounter:
    """Line numbers in a file that is searched in parts, counted only when a match needs them."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._offset = 0
        self._line = 1

    def line_at(self, offset: int) -> int:
        with suppress(OSError):
            while block := os.pread(self._fd, min(_COUNT_BYTES, offset - self._offset), self._offset):
                self._line += block.count(b"\n")
                self._offset += len(block)
        return self._line
