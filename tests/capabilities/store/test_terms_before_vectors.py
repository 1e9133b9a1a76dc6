"""From a write to a hit: words are found while vectors wait for a slow model, and vectors come whatever happens."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest

from armarium.capabilities.store.database.transactions import StoreDatabase
from armarium.capabilities.store.index.embedders import StoreModels
from armarium.capabilities.store.index.file_index import FileIndex
from armarium.capabilities.store.index.outbox import Outbox
from armarium.capabilities.store.index.wake_up import SharedWakeUp
from armarium.capabilities.store.index.worker import WorkerPool
from armarium.capabilities.store.model import Scope
from armarium.capabilities.store.search.file_search import FileSearch
from armarium.capabilities.store.settings import SearchSettings
from support.outbox import claim_jobs, clear_jobs, enqueue, set_job, statuses
from support.stored_files import StoredFiles, WordVectors
from support.waiting import eventually

NEVER_S = 3600.0


class Hanging(WordVectors):
    """Answers questions at once, and embeds chunks only while it is let."""

    def __init__(self) -> None:
        super().__init__()
        self.let_go = anyio.Event()
        self.asked = anyio.Event()

    async def embed(self, texts: Sequence[str]) -> Any:
        self.asked.set()
        await self.let_go.wait()
        return await super().embed(texts)


class Place:
    """One project with its workers, its search, and a model that hangs until it is let go."""

    def __init__(self, database: StoreDatabase, dsn: str, tenant: str) -> None:
        self.database = database
        self.scope = Scope(tenant, "notes")
        self.files = StoredFiles(database, self.scope)
        self.model = Hanging()
        models = StoreModels(local=self.model)
        self.index = FileIndex(database, models)
        self.wake_up = SharedWakeUp(database, dsn)
        self._search = FileSearch(database, models, SearchSettings())

    async def write(self, path: str, content: str) -> int:
        """A file and its job, as a write leaves them; the job's id."""
        await self.files.write(path, content)
        return await self.changed(path)

    async def changed(self, path: str, operation: str = "UPSERT") -> int:
        """The job of a change that was made; its id."""
        job_id = await enqueue(self.database, self.scope.apikey_hash, path, operation, project=self.scope.project)
        self.wake_up.wake_all()
        return job_id

    async def finds(self, query: str, path: str) -> bool:
        found = await self._search.search(self.scope.apikey_hash, self.scope.project, query, "", 5, None)
        return path in [entry["file_path"] for entry in found["chunks"]]

    async def vectors(self) -> int:
        async with self.database.read_transaction(self.scope.apikey_hash) as connection:
            return await connection.fetchval(
                "SELECT count(*) FROM mcp_file_chunk_embeddings WHERE apikey_hash = $1", self.scope.apikey_hash
            )

    async def states(self) -> set[str]:
        return set(await statuses(self.database, self.scope.apikey_hash))

    async def states_are(self, states: set[str]) -> bool:
        return await self.states() == states

    async def until_done(self) -> None:
        await eventually(lambda: self.states_are({"done"}))

    def outbox(self) -> Outbox:
        return Outbox(self.database, lease_s=60.0, retry_max=3, retry_backoff_s=1000.0)

    @asynccontextmanager
    async def working(self, poll_s: float = NEVER_S) -> AsyncGenerator[None]:
        async def run() -> None:
            pool = WorkerPool(self.outbox(), self.index, None, self.wake_up)
            await pool.run(workers=2, batch=20, poll_s=poll_s)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(run)
            yield
            tasks.cancel_scope.cancel()


@pytest.fixture
async def place(database: StoreDatabase, store_dsn: str, tenant: str) -> AsyncGenerator[Place]:
    await clear_jobs(database)
    yield Place(database, store_dsn, tenant)
    await clear_jobs(database)


async def test_a_file_is_found_by_its_words_while_the_model_hangs_and_by_its_meaning_afterwards(place: Place) -> None:
    async with place.working():
        await place.write("/a", "the windmill turns")
        await eventually(lambda: place.finds("windmill", "/a"))
        await place.model.asked.wait()
        assert (await place.vectors(), await place.states()) == (0, {"processing"})
        assert not await place.finds("?!", "/a")
        place.model.let_go.set()
        await place.until_done()
    assert await place.vectors() == 1
    assert await place.finds("?!", "/a")


async def test_two_hundred_writes_are_all_found_by_words_before_one_of_them_is_embedded(place: Place) -> None:
    paths = {f"/{number}": f"word{number}x" for number in range(200)}
    async with place.working():
        for path, word in paths.items():
            await place.write(path, f"a note about {word}")
        for path, word in paths.items():
            await eventually(lambda path=path, word=word: place.finds(word, path))
        assert (place.model.embedded, await place.vectors()) == ([], 0)
        place.model.let_go.set()
        await place.until_done()
    assert await place.vectors() == 200
    assert len(place.model.embedded) == 200


async def test_workers_that_end_between_the_stages_leave_the_vectors_to_the_next(place: Place) -> None:
    async with place.working():
        for number in range(5):
            await place.write(f"/{number}", f"the windmill, number {number}")
        await eventually(lambda: place.finds("windmill", "/4"))
        await place.model.asked.wait()
    assert await place.states() == {"pending"}
    assert await place.finds("windmill", "/4")
    place.model.let_go.set()
    async with place.working():
        await place.until_done()
    assert await place.vectors() == 5


async def test_a_crash_between_the_stages_is_made_good(place: Place) -> None:
    job_id = await place.write("/a", "the windmill turns")
    [job] = await claim_jobs(place.outbox(), "words", 10)
    await place.index.write_terms(job.scope, job.path)
    # Nothing more is heard of that worker.
    place.model.let_go.set()
    async with place.working(poll_s=0.05):
        await set_job(place.database, job_id, "lease_until = now() - interval '1 second'")
        await place.until_done()
    assert await place.vectors() == 1
    assert place.model.embedded == ["the windmill turns"]


async def test_the_next_words_of_a_file_are_found_while_its_last_ones_are_embedded(place: Place) -> None:
    async with place.working():
        await place.write("/a", "the windmill turns")
        await place.model.asked.wait()
        await place.write("/a", "the lighthouse shines")
        await eventually(lambda: place.finds("lighthouse", "/a"))
        assert not await place.finds("windmill", "/a")
        assert await place.vectors() == 0
        place.model.let_go.set()
        await place.until_done()
    assert await place.vectors() == 1
    assert place.model.embedded == ["the windmill turns", "the lighthouse shines"]


async def test_a_file_renamed_while_it_is_embedded_has_its_vectors_in_the_end(place: Place) -> None:
    async with place.working():
        await place.write("/old", "the windmill turns")
        await place.model.asked.wait()
        await place.files.rename("/old", "/new")
        await place.changed("/old", "DELETE")
        await place.changed("/new")
        await eventually(lambda: place.finds("windmill", "/new"))
        place.model.let_go.set()
        await place.until_done()
    assert await place.vectors() == 1
    assert await place.finds("?!", "/new")


async def test_a_file_deleted_while_it_is_embedded_stays_away(place: Place) -> None:
    async with place.working():
        await place.write("/a", "the windmill turns")
        await place.model.asked.wait()
        await place.files.delete("/a")
        await place.changed("/a", "DELETE")
        await eventually(lambda: place.states_are({"processing", "done"}))
        place.model.let_go.set()
        await place.until_done()
    assert await place.vectors() == 0


async def test_vectors_that_wait_are_made_by_the_model_that_is_there_when_their_turn_comes(place: Place) -> None:
    async with place.working():
        await place.write("/a", "the windmill turns")
        await place.model.asked.wait()
    other = WordVectors()
    other.model = "another"
    place.index = FileIndex(place.database, StoreModels(local=other))
    async with place.working():
        await place.until_done()
    assert other.embedded == ["the windmill turns"]
    assert await place.vectors() == 1


@pytest.mark.contract("S11.2-3")
async def test_a_job_that_waited_works_with_the_file_as_it_is_when_its_turn_comes(place: Place) -> None:
    async with place.working():
        # As many as there are workers, so that the next one waits.
        for number in range(2):
            await place.write(f"/busy/{number}", f"keeps a worker busy {number}")
        await eventually(lambda: place.finds("busy", "/busy/1"))
        await place.model.asked.wait()
        await place.write("/a", "the windmill turns")
        await eventually(lambda: place.finds("windmill", "/a"))
        await place.write("/a", "the lighthouse shines")
        place.model.let_go.set()
        await place.until_done()
    assert await place.finds("lighthouse", "/a")
    assert await place.vectors() == 3
    assert "the windmill turns" not in place.model.embedded
