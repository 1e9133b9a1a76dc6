"""The decompressed bytes of an archive, read front to back and counted against a budget."""

from __future__ import annotations

import bz2
import gzip
import lzma
import os
import zlib
from typing import BinaryIO, Protocol, cast

from armarium.foundation.archives.entries import ArchiveError, Budget

_PIECE = 256 * 1024
_MAGIC_BYTES = 6
_MAX_XZ_MEMORY = 160 * 1024 * 1024
_DAMAGE = (EOFError, OSError, zlib.error, lzma.LZMAError)


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
            packed = b""
            if self._decompressor.eof:
                packed = self._decompressor.unused_data or self._source.read(_PIECE)
                if not packed.strip(b"\0"):
                    return b""
                self._decompressor = self._fresh()
            elif self._decompressor.needs_input:
                packed = self._source.read(_PIECE)
                if not packed:
                    raise EOFError
            if piece := self._decompressor.decompress(packed, count):
                return piece

    def _fresh(self) -> lzma.LZMADecompressor | bz2.BZ2Decompressor:
        return lzma.LZMADecompressor(memlimit=_MAX_XZ_MEMORY) if self._is_xz else bz2.BZ2Decompressor()


class ByteStream:
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
            raise truncated() from error
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
                raise truncated()
            self._seekable.seek(count, os.SEEK_CUR)
            return
        while count:
            piece = self._piece(min(count, _PIECE))
            if not piece:
                raise truncated()
            count -= len(piece)

    def _piece(self, count: int) -> bytes:
        try:
            piece = self._file.read(count)
        except _DAMAGE as error:
            raise truncated() from error
        self._budget.spend_bytes(len(piece))
        return piece


def _magic(source: BinaryIO) -> bytes:
    """The first bytes, which identify the compression. Raw pipes may return them one by one."""
    if source.seekable():
        source.seek(0)
    magic = b""
    while len(magic) < _MAGIC_BYTES and (piece := source.read(_MAGIC_BYTES - len(magic))):
        magic += piece
    return magic


def truncated() -> ArchiveError:
    """The error for an archive that ends early or cannot be decompressed."""
    return ArchiveError("the archive is truncated or damaged")
