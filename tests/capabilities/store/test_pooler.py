"""Behind PgBouncer in transaction mode, where every transaction may get another session, the store answers as ever."""

from __future__ import annotations

import random
import secrets
from collections.abc import AsyncGenerator, Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import anyio
import pytest
from anyio import to_thread

from armarium.capabilities.store.checks import check
from armarium.capabilities.store.database.pool import connect, is_pooled
from armarium.capabilities.store.database.schema import migrate
from armarium.capabilities.store.database.transactions import StoreDatabase
from armarium.capabilities.store.errors import DatabaseUnavailable
from armarium.capabilities.store.settings import LOCAL_DIMENSIONS, StoreSettings
from armarium.capability import Facilities
from support.client import connected
from support.pgbouncer import PROGRAM, running_pgbouncer
from support.soak import chance
from support.store_calls import Files
from support.store_server import StoreUser, start_store
from support.waiting import eventually

pytestmark = pytest.mark.skipif(PROGRAM is None, reason="PgBouncer is not installed")

SESSIONS = 3
SERVERS, TENANTS, CLIENTS_EACH = 2, 5, 2


@pytest.fixture(scope="module", params=["", "extra_float_digits,idle_in_transaction_session_timeout,jit"])
def pooled_dsn(request: pytest.FixtureRequest, store_dsn: str) -> Iterator[str]:
    """The address of the pooler, as it comes and as operators set it up for programs that insist on settings."""
    with running_pgbouncer(store_dsn, sessions=SESSIONS, ignored=request.param) as dsn:
        yield dsn


@pytest.fixture
async def servers(pooled_dsn: str) -> AsyncGenerator[list[StoreDatabase]]:
    """The databases of several servers, each with more connections than the pooler has sessions."""
    async with AsyncExitStack() as stack:
        opened: list[StoreDatabase] = []
        for _ in range(SERVERS):
            pool = await connect(pooled_dsn, size=6, timeout_s=60)
            database = StoreDatabase(pool, lock_timeout_ms=60_000, on_lock_wait=lambda seconds: None)
            stack.push_async_callback(database.pool.aclose)
            opened.append(database)
        yield opened


async def test_a_pooler_without_transactions_is_refused_with_what_to_do(store_dsn: str) -> None:
    with (
        running_pgbouncer(store_dsn, sessions=SESSIONS, mode="statement") as dsn,
        pytest.raises(DatabaseUnavailable) as refused,
    ):
        await connect(dsn, size=2, timeout_s=60)
    assert "pool_mode = transaction" in (refused.value.hint or "")


async def test_a_pooler_is_found_and_a_database_is_not_taken_for_one(pooled_dsn: str, store_dsn: str) -> None:
    assert await is_pooled(pooled_dsn, 10)
    assert not await is_pooled(store_dsn, 10)


async def test_a_schema_is_migrated_through_a_pooler(pooled_dsn: str) -> None:
    pool = await connect(pooled_dsn, size=2)
    await migrate(pool, dimensions=LOCAL_DIMENSIONS)
    await pool.aclose()


async def test_every_tool_works_through_a_pooler(servers: list[StoreDatabase], tenant: str) -> None:
    files = Files(servers[0], tenant)
    await files.put("/a/b.md", "/a/c.md")
    assert await files.paths() == ["/a/", "/a/b.md", "/a/c.md"]
    await files.ok("write", path="/a/b.md", content="y")
    assert await files.text("/a/b.md") == "xy"
    assert [each["size"] for each in (await files.ok("history", path="/a/b.md"))["versions"]] == [2, 1]
    version = (await files.ok("history", path="/a/b.md"))["versions"][1]["version"]
    await files.ok("restore", path="/a/b.md", version=version)
    assert await files.ok("rename", from_path="/a", to_path="/z") == {"moved_count": 2}
    assert await files.ok("delete", path="/z", recursive=True) == {"deleted_count": 2}
    assert (await files.ok("stat", path="/z"))["exists"] is False


async def campaign(servers: list[StoreDatabase], calls_each: int) -> tuple[int, list[str]]:
    """Clients of several tenants at several servers, each with files of its own, read what they wrote. How many calls
    there were, and what was wrong."""
    seed = chance("pooler").getrandbits(32)
    calls = 0
    wrong: list[str] = []

    async def client(number: int, files: Files) -> None:
        nonlocal calls
        dice = random.Random(seed + number)
        known: dict[str, str] = {}
        for step in range(calls_each):
            path = f"/c{number}/{dice.randrange(8)}"
            match dice.choice(("write", "write", "read", "read", "stat", "list", "delete")):
                case "write":
                    text = f"{files.tenant[:8]} {number} {step};"
                    await files.ok("write", path=path, content=text)
                    known[path] = known.get(path, "") + text
                case "read" if path in known:
                    if (found := await files.result("read", path=path))["structuredContent"].get("content") != known[
                        path
                    ]:
                        wrong.append(f"read {path}: {found['structuredContent']}")
                case "stat" | "read":
                    if (await files.ok("stat", path=path))["exists"] != (path in known):
                        wrong.append(f"stat {path}")
                case "list":
                    listed = await files.result("list", path=f"/c{number}")
                    paths = {entry["path"] for entry in listed["structuredContent"].get("entries", ())}
                    if paths != set(known):
                        wrong.append(f"list: {paths} instead of {set(known)}")
                case _ if known.pop(path, None) is not None:
                    if await files.ok("delete", path=path) != {"deleted_count": 1}:
                        wrong.append(f"delete {path}")
                case _:
                    if await files.code("read", path=path) != "NOT_FOUND":
                        wrong.append(f"read {path} of nobody")
            calls += 1

    tenants = [secrets.token_hex(32) for _ in range(TENANTS)]
    async with anyio.create_task_group() as tasks:
        for number in range(TENANTS * CLIENTS_EACH):
            files = Files(servers[number % len(servers)], tenants[number % TENANTS])
            tasks.start_soon(client, number, files)
    return calls, wrong


async def test_clients_of_several_tenants_who_share_sessions_see_their_own_files(servers: list[StoreDatabase]) -> None:
    calls, wrong = await campaign(servers, 40)
    assert calls == 400
    assert wrong == []


@pytest.mark.soak
@pytest.mark.timeout(3600)
async def test_20000_calls_of_clients_who_share_sessions_are_answered_right(servers: list[StoreDatabase]) -> None:
    calls, wrong = await campaign(servers, 2000)
    print(f"{calls} calls, {len(wrong)} wrong")
    assert calls == 20_000
    assert wrong == []


async def test_no_session_is_left_with_a_tenant_or_a_prepared_statement(
    servers: list[StoreDatabase], tenant: str
) -> None:
    await Files(servers[0], tenant).put("/a")
    for _ in range(SESSIONS * 2):
        async with servers[0].pool.connection() as connection, connection.transaction():
            assert not await connection.fetchval("SELECT current_setting('armarium.tenant', true)")
            assert await connection.fetchval("SELECT count(*) FROM pg_prepared_statements WHERE name <> ''") == 0


async def test_a_server_indexes_and_finds_what_is_written(pooled_dsn: str, tmp_path: Path) -> None:
    user = StoreUser("ada")
    settings = {"dsn": pooled_dsn, "index": {"poll_seconds": 0.5}}
    server = await to_thread.run_sync(start_store, tmp_path, settings, [user])
    try:
        async with connected(server.url, key=user.key) as client:
            await client.call("file_write", project="p", path="/a.md", content="the quick brown fox")

            async def found() -> bool:
                return bool((await client.call("file_search", project="p", query="quick fox"))["chunks"])

            await eventually(found, what="the file is found")
    finally:
        await to_thread.run_sync(server.stop)


def test_the_doctor_tells_of_the_pooler(pooled_dsn: str, tmp_path: Path) -> None:
    facilities = Facilities(cast(Any, SimpleNamespace()), tmp_path)
    findings = {
        pooler: {each.subject: each for each in check(StoreSettings(dsn=pooled_dsn, pooler=pooler), facilities)}
        for pooler in ("auto", "none")
    }
    assert findings["auto"]["store pooler"].state == "ok"
    assert findings["none"]["store pooler"].state == "fail"
    assert findings["auto"]["store schema"].state == "ok"
