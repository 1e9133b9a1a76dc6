"""Reads open files: whole, by bytes, by lines or from the end, within limits."""

from __future__ import annotations

import base64
import hashlib
import io
import os
import sys
from dataclasses import dataclass

from armarium.capabilities.sandbox.errors import FileTooLarge
from armarium.capabilities.sandbox.reads.byte_scan import count_newlines
from armarium.capabilities.sandbox.results import FileContent
from armarium.capabilities.sandbox.threads.pool import expect_bytes
from armarium.foundation.concurrency.cancellation import Cancellation
from armarium.foundation.errors import InvalidArgument

_BLOCK = 1 << 20
_LEAST_HASH_BLOCK, _HASH_BLOCK = 64 * 1024, 4 * 1024 * 1024
"""Block sizes for hashing. Hashing releases the GIL; taking it again after each block delays the event loop."""
_SNIFFED_BYTES = 8192
_TAIL_BLOCK = 64 * 1024
_NUMBERED_TAIL_BYTES = 16 * 1024 * 1024
"""Up to this size the whole file is read, so that lines at its end can be numbered."""


@dataclass(frozen=True, slots=True)
class Window:
    """Which part of a file to read; by default all of it."""

    offset_bytes: int | None = None
    limit_bytes: int | None = None
    offset_lines: int | None = None
    limit_lines: int | None = None
    tail_lines: int | None = None

    def check(self) -> None:
        """Raise if mutually exclusive fields are set."""
        by_bytes = self.offset_bytes is not None or self.limit_bytes is not None
        by_lines = self.offset_lines is not None or self.limit_lines is not None
        if by_bytes and (by_lines or self.tail_lines is not None):
            raise InvalidArgument("byte and line parameters are mutually exclusive")
        if by_lines and self.tail_lines is not None:
            raise InvalidArgument("`tail_lines` cannot be combined with `offset_lines` or `limit_lines`")


@dataclass(frozen=True, slots=True)
class ReadLimits:
    full_bytes: int
    partial_bytes: int


def read(
    fd: int, size: int, window: Window, limits: ReadLimits, cancellation: Cancellation, *, number_lines: bool
) -> FileContent:
    """Read a part of an open regular file. The caller adds `root` and `path`."""
    if window == Window():
        return _read_whole(fd, size, limits, number_lines)
    if window.offset_bytes is not None or window.limit_bytes is not None:
        return _read_bytes(fd, size, window, limits)
    return _read_lines(fd, size, window, limits, cancellation, number_lines)


def _read_whole(fd: int, size: int, limits: ReadLimits, number_lines: bool) -> FileContent:
    if size > limits.full_bytes:
        raise _too_large(size, limits)
    expect_bytes(size)
    # To its end, not to its size: it may have grown since, and some files report the size 0.
    data = pread_all(fd, 0, limits.full_bytes + 1, first_block=size + 1)
    if len(data) > limits.full_bytes:
        raise _too_large(len(data), limits)
    binary = b"\0" in data[:_SNIFFED_BYTES]
    result = _content(data, len(data), False, binary=binary, as_text=not binary, number_from=int(number_lines))
    result["sha256"] = hashlib.sha256(data).hexdigest()
    if result["encoding"] != "base64":
        lines = _count_lines(data)
        result["lines_total"] = lines
        _add_line_range(result, 1, lines)
    return result


def _read_bytes(fd: int, size: int, window: Window, limits: ReadLimits) -> FileContent:
    offset = window.offset_bytes or 0
    wanted = size if window.limit_bytes is None else window.limit_bytes
    length = min(wanted, limits.partial_bytes, max(0, size - offset))
    expect_bytes(length)
    data = pread_all(fd, offset, length, first_block=length)
    binary = _is_binary(fd)
    result = _content(data, size, offset + len(data) < size, binary=binary, as_text=not binary, exact=True)
    result["offset_bytes"] = offset
    return result


def _read_lines(
    fd: int, size: int, window: Window, limits: ReadLimits, cancellation: Cancellation, number_lines: bool
) -> FileContent:
    if window.tail_lines is not None and size > _NUMBERED_TAIL_BYTES and not number_lines:
        return _read_tail(fd, size, window.tail_lines, limits)
    expect_bytes(size)
    if window.tail_lines is not None:
        _, total, _ = _lines_between(fd, sys.maxsize, 0, 0, cancellation)
        first, wanted = max(1, total - window.tail_lines + 1), window.tail_lines
    else:
        first, wanted = window.offset_lines or 1, window.limit_lines
    data, total, cut = _lines_between(fd, first, wanted, limits.partial_bytes, cancellation)
    lines = _count_lines(data)
    truncated = cut or first - 1 + lines < total
    result = _content(data, size, truncated, binary=_is_binary(fd), number_from=first if number_lines else 0)
    result["lines_total"] = total
    _add_line_range(result, first, lines)
    if first > max(total, 1):
        result["note"] = f"line {first} is past the end: the file has {total} lines"
    return result


def _read_tail(fd: int, size: int, wanted: int, limits: ReadLimits) -> FileContent:
    """The last lines of a large file, read from its end. Their line numbers are unknown."""
    data = b""
    start = size
    lines_found = False
    # A newline at the end of the file ends its last line, so one more is needed.
    while start > 0 and len(data) <= limits.partial_bytes and not lines_found:
        length = min(max(_TAIL_BLOCK, len(data)), start)
        start -= length
        expect_bytes(size - start)
        data = pread_all(fd, start, length) + data
        lines_found = count_newlines(data, 0, len(data)) > wanted
    begin = _before_lines(data, wanted)
    cut = (begin == 0 and start > 0) or len(data) - begin > limits.partial_bytes
    if cut:  # keep the end, from the start of a line if there is one
        begin = max(begin, len(data) - limits.partial_bytes)
        begin = data.find(b"\n", begin, len(data) - 1) + 1 or begin
    result = _content(data[begin:], size, cut, binary=_is_binary(fd))
    result["note"] = "the end of a large file; its lines are numbered only with number_lines"
    return result


def _before_lines(data: bytes, count: int) -> int:
    """Offset of the last `count` lines; 0 if there are fewer."""
    position = len(data) - data.endswith(b"\n")
    for _ in range(count):
        position = data.rfind(b"\n", 0, position)
        if position < 0:
            return 0
    return position + 1


def _add_line_range(result: FileContent, first: int, count: int) -> None:
    if count:
        result["start_line"] = first
        result["end_line"] = first + count - 1


def _lines_between(
    fd: int, first: int, wanted: int | None, max_bytes: int, cancellation: Cancellation
) -> tuple[bytes, int, bool]:
    """Lines `first` … `first + wanted - 1`, the number of lines in the file, and whether more than `max_bytes` were
    wanted."""
    kept: list[bytes] = []
    room = max_bytes
    offset = newlines = 0
    last_byte = b"\n"
    cut = False
    stop_before = None if wanted is None else first - 1 + wanted
    while block := os.pread(fd, _BLOCK, offset):
        cancellation.checkpoint(offset)
        offset += len(block)
        ends = count_newlines(block, 0, len(block))
        begins_inside = newlines + ends >= first - 1
        over = stop_before is not None and newlines >= stop_before
        if begins_inside and not over and not cut:
            start = _after_newline(block, first - 1 - newlines)
            stop = len(block) if stop_before is None else _after_newline(block, stop_before - newlines)
            cut = stop - start > room
            kept.append(block[start : min(stop, start + room)])
            room -= len(kept[-1])
        newlines += ends
        last_byte = block[-1:]
    return b"".join(kept), newlines + (last_byte != b"\n"), cut


def _after_newline(block: bytes, count: int) -> int:
    """The position after the `count`-th newline of the block, or the end of the block if it has fewer."""
    position = 0
    for _ in range(count):
        position = block.find(b"\n", position) + 1
        if position == 0:
            return len(block)
    return position


def pread_all(fd: int, offset: int, length: int, *, first_block: int = _BLOCK) -> bytes:
    """Up to `length` bytes at an offset, fewer only at the end of the file."""
    parts: list[bytes] = []
    block = first_block
    while length > 0 and (part := os.pread(fd, min(length, block), offset)):
        parts.append(part)
        offset += len(part)
        length -= len(part)
        block = _BLOCK
    return b"".join(parts)


def _is_binary(fd: int) -> bool:
    """Whether a file counts as binary: it has a NUL byte in the first 8 KB."""
    return b"\0" in pread_all(fd, 0, _SNIFFED_BYTES)


def _content(
    data: bytes,
    size: int,
    truncated: bool,
    *,
    binary: bool,
    as_text: bool = True,
    exact: bool = False,
    number_from: int = 0,
) -> FileContent:
    """The bytes as JSON: as text, with replacements unless it must be `exact`, or as base64."""
    content, encoding = "", "base64"
    if as_text:
        try:
            content, encoding = data.decode("utf-8"), "utf-8"
        except UnicodeDecodeError:
            if not exact:
                content, encoding = data.decode("utf-8", "replace"), "utf-8-replaced"
    if encoding == "base64":
        content, binary = base64.b64encode(data).decode(), True
    elif number_from:
        lines = enumerate(io.StringIO(content, newline="\n"), number_from)
        content = "".join([f"{number:>6}\t{line}" for number, line in lines])
    return FileContent(content=content, size=size, truncated=truncated, encoding=encoding, binary=binary)


def _count_lines(data: bytes) -> int:
    return count_newlines(data, 0, len(data)) + (not data.endswith(b"\n") and bool(data))


def _too_large(size: int, limits: ReadLimits) -> FileTooLarge:
    return FileTooLarge(
        f"file too large for full read (size: {human_size(size)}, limit: {human_size(limits.full_bytes)}); "
        "use offset/limit parameters",
        hint="read a part with offset_lines and limit_lines, offset_bytes and limit_bytes, or tail_lines",
        size=size,
        limit=limits.full_bytes,
    )


def human_size(size: int) -> str:
    """A size for messages, such as 500B or 5.2MB."""
    amount = float(size)
    for unit in ("B", "KB", "MB", "GB"):
        if amount < 1024:
            return f"{amount:.1f}".removesuffix(".0") + unit
        amount /= 1024
    return f"{amount:.1f}".removesuffix(".0") + "TB"


def digest(fd: int, algorithm: str, cancellation: Cancellation) -> str:
    """The hash of an open file, read in blocks."""
    hasher = hashlib.new(algorithm, usedforsecurity=False)
    # The size is only a hint: a file may grow, and files of the kernel have content and the size 0.
    buffer = bytearray(max(_LEAST_HASH_BLOCK, min(_HASH_BLOCK, os.fstat(fd).st_size)))
    view = memoryview(buffer)
    offset = 0
    while length := os.preadv(fd, [buffer], offset):
        hasher.update(view[:length])
        offset += length
        cancellation.checkpoint(offset)
    return hasher.hexdigest()
