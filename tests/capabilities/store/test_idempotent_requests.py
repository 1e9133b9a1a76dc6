"""A change with a request id is made once, however often it is asked for and whatever becomes of its answers."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest
from anyio.abc import ByteStream, SocketStream

from armarium.capabilities.store.database.pool import connect
from armarium.capabilities.store.database.transactions import ALL_TENANTS, StoreDatabase
from armarium.capabilities.store.index.maintenance import Maintenance
from support.store_calls import Files

Json = dict[str, Any]


@pytest.fixture
def files(database: StoreDatabase, tenant: str) -> Files:
    return Files(database, tenant, key="sk-secret")


@pytest.mark.contract("S11.1-2")
async def test_the_same_request_is_answered_again_and_not_made_again(files: Files) -> None:
    first = await files.ok("write", path="/a", content="once", request_id="r1")
    jobs = await files.jobs()
    assert await files.ok("write", path="/a", content="once", request_id="r1") == first
    assert await files.text("/a") == "once"
    assert await files.jobs() == jobs
    assert files.discarded == ["reference-2"], "nobody will take the key that was kept for the second"
    assert await files.ok("write", path="/a", content="once", request_id="r2") == {
        "bytes_written": 4, "version": 2, "size": 8,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("tool", "arguments", "undo"),
    [
        ("write", {"path": "/a", "content": "more", "if_version": 1}, None),
        ("write", {"path": "/new", "content": "x", "create_only": True}, ("delete", {"path": "/new"})),
        ("delete", {"path": "/a"}, ("write", {"path": "/a", "content": "back"})),
        ("delete", {"path": "/d", "recursive": True}, ("write", {"path": "/d/1", "content": "back"})),
        ("rename", {"from_path": "/d", "to_path": "/e"}, ("rename", {"from_path": "/e", "to_path": "/d"})),
        ("restore", {"path": "/b", "version": 2}, ("write", {"path": "/b", "content": "later", "mode": "TRUNCATE"})),
    ],
)
async def test_every_change_can_be_asked_for_again_even_after_others(
    files: Files, tool: str, arguments: Json, undo: tuple[str, Json] | None
) -> None:
    await files.put("/a", "/b", "/d/1", "/d/2")
    await files.put("/b", content="second")
    first = await files.ok(tool, **arguments, request_id="r")
    if undo:
        await files.ok(undo[0], **undo[1])
    listed = await files.ok("list", depth=9)
    assert await files.ok(tool, **arguments, request_id="r") == first
    assert await files.ok("list", depth=9) == listed


async def test_the_same_id_with_other_arguments_is_refused_and_changes_nothing(files: Files) -> None:
    await files.ok("write", path="/a", content="one", request_id="r")
    for tool, arguments in [
        ("write", {"path": "/a", "content": "two"}),
        ("write", {"path": "/b", "content": "one"}),
        ("write", {"path": "/a", "content": "one", "mode": "TRUNCATE"}),
        ("delete", {"path": "/a"}),
        ("rename", {"from_path": "/a", "to_path": "/b"}),
        ("restore", {"path": "/a", "version": 1}),
    ]:
        assert await files.code(tool, **arguments, request_id="r") == "INVALID_QUERY"
    assert await files.paths() == ["/a"]
    assert await files.text("/a") == "one"


async def test_ids_are_the_callers_own_and_the_projects_own(database: StoreDatabase, files: Files) -> None:
    stranger = Files(database, "e" * 64)
    await files.ok("write", path="/a", content="one", request_id="r")
    await files.ok("write", project="q", path="/a", content="two", request_id="r")
    await stranger.ok("write", path="/a", content="three", request_id="r")
    assert [await files.text("/a"), await files.text("/a", "q"), await stranger.text("/a")] == ["one", "two", "three"]
    await stranger.ok("delete", path="/a")
    async with database.write_transaction("e" * 64) as connection:
        await connection.execute("DELETE FROM mcp_file_requests WHERE apikey_hash = $1", "e" * 64)


async def test_a_refusal_is_not_remembered(files: Files) -> None:
    assert await files.code("rename", from_path="/a", to_path="/b", request_id="r") == "NOT_FOUND"
    await files.put("/a")
    assert await files.ok("rename", from_path="/a", to_path="/b", request_id="r") == {"moved_count": 1}


async def test_numbers_of_any_size_can_be_part_of_a_request(files: Files) -> None:
    assert await files.code("write", path="/a", content="x", if_version=10**30, request_id="r") == "CONFLICT"


@pytest.mark.parametrize("request_id", ["", "x" * 129, "a\nb", "é", "\ud800"])
async def test_an_id_is_short_and_printable(files: Files, request_id: str) -> None:
    assert await files.code("write", path="/a", content="x", request_id=request_id) == "INVALID_QUERY"
    assert await files.paths() == []


async def test_many_who_ask_for_the_same_at_once_have_it_made_once(files: Files) -> None:
    answers: list[Json] = []

    async def append() -> None:
        answers.append(await files.ok("write", path="/a", content="x", request_id="r"))

    async with anyio.create_task_group() as tasks:
        for _ in range(20):
            tasks.start_soon(append)
    assert await files.text("/a") == "x"
    assert answers == [answers[0]] * 20


async def test_a_request_is_forgotten_after_a_day_and_not_before(database: StoreDatabase, files: Files) -> None:
    maintenance = Maintenance(database, delete_retention_days=30, history_days=30)
    for request_id, hours in (("young", 23), ("old", 25)):
        await files.ok("write", path="/a", content="x", request_id=request_id)
        async with database.write_transaction(ALL_TENANTS) as connection:
            await connection.execute(
                "UPDATE mcp_file_requests SET made_at = now() - make_interval(hours => $3) "
                "WHERE apikey_hash = $1 AND request_id = $2",
                files.tenant, request_id, hours,
            )  # fmt: skip
    assert (await maintenance.run_once()).requests >= 1
    await files.ok("write", path="/a", content="x", request_id="young")
    assert await files.text("/a") == "xx"
    await files.ok("write", path="/a", content="x", request_id="old")
    assert await files.text("/a") == "xxx"


class LosesCommits:
    """Between the store and its database: once told so, it lets a COMMIT through and keeps the answer."""

    def __init__(self, socket_path: str) -> None:
        self._socket_path = socket_path
        self.loses_next = False
        self.lost = 0

    async def serve(self, client: SocketStream) -> None:
        server = await anyio.connect_unix(self._socket_path)
        async with client, server, anyio.create_task_group() as tasks:
            committed = anyio.Event()
            tasks.start_soon(self._forward, client, server, committed, tasks.cancel_scope)
            try:
                while True:
                    answer = await server.receive()
                    if committed.is_set():
                        self.lost += 1
                        break
                    await client.send(answer)
            except (anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError):
                pass
            tasks.cancel_scope.cancel()

    async def _forward(
        self, client: ByteStream, server: ByteStream, committed: anyio.Event, ended: anyio.CancelScope
    ) -> None:
        try:
            while True:
                request = await client.receive()
                if self.loses_next and b"COMMIT" in request:
                    self.loses_next = False
                    committed.set()
                await server.send(request)
        except (anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError):
            ended.cancel()


@asynccontextmanager
async def behind(dsn: str) -> AsyncGenerator[tuple[StoreDatabase, LosesCommits]]:
    """The database, through a connection that may lose what it answers."""
    proxy = LosesCommits(f"{dsn.partition('host=')[2]}/.s.PGSQL.5432")
    async with await anyio.create_tcp_listener(local_host="127.0.0.1") as listener, anyio.create_task_group() as tasks:
        tasks.start_soon(listener.serve, proxy.serve)
        port = listener.extra(anyio.abc.SocketAttribute.local_port)
        pool = await connect(f"postgresql://armarium@127.0.0.1:{port}/armarium?sslmode=disable", size=2)
        opened = StoreDatabase(pool, lock_timeout_ms=5000, on_lock_wait=lambda seconds: None)
        yield opened, proxy
        await opened.pool.aclose()
        tasks.cancel_scope.cancel()


@pytest.mark.contract("S11.1-2")
@pytest.mark.parametrize(
    ("tool", "arguments", "left"),
    [
        ("write", {"path": "/log", "content": "more"}, {"/log": "xmore", "/d/1": "x"}),
        ("rename", {"from_path": "/d", "to_path": "/e"}, {"/log": "x", "/e/1": "x"}),
        ("delete", {"path": "/log"}, {"/d/1": "x"}),
    ],
)
async def test_a_retry_after_a_lost_commit_answer_makes_nothing_twice(
    store_dsn: str, tenant: str, tool: str, arguments: Json, left: dict[str, str]
) -> None:
    async with behind(store_dsn) as (database, proxy):
        files = Files(database, tenant)
        await files.put("/log", "/d/1")
        proxy.loses_next = True
        result = await files.result(tool, **arguments, request_id="r")
        envelope = result["structuredContent"]
        assert (envelope["code"], envelope["retryable"], proxy.lost) == ("RESOURCE_BUSY", True, 1)
        assert "request_id" in result["content"][0]["text"]
        again = await files.ok(tool, **arguments, request_id="r")
        assert again == await files.ok(tool, **arguments, request_id="r")
        assert {path: await files.text(path) for path in await files.paths() if not path.endswith("/")} == left
