"""A bounded reader for zip archives that trusts no header."""

from __future__ import annotations

import calendar
import os
import stat
import struct
import zipfile
import zlib
from collections.abc import Iterator
from functools import partial
from typing import BinaryIO

from armarium.foundation.archives.entries import ENCRYPTED, ArchiveError, Budget, RawEntry

_ENCRYPTED_FLAG = 0x1
_NAME_IS_UTF8 = 0x800
_END_RECORD = struct.Struct("<4s4H2LH")
_END_SIGNATURE = b"PK\x05\x06"
_LONGEST_COMMENT = 0xFFFF
_DIRECTORY_SIZE = 5
_ZIP64 = 0xFFFFFFFF
_DIRECTORY_BYTES_PER_MEMBER = 512
# Other methods decompress without a bound on the output of one step, and are rare.
_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
_DAMAGE = (zipfile.BadZipFile, zlib.error, struct.error, EOFError, OSError, OverflowError, RuntimeError, ValueError)


def zip_entries(source: BinaryIO, budget: Budget, max_members: int) -> Iterator[RawEntry]:
    """The entries in the order of the archive's directory. Raises `ArchiveError` if there is no readable directory.
    Each entry can be read as long as `source` is open."""
    _check_directory_size(source, max_members)
    try:
        archive = zipfile.ZipFile(source)
    except _DAMAGE as error:
        raise ArchiveError("the zip archive is truncated or damaged") from error
    for info in archive.infolist():
        name, read = _name(info), partial(_content, archive, info, budget)
        yield RawEntry(name, info.file_size, _mtime(info), name.endswith("/"), _problem(info), read)


def _check_directory_size(source: BinaryIO, max_members: int) -> None:
    """Refuse a directory that would take much memory to list: zipfile reads as much as is declared here."""
    size = source.seek(0, os.SEEK_END)
    source.seek(max(0, size - _END_RECORD.size - _LONGEST_COMMENT))
    tail = source.read()
    at = tail.rfind(_END_SIGNATURE)
    if at < 0 or len(tail) - at < _END_RECORD.size:
        raise ArchiveError("the zip archive is truncated or damaged")
    claimed: int = _END_RECORD.unpack_from(tail, at)[_DIRECTORY_SIZE]
    # In zip64 the true size is stored elsewhere. It is at most the size of the file.
    directory_bytes = size if claimed == _ZIP64 else claimed
    if directory_bytes > max(max_members, 1) * _DIRECTORY_BYTES_PER_MEMBER:
        raise ArchiveError("the archive has too many members")


def _name(info: zipfile.ZipInfo) -> str:
    # `filename` ends at a NUL, `orig_filename` is complete. Many programs write UTF-8 without setting the flag.
    name = info.orig_filename
    if info.flag_bits & _NAME_IS_UTF8:
        return name
    try:
        return name.encode("cp437").decode("utf-8")
    except UnicodeError:
        return name


def _mtime(info: zipfile.ZipInfo) -> int:
    try:
        return max(0, calendar.timegm((*info.date_time, 0, 0, 0)))
    except (ValueError, OverflowError):
        return 0


def _problem(info: zipfile.ZipInfo) -> str | None:
    kind = stat.S_IFMT(info.external_attr >> 16)
    if kind not in (0, stat.S_IFREG, stat.S_IFDIR):
        return "not a regular file"
    if info.flag_bits & _ENCRYPTED_FLAG:
        return ENCRYPTED
    if info.compress_type not in _METHODS:
        return f"compressed by method {info.compress_type}, which is not supported"
    return None


def _content(archive: zipfile.ZipFile, info: zipfile.ZipInfo, budget: Budget) -> bytes:
    budget.spend_bytes(info.file_size)
    try:
        with archive.open(info) as file:
            # One byte more than declared: zipfile compares the checksum when it reaches the end.
            content = file.read(info.file_size + 1)
    except _DAMAGE as error:
        raise ArchiveError("the member is truncated or damaged") from error
    if len(content) != info.file_size:
        raise ArchiveError("the member is not as long as declared")
    return content
