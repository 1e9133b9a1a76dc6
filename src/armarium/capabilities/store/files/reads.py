"""Reads of files: metadata of a path, and content by byte range."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from armarium.capabilities.store.database.pool import Connection, Row
from armarium.capabilities.store.database.transactions import StoreDatabase
from armarium.capabilities.store.errors import IsDirectory, NotFound
from armarium.capabilities.store.model import FileEntry, Scope
from armarium.capabilities.store.validation import checked_number, checked_path, name_of
from armarium.foundation.sql import queries

MAX_FILES_READ = 20_000
"""How many files below a directory determine its modification time; in larger ones, the first by path."""

_SQL = queries("armarium.capabilities.store.database.sql", "files.sql")
_MAX_CHARACTER_BYTES = 4
_MOST = 2**30
"""Larger than any file: the size limit of a field in PostgreSQL."""


@dataclass(frozen=True, slots=True)
class Slice:
    """Text of a file and its byte range."""

    content: str
    offset: int
    end: int
    size: int
    version: int


class FileReader:
    """Reads files and metadata."""

    def __init__(self, database: StoreDatabase) -> None:
        self._database = database

    async def stat(self, scope: Scope, path: str) -> FileEntry | None:
        """The file or directory at a path, or None if the path does not exist."""
        where = (scope.apikey_hash, scope.project, checked_path(path), MAX_FILES_READ)
        return _entry(path, await self._database.fetchrow_autocommit(_SQL["stat"], *where))

    async def read(self, scope: Scope, path: str, offset: int, length: int) -> Slice:
        """The complete characters within the bytes [offset, offset + length), or to the end of the file with -1."""
        checked_path(path)
        checked_number("offset", offset, 0)
        checked_number("length", length, -1)
        start = min(offset, _MOST)
        wanted = _MOST if length < 0 else min(length, _MOST)
        # A few more bytes show whether the end splits a character, and contain the rest of it.
        where = (scope.apikey_hash, scope.project, path, start, min(wanted + _MAX_CHARACTER_BYTES, _MOST))
        row = await self._database.fetchrow_autocommit(_SQL["read"], *where)
        if row is None:
            raise NotFound("no file has this path", hint="list the parent directory with file_list", path=path)
        if row["is_directory"]:
            raise IsDirectory("the path is a directory", hint="list it with file_list", path=path)
        first, last = whole_characters(row["slice"], wanted)
        start = min(start, row["size"])
        # Files written by another program, in an adopted database, may contain invalid UTF-8.
        text = row["slice"][first:last].decode("utf-8", "replace")
        return Slice(text, start + first, start + last, row["size"], row["version"])


async def entry_at(connection: Connection, scope: Scope, path: str) -> FileEntry | None:
    """The file or directory at a path, or None if the path does not exist."""
    where = (scope.apikey_hash, scope.project, path, MAX_FILES_READ)
    return _entry(path, await connection.fetchrow(_SQL["stat"], *where))


def _entry(path: str, row: Row | None) -> FileEntry | None:
    assert row is not None, "the statement always gives a row"
    if row["size"] is not None:
        times: tuple[datetime, datetime] = row["created_at"], row["updated_at"]
        return FileEntry(name_of(path), path, "FILE", row["size"], *times, row["version"])
    return directory_entry(path, row["newest_below"]) if row["newest_below"] else None


def directory_entry(path: str, updated_at: datetime) -> FileEntry:
    """The entry of a directory, which has no creation time and size 0."""
    return FileEntry(name_of(path), path, "DIRECTORY", 0, None, updated_at)


def whole_characters(text: bytes, wanted: int) -> tuple[int, int]:
    """The range of complete characters within the first `wanted` bytes.

    `text` is UTF-8 and may be longer than `wanted`. Partial characters at both ends are left out; if nothing else
    remains, the range covers the complete first character.
    """
    if not wanted:
        return 0, 0
    first = _next_character(text, 0)
    last = wanted
    while first < last < len(text) and _continues(text[last]):
        last -= 1
    last = max(first, min(last, len(text)))
    if first == last == 0:
        last = _next_character(text, 1)
    return first, last


def _next_character(text: bytes, position: int) -> int:
    while position < len(text) and _continues(text[position]):
        position += 1
    return min(position, len(text))


def _continues(byte: int) -> bool:
    return byte & 0xC0 == 0x80
