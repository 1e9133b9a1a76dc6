"""Whatever is killed, and when: what was acknowledged is there, changes are whole, and everything is found again."""

from __future__ import annotations

import os
import random
import signal
import tempfile
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import anyio
import pytest
from anyio import to_thread

from armarium.capabilities.store.postgres.home import Home, open_lock
from support.server import ServerProcess
from support.store_server import (
    QuickClient,
    ServerLost,
    StoreUser,
    embedded_dsn,
    looking_into,
    start_store,
    start_worker,
)
from support.waiting import eventually

PROJECT = "p"
CALLERS = 4
LEASE_S = 1.0
SETTINGS = {
    "rate": {"calls_per_second": 100_000, "burst": 100_000},
    "index": {"lease_seconds": LEASE_S, "poll_seconds": 0.3, "retry_backoff_ms": 50, "retry_max": 1_000},
}
KINDS = ["server", "worker", "database", "supervisor", "everything"]
"""What can be killed. The supervisor is the process that runs the database again."""
PARAGRAPH = "The {word} stands in the harbour, and the tide of {word} comes and goes with the moon. " * 4 + "\n\n"

Tree = dict[str, str]
"""The files of a caller."""


class Place:
    """A server that takes writes, a worker that indexes them, and the database they share. Any can be killed."""

    def __init__(self, directory: Path) -> None:
        self.home = Home(directory / "pg")
        self.user = StoreUser("someone")
        self._directory = directory
        self.servers = {name: self._start(name) for name in ("server", "worker")}

    @property
    def url(self) -> str:
        return self.servers["server"].url

    @property
    def dsn(self) -> str:
        return embedded_dsn(self.home.root)

    async def crash(self, kind: str) -> None:
        """Kill, and start again what nobody else would start."""
        killed = list(self.servers) if kind == "everything" else [kind] if kind in self.servers else []
        for name in killed:
            os.kill(self.servers[name].pid, signal.SIGKILL)
        if kind in ("supervisor", "everything"):
            _kill_named_in(self.home.lock_path("keeper"))
        if kind in ("database", "everything"):
            _kill_named_in(self.home.data / "postmaster.pid")
        for name in killed:
            await to_thread.run_sync(self.servers[name].kill)
            self.servers[name] = await to_thread.run_sync(self._start, name)

    def end(self) -> None:
        """Stop the servers as an operator does; nothing may be left."""
        for server in self.servers.values():
            server.stop()
            assert not [line for line in server.log if line["level"] in ("ERROR", "CRITICAL")]
            assert server.other_output == []

    def give_up(self) -> None:
        """Let nothing run on after a test that failed."""
        for server in self.servers.values():
            server.kill()

    async def until_quiet(self) -> None:
        """The database ends behind its last user."""

        async def quiet() -> bool:
            with (
                open_lock(self.home.lock_path("keeper")) as supervisor,
                open_lock(self.home.lock_path("server")) as database,
            ):
                return supervisor.take() and database.take()

        await eventually(quiet, what="no process of the database is left")

    def _start(self, name: str) -> ServerProcess:
        settings = SETTINGS | {"data_dir": str(self.home.root)}
        if name == "worker":
            return start_worker(self._directory / name, settings)
        settings |= {"index": SETTINGS["index"] | {"workers": 0}}
        return start_store(self._directory / name, settings, [self.user])


def _kill_named_in(file: Path) -> None:
    with suppress(ProcessLookupError, FileNotFoundError, IndexError):
        os.kill(int(file.read_text().split()[0]), signal.SIGKILL)


class Caller:
    """Changes files of its own, one change after another, and knows after each what must be there.

    A call whose answer never came was made whole or not at all, and a look at the files must tell which.
    """

    def __init__(self, place: Place, name: str, seed: int) -> None:
        self._place = place
        self._root = f"/{name}"
        self._name = name
        self._chance = random.Random(seed)
        self._numbers = 0
        self.files: Tree = {}
        self.in_doubt: Tree | None = None
        """What is there if the last call was made after all."""
        self.acknowledged = 0
        self.doubts = 0
        """Calls without an answer."""
        self.over = False

    async def work(self) -> None:
        """Until told that it is over."""
        await self._with_server(self._go_on)

    async def end_in_certainty(self) -> None:
        """Know also of the last call whether it was made."""
        while self.in_doubt is not None:
            await self._with_server(self._settle)

    async def _with_server(self, do: Callable[[QuickClient], Awaitable[None]]) -> None:
        """Do something in a session, and again in another one when the server is killed meanwhile."""
        while True:
            try:
                async with QuickClient.opened(self._place.url, self._place.user.key) as client:
                    return await do(client)
            except ServerLost:
                await anyio.sleep(0.05)

    async def _go_on(self, client: QuickClient) -> None:
        while not self.over:
            if self.in_doubt is None:
                await self._change(client)
            else:
                await self._settle(client)

    async def _settle(self, client: QuickClient) -> None:
        """Find out whether the last call was made."""
        # Changes of a project take turns: behind this one nothing of the last call can still be on its way.
        barrier = {"path": f"/barriers/{self._name}", "content": "x", "mode": "TRUNCATE"}
        while (await self._tried(client, "file_write", **barrier)) is None:
            await anyio.sleep(0.02)
        there = await self._stored(client)
        if there is not None:
            assert there in (self.files, self.in_doubt), f"half a change: {sorted(there)} of {sorted(self.files)}"
            self.files, self.in_doubt = there, None
            self.doubts += 1

    async def _stored(self, client: QuickClient) -> Tree | None:
        listing = await self._tried(client, "file_list", path="", depth=9, limit=1000)
        if listing is None:
            return None
        tree: Tree = {}
        for entry in listing["entries"]:
            if entry["type"] == "FILE" and entry["path"].startswith(self._root + "/"):
                read = await self._tried(client, "file_read", path=entry["path"])
                if read is None:
                    return None
                tree[entry["path"]] = read["content"]
        return tree

    async def _change(self, client: QuickClient) -> None:
        tool, arguments, after = self._chosen()
        self.in_doubt = after
        if await self._tried(client, tool, **arguments) is not None:
            self.files, self.in_doubt = after, None
            self.acknowledged += 1

    async def _tried(self, client: QuickClient, tool: str, **arguments: Any) -> dict[str, Any] | None:
        """The answer, or None when the server could not say."""
        answer = await client.result(tool, project=PROJECT, **arguments)
        if "code" not in answer:
            return answer
        assert answer["code"] == "RESOURCE_BUSY", answer
        assert answer["retryable"] is True
        return None

    def _chosen(self) -> tuple[str, dict[str, Any], Tree]:
        chance, paths = self._chance, sorted(self.files)
        side = paths[0].split("/")[2] if paths else "left"
        path = f"{self._root}/{side}/{chance.randrange(8)}"
        self._numbers += 1
        text = PARAGRAPH.format(word=f"{self._name}n{self._numbers}") * chance.choice([1, 1, 6])
        what = chance.randrange(6) if len(paths) > 2 else 0
        if what <= 1:
            return "file_write", {"path": path, "content": text, "mode": "TRUNCATE"}, self.files | {path: text}
        if what == 2:
            longer = self.files.get(path, "") + text
            return "file_write", {"path": path, "content": text}, self.files | {path: longer}
        if what == 3:
            gone = chance.choice(paths)
            return "file_delete", {"path": gone}, {each: self.files[each] for each in paths if each != gone}
        source, target = (f"{self._root}/{each}" for each in (side, "right" if side == "left" else "left"))
        moved = {target + each.removeprefix(source): content for each, content in self.files.items()}
        return "file_rename", {"from_path": source, "to_path": target}, moved

    def words(self) -> dict[str, str]:
        """For each file a word that only it has."""
        return {path: content.split(maxsplit=2)[1] for path, content in self.files.items()}


async def killed_again_and_again(place: Place, kinds: list[str], seed: int) -> None:
    """Let callers write while one thing after another is killed, then look at everything."""
    chance = random.Random(seed)
    callers = [Caller(place, f"caller{number}", seed * 10 + number) for number in range(CALLERS)]

    async def got_on(by: int) -> None:
        wanted = sum(caller.acknowledged for caller in callers) + by

        async def reached() -> bool:
            return sum(caller.acknowledged for caller in callers) >= wanted

        await eventually(reached, what="the callers get on")

    async with anyio.create_task_group() as tasks:
        for caller in callers:
            tasks.start_soon(caller.work)
        for kind in kinds:
            await got_on(chance.randint(5, 40))
            # Any moment of a change, not only the one behind it.
            await anyio.sleep(chance.uniform(0, 0.03))
            await place.crash(kind)
        # More than can have been answered before the last kill and not been heard of yet.
        await got_on(3 * CALLERS)
        for caller in callers:
            caller.over = True
    assert sum(caller.doubts for caller in callers) >= CALLERS, "the kills missed the calls"
    await look_at_everything(place, callers)


async def look_at_everything(place: Place, callers: list[Caller]) -> None:
    """No file is lost or damaged, no job is left, and every file is found."""
    for caller in callers:
        await caller.end_in_certainty()
    expected = {path: content for caller in callers for path, content in caller.files.items()}
    assert expected

    async def all_done() -> bool:
        async with looking_into(place.dsn) as connection:
            open_jobs = "SELECT FROM mcp_file_index_jobs WHERE status IN ('pending', 'processing')"
            return not await connection.fetch(open_jobs)

    await eventually(all_done, what="no job is left, whoever held it")
    async with looking_into(place.dsn, place.user.tenant) as connection:
        files = await connection.fetch("SELECT id, path, content, version FROM mcp_files WHERE NOT deleted")
        barriers = [file for file in files if file["path"].startswith("/barriers/")]
        stored = {file["path"]: file["content"].decode() for file in files if file not in barriers}
        assert stored == expected
        [counter] = await connection.fetch("SELECT bytes FROM mcp_file_projects")
        assert counter["bytes"] == sum(len(file["content"]) for file in files)
        assert not await connection.fetch("SELECT FROM mcp_file_index_jobs WHERE status <> 'done'")
        await require_chunks_of(connection, files)
    async with QuickClient.opened(place.url, place.user.key) as client:
        for caller in callers:
            for path, word in caller.words().items():
                chunks = (await client.call("file_search", project=PROJECT, query=word, limit=20))["chunks"]
                found = {chunk["file_path"] for chunk in chunks if word in chunk["chunk_content"]}
                assert path in found, f"{path} is not found"


async def require_chunks_of(connection: Any, files: list[Any]) -> None:
    """The index holds each file as it is, once, and nothing else."""
    rows = await connection.fetch(
        """
        SELECT chunk.file_id, chunk.file_path, chunk.chunk_index, chunk.start_byte, chunk.end_byte, chunk.chunk_content,
            (SELECT count(*) FROM mcp_file_chunk_embeddings AS vector WHERE vector.chunk_id = chunk.id) AS vectors,
            (SELECT count(*) FROM mcp_file_chunk_bm25 AS words WHERE words.chunk_id = chunk.id) AS words
        FROM mcp_file_chunks AS chunk ORDER BY chunk.file_id, chunk.chunk_index
        """
    )
    indexed = {row["file_id"]: row for row in await connection.fetch("SELECT * FROM mcp_file_indexed")}
    assert {row["file_id"] for row in rows} == {file["id"] for file in files}
    assert {(row["vectors"], row["words"]) for row in rows} == {(1, 1)}
    for table in ("mcp_file_chunk_embeddings", "mcp_file_chunk_bm25"):
        assert await connection.fetchval(f"SELECT count(*) FROM {table}") == len(rows)
    for file in files:
        chunks = [row for row in rows if row["file_id"] == file["id"]]
        assert [row["chunk_index"] for row in chunks] == list(range(len(chunks)))
        assert {row["file_path"] for row in chunks} == {file["path"]}
        starts = [row["start_byte"] for row in chunks]
        assert starts == sorted(set(starts)), "two chunks begin at the same place"
        for row in chunks:
            assert file["content"][row["start_byte"] : row["end_byte"]].decode() == row["chunk_content"]
        made_from = indexed[file["id"]]
        assert (made_from["version"], made_from["passages"]) == (file["version"], len(chunks))


@pytest.fixture
def place() -> Iterator[Place]:
    """A server and a worker on a database of their own."""
    with tempfile.TemporaryDirectory(prefix="pg-") as directory:
        place = Place(Path(directory))
        try:
            yield place
            place.end()
        finally:
            place.give_up()
            anyio.run(place.until_quiet)


@pytest.mark.contract("S3-1")
@pytest.mark.timeout(300)
async def test_what_is_killed_in_the_middle_of_work_loses_and_halves_nothing(place: Place) -> None:
    await killed_again_and_again(place, ["server", "database", "worker", "everything"], seed=1)


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("seed", range(2, 5))
async def test_thirty_kills_at_random_points_lose_and_halve_nothing(place: Place, seed: int) -> None:
    chance = random.Random(seed)
    await killed_again_and_again(place, [chance.choice(KINDS) for _ in range(30)], seed=seed)
