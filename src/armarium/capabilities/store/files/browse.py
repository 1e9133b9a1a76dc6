"""Projects, deleted files, content of earlier versions, and the state of the index."""

from __future__ import annotations

from collections.abc import Sequence

from armarium.capabilities.store.database.pool import Row
from armarium.capabilities.store.database.transactions import StoreDatabase
from armarium.capabilities.store.errors import NotFound
from armarium.capabilities.store.model import DeletedFiles, IndexState, Project, Projects, Scope
from armarium.capabilities.store.validation import below
from armarium.foundation.sql import queries
from armarium.foundation.telemetry import timestamp

_SQL = queries("armarium.capabilities.store.database.sql", "browse.sql")
_MOST_COUNTED = 10_000
_LARGEST_VERSION = 2**63 - 1


async def list_projects(
    database: StoreDatabase, tenant: str, hidden: Sequence[str], behind: str, limit: int, quota: int
) -> Projects:
    """The tenant's projects after the name `behind`, without those that match a regular expression in `hidden`."""
    async with database.read_transaction(tenant) as connection:
        rows = await connection.fetch(_SQL["projects"], tenant, behind, hidden, limit + 1, _MOST_COUNTED)
    answer: Projects = {"projects": [_project(row, quota) for row in rows[:limit]]}
    if len(rows) > limit:
        answer["next_cursor"] = rows[limit - 1]["project"]
    return answer


def _project(row: Row, quota: int) -> Project:
    project: Project = {
        "project": row["project"],
        "files": row["files"],
        "more_files": row["files"] == _MOST_COUNTED,
        "bytes": row["bytes"],
        "kept_bytes": row["kept_bytes"],
        "quota_bytes": quota,
        "pending": row["pending"],
    }
    if row["updated_at"] is not None:
        project["updated_at"] = timestamp(row["updated_at"])
    return project


async def list_deleted(database: StoreDatabase, scope: Scope, path: str, behind: str, limit: int) -> DeletedFiles:
    """The deleted files below a path that can be restored, after the path `behind`."""
    first, end = below(path)
    async with database.read_transaction(scope.apikey_hash) as connection:
        rows = await connection.fetch(_SQL["deleted"], *scope, max(first, behind + "\x01"), end, limit + 1)
    page = rows[:limit]
    # The first of several deletions of a path is the last one in time.
    last_deletions = {row["path"]: row for row in reversed(page)}
    answer: DeletedFiles = {
        "files": [
            {
                "path": path,
                "size": row["size"],
                "version": row["version"],
                "deleted_at": timestamp(row["deleted_at"]),
            }
            for path, row in sorted(last_deletions.items())
        ]
    }
    if len(rows) > limit:
        answer["next_cursor"] = page[-1]["path"]
    return answer


async def version_slice(
    database: StoreDatabase, scope: Scope, path: str, version: int, offset: int, length: int
) -> tuple[bytes, int]:
    """Bytes of one version of a file, and its size. Raises if the version is not stored."""
    where = (*scope, path, min(version, _LARGEST_VERSION), offset, length)
    async with database.read_transaction(scope.apikey_hash) as connection:
        rows = await connection.fetch(_SQL["version_slice"], *where)
    if not rows:
        raise NotFound("this version is not stored", hint="list the stored versions with file_history", path=path)
    return rows[0]["slice"], rows[0]["size"]


async def index_state(database: StoreDatabase, scope: Scope, path: str) -> IndexState:
    """Whether a file can be found by a search; empty if there is no file."""
    async with database.read_transaction(scope.apikey_hash) as connection:
        rows = await connection.fetch(_SQL["index_state"], *scope, path)
    return {"indexed": rows[0]["is_indexed"], "pending": rows[0]["is_pending"]} if rows else {}
