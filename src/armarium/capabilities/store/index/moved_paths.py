"""Makes the index follow a rename: what was not indexed yet is queued, and chunks get the paths of their files."""

from __future__ import annotations

from armarium.capabilities.store.database.transactions import StoreDatabase
from armarium.capabilities.store.model import Scope
from armarium.foundation.sql import queries

_SQL = queries("armarium.capabilities.store.database.sql", "index.sql")
FILES_AT_ONCE = 500


async def follow_rename(
    database: StoreDatabase, scope: Scope, path: str, credential_ref: str | None, *, complete: str
) -> int:
    """Follow the rename of a file or a directory to a path; how many of its files are queued to be indexed.

    Files that are indexed as they are, in the way that is named `complete`, stay so. The others are queued with the
    reference to the caller's key. All of it can be done again when it broke off.
    """
    tenant, project = scope.apikey_hash, scope.project
    queued = 0
    for first, end in ((path, path + "\x01"), (path + "/", path + "0")):
        async with database.write_transaction(tenant) as connection:
            queued += await connection.fetchval(
                _SQL["queue_moved"], tenant, project, first, end, credential_ref, complete
            )
        await _correct_paths(database, scope, first, end)
    return queued


async def _correct_paths(database: StoreDatabase, scope: Scope, first: str, end: str) -> None:
    tenant = scope.apikey_hash
    while True:
        async with database.write_transaction(tenant) as connection:
            files = await connection.fetch(_SQL["moved_files"], tenant, scope.project, first, end, FILES_AT_ONCE)
            ids = [file["id"] for file in files]
            await connection.execute(_SQL["lock_moved"], tenant, ids)
            await connection.execute(_SQL["follow_moved"], tenant, ids)
        if len(files) < FILES_AT_ONCE:
            return
        first = files[-1]["path"] + "\x01"
