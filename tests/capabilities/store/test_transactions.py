"""Connections for tenants: isolation by row security, locks by project, clear errors."""

from __future__ import annotations

import asyncio
import secrets

import pytest

from armarium.capabilities.store.database.pool import Connection, connect
from armarium.capabilities.store.database.schema import migrate
from armarium.capabilities.store.database.transactions import ALL_TENANTS, StoreDatabase, lock_key
from armarium.capabilities.store.errors import DatabaseUnavailable, ResourceBusy
from armarium.capabilities.store.model import Scope
from armarium.capabilities.store.settings import LOCAL_DIMENSIONS


async def put(connection: Connection, tenant: str, path: str) -> None:
    await connection.execute(
        "INSERT INTO mcp_files (apikey_hash, project, path, content, size, version) VALUES ($1, 'p', $2, 'hi', 2, 1)",
        tenant,
        path,
    )


async def paths(connection: Connection) -> list[str]:
    return [row["path"] for row in await connection.fetch("SELECT path FROM mcp_files ORDER BY path")]


async def test_a_statement_without_a_tenant_still_sees_only_its_own_rows(database: StoreDatabase, tenant: str) -> None:
    other = secrets.token_hex(32)
    async with database.project_transaction(Scope(tenant, "p")) as connection:
        await put(connection, tenant, "/mine")
    async with database.project_transaction(Scope(other, "p")) as connection:
        await put(connection, other, "/theirs")
    async with database.read_transaction(tenant) as connection:
        assert await paths(connection) == ["/mine"]
    async with database.read_transaction(other) as connection:
        assert await paths(connection) == ["/theirs"]
    async with database.read_transaction(ALL_TENANTS) as connection:
        assert {"/mine", "/theirs"} <= set(await paths(connection))


async def test_a_row_cannot_be_written_for_another_tenant(database: StoreDatabase, tenant: str) -> None:
    with pytest.raises(Exception, match="row-level security"):
        async with database.write_transaction(tenant) as connection:
            await put(connection, secrets.token_hex(32), "/x")


@pytest.mark.contract("S10-2")
async def test_a_project_is_changed_by_one_at_a_time(database: StoreDatabase, tenant: str) -> None:
    async with database.project_transaction(Scope(tenant, "p")):
        with pytest.raises(ResourceBusy, match="others are changing"):
            async with database.project_transaction(Scope(tenant, "p")):
                pass
        async with database.project_transaction(Scope(tenant, "other")):
            pass
    async with database.project_transaction(Scope(tenant, "p")):
        pass


async def test_what_fails_leaves_nothing_behind(database: StoreDatabase, tenant: str) -> None:
    async def half_done() -> None:
        async with database.project_transaction(Scope(tenant, "p")) as connection:
            await put(connection, tenant, "/x")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        await half_done()
    async with database.read_transaction(tenant) as connection:
        assert await paths(connection) == []


@pytest.mark.contract("S6.2-4")
async def test_nobody_waits_for_the_busy_projects_of_others(
    store_dsn: str, database: StoreDatabase, tenant: str
) -> None:
    crowded = StoreDatabase(await connect(store_dsn, size=3), lock_timeout_ms=20_000, on_lock_wait=lambda seconds: None)

    async def change(project: str) -> None:
        async with crowded.project_transaction(Scope(tenant, project)):
            pass

    async with database.project_transaction(Scope(tenant, "a")), database.project_transaction(Scope(tenant, "b")):
        waiting = [asyncio.create_task(change(project)) for project in "aaabbb"]
        await asyncio.sleep(0)
        async with crowded.read_transaction(secrets.token_hex(32)) as connection:
            assert await paths(connection) == []
        assert not any(task.done() for task in waiting)
    await asyncio.gather(*waiting)
    await crowded.pool.aclose()


async def test_a_database_that_may_only_be_read_just_now_is_busy(database: StoreDatabase, tenant: str) -> None:
    async def write() -> None:
        async with database.project_transaction(Scope(tenant, "p")) as connection:
            await connection.execute("SET TRANSACTION READ ONLY")
            await put(connection, tenant, "/x")

    with pytest.raises(ResourceBusy, match="does not answer"):
        await write()


async def test_what_is_no_address_is_called_so() -> None:
    with pytest.raises(DatabaseUnavailable, match="not the address") as refused:
        await connect("nonsense:geheim", size=2)
    assert "geheim" not in f"{refused.value.message}{refused.value.hint}"


@pytest.mark.contract("S10-2")
def test_a_lock_is_a_number_that_every_process_finds() -> None:
    scope = Scope("a" * 64, "p")
    assert lock_key(scope) == lock_key(Scope("a" * 64, "p"))
    assert lock_key(scope) != lock_key(Scope("a" * 64, "q"))
    assert -(2**63) <= lock_key(scope) < 2**63


async def test_several_servers_may_migrate_at_once_and_again(store_dsn: str) -> None:
    pool = await connect(store_dsn, size=4)
    await asyncio.gather(*(migrate(pool, dimensions=LOCAL_DIMENSIONS) for _ in range(4)))
    await pool.aclose()


async def test_other_dimensions_than_the_index_has_are_refused_with_what_to_do(store_dsn: str) -> None:
    pool = await connect(store_dsn, size=2)
    with pytest.raises(DatabaseUnavailable, match="384") as refused:
        await migrate(pool, dimensions=1536)
    assert "armarium store reindex" in str(refused.value.hint)
    await pool.aclose()


async def test_a_database_that_is_not_there_is_said_clearly() -> None:
    with pytest.raises(DatabaseUnavailable, match="does not answer"):
        await connect("postgresql://nobody@127.0.0.1:1/nothing", size=2)
