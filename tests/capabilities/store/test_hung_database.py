"""A database that stops answering costs a call no more than the configured time, whenever it stops."""

from __future__ import annotations

import asyncio
import os
import secrets
import signal
import socket
from collections.abc import AsyncGenerator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
import asyncpg
import httpx
import pytest
from anyio import to_thread

from armarium.capabilities.store.database.pool import connect
from armarium.capabilities.store.database.schema import migrate, schema_transaction
from armarium.capabilities.store.database.transactions import ALL_TENANTS, StoreDatabase
from armarium.capabilities.store.errors import DatabaseUnavailable, ResourceBusy
from armarium.capabilities.store.index.reindex import plan_reindex
from armarium.capabilities.store.settings import LOCAL_DIMENSIONS
from support.postgres import running_postgres
from support.server import ServerProcess
from support.stalling_proxy import StallingProxy, stalling_proxy
from support.store_calls import Files
from support.store_server import StoreUser, start_store

TIMEOUT_S = 0.7
START_TIMEOUT_S = 3.0
DEADLINE_S = 60.0
"""Far more than the timeout, and far less than for ever: the machine may be busy."""

CALLS: dict[str, dict[str, Any]] = {
    "stat": {"path": "/a"},
    "read": {"path": "/a"},
    "write": {"path": "/a", "content": "MORE"},
    "list": {"path": ""},
    "history": {"path": "/a"},
    "restore": {"path": "/a", "version": 1},
    "rename": {"from_path": "/d", "to_path": "/e"},
    "delete": {"path": "/d", "recursive": True},
}


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    """The port of a PostgreSQL of these tests alone."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        free = probe.getsockname()[1]
    with running_postgres(port=free):
        yield free


@dataclass(frozen=True, slots=True)
class Setup:
    """A store whose database can be stopped."""

    proxy: StallingProxy
    database: StoreDatabase
    dsn: str
    files: Files


@pytest.fixture
async def setup(port: int, tenant: str) -> AsyncGenerator[Setup]:
    async with stalling_proxy(port) as proxy:
        dsn = f"postgresql://armarium@127.0.0.1:{proxy.port}/armarium"
        slow = await connect(dsn, size=1)
        await migrate(slow, dimensions=LOCAL_DIMENSIONS)
        await slow.aclose()
        pool = await connect(dsn, size=2, timeout_s=TIMEOUT_S)
        database = StoreDatabase(pool, lock_timeout_ms=5000, on_lock_wait=lambda seconds: None)
        files = Files(database, tenant)
        await patiently(files, "/a", "/d/1", "/d/2")
        yield Setup(proxy, database, dsn, files)
        proxy.resume()
        await database.pool.aclose()


async def patiently(files: Files, *paths: str) -> None:
    """Make files on a machine so busy that even a database that answers may be too late."""
    with anyio.fail_after(DEADLINE_S):
        for path in paths:
            while (await files.result("write", path=path, content="x", mode="TRUNCATE")).get("isError"):
                await anyio.sleep(0.1)


@pytest.mark.parametrize("tool", CALLS)
async def test_a_call_to_a_hung_database_ends_as_busy(setup: Setup, tool: str) -> None:
    setup.proxy.stall()
    with anyio.fail_after(DEADLINE_S):
        assert await setup.files.code(tool, **CALLS[tool]) == "RESOURCE_BUSY"


@pytest.mark.parametrize("word", [b"BEGIN", b"SET LOCAL", b"UPDATE mcp_files SET deleted", b"COMMIT"])
async def test_a_change_whose_database_hangs_in_the_middle_ends_as_busy(setup: Setup, word: bytes) -> None:
    setup.proxy.stall_at(word)
    with anyio.fail_after(DEADLINE_S):
        assert await setup.files.code("delete", path="/d", recursive=True) == "RESOURCE_BUSY"
    assert setup.proxy.stalled


async def test_a_write_whose_arguments_never_arrive_ends_as_busy(setup: Setup) -> None:
    await setup.files.result("write", path="/a", content="x")
    setup.proxy.stall_at(b"CANARY")
    with anyio.fail_after(DEADLINE_S):
        assert await setup.files.code("write", path="/a", content="CANARY") == "RESOURCE_BUSY"
    assert setup.proxy.stalled


async def test_those_who_wait_for_a_connection_wait_no_longer(setup: Setup) -> None:
    setup.proxy.stall()
    codes: list[str] = []

    async def ask(number: int) -> None:
        codes.append(await setup.files.code("read", path=f"/{number}"))

    with anyio.fail_after(DEADLINE_S):
        async with anyio.create_task_group() as tasks:
            for number in range(12):
                tasks.start_soon(ask, number)
    assert codes == ["RESOURCE_BUSY"] * 12


async def test_a_call_that_is_cancelled_while_the_database_hangs_ends(setup: Setup) -> None:
    setup.proxy.stall()
    with anyio.fail_after(DEADLINE_S), anyio.move_on_after(TIMEOUT_S / 10):
        await setup.files.result("delete", path="/a")


async def test_when_the_database_answers_again_so_does_the_store(setup: Setup) -> None:
    setup.proxy.stall()
    with anyio.fail_after(DEADLINE_S):
        assert await setup.files.code("read", path="/a") == "RESOURCE_BUSY"
        setup.proxy.resume()
        while (await setup.files.result("read", path="/a")).get("isError"):
            await anyio.sleep(0.05)


async def test_a_statement_that_takes_too_long_is_stopped_in_the_database(setup: Setup) -> None:
    with anyio.fail_after(DEADLINE_S):
        with pytest.raises(ResourceBusy):
            await setup.database.fetch_in_transaction(ALL_TENANTS, "SELECT pg_sleep(600)")
        while await sleeping(setup.dsn):
            await anyio.sleep(0.05)


async def sleeping(dsn: str) -> int:
    connection = await asyncpg.connect(dsn)
    try:
        return await connection.fetchval(
            "SELECT count(*) FROM pg_stat_activity WHERE state = 'active' AND query LIKE 'SELECT pg_sleep%'"
        )
    finally:
        await connection.close()


async def test_a_backend_that_is_stopped_costs_the_call_no_more_than_the_timeout(setup: Setup) -> None:
    stopped: list[int] = []
    try:
        with anyio.fail_after(DEADLINE_S):
            # The connections that the pool keeps, whichever is used next.
            async with setup.database.pool.connection() as one, setup.database.pool.connection() as other:
                stopped = [await each.fetchval("SELECT pg_backend_pid()") for each in (one, other)]
            for process in stopped:
                os.kill(process, signal.SIGSTOP)
            assert await setup.files.code("write", path="/a", content="y") == "RESOURCE_BUSY"
            assert await setup.files.code("list") == "RESOURCE_BUSY"
            while (await setup.files.result("read", path="/a")).get("isError"):
                await anyio.sleep(0.05)
    finally:
        for process in stopped:
            os.kill(process, signal.SIGCONT)


async def test_a_start_on_a_hung_database_ends_with_a_clear_error(setup: Setup) -> None:
    setup.proxy.stall()
    with anyio.fail_after(DEADLINE_S), pytest.raises(DatabaseUnavailable, match="does not answer"):
        await connect(setup.dsn, size=2, timeout_s=TIMEOUT_S)


async def test_a_start_waits_for_a_database_that_comes_up_later(setup: Setup) -> None:
    setup.proxy.stall()
    opened: list[str] = []

    async def start() -> None:
        pool = await connect(setup.dsn, size=2, timeout_s=TIMEOUT_S, wait_s=DEADLINE_S)
        opened.append("pool")
        await pool.aclose()

    with anyio.fail_after(DEADLINE_S):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(start)
            await anyio.sleep(TIMEOUT_S)
            assert opened == []
            setup.proxy.resume()
    assert opened == ["pool"]


@pytest.fixture
def empty_database(port: int) -> Iterator[str]:
    """The name of a database without the store's tables."""
    name = f"empty_{secrets.token_hex(4)}"
    asyncio.run(above(port, "postgres", f"CREATE DATABASE {name} OWNER armarium"))
    asyncio.run(above(port, name, "CREATE EXTENSION vector"))
    yield name
    asyncio.run(above(port, "postgres", f"DROP DATABASE {name} WITH (FORCE)"))


async def above(port: int, database: str, statement: str) -> None:
    connection = await asyncpg.connect(f"postgresql://postgres@127.0.0.1:{port}/{database}")
    try:
        await connection.execute(statement)
    finally:
        await connection.close()


SCHEMA_WORDS = [
    b"to_regclass",
    b"pg_advisory_xact_lock",
    b"armarium_store_facts",
    b"CREATE TABLE IF NOT EXISTS mcp_files",
]


@pytest.mark.parametrize("word", SCHEMA_WORDS)
async def test_a_database_that_hangs_while_its_tables_are_made_ends_the_start(
    port: int, empty_database: str, word: bytes
) -> None:
    async with stalling_proxy(port) as proxy:
        dsn = f"postgresql://armarium@127.0.0.1:{proxy.port}/{empty_database}"
        with anyio.fail_after(DEADLINE_S):
            pool = await connect(dsn, size=2, timeout_s=START_TIMEOUT_S, wait_s=DEADLINE_S)
            proxy.stall_at(word)
            with pytest.raises(DatabaseUnavailable, match="stopped answering"):
                await migrate(pool, dimensions=LOCAL_DIMENSIONS)
        assert proxy.stalled
        proxy.resume()
        await pool.aclose()


async def test_a_new_index_of_a_hung_database_ends_with_a_clear_error(setup: Setup) -> None:
    with anyio.fail_after(DEADLINE_S):
        pool = await connect(setup.dsn, size=2, timeout_s=START_TIMEOUT_S, wait_s=DEADLINE_S)
        setup.proxy.stall_at(b"count(DISTINCT")
        with pytest.raises(DatabaseUnavailable, match="stopped answering"):
            await plan_reindex(pool, dimensions=LOCAL_DIMENSIONS)
        assert setup.proxy.stalled
        setup.proxy.resume()
        await pool.aclose()


async def test_tables_that_take_longer_than_the_timeout_are_made(setup: Setup) -> None:
    with anyio.fail_after(DEADLINE_S):
        pool = await connect(setup.dsn, size=2, timeout_s=START_TIMEOUT_S, wait_s=DEADLINE_S)
        async with schema_transaction(pool, dimensions=LOCAL_DIMENSIONS) as connection:
            await connection.execute(f"SELECT pg_sleep({START_TIMEOUT_S * 1.5})", timeout=DEADLINE_S)
        await pool.aclose()


async def test_health_says_when_the_database_does_not_answer_and_when_it_does_again(port: int, tmp_path: Path) -> None:
    user = StoreUser("ada")
    async with stalling_proxy(port) as proxy:
        dsn = f"postgresql://armarium@127.0.0.1:{proxy.port}/armarium"
        settings = {"dsn": dsn, "database_timeout_ms": 3000, "search": {"enabled": False}}
        proxy.stall()
        async with anyio.create_task_group() as tasks:
            # The database is not there yet: the start waits for it.
            started: list[ServerProcess] = []

            async def start() -> None:
                started.append(await to_thread.run_sync(start_store, tmp_path, settings, [user]))

            tasks.start_soon(start)
            await anyio.sleep(1)
            assert not started
            proxy.resume()
        [server] = started
        try:
            async with httpx.AsyncClient(base_url=server.url, timeout=DEADLINE_S, verify=False) as http:
                assert await health(http, 200) == "ok"
                proxy.stall()
                assert await health(http, 503) == "degraded: store"
                proxy.resume()
                assert await health(http, 200) == "ok"
        finally:
            await to_thread.run_sync(server.stop)


async def health(http: httpx.AsyncClient, status: int) -> str:
    """What `/health` says once it answers with this status."""
    with anyio.fail_after(DEADLINE_S):
        while (answer := await http.get("/health")).status_code != status:
            await anyio.sleep(0.1)
    return answer.text
