"""Rebuilds the vectors of all files after a change of the embedding model."""

from __future__ import annotations

from dataclasses import dataclass

from armarium.capabilities.store.database.pool import Connection, Pool, operator_transaction
from armarium.capabilities.store.database.schema import LONGEST_S, index_dimensions, schema_transaction
from armarium.capabilities.store.database.transactions import ALL_TENANTS, StoreDatabase
from armarium.capabilities.store.errors import DatabaseUnavailable
from armarium.capabilities.store.index.wake_up import LISTENER
from armarium.foundation.sql import queries

_SQL = queries("armarium.capabilities.store.database.sql", "reindex.sql")
_FOR_ALL_TENANTS = f"SET LOCAL armarium.tenant = '{ALL_TENANTS}'"
_HAS_STORE = "SELECT to_regclass('armarium_store_facts') IS NOT NULL"
_RUNNING = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND application_name = $1"
# In the lock order of the workers, to avoid deadlocks.
_HOLD_INDEX = "LOCK TABLE mcp_file_indexed, mcp_file_chunk_embeddings IN ACCESS EXCLUSIVE MODE"
_FORGET_VECTORS = "TRUNCATE mcp_file_chunk_embeddings"
_MODEL = "SELECT value FROM armarium_store_facts WHERE name = 'model'"
_NOTE_MODEL = "INSERT INTO armarium_store_facts VALUES ('model', $1) ON CONFLICT (name) "
_FORGET_MODEL = "DELETE FROM armarium_store_facts WHERE name = 'model'"
_NOTE_DIMENSIONS = "UPDATE armarium_store_facts SET value = $1 WHERE name = 'dimensions'"


@dataclass(frozen=True, slots=True)
class ReindexPlan:
    files: int
    callers: int
    dimensions: int
    """Dimensions of the current index."""
    wanted_dimensions: int
    running: int
    """Servers and workers that are connected to the database."""


@dataclass(frozen=True, slots=True)
class QueuedJobs:
    """The queued jobs, identified by the range of their ids."""

    jobs: int = 0
    first: int = 0
    last: int = 0


async def stale_embedding_model(pool: Pool, model: str) -> str | None:
    """The model of the vectors in the index, if it differs from `model`, which is used for new vectors.

    The model is recorded when the store is first opened, and removed with the vectors. Reading it from all vectors
    would take too long.
    """
    async with operator_transaction(pool) as connection:
        await connection.execute(_FOR_ALL_TENANTS)
        made_with: str | None = await connection.fetchval(_SQL["model_of_a_vector"], ALL_TENANTS)
        if made_with is None:
            await connection.execute(_NOTE_MODEL + "DO UPDATE SET value = excluded.value", model)
            return None
        await connection.execute(_NOTE_MODEL + "DO NOTHING", made_with)
        noted: str = await connection.fetchval(_MODEL)
    return None if noted == model else noted


async def plan_reindex(pool: Pool, *, dimensions: int) -> ReindexPlan:
    """Count the files and describe the current index, without changes."""
    async with operator_transaction(pool) as connection:
        await connection.execute(f"{_FOR_ALL_TENANTS}; SET LOCAL statement_timeout = 0")
        if not await connection.fetchval(_HAS_STORE):
            raise DatabaseUnavailable(
                "the database contains no store, so there is nothing to index", hint="start a server first"
            )
        [there] = await connection.fetch(_SQL["count_files"], ALL_TENANTS, timeout=LONGEST_S)
        made_for = await index_dimensions(connection)
        return ReindexPlan(there["files"], there["callers"], made_for, dimensions, await _running(connection))


async def begin_reindex(pool: Pool, *, dimensions: int, queue: bool) -> QueuedJobs:
    """Atomically delete all vectors, change their dimensions if needed, and `queue` every file. Without `queue`, each
    file gets its vectors with its next write."""
    async with schema_transaction(pool, dimensions=dimensions) as connection:
        await connection.execute(_FOR_ALL_TENANTS)
        made_for = await index_dimensions(connection)
        # They create vectors of the old dimensions, and every job would fail.
        if made_for != dimensions and (running := await _running(connection)):
            raise DatabaseUnavailable(
                f"{running} servers or workers use the database, with vectors of {made_for} numbers",
                hint="stop them, run this again, and start them with the new settings",
            )
        await connection.execute(_HOLD_INDEX, timeout=LONGEST_S)
        await connection.execute(_FORGET_VECTORS, timeout=LONGEST_S)
        await connection.execute(_FORGET_MODEL)
        if made_for != dimensions:
            await connection.execute(
                f"ALTER TABLE mcp_file_chunk_embeddings ALTER COLUMN embedding TYPE vector({int(dimensions)})",
                timeout=LONGEST_S,
            )
            await connection.execute(_NOTE_DIMENSIONS, str(dimensions))
        await connection.execute(_SQL["reset_made_with"], ALL_TENANTS, timeout=LONGEST_S)
        if not queue:
            return QueuedJobs()
        [queued] = await connection.fetch(_SQL["queue_all_files"], ALL_TENANTS, timeout=LONGEST_S)
        return QueuedJobs(queued["jobs"], queued["first"], queued["last"])


async def reindex_progress(database: StoreDatabase, queued: QueuedJobs) -> tuple[int, int]:
    """The numbers of open and of failed jobs."""
    async with database.read_transaction(ALL_TENANTS) as connection:
        [row] = await connection.fetch(_SQL["reindex_progress"], ALL_TENANTS, queued.first, queued.last)
    return row["open"], row["failed"]


async def _running(connection: Connection) -> int:
    """The number of servers and workers: each has one listening connection."""
    return await connection.fetchval(_RUNNING, LISTENER)
