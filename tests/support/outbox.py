"""Jobs for tests of the store: put into the outbox as writes do it, and looked at afterwards."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from armarium.capabilities.store.database.transactions import ALL_TENANTS, StoreDatabase
from armarium.capabilities.store.index.outbox import IndexJob, Outbox, Stage


async def claim_jobs(outbox: Outbox, stage: Stage, batch: int, *, skip: Collection[str] = ()) -> list[IndexJob]:
    """The jobs that a worker claims now."""
    jobs, _ = await outbox.claim(stage, batch, skip=skip)
    return jobs


async def clear_jobs(database: StoreDatabase) -> None:
    """Claims go over all tenants, so jobs that other tests left would be claimed as well."""
    async with database.write_transaction(ALL_TENANTS) as connection:
        await connection.execute("DELETE FROM mcp_file_index_jobs")


async def enqueue(
    database: StoreDatabase,
    tenant: str,
    path: str,
    operation: str = "UPSERT",
    *,
    project: str = "p",
    reference: str | None = None,
) -> int:
    """A job as a committed write leaves it; its id."""
    async with database.write_transaction(tenant) as connection:
        return await connection.fetchval(
            "INSERT INTO mcp_file_index_jobs (apikey_hash, project, file_path, operation, file_updated_at, "
            "credential_ref) VALUES ($1, $2, $3, $4, now(), $5) RETURNING id",
            tenant,
            project,
            path,
            operation,
            reference,
        )


async def enqueue_many(
    database: StoreDatabase, tenant: str, jobs: int, stage: str = "words", *, operation: str = "UPSERT"
) -> None:
    """So many jobs, each of a path of its own."""
    async with database.write_transaction(tenant) as connection:
        await connection.execute(
            "INSERT INTO mcp_file_index_jobs (apikey_hash, project, file_path, operation, stage) "
            "SELECT $1, 'p', '/many/' || number, $4, $3 FROM generate_series(1, $2::int) AS number",
            tenant,
            jobs,
            stage,
            operation,
        )


async def last_job(database: StoreDatabase, tenant: str) -> int:
    """The id of a tenant's newest job."""
    async with database.read_transaction(tenant) as connection:
        return await connection.fetchval("SELECT max(id) FROM mcp_file_index_jobs WHERE apikey_hash = $1", tenant)


async def job_row(database: StoreDatabase, job_id: int) -> dict[str, Any]:
    """All columns of a job."""
    async with database.read_transaction(ALL_TENANTS) as connection:
        row = await connection.fetchrow(
            "SELECT *, extract(epoch FROM available_at - now())::float8 AS due_s, "
            "extract(epoch FROM lease_until - now())::float8 AS lease_s FROM mcp_file_index_jobs WHERE id = $1",
            job_id,
        )
    assert row is not None
    return dict(row)


async def set_job(database: StoreDatabase, job_id: int, assignments: str) -> None:
    """Change columns of a job, for example to make its time come."""
    async with database.write_transaction(ALL_TENANTS) as connection:
        await connection.execute(f"UPDATE mcp_file_index_jobs SET {assignments} WHERE id = $1", job_id)


async def statuses(database: StoreDatabase, tenant: str) -> list[str]:
    """The states of a tenant's jobs, in the order they were made."""
    return [status for status, _ in await _states(database, tenant)]


async def stages(database: StoreDatabase, tenant: str) -> list[str]:
    """The stages of a tenant's jobs, in the order they were made."""
    return [stage for _, stage in await _states(database, tenant)]


async def _states(database: StoreDatabase, tenant: str) -> list[tuple[str, str]]:
    async with database.read_transaction(tenant) as connection:
        rows = await connection.fetch(
            "SELECT status, stage FROM mcp_file_index_jobs WHERE apikey_hash = $1 ORDER BY id", tenant
        )
    return [(row["status"], row["stage"]) for row in rows]
