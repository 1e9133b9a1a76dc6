"""Two servers on one database are one store: they take turns, count together, and index for each other."""

from __future__ import annotations

import base64
from collections.abc import AsyncGenerator, Iterator
from contextlib import AsyncExitStack, ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
import pytest

from emulators import OpenAIEmulator
from support.client import ToolClient, connected
from support.postgres import running_postgres
from support.redis import everything_in, running_redis
from support.server import ServerProcess
from support.store_server import StoreUser, looking_into, metric, metrics_of, start_store, start_worker
from support.waiting import eventually

KEK = "a-key-encryption-key-for-tests-only"
QUICK = {"poll_seconds": 0.5, "lease_seconds": 5, "retry_backoff_ms": 50}
UNHURRIED = {"calls_per_second": 10_000, "burst": 10_000}
JOBS_DONE = "mcp_files_index_job_latency_ms_count"


class Pair:
    """Two servers and one caller of both."""

    def __init__(self, dsn: str, servers: list[ServerProcess], user: StoreUser) -> None:
        self.dsn = dsn
        self.servers = servers
        self.user = user

    def jobs_done(self) -> list[float]:
        """How many jobs each of them has worked on."""
        return [metric(metrics_of(server, self.user), JOBS_DONE) for server in self.servers]

    async def rows(self, query: str) -> list[Any]:
        """What the database holds of the caller."""
        async with looking_into(self.dsn, self.user.tenant) as connection:
            return list(await connection.fetch(query))

    async def until_indexed(self) -> None:
        """Wait until no job is left."""

        async def nothing_to_do() -> bool:
            return not await self.rows("SELECT FROM mcp_file_index_jobs WHERE status IN ('pending', 'processing')")

        await eventually(nothing_to_do, what="every job is done")


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    """Two servers with the local model."""
    directory = tmp_path_factory.mktemp("pair")
    user = StoreUser("someone")
    with ExitStack() as running:
        dsn = running.enter_context(running_postgres())
        settings = {"dsn": dsn, "index": QUICK, "rate": UNHURRIED, "max_project_bytes": 10_000, "pool_size": 4}
        servers = [running.enter_context(start_store(directory / name, settings, [user])) for name in "ab"]
        yield Pair(dsn, servers, user)


@pytest.fixture
async def clients(pair: Pair) -> AsyncGenerator[list[ToolClient]]:
    """Two clients at each of the servers, in turn."""
    async with AsyncExitStack() as opened:
        yield [
            await opened.enter_async_context(connected(server.url, key=pair.user.key)) for server in pair.servers * 2
        ]


@pytest.mark.contract("S10-1")
async def test_no_append_is_lost_and_both_servers_agree_on_the_order(clients: list[ToolClient]) -> None:
    done: list[tuple[int, str]] = []

    async def write(client: ToolClient, name: str) -> None:
        for number in range(25):
            text = f"{name}{number};"
            answer = await client.call("file_write", project="appends", path="/log", content=text)
            done.append((answer["version"], text))

    async with anyio.create_task_group() as tasks:
        for client, name in zip(clients, "abcd", strict=True):
            tasks.start_soon(write, client, name)
    expected = "".join(text for _, text in sorted(done))
    assert [version for version, _ in sorted(done)] == list(range(1, 101))
    order = "".join(text[0] for _, text in sorted(done))
    assert all(order.count(name) == 25 for name in "abcd")
    assert "aaaaaaaaaaaaaaaaaaaaaaaaa" not in order, "the writers never met"
    for client in clients[:2]:
        assert (await client.call("file_read", project="appends", path="/log"))["content"] == expected


async def test_a_quota_holds_over_both(clients: list[ToolClient], pair: Pair) -> None:
    codes: list[str] = []

    async def write(client: ToolClient, name: str) -> None:
        for number in range(5):
            arguments = {"project": "quota", "path": f"/{name}{number}", "content": "x" * 900}
            answer = (await client.result("file_write", arguments)).structured_content or {}
            codes.append(answer.get("code", "ok"))

    async with anyio.create_task_group() as tasks:
        for client, name in zip(clients, "abcd", strict=True):
            tasks.start_soon(write, client, name)
    assert (codes.count("ok"), codes.count("QUOTA_EXCEEDED")) == (11, 9)
    [counter] = await pair.rows("SELECT bytes FROM mcp_file_projects WHERE project = 'quota'")
    assert counter["bytes"] == 9_900


async def test_if_version_has_one_winner_over_both(clients: list[ToolClient]) -> None:
    seen = await clients[0].call("file_write", project="race", path="/a", content="0")
    codes: list[str] = []

    async def change(client: ToolClient) -> None:
        arguments = {"project": "race", "path": "/a", "content": "1", "if_version": seen["version"]}
        codes.append(((await client.result("file_write", arguments)).structured_content or {}).get("code", "ok"))

    async with anyio.create_task_group() as tasks:
        for client in clients:
            tasks.start_soon(change, client)
    assert sorted(codes) == ["CONFLICT"] * 3 + ["ok"]


async def test_a_search_sees_what_the_other_server_wrote_moved_and_deleted(clients: list[ToolClient]) -> None:
    here, there = clients[:2]

    async def paths() -> list[str]:
        chunks = (await there.call("file_search", project="seen", query="windmill"))["chunks"]
        return [chunk["file_path"] for chunk in chunks]

    await here.call("file_write", project="seen", path="/a", content="The windmill turns.")
    assert await eventually(paths, what="the other's write is found") == ["/a"]
    await here.call("file_rename", project="seen", from_path="/a", to_path="/b")
    # Moved and deleted at once, whether or not the index has heard of it.
    assert await paths() == ["/b"]
    await here.call("file_delete", project="seen", path="/b")
    assert await paths() == []


@pytest.mark.contract("S11.2-1")
async def test_each_job_is_done_once_whoever_does_it(clients: list[ToolClient], pair: Pair) -> None:
    await pair.until_indexed()
    before = sum(pair.jobs_done())
    files = 60

    async def write(client: ToolClient, name: str) -> None:
        for number in range(files // len(clients)):
            await client.call("file_write", project="jobs", path=f"/{name}/{number}", content=f"Note {name} {number}.")

    async with anyio.create_task_group() as tasks:
        for client, name in zip(clients, "abcd", strict=True):
            tasks.start_soon(write, client, name)
    await pair.until_indexed()

    async def all_counted() -> bool:
        return sum(pair.jobs_done()) - before >= files

    await eventually(all_counted, what="every job is counted")
    assert sum(pair.jobs_done()) - before == files
    jobs = await pair.rows("SELECT status, retry_count FROM mcp_file_index_jobs WHERE project = 'jobs'")
    assert {(job["status"], job["retry_count"]) for job in jobs} == {("done", 0)}
    assert len(jobs) == files
    chunks = await pair.rows("SELECT file_path, count(*) FROM mcp_file_chunks WHERE project = 'jobs' GROUP BY 1")
    assert {row["count"] for row in chunks} == {1}
    assert len(chunks) == files


async def everything_stored(dsn: str) -> str:
    """Every row of every table of the store, as text."""
    async with looking_into(dsn) as connection:
        tables = await connection.fetch("SELECT tablename FROM pg_tables WHERE schemaname = 'public'")
        assert len(tables) > 6
        rows = [await connection.fetch(f'SELECT t::text AS row FROM "{table["tablename"]}" t') for table in tables]
    return "\n".join(row["row"] for table in rows for row in table)


def forms_of(key: str) -> list[bytes]:
    """The key, and how it would look if somebody took encoding for encryption."""
    raw = key.encode()
    return [raw, raw.hex().encode(), raw[3:30], base64.b64encode(raw)[:-4], base64.urlsafe_b64encode(raw)[:-4]]


@dataclass(frozen=True, slots=True)
class Keyed:
    """A store whose texts are embedded elsewhere, with callers' keys; no server yet."""

    dsn: str
    redis_url: str
    openai: OpenAIEmulator
    user: StoreUser
    """Whom the endpoint knows."""
    stranger: StoreUser

    def start(self, what: str, directory: Path, **index: Any) -> ServerProcess:
        """One more server, or a worker."""
        embedding = {"provider": "openai", "base_url": self.openai.url, "model": "nomic-embed-text", "dimensions": 768}
        settings = {
            "dsn": self.dsn,
            "redis_url": self.redis_url,
            "embedding": embedding,
            "security": {"encryption_keks": {1: KEK}},
            "index": QUICK | index,
        }
        if what == "worker":
            return start_worker(directory, settings)
        return start_store(directory, settings, [self.user, self.stranger])

    async def rows(self, query: str, tenant: str = "*") -> list[Any]:
        """What the database holds."""
        async with looking_into(self.dsn, tenant) as connection:
            return list(await connection.fetch(query))

    def require_no_key_in(self, place: bytes) -> None:
        """Neither caller's key is there."""
        for caller in (self.user, self.stranger):
            assert not any(form in place for form in forms_of(caller.key))

    async def until_settled(self) -> None:
        """Wait until every job is done or given up, and no key is kept for one."""

        async def settled() -> bool:
            open_jobs = await self.rows("SELECT FROM mcp_file_index_jobs WHERE status IN ('pending', 'processing')")
            return not open_jobs and everything_in(self.redis_url) == b""

        await eventually(settled, what="every job has ended and its key is gone")


@pytest.fixture
def keyed() -> Iterator[Keyed]:
    """StoreDatabase, Redis and the endpoint."""
    user = StoreUser("someone")
    with running_postgres() as dsn, running_redis() as redis_url, OpenAIEmulator(key=user.key) as openai:
        yield Keyed(dsn, redis_url, openai, user, StoreUser("a stranger"))


@pytest.mark.parametrize("indexer", ["server", "worker"])
async def test_a_write_at_one_server_is_indexed_by_another_with_the_callers_own_key(
    keyed: Keyed, tmp_path: Path, indexer: str
) -> None:
    user, stranger, openai = keyed.user, keyed.stranger, keyed.openai
    texts = [f"The ferry, number {number}." for number in range(5)]
    with ExitStack() as running:
        writing = running.enter_context(keyed.start("server", tmp_path / "writing", workers=0))
        async with connected(writing.url, key=user.key) as client, connected(writing.url, key=stranger.key) as other:
            for number, text in enumerate(texts):
                await client.call("file_write", project="p", path=f"/d/{number}", content=text)
            await client.call("file_rename", project="p", from_path="/d", to_path="/e")
            await other.call("file_write", project="p", path="/a", content="The ferry of somebody else.")
            assert openai.requests == []
            # On its way the key is in Redis, and only as an envelope.
            waiting = everything_in(keyed.redis_url)
            assert b"mcp:files:cred" in waiting
            keyed.require_no_key_in(waiting)
            keyed.require_no_key_in((await everything_stored(keyed.dsn)).encode())

            indexing = running.enter_context(keyed.start(indexer, tmp_path / "indexing"))
            await keyed.until_settled()
            asked = [*openai.requests]
            found = await client.call("file_search", project="p", query="ferry", limit=20)
            assert sorted(chunk["file_path"] for chunk in found["chunks"]) == [f"/e/{number}" for number in range(5)]
        [refused] = await keyed.rows("SELECT status FROM mcp_file_index_jobs", stranger.tenant)
        assert refused["status"] == "failed"
        # Found by its terms; what the endpoint refused to embed has no vector, least of all by somebody else's key.
        assert not await keyed.rows("SELECT FROM mcp_file_chunk_embeddings", stranger.tenant)
        embedded: dict[str, list[str]] = {}
        for request in asked:
            embedded.setdefault(request.headers["authorization"], []).extend(request.body["input"])
        assert sorted(embedded.pop(f"Bearer {user.key}")) == texts
        assert embedded == {f"Bearer {stranger.key}": ["The ferry of somebody else."]}
        audits = [*tmp_path.glob("*/state/audit.sqlite*")]
        assert audits
        for told in (writing.said(), indexing.said(), await everything_stored(keyed.dsn)):
            keyed.require_no_key_in(told.encode())
        for file in audits:
            keyed.require_no_key_in(file.read_bytes())
