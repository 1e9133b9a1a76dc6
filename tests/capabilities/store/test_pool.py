"""The pool gives each connection to one caller at a time, in the order of asking, and never a broken one."""

from __future__ import annotations

from collections.abc import AsyncGenerator

import anyio
import anyio.lowlevel
import pytest

from armarium.capabilities.store.database.pool import CONNECTION_ERRORS, Connection, Pool, connect


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
        with anyio.move_on_after(0.01) as patience:
            await pool.acquire()
        assert patience.cancelled_caught
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
    with anyio.move_on_after(0.01) as patience:
        await pool.acquire()
    assert patience.cancelled_caught
