"""Reads of files: metadata of a path, content by byte range, and earlier versions."""

from __future__ import annotations

from datetime import datetime
from typing import cast

from armarium.capabilities.store.database.pool import Connection, Row
from armarium.capabilities.store.database.transactions import StoreDatabase
from armarium.capabilities.store.errors import IsDirectory, NotFound
from armarium.capabilities.store.model import Content, Entry, KeptVersion, Scope, Stat, Versions
from armarium.capabilities.store.validation import below, checked_inner_path, checked_number, checked_path, name_of
from armarium.foundation.sql import queries
from armarium.foundation.telemetry import timestamp

MAX_FILES_READ = 20_000
"""How many files below a directory determine its modification time; in larger ones, the first by path."""

_SQL = queries("armarium.capabilities.store.database.sql", "files.sql")
_NO_TIME = "0001-01-01T00:00:00Z"
_MAX_CHARACTER_BYTES = 4
_MOST_VERSIONS = 1000
_MOST = 2**30
"""Larger than any file: the size limit of a field in PostgreSQL."""


async def stat_path(database: StoreDatabase, scope: Scope, path: str) -> Stat:
    """The metadata of a path, or `exists` false."""
    [row] = await database.fetch_autocommit(_SQL["stat"], *scope, checked_path(path), MAX_FILES_READ)
    entry = _entry(path, row)
    if entry is None:
        return {"exists": False, "type": "", "size": 0, "created_at": _NO_TIME, "updated_at": _NO_TIME}
    metadata = {name: value for name, value in entry.items() if name not in ("name", "path")}
    return cast(Stat, {"exists": True} | metadata)


async def read_slice(database: StoreDatabase, scope: Scope, path: str, offset: int, length: int) -> Content:
    """The complete characters within the bytes [offset, offset + length), or to the end of the file with -1."""
    checked_path(path)
    checked_number("offset", offset, 0)
    checked_number("length", length, -1)
    start = min(offset, _MOST)
    wanted = _MOST if length < 0 else min(length, _MOST)
    # A few more bytes show whether the end splits a character, and contain the rest of it.
    where = (*scope, path, start, with_whole_characters(wanted))
    rows = await database.fetch_autocommit(_SQL["read"], *where)
    if not rows:
        raise NotFound("no file has this path", hint="list the parent directory with file_list", path=path)
    [row] = rows
    if row["is_directory"]:
        raise IsDirectory("the path is a directory", hint="list it with file_list", path=path)
    return content_of(row["slice"], wanted, start, row["size"], row["version"])


def with_whole_characters(wanted: int) -> int:
    """How many bytes to read for the whole characters in `wanted` bytes."""
    return min(wanted + _MAX_CHARACTER_BYTES, _MOST)


def content_of(text: bytes, wanted: int, start: int, size: int, version: int) -> Content:
    """The complete characters within the first `wanted` bytes that were read at `start`."""
    first, last = whole_characters(text, wanted)
    start = min(start, size)
    return {
        # Files written by another program, in an adopted database, may contain invalid UTF-8.
        "content": text[first:last].decode("utf-8", "replace"),
        "content_encoding": "utf-8",
        "offset": start + first,
        "end": start + last,
        "size": size,
        "version": version,
    }


async def entry_at(connection: Connection, scope: Scope, path: str) -> Entry | None:
    """The file or directory at a path, or None if the path does not exist."""
    [row] = await connection.fetch(_SQL["stat"], *scope, path, MAX_FILES_READ)
    return _entry(path, row)


def _entry(path: str, row: Row) -> Entry | None:
    if row["size"] is not None:
        return file_entry(path, row)
    return directory_entry(path, row["newest_below"]) if row["newest_below"] else None


def file_entry(path: str, row: Row) -> Entry:
    return {
        "name": name_of(path),
        "path": path,
        "type": "FILE",
        "size": row["size"],
        "created_at": timestamp(row["created_at"]),
        "updated_at": timestamp(row["updated_at"]),
        "version": row["version"],
    }


def directory_entry(path: str, updated_at: datetime) -> Entry:
    """The entry of a directory, which has no creation time and size 0."""
    return {
        "name": name_of(path),
        "path": path,
        "type": "DIRECTORY",
        "size": 0,
        "created_at": _NO_TIME,
        "updated_at": timestamp(updated_at),
    }


async def list_versions(database: StoreDatabase, scope: Scope, path: str) -> Versions:
    """The stored versions of a file, newest first, also of a deleted file."""
    checked_inner_path(path)
    async with database.read_transaction(scope.apikey_hash) as connection:
        rows = await connection.fetch(_SQL["versions"], *scope, path, _MOST_VERSIONS)
        if not rows:
            facts = await inspect_path(connection, scope, path)
            if facts["is_directory"]:
                raise IsDirectory("a directory has no versions", hint="give the path of a file in it", path=path)
            raise NotFound("no file has, or recently had, this path", hint="find it with file_list", path=path)
    return {"versions": [_kept_version(row) for row in rows]}


def _kept_version(row: Row) -> KeptVersion:
    replaced_at = row["replaced_at"]
    kept: KeptVersion = {
        "version": row["version"],
        "size": row["size"],
        "current": replaced_at is None,
        "written_at": timestamp(row["written_at"]),
    }
    if replaced_at is not None:
        kept["replaced_at"] = timestamp(replaced_at)
    return kept


async def inspect_path(connection: Connection, scope: Scope, path: str) -> Row:
    """The size and version of the file at a path, and whether the path is a directory."""
    [facts] = await connection.fetch(_SQL["inspect_path"], *scope, path, *below(path))
    return facts


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
