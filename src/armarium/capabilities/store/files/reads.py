"""Looks at files without changing them: what is there, and what is in it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from armarium.capabilities.store.database.pool import Connection, Row
from armarium.capabilities.store.database.transactions import StoreDatabase
from armarium.capabilities.store.errors import IsDirectory, NotFound
from armarium.capabilities.store.model import FileEntry, Scope
from armarium.capabilities.store.validation import checked_number, checked_path, name_of
from armarium.foundation.sql import queries

FILES_ASKED = 20_000
"""A directory is as new as the newest file below it; of more than this many, the first ones by path are asked."""

_SQL = queries("armarium.capabilities.store.database.sql", "files.sql")
_LONGEST_CHARACTER = 4
_MOST = 2**30
"""No file has this many bytes: PostgreSQL has no room for them in one field."""


@dataclass(frozen=True, slots=True)
class Slice:
    """Text of a file, and which of its bytes that is."""

    content: str
    offset: int
    end: int
    size: int
    version: int


class FileReader:
    """What is at a path."""

    def __init__(self, database: StoreDatabase) -> None:
        self._database = database

    async def stat(self, scope: Scope, path: str) -> FileEntry | None:
        """The file or directory, or None when there is neither."""
        where = (scope.apikey_hash, scope.project, checked_path(path), FILES_ASKED)
        return _entry(path, await self._database.fetchrow_autocommit(_SQL["stat"], *where))

    async def read(self, scope: Scope, path: str, offset: int, length: int) -> Slice:
        """The whole characters of a file among the bytes [offset, offset + length), or to its end with -1."""
        checked_path(path)
        checked_number("offset", offset, 0)
        checked_number("length", length, -1)
        start = min(offset, _MOST)
        wanted = _MOST if length < 0 else min(length, _MOST)
        # A few bytes more tell whether the end cuts a character, and hold the rest of it.
        where = (scope.apikey_hash, scope.project, path, start, min(wanted + _LONGEST_CHARACTER, _MOST))
        row = await self._database.fetchrow_autocommit(_SQL["read"], *where)
        if row is None:
            raise NotFound("no file has this path", hint="list the directory above it with file_list", path=path)
        if row["is_directory"]:
            raise IsDirectory("the path is a directory", hint="list it with file_list", path=path)
        first, last = whole_characters(row["slice"], wanted)
        start = min(start, row["size"])
        # Another program may have cut a character in two before its files were taken over.
        text = row["slice"][first:last].decode("utf-8", "replace")
        return Slice(text, start + first, start + last, row["size"], row["version"])


async def entry_at(connection: Connection, scope: Scope, path: str) -> FileEntry | None:
    """What is at a path."""
    where = (scope.apikey_hash, scope.project, path, FILES_ASKED)
    return _entry(path, await connection.fetchrow(_SQL["stat"], *where))


def _entry(path: str, row: Row | None) -> FileEntry | None:
    assert row is not None, "the statement always gives a row"
    if row["size"] is not None:
        times: tuple[datetime, datetime] = row["created_at"], row["updated_at"]
        return FileEntry(name_of(path), path, "FILE", row["size"], *times, row["version"])
    return directory_entry(path, row["newest_below"]) if row["newest_below"] else None


def directory_entry(path: str, updated_at: datetime) -> FileEntry:
    """A directory: nobody made it, and it takes no room."""
    return FileEntry(name_of(path), path, "DIRECTORY", 0, None, updated_at)


def whole_characters(text: bytes, wanted: int) -> tuple[int, int]:
    """Where the whole characters among the first `wanted` bytes begin and end.

    `text` is UTF-8 that goes on behind them. The rest of a character that began earlier, and the beginning of one that
    goes on behind, are left out; when nothing else is left, the character that begins there comes whole.
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
