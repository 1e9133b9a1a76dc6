"""Listings of files and of the directories they imply, sorted by path; and of indexed projects."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from datetime import datetime

from armarium.capabilities.store.database.pool import Connection, Row
from armarium.capabilities.store.database.transactions import StoreDatabase
from armarium.capabilities.store.errors import NotDirectory, NotFound
from armarium.capabilities.store.files.reads import MAX_FILES_READ, directory_entry, entry_at, file_entry
from armarium.capabilities.store.model import ROOT, Entries, Scope
from armarium.capabilities.store.validation import MAX_PATH_LENGTH, below, checked_number, checked_path
from armarium.foundation.sql import queries
from armarium.foundation.telemetry import timestamp
from armarium.retrieval.sources import Collection

_SQL = queries("armarium.capabilities.store.database.sql", "files.sql")
_SEARCH_SQL = queries("armarium.capabilities.store.database.sql", "search.sql")
WAITS_FOR_INDEX = "files that changed are not indexed yet"
_MAX_PROJECTS = 1_000
# Only these two characters of a path sort before the slash.
_NAME_END = re.compile(r"(?<!/)[/.-]")
_MIN_FILES_READ = 100
_MAX_DEPTH = MAX_PATH_LENGTH // 2


async def list_entries(
    database: StoreDatabase, scope: Scope, path: str, depth: int, limit: int, *, limit_max: int, behind: str = ""
) -> Entries:
    """Entries up to `depth` levels below a path, or the path itself with 0; those after the path `behind`. The cost
    depends on the size of the listing, not on the number of files."""
    checked_path(path)
    checked_number("depth", depth, 0)
    limit = min(checked_number("limit", limit, 1), limit_max)
    async with database.write_transaction(scope.apikey_hash) as connection:
        # One snapshot for all statements, so that a directory that is being moved appears once.
        await connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
        if depth:
            return await _entries_below(connection, scope, path, min(depth, _MAX_DEPTH), limit, behind)
        entry = await entry_at(connection, scope, path)
    if entry is None and path != ROOT:
        raise _not_found(path)
    return {"entries": [entry] if entry else [], "has_more": False}


async def indexed_projects(database: StoreDatabase, tenant: str, hidden: Sequence[str] = ()) -> list[Collection]:
    """The tenant's projects that have chunks, by name, as collections to search; at most 1,000. Those that match a
    regular expression in `hidden` are left out."""
    async with database.read_transaction(tenant) as connection:
        rows = await connection.fetch(_SEARCH_SQL["indexed_projects"], tenant, _MAX_PROJECTS, hidden)
    return [
        Collection(
            f"store:{row['project']}",
            row["project"],
            row["files"],
            row["chunks"],
            timestamp(row["indexed_at"]),
            WAITS_FOR_INDEX if row["waits"] else None,
        )
        for row in rows
    ]


async def modification_times(
    database: StoreDatabase, scope: Scope, paths: Iterable[str]
) -> tuple[dict[str, datetime], bool]:
    """When some files of a project were modified, and whether changes of the project wait for their index."""
    async with database.read_transaction(scope.apikey_hash) as connection:
        rows = await connection.fetch(_SEARCH_SQL["modification_times"], *scope, sorted(paths))
        waiting = await connection.fetch(_SEARCH_SQL["waits_for_index"], *scope)
    return {row["path"]: row["updated_at"] for row in rows}, waiting[0]["waits"]


async def _entries_below(
    connection: Connection, scope: Scope, path: str, depth: int, limit: int, behind: str
) -> Entries:
    first, end = below(path)
    # Files after `behind` may be in directories before it, which are listed already: at most one for each '-' or '.'.
    listed_already = len(_NAME_END.findall(behind)) + 1 if behind else 0
    wanted = limit + 1 + listed_already
    files = await connection.fetch(_SQL["first_files"], *scope, path, depth, wanted, max(first, behind + "\x01"), end)
    if not files and path != ROOT and not behind:
        if await entry_at(connection, scope, path):
            raise NotDirectory("the path is a file", hint="list it with depth 0, or read it", path=path)
        raise _not_found(path)
    directories = {name: exists for name, exists in _directories(files, path, depth).items() if name > behind}
    listed = {str(file["path"]): file for file in files if _depth_below(path, file["path"]) <= depth}
    certain = sorted([*listed, *(directory for directory, exists in directories.items() if exists)])[: limit + 1]
    asked = [directory for directory in directories if directory <= certain[-1]] if certain else []
    newest = await _newest_below(connection, scope, asked)
    entries = [file_entry(path, listed[path]) for path in certain if path in listed]
    entries += [directory_entry(directory, moment) for directory, moment in newest.items() if moment]
    entries.sort(key=lambda entry: entry["path"])
    return {"entries": entries[:limit], "has_more": len(entries) > limit}


async def _newest_below(connection: Connection, scope: Scope, directories: list[str]) -> dict[str, datetime | None]:
    if not directories:
        return {}
    # The total number of files read stays about the same for any number of directories.
    files_each = max(_MIN_FILES_READ, MAX_FILES_READ // len(directories))
    first, end = zip(*map(below, directories), strict=True)
    rows = await connection.fetch(_SQL["newest_below"], *scope, directories, first, end, files_each)
    return {row["path"]: row["updated_at"] for row in rows}


def _directories(files: Iterable[Row], base: str, depth: int) -> dict[str, bool]:
    """Directories that may sort among these files, and whether they are known to exist.

    A file proves that its parent directories exist. A directory can also sort before a file that is not in it while its
    own files sort after: `/a` before `/a-b` before `/a/c`. Its path is that of the file up to a '-' or a '.'.
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


def _not_found(path: str) -> NotFound:
    return NotFound("nothing has this path", hint="list the parent directory", path=path)
