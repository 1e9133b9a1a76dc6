"""Updates the index after a rename: queues files that are not indexed, and corrects the paths of chunks."""

from __future__ import annotations

from armarium.capabilities.store.database.transactions import StoreDatabase
from armarium.capabilities.store.model import Scope
from armarium.capabilities.store.validation import below, exactly
from armarium.foundation.sql import queries

_SQL = queries("armarium.capabilities.store.database.sql", "index.sql")
FILES_AT_ONCE = 500


async def follow_rename(
    database: StoreDatabase, scope: Scope, path: str, credential_ref: str | None, *, complete: str
) -> int:
    """Update the index after a rename of a file or a directory to a path. Returns the number of files queued.

    Files whose current version is completely indexed (`made_with` equals `complete`) stay indexed. The others are
    queued with the reference to the caller's key. Idempotent, so it can be repeated after an interruption.
    """
    queued = 0
    for first, end in (exactly(path), below(path)):
        async with database.write_transaction(scope.apikey_hash) as connection:
            queued += await connection.fetchval(_SQL["queue_moved"], *scope, first, end, credential_ref, complete)
        await _correct_paths(database, scope, first, end)
    return queued


async def _correct_paths(database: StoreDatabase, scope: Scope, first: str, end: str) -> None:
    tenant = scope.apikey_hash
    while True:
        async with database.write_transaction(tenant) as connection:
            files = await connection.fetch(_SQL["moved_files"], *scope, first, end, FILES_AT_ONCE)
            ids = [file["id"] for file in files]
            await connection.execute(_SQL["lock_moved"], tenant, ids)
            await connection.execute(_SQL["follow_moved"], tenant, ids)
        if len(files) < FILES_AT_ONCE:
            return
        _, first = exactly(files[-1]["path"])
