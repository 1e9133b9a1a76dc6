"""Deletes for good what a project keeps besides its files: earlier versions, deleted files, their index and jobs."""

from __future__ import annotations

from armarium.capabilities.store.database.transactions import StoreDatabase
from armarium.capabilities.store.model import ROOT, Purged, Scope
from armarium.capabilities.store.validation import below, exactly
from armarium.foundation.sql import queries

ROWS_AT_ONCE = 500
_SQL = queries("armarium.capabilities.store.database.sql", "purge.sql")


async def purge_history(database: StoreDatabase, scope: Scope, path: str) -> Purged:
    """Purge everything at and below a path that is not a current file; with the root, also the records of a project
    without files. In batches, so that nobody waits long for the project's lock."""
    purged: Purged = {"purged_files": 0, "purged_versions": 0, "purged_bytes": 0}
    for paths in (exactly(path), below(path)):
        while await _purge_batch(database, scope, paths, purged):
            pass
    if path == ROOT:
        async with database.project_transaction(scope) as connection:
            await connection.execute(_SQL["lock_projects"], scope.apikey_hash)
            await connection.execute(_SQL["forget_project"], *scope)
    return purged


async def _purge_batch(database: StoreDatabase, scope: Scope, paths: tuple[str, str], purged: Purged) -> bool:
    """Purge some rows in a range of paths, and count them. Returns whether more may be left."""
    async with database.project_transaction(scope) as connection:
        rows = await connection.fetch(_SQL["deleted_files"], *scope, *paths, ROWS_AT_ONCE)
        files = [row["id"] for row in rows]
        await connection.execute(_SQL["lock_index_of_deleted"], scope.apikey_hash, files)
        freed = await connection.fetchrow(_SQL["purge_history"], *scope, *paths, ROWS_AT_ONCE, files)
        assert freed is not None, "the statement always gives a row"
        has_more = ROWS_AT_ONCE in (len(files), freed["purged_versions"])
        if not has_more:
            await connection.execute(_SQL["purge_open_jobs"], *scope, *paths)
    purged["purged_files"] += freed["purged_files"]
    purged["purged_versions"] += freed["purged_versions"]
    purged["purged_bytes"] += freed["purged_bytes"]
    return has_more
