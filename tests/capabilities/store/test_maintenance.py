"""Maintenance: what is old enough goes, in batches, by one process at a time; nothing else goes."""

from __future__ import annotations

import secrets

import anyio
import pytest

from armarium.capabilities.store.database.transactions import ALL_TENANTS, StoreDatabase
from armarium.capabilities.store.index import maintenance as module
from armarium.capabilities.store.index.maintenance import Maintenance, Purged
from support.outbox import clear_jobs, enqueue, set_job, statuses
from support.waiting import eventually


@pytest.fixture
def maintenance(database: StoreDatabase) -> Maintenance:
    return Maintenance(database, delete_retention_days=30, history_days=7, interval_s=0.01, batch=2)


async def put_file(database: StoreDatabase, tenant: str, path: str, deleted_days_ago: int | None = None) -> int:
    async with database.write_transaction(tenant) as connection:
        return await connection.fetchval(
            "INSERT INTO mcp_files (apikey_hash, project, path, content, size, version, deleted, deleted_at) "
            "VALUES ($1, 'p', $2, 'hi', 2, 1, $3::int IS NOT NULL, now() - make_interval(days => $3)) RETURNING id",
            tenant,
            path,
            deleted_days_ago,
        )


async def put_chunk(database: StoreDatabase, tenant: str, path: str, file_id: int) -> None:
    async with database.write_transaction(tenant) as connection:
        await connection.execute(
            "INSERT INTO mcp_file_chunks (apikey_hash, project, file_path, chunk_index, start_byte, end_byte, "
            "chunk_content, content_hash, file_id) VALUES ($1, 'p', $2, 0, 0, 2, 'hi', repeat('0', 64), $3)",
            tenant,
            path,
            file_id,
        )


async def put_version(database: StoreDatabase, tenant: str, path: str, days_ago: int) -> None:
    async with database.write_transaction(tenant) as connection:
        await connection.execute(
            "INSERT INTO mcp_file_versions (apikey_hash, project, path, version, content, size, written_at, "
            "replaced_at) VALUES ($1, 'p', $2, 1, 'hi', 2, now(), now() - make_interval(days => $3))",
            tenant,
            path,
            days_ago,
        )


async def column(database: StoreDatabase, tenant: str, table: str, name: str) -> list[str]:
    async with database.read_transaction(tenant) as connection:
        return [row[name] for row in await connection.fetch(f"SELECT {name} FROM {table} ORDER BY id")]


@pytest.mark.contract("S7-3", "S16-1")
async def test_deleted_files_are_purged_after_their_retention(
    maintenance: Maintenance, database: StoreDatabase, tenant: str
) -> None:
    await put_file(database, tenant, "/active")
    await put_file(database, tenant, "/fresh", deleted_days_ago=29)
    await put_file(database, tenant, "/old", deleted_days_ago=31)
    await maintenance.run_once()
    assert await column(database, tenant, "mcp_files", "path") == ["/active", "/fresh"]


async def test_with_a_purged_file_goes_what_was_indexed_of_it_and_of_no_other(
    maintenance: Maintenance, database: StoreDatabase, tenant: str
) -> None:
    other = secrets.token_hex(32)
    await put_chunk(database, tenant, "/old", await put_file(database, tenant, "/old", deleted_days_ago=31))
    await put_file(database, tenant, "/again", deleted_days_ago=31)
    await put_chunk(database, tenant, "/again", await put_file(database, tenant, "/again"))
    await put_chunk(database, other, "/old", await put_file(database, other, "/old"))
    await maintenance.run_once()
    assert await column(database, tenant, "mcp_file_chunks", "file_path") == ["/again"]
    assert await column(database, other, "mcp_file_chunks", "file_path") == ["/old"]


async def test_with_a_purged_file_go_its_versions_and_not_those_of_a_new_file_of_its_path(
    maintenance: Maintenance, database: StoreDatabase, tenant: str
) -> None:
    await put_file(database, tenant, "/old", deleted_days_ago=31)
    await put_version(database, tenant, "/old", days_ago=1)
    async with database.write_transaction(tenant) as connection:
        await connection.execute(
            "INSERT INTO mcp_file_versions (apikey_hash, project, path, version, content, size, written_at) "
            "VALUES ($1, 'p', '/old', 9, 'new', 3, now())",
            tenant,
        )
    await maintenance.run_once()
    assert await column(database, tenant, "mcp_file_versions", "version") == [9]


async def note_indexed(database: StoreDatabase, tenant: str, file_id: int, version: int = 1) -> None:
    async with database.write_transaction(tenant) as connection:
        await connection.execute(
            "INSERT INTO mcp_file_indexed (file_id, apikey_hash, project, version, made_with, passages, words, "
            "languages) VALUES ($1, $2, 'p', $3, 'somehow', 2, 30, '{english}')",
            file_id,
            tenant,
            version,
        )


async def test_what_is_indexed_of_deleted_files_goes_at_once_and_of_no_others(
    maintenance: Maintenance, database: StoreDatabase, tenant: str
) -> None:
    there = await put_file(database, tenant, "/there")
    for file_id in (there, await put_file(database, tenant, "/deleted", deleted_days_ago=20)):
        await note_indexed(database, tenant, file_id)
        await put_chunk(database, tenant, f"/{file_id}", file_id)
    await maintenance.run_once()
    assert await summed_up(database, tenant) == [there]
    assert await column(database, tenant, "mcp_file_chunks", "file_path") == [f"/{there}"]
    await note_indexed(database, tenant, await put_file(database, tenant, "/later", deleted_days_ago=0))
    await maintenance.run_once()
    assert await summed_up(database, tenant) == [there]


async def summed_up(database: StoreDatabase, tenant: str) -> list[int]:
    async with database.read_transaction(tenant) as connection:
        return [row["file_id"] for row in await connection.fetch("SELECT file_id FROM mcp_file_indexed")]


async def test_a_worker_that_holds_what_is_summed_up_is_not_waited_for(
    maintenance: Maintenance, database: StoreDatabase, tenant: str
) -> None:
    await note_indexed(database, tenant, await put_file(database, tenant, "/held", deleted_days_ago=0))
    async with database.write_transaction(tenant) as connection:
        await connection.execute("SELECT FROM mcp_file_indexed FOR NO KEY UPDATE")
        with anyio.fail_after(10):
            await maintenance.run_once()
    assert len(await summed_up(database, tenant)) == 1
    await maintenance.run_once()
    assert await summed_up(database, tenant) == []


async def test_files_that_nobody_indexed_are_queued_once(
    maintenance: Maintenance, database: StoreDatabase, tenant: str
) -> None:
    await clear_jobs(database)
    await put_file(database, tenant, "/never")
    await put_file(database, tenant, "/gone", deleted_days_ago=1)
    await note_indexed(database, tenant, await put_file(database, tenant, "/indexed"))
    await note_indexed(database, tenant, await put_file(database, tenant, "/changed"), version=0)
    await put_file(database, tenant, "/waiting")
    await enqueue(database, tenant, "/waiting")
    await put_file(database, tenant, "/given-up")
    await set_job(database, await enqueue(database, tenant, "/given-up"), "status = 'failed'")
    for _ in range(2):
        await maintenance.queue_unindexed()
        assert sorted(await open_jobs(database, tenant)) == ["/changed", "/given-up", "/never", "/waiting"]
    await clear_jobs(database)


async def open_jobs(database: StoreDatabase, tenant: str) -> list[str]:
    async with database.read_transaction(tenant) as connection:
        rows = await connection.fetch("SELECT file_path FROM mcp_file_index_jobs WHERE status = 'pending'")
    return [row["file_path"] for row in rows]


async def test_looking_for_unindexed_files_is_tried_again_until_it_succeeds(
    database: StoreDatabase, tenant: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    kept = {"delete_retention_days": 30, "history_days": 7}
    maintenance = Maintenance(database, **kept, queues_unindexed=True, interval_s=0.01)
    monkeypatch.setitem(module._SQL, "queue_unindexed", "SELECT nothing FROM nowhere")
    await put_file(database, tenant, "/never")

    async def is_queued() -> bool:
        return await open_jobs(database, tenant) == ["/never"]

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(maintenance.run)
        await eventually(lambda: "searching for unindexed files failed" in caplog.text)
        monkeypatch.undo()
        await eventually(is_queued)
        tasks.cancel_scope.cancel()
    await clear_jobs(database)


async def test_earlier_versions_go_after_their_days(
    maintenance: Maintenance, database: StoreDatabase, tenant: str
) -> None:
    await put_version(database, tenant, "/old", 8)
    await put_version(database, tenant, "/fresh", 6)
    await maintenance.run_once()
    assert await column(database, tenant, "mcp_file_versions", "path") == ["/fresh"]


@pytest.mark.contract("S18.2-1")
async def test_done_jobs_go_after_an_hour_failed_ones_after_a_week_open_ones_never(
    maintenance: Maintenance, database: StoreDatabase, tenant: str
) -> None:
    await clear_jobs(database)
    ages = {
        "done": ("59 min", "61 min"),
        "failed": ("6 days", "8 days"),
        "pending": ("1 year",),
        "processing": ("1 year",),
    }
    for status, kept_for in ages.items():
        for age in kept_for:
            job_id = await enqueue(database, tenant, "/a")
            aged = f"available_at = now() - interval '{age}', updated_at = now() - interval '{age}'"
            await set_job(database, job_id, f"status = '{status}', {aged}")
    assert (await maintenance.run_once()).jobs == 2
    assert sorted(await statuses(database, tenant)) == ["done", "failed", "pending", "processing"]
    await clear_jobs(database)


async def test_a_job_that_waited_long_is_kept_for_an_hour_after_it_is_done(
    maintenance: Maintenance, database: StoreDatabase, tenant: str
) -> None:
    job_id = await enqueue(database, tenant, "/a")
    await set_job(database, job_id, "status = 'done', available_at = now() - interval '1 day', updated_at = now()")
    await maintenance.run_once()
    assert await statuses(database, tenant) == ["done"]


async def test_more_than_a_batch_goes_in_several(
    maintenance: Maintenance, database: StoreDatabase, tenant: str
) -> None:
    await maintenance.run_once()
    for n in range(5):
        await put_file(database, tenant, f"/{n}", deleted_days_ago=31)
    assert (await maintenance.run_once()).files == 5


async def test_while_another_process_purges_this_one_lets_it(
    maintenance: Maintenance, database: StoreDatabase, tenant: str
) -> None:
    await put_file(database, tenant, "/old", deleted_days_ago=31)
    async with database.write_transaction(ALL_TENANTS) as connection:
        await connection.execute(f"SELECT pg_advisory_xact_lock({module._LOCK})")
        assert await maintenance.run_once() == Purged()
    assert (await maintenance.run_once()).files == 1


@pytest.mark.contract("S18.2-1")
async def test_it_goes_on_by_itself_also_after_a_failure(
    maintenance: Maintenance,
    database: StoreDatabase,
    tenant: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setitem(module._SQL, "purge_jobs", "SELECT nothing FROM nowhere")
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(maintenance.run)
        await eventually(lambda: "purging failed" in caplog.text)
        monkeypatch.undo()
        await put_file(database, tenant, "/old", deleted_days_ago=31)
        await eventually(lambda: _is_empty(database, tenant))
        tasks.cancel_scope.cancel()


async def _is_empty(database: StoreDatabase, tenant: str) -> bool:
    return not await column(database, tenant, "mcp_files", "path")
