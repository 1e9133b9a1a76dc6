"""A bounded reader for tar archives, plain or compressed, that reads front to back and trusts no header.

`tarfile` stores whatever a header declares in memory and keeps every header it has read. Here each header is bounded,
and none is kept.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO

from armarium.foundation.archives.entries import ArchiveError, Budget, RawEntry
from armarium.foundation.archives.streams import ByteStream, truncated

_BLOCK = 512
_MAX_HEADER_BYTES = 64 * 1024
_CHECKSUM = slice(148, 156)
_REGULAR = b"0\0007"
_WITHOUT_CONTENT = b"123456"
"""Links, devices, directories, FIFOs: the next header follows at once, whatever size theirs declares."""


@dataclass(slots=True)
class _Overrides:
    """Attributes of the next entry, from the extension headers before it."""

    name: bytes | None = None
    size_bytes: int | None = None
    mtime_unix: int | None = None
    is_sparse: bool = False


def tar_entries(
    source: BinaryIO, budget: Budget, *, max_header_bytes: int = _MAX_HEADER_BYTES, require_end: bool = False
) -> Iterator[RawEntry]:
    """The entries in archive order. Raises `ArchiveError` where the archive cannot be read further. `source` is read
    from its beginning, or from where it is if it cannot seek. `max_header_bytes` bounds extension headers, such as long
    names. With `require_end`, an archive without an end marker counts as truncated."""
    stream = ByteStream(source, budget)
    overrides = _Overrides()
    while header := _header(stream, require_end=require_end):
        kind, size = header[156:157], _number(header[124:136])
        if kind in b"xXLKg":
            budget.spend_member()
            _apply(overrides, kind, _extension(stream, size, max_header_bytes))
            continue
        if kind == b"S":
            overrides.is_sparse = True
            _skip_sparse_map(stream, header)
        if kind in _WITHOUT_CONTENT:
            size, overrides.size_bytes = 0, None
        body = _Body(stream, size if overrides.size_bytes is None else overrides.size_bytes)
        yield _entry(header, kind, overrides, body)
        body.finish()
        overrides = _Overrides()


class _Body:
    """The content of the current entry."""

    def __init__(self, stream: ByteStream, size_bytes: int) -> None:
        if size_bytes < 0:
            raise ArchiveError("the tar archive is damaged")
        self.size_bytes = size_bytes
        self._stream = stream
        self._left = size_bytes + -size_bytes % _BLOCK

    def read(self) -> bytes:
        content = self._stream.read(self.size_bytes)
        self._left -= len(content)
        if len(content) < self.size_bytes:
            raise truncated()
        return content

    def finish(self) -> None:
        left, self._left = self._left, 0
        self._stream.skip(left)


def _header(stream: ByteStream, *, require_end: bool) -> bytes:
    """The next header; empty at the end of the archive."""
    header = stream.read(_BLOCK)
    if require_end and len(header) < _BLOCK:
        raise truncated()
    if not header.strip(b"\0"):
        return b""
    if len(header) < _BLOCK:
        raise truncated()
    # The checksum covers the header with a blank checksum field. Old programs summed signed bytes.
    blanked = header[:148] + b" " * 8 + header[156:]
    if _number(header[_CHECKSUM]) not in (sum(blanked), sum(memoryview(blanked).cast("b"))):
        raise ArchiveError("the tar archive is damaged")
    return header


def _entry(header: bytes, kind: bytes, overrides: _Overrides, body: _Body) -> RawEntry:
    name = header[:100].partition(b"\0")[0]
    if header[257:263] == b"ustar\0" and (prefix := header[345:500].partition(b"\0")[0]):
        name = prefix + b"/" + name
    name = overrides.name or name
    is_directory = kind == b"5" or (kind in _REGULAR and name.endswith(b"/"))
    problem = None
    if overrides.is_sparse:
        problem = "a sparse file"
    elif not is_directory and kind not in _REGULAR:
        problem = "not a regular file"
    mtime = _number(header[136:148]) if overrides.mtime_unix is None else overrides.mtime_unix
    return RawEntry(
        name.decode("utf-8", "surrogateescape"), body.size_bytes, max(0, mtime), is_directory, problem, body.read
    )


def _number(field: bytes) -> int:
    """A number in octal digits, or in binary if the first byte has its high bit set."""
    if field[0] & 0x80:
        value = int.from_bytes(field, "big") & ~(0x80 << 8 * (len(field) - 1))
        # Negative in two's complement: a time before 1970, or an invalid size.
        return -1 if field[0] & 0x40 else value
    try:
        return int(field.partition(b"\0")[0].strip() or b"0", 8)
    except ValueError:
        raise ArchiveError("the tar archive is damaged") from None


def _extension(stream: ByteStream, size: int, max_bytes: int) -> bytes:
    if size > max_bytes:
        raise ArchiveError("the tar archive has a header of unreasonable size")
    body = _Body(stream, size)
    content = body.read()
    body.finish()
    return content


def _apply(overrides: _Overrides, kind: bytes, content: bytes) -> None:
    if kind == b"L":
        overrides.name = content.partition(b"\0")[0]
    if kind not in b"xX":
        return
    for key, value in _records(content):
        if key == b"path":
            overrides.name = value
        elif key == b"size":
            overrides.size_bytes = _decimal(value)
        elif key == b"mtime":
            overrides.mtime_unix = max(0, _decimal(value.partition(b".")[0]))
        elif key.startswith(b"GNU.sparse."):
            overrides.is_sparse = True


def _records(content: bytes) -> Iterator[tuple[bytes, bytes]]:
    """The records of a pax header: each is its length in digits, a space, `key=value` and a line end."""
    position = 0
    while position < len(content) and content[position] != 0:
        digits, space, _ = content[position : position + 12].partition(b" ")
        length = _decimal(digits)
        record = content[position : position + length]
        key, equals, value = record[len(digits) + 1 : -1].partition(b"=")
        if not space or not equals or record[-1:] != b"\n" or len(record) != length:
            raise ArchiveError("the tar archive is damaged")
        yield key, value
        position += length


def _decimal(text: bytes) -> int:
    digits = text.removeprefix(b"-")
    if not digits.isdigit() or len(digits) > 20:
        raise ArchiveError("the tar archive is damaged")
    return int(text)


def _skip_sparse_map(stream: ByteStream, header: bytes) -> None:
    is_extended = header[482]
    while is_extended:
        block = stream.read(_BLOCK)
        if len(block) < _BLOCK:
            raise truncated()
        is_extended = block[504]
