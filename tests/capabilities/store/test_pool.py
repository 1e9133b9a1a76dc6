"""The pool gives each connection to one caller at a time, in the order of asking, and never a broken one."""

from __future__ import annotations

import traceback
from collections.abc import AsyncGenerator
from pathlib import Path

import anyio
import anyio.lowlevel
import pytest

from armarium.capabilities.store.database.pool import CONNECTION_ERRORS, Connection, Pool, connect
from armarium.capabilities.store.errors import DatabaseUnavailable
from armarium.foundation.settings.file_secrets import FileSecret


@pytest.fixture
async def pool(store_dsn: str) -> AsyncGenerator[Pool]:
    opened = await connect(store_dsn, size=2)
    yield opened
    await opened.aclose()


async def backend(connection: Connection) -> int:
    return await connection.fetchval("SELECT pg_backend_pid()")


async def test_a_connection_is_given_out_again_and_never_to_two(pool: Pool) -> None:
    async with pool.connection() as first, pool.connection() as second:
        pids = {await backend(first), await backend(second)}
        assert len(pids) == 2
    async with pool.connection() as again:
        assert await backend(again) in pids


async def test_a_changed_dsn_applies_to_the_next_connection_and_an_open_one_stays(
    store_dsn: str, tmp_path: Path
) -> None:
    file = tmp_path / "dsn"
    file.write_text(f"{store_dsn}\n")
    pool = await connect(FileSecret("store.dsn", file), size=2)
    try:
        async with pool.connection() as first:
            assert await first.fetchval("SELECT current_user") == "armarium"
            file.write_text(store_dsn.replace("//armarium@", "//postgres@"))
            async with pool.connection() as second:
                assert await second.fetchval("SELECT current_user") == "postgres"
            assert await first.fetchval("SELECT current_user") == "armarium"
    finally:
        await pool.aclose()


@pytest.mark.parametrize("address", ["postgresql://me:canary@here@host/x", "postgresql://me:x@host:canary/x", "canary"])
async def test_a_dsn_that_becomes_no_address_is_an_error_of_the_connection_and_is_not_repeated(
    store_dsn: str, tmp_path: Path, address: str
) -> None:
    file = tmp_path / "dsn"
    file.write_text(store_dsn)
    pool = await connect(FileSecret("store.dsn", file), size=2)
    try:
        async with pool.connection():
            file.write_text(address)
            with pytest.raises(CONNECTION_ERRORS) as failed:
                await pool.acquire()
            with pytest.raises(DatabaseUnavailable) as refused:
                await connect(FileSecret("store.dsn", file), size=2)
            shown = "".join(traceback.format_exception(failed.value) + traceback.format_exception(refused.value))
            assert "canary" not in f"{shown} {refused.value.private}"
            file.write_text(store_dsn)
            async with pool.connection() as second:
                assert await backend(second)
    finally:
        await pool.aclose()


async def test_those_who_wait_come_in_the_order_of_asking(pool: Pool) -> None:
    served: list[int] = []

    async def wait(number: int) -> None:
        async with pool.connection():
            served.append(number)

    async with anyio.create_task_group() as tasks, pool.connection(), pool.connection():
        for number in range(5):
            tasks.start_soon(wait, number)
            await anyio.lowlevel.checkpoint()
        await anyio.wait_all_tasks_blocked()
        assert served == []
    assert served == list(range(5))


async def test_whoever_gives_up_waiting_takes_nothing_along(pool: Pool) -> None:
    async with pool.connection(), pool.connection():
        with anyio.move_on_after(0.01) as scope:
            await pool.acquire()
        assert scope.cancelled_caught
    async with pool.connection(), pool.connection():
        pass


async def test_a_connection_with_a_transaction_left_open_is_not_used_again(pool: Pool) -> None:
    async with pool.connection() as connection:
        abandoned = await backend(connection)
        await connection.execute("BEGIN")
    async with pool.connection() as first, pool.connection() as second:
        assert abandoned not in {await backend(first), await backend(second)}
        assert not first.is_in_transaction()


async def test_a_connection_that_the_database_ended_is_replaced(pool: Pool) -> None:
    async with pool.connection() as watcher:
        async with pool.connection() as connection:
            ended = await backend(connection)
        await watcher.execute("SELECT pg_terminate_backend($1)", ended)
        with anyio.fail_after(10):
            while not connection.is_closed():
                await anyio.sleep(0.01)
        async with pool.connection() as another:
            assert await backend(another) != ended


async def test_a_place_is_kept_when_no_connection_can_be_made() -> None:
    async def refused() -> Connection:
        raise ConnectionRefusedError

    pool = Pool(refused, 1, timeout_s=5.0)
    for _ in range(3):
        with pytest.raises(CONNECTION_ERRORS):
            await pool.acquire()


async def test_closing_waits_for_those_at_work_and_lets_nobody_in(store_dsn: str) -> None:
    pool = await connect(store_dsn, size=2)
    ended: list[str] = []

    async def work() -> None:
        async with pool.connection() as connection:
            await connection.execute("SELECT pg_sleep(0.2)")
            ended.append("work")

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(work)
        await anyio.wait_all_tasks_blocked()
        await pool.aclose()
        ended.append("pool")
    assert ended == ["work", "pool"]
    with anyio.move_on_after(0.01) as scope:
        await pool.acquire()
    assert scope.cancelled_caught
