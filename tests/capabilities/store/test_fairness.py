"""With a crowd of jobs of one tenant waiting, what others write is found after a few of them, also when workers die."""

from __future__ import annotations

import os
import random
import secrets
import time
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field

import anyio
import pytest

from armarium.capabilities.store.database.transactions import StoreDatabase
from armarium.capabilities.store.index.embedders import StoreModels
from armarium.capabilities.store.index.file_index import FileIndex
from armarium.capabilities.store.index.outbox import Depth, Outbox
from armarium.capabilities.store.index.wake_up import SharedWakeUp
from armarium.capabilities.store.index.worker import WorkerPool
from armarium.capabilities.store.search.file_search import FileSearch
from armarium.capabilities.store.settings import SearchSettings
from support.outbox import clear_jobs
from support.store_calls import Files
from support.stored_files import WordVectors

PROJECT = "p"
LEASE_S = 2.0
DEADLINE_S = 3000.0
BATCH = 20


@dataclass
class Measured:
    """How long each write took to be found, and how many files of the crowd were indexed meanwhile."""

    seconds: list[float] = field(default_factory=list[float])
    crowd_files: list[int] = field(default_factory=list[int])
    kills: int = 0

    def report(self, crowd: int) -> str:
        ordered = sorted(self.seconds)
        at = {share: ordered[min(int(len(ordered) * share), len(ordered) - 1)] for share in (0.5, 0.95)}
        return (
            f"{len(ordered)} writes beside {crowd} waiting jobs, {self.kills} kills: found after p50 {at[0.5]:.3f} s, "
            f"p95 {at[0.95]:.3f} s, most files of the crowd meanwhile {max(self.crowd_files)}"
        )


class Campaign:
    """A crowd's files, all of them waiting to be indexed, and others who write and search."""

    def __init__(self, database: StoreDatabase, dsn: str, seed: int) -> None:
        self.database = database
        self.chance = random.Random(seed)
        self.crowd = secrets.token_hex(32)
        self.measured = Measured()
        models = StoreModels(local=WordVectors())
        self._index = FileIndex(database, models)
        self._search = FileSearch(database, models, SearchSettings())
        self._wake_up = SharedWakeUp(database, dsn)

    async def gather(self, files: int) -> None:
        """The crowd's files with their jobs, as writes leave them."""
        async with self.database.write_transaction(self.crowd) as connection:
            await connection.execute(
                """
                WITH given AS (
                    SELECT number, '/crowd/' || number AS path,
                        convert_to(repeat('crowd' || number || ' has something to say. ', 12), 'UTF8') AS content
                    FROM generate_series(1, $2::int) AS number
                ),
                file AS (
                    INSERT INTO mcp_files (apikey_hash, project, path, content, size, version)
                    SELECT $1, 'p', path, content, octet_length(content), number FROM given
                    RETURNING path
                )
                INSERT INTO mcp_file_index_jobs (apikey_hash, project, file_path, operation)
                SELECT $1, 'p', path, 'UPSERT' FROM file
                """,
                self.crowd,
                files,
            )

    async def indexed(self) -> int:
        """How many of the crowd's files are found by their words."""
        async with self.database.read_transaction(self.crowd) as connection:
            return await connection.fetchval("SELECT count(*) FROM mcp_file_indexed WHERE apikey_hash = $1", self.crowd)

    def outbox(self) -> Outbox:
        return Outbox(self.database, lease_s=LEASE_S, retry_max=1000, retry_backoff_s=0.01)

    async def work(self) -> None:
        pool = WorkerPool(self.outbox(), self._index, None, self._wake_up)
        await pool.run(workers=2, batch=BATCH, poll_s=0.5)

    async def claim_and_die(self) -> None:
        """A worker that takes jobs and is not heard of any more."""
        await self.outbox().claim(self.chance.choice(["words", "vectors"]), BATCH)
        self.measured.kills += 1

    async def write_and_find(self, writes: int) -> None:
        """A new caller who writes, and looks for what was written until it is there."""
        files = Files(self.database, secrets.token_hex(32))
        for number in range(writes):
            word = f"word{secrets.token_hex(6)}x"
            before, started = await self.indexed(), time.perf_counter()
            await files.ok("write", path=f"/{number}", content=f"the lamp says {word}", mode="TRUNCATE")
            self._wake_up.wake_all()
            while not await self._found(files.tenant, word):
                await anyio.sleep(0.01)
            self.measured.seconds.append(time.perf_counter() - started)
            self.measured.crowd_files.append(await self.indexed() - before)

    async def _found(self, tenant: str, word: str) -> bool:
        found = await self._search.search(tenant, PROJECT, word, "", 5, None)
        return any(word in chunk["chunk_content"] for chunk in found["chunks"])

    async def until_empty(self) -> None:
        while await self.outbox().depth() != Depth(0, 0, 0):
            await anyio.sleep(0.05)


@pytest.fixture
async def no_jobs(database: StoreDatabase) -> AsyncGenerator[None]:
    await clear_jobs(database)
    yield
    await clear_jobs(database)


async def run(campaign: Campaign, *, crowd: int, callers: int, writes: int, kills: int) -> None:
    with anyio.fail_after(DEADLINE_S):
        await campaign.gather(crowd)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(campaign.work)
            async with anyio.create_task_group() as others:
                for _ in range(callers):
                    others.start_soon(campaign.write_and_find, writes)
                for _ in range(kills):
                    await campaign.claim_and_die()
                    await anyio.sleep(0.05 * campaign.chance.random())
            print(campaign.measured.report(crowd), flush=True)
            await campaign.until_empty()
            tasks.cancel_scope.cancel()
    assert await campaign.indexed() == crowd, "what a dead worker had is indexed by others"


@pytest.mark.contract("S10-5")
@pytest.mark.usefixtures("no_jobs")
async def test_writes_of_others_are_found_while_a_crowd_waits(database: StoreDatabase, store_dsn: str) -> None:
    campaign = Campaign(database, store_dsn, seed=1)
    await run(campaign, crowd=500, callers=3, writes=4, kills=2)
    # Counted in files and not in seconds: whatever the machine does besides, nobody waits for the whole crowd.
    assert sorted(campaign.measured.crowd_files)[len(campaign.measured.crowd_files) // 2] < 250


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.usefixtures("no_jobs")
@pytest.mark.parametrize("kills", [0, 20])
async def test_ten_thousand_waiting_jobs_hold_nobody_up(database: StoreDatabase, store_dsn: str, kills: int) -> None:
    seed = secrets.randbelow(2**32) if os.environ.get("SOAK") else 2
    print(f"seed {seed}")
    campaign = Campaign(database, store_dsn, seed)
    await run(campaign, crowd=10_000, callers=5, writes=20, kills=kills)
    if not kills:  # what a dead worker had waits for its lease to end, and the crowd goes on meanwhile
        assert sorted(campaign.measured.crowd_files)[int(len(campaign.measured.crowd_files) * 0.95)] < 1_000
