"""A bounded reader for tar archives, plain or compressed, that reads front to back and trusts no header.

`tarfile` stores whatever a header declares in memory and keeps every header it has read. Here each header is bounded,
and none is kept.
"""

from __future__ import annotations

import bz2
import gzip
import lzma
import os
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO, Protocol, cast

from armarium.foundation.archives.entries import ArchiveError, Budget, RawEntry

_BLOCK = 512
_PIECE = 256 * 1024
_MAX_HEADER_BYTES = 64 * 1024
_MAGIC_BYTES = 6
_MAX_XZ_MEMORY = 160 * 1024 * 1024
_CHECKSUM = slice(148, 156)
_REGULAR = b"0\0007"
_WITHOUT_CONTENT = b"123456"
"""Links, devices, directories, FIFOs: the next header follows at once, whatever size theirs declares."""
_DAMAGE = (EOFError, OSError, zlib.error, lzma.LZMAError)


class _Decompressor(Protocol):
    @property
    def eof(self) -> bool: ...
    @property
    def needs_input(self) -> bool: ...
    @property
    def unused_data(self) -> bytes: ...
    def decompress(self, data: bytes, max_length: int = -1) -> bytes: ...


class _Source(Protocol):
    def read(self, count: int, /) -> bytes: ...


class _Prefixed:
    """A stream whose first bytes have been read already."""

    def __init__(self, prefix: bytes, rest: _Source) -> None:
        self._prefix = prefix
        self._rest = rest

    def read(self, count: int) -> bytes:
        if not self._prefix:
            return self._rest.read(count)
        piece, self._prefix = self._prefix[:count], self._prefix[count:]
        return piece


class _Decompressed:
    """The content of a bzip2 or xz stream, decompressed on demand."""

    def __init__(self, source: _Source, *, is_xz: bool) -> None:
        self._source = source
        self._is_xz = is_xz
        self._decompressor = self._fresh()

    def read(self, count: int) -> bytes:
        """At most `count` bytes; none only at the end."""
        while True:
            machine = self._decompressor
            if machine.eof:
                following = machine.unused_data or self._source.read(_PIECE)
                if not following.strip(b"\0"):
                    return b""
                machine = self._decompressor = self._fresh()
                piece = machine.decompress(following, count)
            elif machine.needs_input:
                packed = self._source.read(_PIECE)
                if not packed:
                    raise EOFError
                piece = machine.decompress(packed, count)
            else:
                piece = machine.decompress(b"", count)
            if piece:
                return piece

    def _fresh(self) -> _Decompressor:
        return lzma.LZMADecompressor(memlimit=_MAX_XZ_MEMORY) if self._is_xz else bz2.BZ2Decompressor()


class _Blocks:
    """The unpacked archive, read front to back. All unpacked bytes count against the budget."""

    def __init__(self, source: BinaryIO, budget: Budget) -> None:
        self._budget = budget
        self._seekable: BinaryIO | None = None
        self._size = 0
        self._file: _Source
        try:
            magic = _magic(source)
            if source.seekable():
                self._size = source.seek(0, os.SEEK_END)
                source.seek(0)
                stream: _Source = source
            else:
                stream = _Prefixed(magic, source)
        except OSError as error:
            raise _truncated() from error
        if magic.startswith(b"\x1f\x8b"):
            self._file = gzip.GzipFile(fileobj=cast(BinaryIO, stream))
        elif magic.startswith(b"BZh"):
            self._file = _Decompressed(stream, is_xz=False)
        elif magic == b"\xfd7zXZ\0":
            self._file = _Decompressed(stream, is_xz=True)
        else:
            self._file = stream
            self._seekable = source if stream is source else None

    def read(self, count: int) -> bytes:
        """`count` bytes; fewer only at the end of the archive."""
        pieces: list[bytes] = []
        missing = count
        while missing:
            piece = self._piece(min(missing, _PIECE))
            if not piece:
                break
            pieces.append(piece)
            missing -= len(piece)
        return b"".join(pieces)

    def skip(self, count: int) -> None:
        """Skip `count` bytes. Raises `ArchiveError` if there are fewer."""
        if self._seekable is not None:
            if count > self._size - self._seekable.tell():
                raise _truncated()
            self._seekable.seek(count, os.SEEK_CUR)
            return
        while count:
            piece = self._piece(min(count, _PIECE))
            if not piece:
                raise _truncated()
            count -= len(piece)

    def _piece(self, count: int) -> bytes:
        try:
            piece = self._file.read(count)
        except _DAMAGE as error:
            raise _truncated() from error
        self._budget.spend_bytes(len(piece))
        return piece


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
    """The entries in archive order. Raises `ArchiveError` where the archive cannot be read further.

    `source` is read from its beginning, or from where it is if it cannot seek. `max_header_bytes` bounds extension
    headers, such as long names. With `require_end`, an archive without an end marker counts as truncated.
    """
    blocks = _Blocks(source, budget)
    overrides = _Overrides()
    while header := _header(blocks, require_end=require_end):
        kind, size = header[156:157], _number(header[124:136])
        if kind in b"xXLKg":
            budget.spend_member()
            _apply(overrides, kind, _extension(blocks, size, max_header_bytes))
            continue
        if kind == b"S":
            overrides.is_sparse = True
            _skip_sparse_map(blocks, header)
        if kind in _WITHOUT_CONTENT:
            size, overrides.size_bytes = 0, None
        body = _Body(blocks, size if overrides.size_bytes is None else overrides.size_bytes)
        yield _entry(header, kind, overrides, body)
        body.finish()
        overrides = _Overrides()


class _Body:
    """The content of the current entry."""

    def __init__(self, blocks: _Blocks, size_bytes: int) -> None:
        if size_bytes < 0:
            raise ArchiveError("the tar archive is damaged")
        self.size_bytes = size_bytes
        self._blocks = blocks
        self._left = size_bytes + -size_bytes % _BLOCK

    def read(self) -> bytes:
        content = self._blocks.read(self.size_bytes)
        self._left -= len(content)
        if len(content) < self.size_bytes:
            raise _truncated()
        return content

    def finish(self) -> None:
        left, self._left = self._left, 0
        self._blocks.skip(left)


def _magic(source: BinaryIO) -> bytes:
    """The first bytes, which identify the compression. Raw pipes may return them one by one."""
    if source.seekable():
        source.seek(0)
    magic = b""
    while len(magic) < _MAGIC_BYTES and (piece := source.read(_MAGIC_BYTES - len(magic))):
        magic += piece
    return magic


def _header(blocks: _Blocks, *, require_end: bool) -> bytes:
    """The next header; empty at the end of the archive."""
    header = blocks.read(_BLOCK)
    if require_end and len(header) < _BLOCK:
        raise _truncated()
    if not header.strip(b"\0"):
        return b""
    if len(header) < _BLOCK:
        raise _truncated()
    # The checksum covers the header with a blank checksum field. Old programs summed signed bytes.
    blanked = header[:148] + b" " * 8 + header[156:]
    if _number(header[_CHECKSUM]) not in (sum(blanked), sum(memoryview(blanked).cast("b"))):
        raise ArchiveError("the tar archive is damaged")
    return header


def _entry(header: bytes, kind: bytes, overrides: _Overrides, body: _Body) -> RawEntry:
    name = overrides.name or _name(header)
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


def _name(header: bytes) -> bytes:
    name = header[:100].partition(b"\0")[0]
    if header[257:263] == b"ustar\0" and (prefix := header[345:500].partition(b"\0")[0]):
        return prefix + b"/" + name
    return name


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


def _extension(blocks: _Blocks, size: int, max_bytes: int) -> bytes:
    if size > max_bytes:
        raise ArchiveError("the tar archive has a header of unreasonable size")
    body = _Body(blocks, size)
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


def _skip_sparse_map(blocks: _Blocks, header: bytes) -> None:
    is_extended = header[482]
    while is_extended:
        block = blocks.read(_BLOCK)
        if len(block) < _BLOCK:
            raise _truncated()
        is_extended = block[504]


def _truncated() -> ArchiveError:
    return ArchiveError("the archive is truncated or damaged")
