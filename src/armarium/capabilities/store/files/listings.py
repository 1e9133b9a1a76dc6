"""Lists what lies below a path: files, and the directories they imply, in the order of their paths."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from armarium.capabilities.store.database.pool import Connection, Row
from armarium.capabilities.store.database.transactions import StoreDatabase
from armarium.capabilities.store.errors import NotDirectory, NotFound
from armarium.capabilities.store.files.reads import FILES_ASKED, directory_entry, entry_at
from armarium.capabilities.store.model import ROOT, FileEntry, Scope
from armarium.capabilities.store.validation import MAX_PATH_LENGTH, below, checked_number, checked_path, name_of
from armarium.foundation.sql import queries

_SQL = queries("armarium.capabilities.store.database.sql", "files.sql")
_SEARCH_SQL = queries("armarium.capabilities.store.database.sql", "search.sql")
_MAX_PROJECTS = 1_000
# Of the characters of a path only these two sort before the slash.
_NAME_END = re.compile(r"(?<!/)[/.-]")
_LEAST_FILES_ASKED = 100
_DEEPEST = MAX_PATH_LENGTH // 2


@dataclass(frozen=True, slots=True)
class Listing:
    """The first entries, and whether there are more."""

    entries: list[FileEntry]
    has_more: bool


@dataclass(frozen=True, slots=True)
class IndexedProject:
    """A project, and how much of it is indexed."""

    name: str
    files: int
    chunks: int
    indexed_at: datetime


class FileListings:
    """Lists directories. What is read depends on how much is listed, not on how much is there."""

    def __init__(self, database: StoreDatabase, *, limit_max: int) -> None:
        self._database = database
        self._limit_max = limit_max

    async def entries(self, scope: Scope, path: str, depth: int, limit: int) -> Listing:
        """Entries down to `depth` levels below a path; with 0 the path itself. At most the operator's limit."""
        checked_path(path)
        checked_number("depth", depth, 0)
        limit = min(checked_number("limit", limit, 1), self._limit_max)
        async with self._database.write_transaction(scope.apikey_hash) as connection:
            # All statements see the same moment, so that a directory on its way elsewhere is in one place.
            await connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
            if depth:
                return await _entries_below(connection, scope, path, min(depth, _DEEPEST), limit)
            entry = await entry_at(connection, scope, path)
        if entry is None and path != ROOT:
            raise _not_found(path)
        return Listing([entry] if entry else [], has_more=False)

    async def indexed_projects(self, tenant: str) -> list[IndexedProject]:
        """The tenant's projects that have chunks, by name; at most 1,000."""
        async with self._database.read_transaction(tenant) as connection:
            rows = await connection.fetch(_SEARCH_SQL["indexed_projects"], tenant, _MAX_PROJECTS)
        return [IndexedProject(row["project"], row["files"], row["chunks"], row["indexed_at"]) for row in rows]


async def _entries_below(connection: Connection, scope: Scope, path: str, depth: int, limit: int) -> Listing:
    within = (scope.apikey_hash, scope.project)
    files = await connection.fetch(_SQL["first_files"], *within, path, depth, limit + 1, *below(path))
    if not files and path != ROOT:
        if await entry_at(connection, scope, path):
            raise NotDirectory("the path is a file", hint="list it with depth 0, or read it", path=path)
        raise _not_found(path)
    directories = _directories(files, path, depth)
    listed = {str(file["path"]): file for file in files if _depth_below(path, file["path"]) <= depth}
    certain = sorted([*listed, *(directory for directory, exists in directories.items() if exists)])[: limit + 1]
    asked = [directory for directory in directories if directory <= certain[-1]] if certain else []
    newest = await _newest_below(connection, scope, asked)
    entries = [_file_entry(listed[entry]) for entry in certain if entry in listed]
    entries += [directory_entry(directory, moment) for directory, moment in newest.items() if moment]
    entries.sort(key=lambda entry: entry.path)
    return Listing(entries[:limit], has_more=len(entries) > limit)


async def _newest_below(connection: Connection, scope: Scope, directories: list[str]) -> dict[str, datetime | None]:
    if not directories:
        return {}
    # However many directories there are, the files that are read for their times stay about the same.
    files_each = max(_LEAST_FILES_ASKED, FILES_ASKED // len(directories))
    first, end = zip(*map(below, directories), strict=True)
    where = (scope.apikey_hash, scope.project, directories, first, end)
    return {row["path"]: row["updated_at"] for row in await connection.fetch(_SQL["newest_below"], *where, files_each)}


def _directories(files: Iterable[Row], base: str, depth: int) -> dict[str, bool]:
    """Directories that may stand among these files, and whether they are certain to exist.

    A file proves the directories it lies in. One it does not lie in can still sort before it while its own files sort
    behind: `/a` before `/a-b` before `/a/c`. Such a directory is the file's path up to a '-' or a '.'.
    """
    found: dict[str, bool] = {}
    for file in files:
        path: str = file["path"]
        for end in _NAME_END.finditer(path, len(base) + 1):
            directory = path[: end.start()]
            if _depth_below(base, directory) > depth:
                break
            found[directory] = end[0] == "/" or found.get(directory, False)
    return found


def _depth_below(base: str, path: str) -> int:
    return path.count("/", len(base))


def _file_entry(row: Row) -> FileEntry:
    times = (row["created_at"], row["updated_at"])
    return FileEntry(name_of(row["path"]), row["path"], "FILE", row["size"], *times, row["version"])


def _not_found(path: str) -> NotFound:
    return NotFound("nothing has this path", hint="list the directory above it", path=path)
