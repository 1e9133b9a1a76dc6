"""Wake-ups reach the workers of this process directly, and those of other processes by one NOTIFY for many."""

from __future__ import annotations

from collections.abc import AsyncGenerator

import anyio
import asyncpg
import pytest

from armarium.capabilities.store.database.pool import connect
from armarium.capabilities.store.database.transactions import ALL_TENANTS, StoreDatabase
from armarium.capabilities.store.index.wake_up import CHANNEL, LISTENER, SharedWakeUp
from support.waiting import DEADLINE_S, eventually


@pytest.fixture
async def elsewhere(store_dsn: str) -> AsyncGenerator[StoreDatabase]:
    """The same database, opened by what plays another process."""
    opened = StoreDatabase(await connect(store_dsn, size=2), lock_timeout_ms=500, on_lock_wait=lambda seconds: None)
    yield opened
    await opened.pool.aclose()


async def listeners(database: StoreDatabase) -> set[int]:
    async with database.read_transaction(ALL_TENANTS) as connection:
        rows = await connection.fetch(
            "SELECT pid FROM pg_stat_activity WHERE application_name = $1 AND query LIKE 'LISTEN%' AND state = 'idle'",
            LISTENER,
        )
    return {row["pid"] for row in rows}


async def heard(event: anyio.Event) -> None:
    with anyio.fail_after(DEADLINE_S):
        await event.wait()


async def test_a_wake_up_reaches_every_waiting_task_of_the_process(database: StoreDatabase, store_dsn: str) -> None:
    wake_up = SharedWakeUp(database, store_dsn)
    before = wake_up.next_wake_up()
    assert not before.is_set()
    wake_up.wake_all()
    assert before.is_set()
    assert not wake_up.next_wake_up().is_set()


async def test_a_wake_up_reaches_another_process(
    database: StoreDatabase, elsewhere: StoreDatabase, store_dsn: str
) -> None:
    here, there = SharedWakeUp(database, store_dsn), SharedWakeUp(elsewhere, store_dsn)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(here.notify_others)
        tasks.start_soon(there.listen)
        await eventually(lambda: listeners(database))
        woken = there.next_wake_up()
        here.wake_all()
        await heard(woken)
        tasks.cancel_scope.cancel()


async def test_many_wake_ups_at_once_are_one_notification_and_a_later_one_another(
    database: StoreDatabase, store_dsn: str
) -> None:
    wake_up = SharedWakeUp(database, store_dsn)
    notices: list[str] = []
    listener = await asyncpg.connect(store_dsn)
    await listener.add_listener(CHANNEL, lambda *notice: notices.append(notice[-1]))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(wake_up.notify_others)
        for number in (1, 2):
            for _ in range(100):
                wake_up.wake_all()
            await eventually(lambda number=number: len(notices) == number)
        tasks.cancel_scope.cancel()
    async with database.pool.connection() as connection:
        await connection.execute("SELECT pg_notify($1, 'the end')", CHANNEL)
    await eventually(lambda: "the end" in notices)
    assert len(notices) == 3
    await listener.close()


async def test_a_process_ignores_its_own_notification(
    database: StoreDatabase, elsewhere: StoreDatabase, store_dsn: str
) -> None:
    wake_up, other = SharedWakeUp(database, store_dsn), SharedWakeUp(elsewhere, store_dsn)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(wake_up.notify_others)
        tasks.start_soon(wake_up.listen)
        tasks.start_soon(other.listen)
        await eventually(lambda: _both_listen(database))
        told = other.next_wake_up()
        wake_up.wake_all()
        own = wake_up.next_wake_up()
        await heard(told)
        # A notice of the other one comes after its own on the same connection: only that one wakes.
        assert not own.is_set()
        tasks.start_soon(other.notify_others)
        other.wake_all()
        await heard(own)
        tasks.cancel_scope.cancel()


async def _both_listen(database: StoreDatabase) -> bool:
    return len(await listeners(database)) == 2


async def test_a_broken_listening_connection_is_reopened_and_missed_wake_ups_are_made_up_for(
    database: StoreDatabase, elsewhere: StoreDatabase, store_dsn: str
) -> None:
    here, there = SharedWakeUp(database, store_dsn), SharedWakeUp(elsewhere, store_dsn)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(here.notify_others)
        tasks.start_soon(there.listen)
        await eventually(lambda: listeners(database))
        (broken,) = await listeners(database)
        missed = there.next_wake_up()
        async with database.read_transaction(ALL_TENANTS) as connection:
            await connection.execute("SELECT pg_terminate_backend($1)", broken)
        await heard(missed)
        (renewed,) = await listeners(database)
        assert renewed != broken
        woken = there.next_wake_up()
        here.wake_all()
        await heard(woken)
        tasks.cancel_scope.cancel()
    await eventually(lambda: _nobody_listens(database))


async def _nobody_listens(database: StoreDatabase) -> bool:
    return not await listeners(database)


async def test_an_unreachable_database_ends_neither_notifying_nor_listening(
    database: StoreDatabase, tmp_path_factory: pytest.TempPathFactory, caplog: pytest.LogCaptureFixture
) -> None:
    nowhere = f"postgresql://armarium@/armarium?host={tmp_path_factory.mktemp('none')}"
    await database.pool.aclose()
    wake_up = SharedWakeUp(database, nowhere)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(wake_up.notify_others)
        tasks.start_soon(wake_up.listen)
        wake_up.wake_all()
        await eventually(lambda: "NOTIFY for new jobs failed" in caplog.text)
        await eventually(lambda: caplog.text.count("LISTEN for new jobs failed") >= 2)
        tasks.cancel_scope.cancel()
