"""A rename and the index: new paths are found at once and old ones never, with one job, whatever dies on the way."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import anyio
import pytest

from armarium.capabilities.store.database.pool import Connection
from armarium.capabilities.store.database.transactions import StoreDatabase
from armarium.capabilities.store.index.embedders import StoreModels
from armarium.capabilities.store.index.file_index import ROWS_AT_ONCE, FileIndex
from armarium.capabilities.store.index.outbox import Outbox
from armarium.capabilities.store.index.wake_up import SharedWakeUp
from armarium.capabilities.store.index.worker import WorkerPool
from armarium.capabilities.store.model import Scope
from armarium.capabilities.store.search.file_search import FileSearch
from armarium.capabilities.store.settings import SearchSettings
from support.outbox import claim_jobs, clear_jobs, enqueue, last_job, set_job, statuses
from support.store_calls import Files
from support.stored_files import WordVectors, index_file
from support.waiting import eventually

PROJECT = "p"
NEVER_S = 3600.0


class Moves:
    """A caller's files with their index, and workers that a test may have."""

    def __init__(self, database: StoreDatabase, dsn: str, tenant: str) -> None:
        self.database = database
        self.scope = Scope(tenant, PROJECT)
        self.files = Files(database, tenant)
        self.words = WordVectors()
        models = StoreModels(local=self.words)
        self.index = FileIndex(database, models)
        self.wake_up = SharedWakeUp(database, dsn)
        self._search = FileSearch(database, models, SearchSettings())

    async def rename(self, source: str, target: str, **more: bool) -> int:
        return (await self.files.ok("rename", from_path=source, to_path=target, **more))["moved_count"]

    async def found(self, query: str) -> list[str]:
        found = await self._search.search(self.scope.apikey_hash, PROJECT, query, "", 20, None)
        return sorted({chunk["file_path"] for chunk in found["chunks"] if query in chunk["chunk_content"]})

    async def stored_chunks(self) -> list[tuple[str, str]]:
        """Under which path each chunk stands, and what it says."""
        rows = await self.files.rows("SELECT file_path, chunk_content FROM mcp_file_chunks ORDER BY file_path")
        return [(row["file_path"], row["chunk_content"]) for row in rows]

    async def misplaced(self) -> int:
        """Chunks that stand under another path than their file has."""
        (row,) = await self.files.rows(
            "SELECT count(*) FROM mcp_file_chunks AS chunk JOIN mcp_files AS file ON file.id = chunk.file_id "
            "WHERE chunk.file_path <> file.path"
        )
        return row["count"]

    async def until_done(self) -> None:
        async def done() -> bool:
            return set(await statuses(self.database, self.scope.apikey_hash)) == {"done"}

        await eventually(done)

    def outbox(self) -> Outbox:
        return Outbox(self.database, lease_s=60.0, retry_max=3, retry_backoff_s=1000.0)

    @asynccontextmanager
    async def working(self) -> AsyncGenerator[None]:
        async def run() -> None:
            pool = WorkerPool(self.outbox(), self.index, None, self.wake_up)
            await pool.run(workers=2, batch=20, poll_s=NEVER_S)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(run)
            yield
            tasks.cancel_scope.cancel()

    async def indexed(self, *paths: str) -> None:
        """Files that say their own names, with their index and no jobs."""
        for path in paths:
            await self.files.put(path, content=f"says {path.rpartition('/')[2]}")
            await index_file(self.index, self.scope, path)
        await clear_jobs(self.database)


@pytest.fixture
async def moves(database: StoreDatabase, store_dsn: str, tenant: str) -> AsyncGenerator[Moves]:
    await clear_jobs(database)
    yield Moves(database, store_dsn, tenant)
    await clear_jobs(database)


@pytest.mark.contract("S9.5-12")
async def test_files_that_were_indexed_are_found_under_their_new_paths_before_any_worker_looks(moves: Moves) -> None:
    await moves.indexed("/d/rain", "/d/sub/snow", "/e/rain")
    await moves.rename("/d", "/far/away")
    assert await moves.found("rain") == ["/e/rain", "/far/away/rain"]
    assert await moves.found("snow") == ["/far/away/sub/snow"]


async def test_the_job_of_a_rename_indexes_nothing_anew_and_corrects_the_paths(moves: Moves) -> None:
    await moves.indexed("/d/rain", "/d/snow", "/d2/hail")
    moves.words.embedded.clear()
    await moves.rename("/d", "/e")
    async with moves.working():
        await moves.until_done()
    assert len(await moves.files.jobs()) == 1
    assert await moves.stored_chunks() == [
        ("/d2/hail", "says hail"),
        ("/e/rain", "says rain"),
        ("/e/snow", "says snow"),
    ]
    assert moves.words.embedded == []


async def test_files_that_were_not_indexed_yet_are_found_under_their_new_paths(moves: Moves) -> None:
    await moves.indexed("/d/rain")
    await moves.files.put("/d/snow", content="says snow")
    await moves.rename("/d", "/e")
    async with moves.working():
        await moves.until_done()
    assert [job[:2] for job in await moves.files.jobs()] == [
        ("UPSERT", "/d/snow"),
        ("MOVE", "/e"),
        ("UPSERT", "/e/snow"),
    ]
    assert await moves.found("snow") == ["/e/snow"]
    assert await moves.found("rain") == ["/e/rain"]


async def test_a_single_file_that_was_not_indexed_yet_is_found_under_its_new_path(moves: Moves) -> None:
    await moves.files.put("/snow", content="says snow")
    await moves.rename("/snow", "/hail")
    async with moves.working():
        await moves.until_done()
    assert await moves.found("snow") == ["/hail"]


async def test_a_job_that_looked_before_the_rename_does_not_stand_in_for_the_moved_file(moves: Moves) -> None:
    await moves.files.put("/d/snow", content="says snow")
    await clear_jobs(moves.database)
    await enqueue(moves.database, moves.scope.apikey_hash, "/e/snow", project=PROJECT)
    outbox = moves.outbox()
    (looked,) = await claim_jobs(outbox, "words", 5)
    await moves.index.write_terms(moves.scope, "/e/snow")
    await moves.rename("/d", "/e")
    async with moves.working():
        await outbox.done(looked)
        await moves.until_done()
    assert await moves.found("snow") == ["/e/snow"]


async def test_files_whose_vectors_were_still_to_come_get_them_under_their_new_paths(moves: Moves) -> None:
    await moves.files.put("/d/snow", content="says snow")
    await moves.index.write_terms(moves.scope, "/d/snow")
    await moves.rename("/d", "/e")
    async with moves.working():
        await moves.until_done()
    assert moves.words.embedded == ["says snow"]


async def test_a_file_changed_after_it_was_indexed_is_indexed_as_it_is(moves: Moves) -> None:
    await moves.indexed("/d/rain")
    await moves.files.put("/d/rain", content="says sun")
    await moves.rename("/d", "/e")
    assert await moves.found("rain") == []
    async with moves.working():
        await moves.until_done()
    assert await moves.stored_chunks() == [("/e/rain", "says sun")]


async def test_files_that_change_places_keep_their_chunks(moves: Moves) -> None:
    await moves.indexed("/rain", "/snow")
    await moves.rename("/rain", "/between")
    await moves.rename("/snow", "/rain")
    await moves.rename("/between", "/snow")
    assert (await moves.found("rain"), await moves.found("snow")) == (["/snow"], ["/rain"])
    async with moves.working():
        await moves.until_done()
    assert await moves.stored_chunks() == [("/rain", "says snow"), ("/snow", "says rain")]
    assert (await moves.found("rain"), await moves.found("snow")) == (["/snow"], ["/rain"])


async def test_a_new_file_at_an_old_path_and_the_moved_one_are_both_found(moves: Moves) -> None:
    await moves.indexed("/d/rain")
    await moves.rename("/d", "/e")
    await moves.files.put("/d/rain", content="says sun")
    # In the order that is not the queue's: the chunks of the moved file still stand under the path of the new one.
    await index_file(moves.index, moves.scope, "/d/rain")
    assert (await moves.found("rain"), await moves.found("sun")) == (["/e/rain"], ["/d/rain"])
    async with moves.working():
        await moves.until_done()
    assert await moves.stored_chunks() == [("/d/rain", "says sun"), ("/e/rain", "says rain")]


async def test_nothing_is_left_of_a_file_that_another_replaced(moves: Moves) -> None:
    await moves.indexed("/rain", "/snow")
    await moves.rename("/rain", "/snow", overwrite=True)
    assert (await moves.found("rain"), await moves.found("snow")) == (["/snow"], [])
    async with moves.working():
        await moves.until_done()
    assert await moves.stored_chunks() == [("/snow", "says rain")]


async def test_a_moved_directory_that_is_deleted_leaves_nothing(moves: Moves) -> None:
    await moves.indexed("/d/rain", "/d/snow")
    await moves.rename("/d", "/e")
    await moves.files.ok("delete", path="/e", recursive=True)
    assert await moves.found("rain") == []
    async with moves.working():
        await moves.until_done()
    assert await moves.stored_chunks() == []


async def test_one_key_serves_all_files_of_a_rename(database: StoreDatabase, tenant: str, moves: Moves) -> None:
    files = Files(database, tenant, key="sk-secret")
    await files.put(*(f"/d/{number}" for number in range(5)))
    kept = len(files.kept)
    await files.ok("rename", from_path="/d", to_path="/e")
    assert len(files.kept) == kept + 1
    (job,) = [job for job in await claim_jobs(moves.outbox(), "words", 20) if job.operation == "MOVE"]
    assert await moves.index.follow(job.scope, job.path, job.references[0]) == 5
    assert {reference for operation, path, reference in await files.jobs() if path.startswith("/e/")} == {
        job.references[0]
    }
    assert await moves.outbox().unused(job) == []


@pytest.mark.parametrize("many", [2_000, pytest.param(20_000, marks=pytest.mark.soak)])
async def test_many_files_move_with_one_job_that_survives_the_death_of_its_worker(
    moves: Moves, monkeypatch: pytest.MonkeyPatch, many: int
) -> None:
    await fill(moves, many)
    assert await moves.rename("/old", "/new") == many
    assert await moves.files.jobs() == [("MOVE", "/new", None)]
    assert await moves.found("word777x") == ["/new/00777"]

    await dies_half_way(moves, monkeypatch, many)
    assert 0 < await moves.misplaced() < many
    # What was indexed stays so, and is found, whatever paths its chunks have.
    assert await moves.found("word777x") == ["/new/00777"]
    assert await moves.found(f"word{many}x") == [f"/new/{many:05}"]

    await set_job(
        moves.database,
        await last_job(moves.database, moves.scope.apikey_hash),
        "lease_until = now() - interval '1 second'",
    )
    async with moves.working():
        await moves.until_done()
    assert await moves.misplaced() == 0
    assert len(await moves.files.jobs()) == 1, "nothing was indexed anew"


async def dies_half_way(moves: Moves, monkeypatch: pytest.MonkeyPatch, many: int) -> None:
    """A worker claims the job, does some of it, and is not heard of any more."""

    class Died(Exception):
        pass

    transactions = 0
    write_transaction = moves.database.write_transaction

    @asynccontextmanager
    async def dying(tenant: str) -> AsyncGenerator[Connection]:
        nonlocal transactions
        transactions += 1
        if transactions > many // ROWS_AT_ONCE // 2 + 4:
            raise Died
        async with write_transaction(tenant) as connection:
            yield connection

    (job,) = await claim_jobs(moves.outbox(), "words", 20)
    with monkeypatch.context() as patched:
        patched.setattr(moves.database, "write_transaction", dying)
        with pytest.raises(Died):
            await moves.index.follow(job.scope, job.path, None)


async def fill(moves: Moves, files: int) -> None:
    """Files below /old with one chunk each, indexed, written as a worker leaves them."""
    tenant = moves.scope.apikey_hash
    async with moves.database.write_transaction(tenant) as connection:
        await connection.execute(
            "INSERT INTO mcp_file_projects (apikey_hash, project, bytes, revision) VALUES ($1, $2, 0, $3)",
            tenant, PROJECT, files,
        )  # fmt: skip
        await connection.execute(
            """
            WITH given AS (
                SELECT number, 'word' || number || 'x' AS text, '/old/' || lpad(number::text, 5, '0') AS path
                FROM generate_series(1, $3::int) AS number
            ),
            file AS (
                INSERT INTO mcp_files (apikey_hash, project, path, content, size, version)
                SELECT $1, $2, path, text::bytea, octet_length(text), number FROM given
                RETURNING id, path, version
            ),
            noted AS (
                INSERT INTO mcp_file_indexed
                (file_id, apikey_hash, project, version, made_with, passages, words, languages)
                SELECT id, $1, $2, version, $4, 1, 1, ARRAY['english'] FROM file
            ),
            chunk AS (
                INSERT INTO mcp_file_chunks (
                    apikey_hash, project, file_path, file_id, chunk_index, start_byte, end_byte, chunk_content,
                    content_hash
                )
                SELECT $1, $2, path, file.id, 0, 0, octet_length(text), text, encode(sha256(text::bytea), 'hex')
                FROM file JOIN given USING (path)
                RETURNING id, file_id, chunk_content
            )
            INSERT INTO mcp_file_chunk_bm25 (chunk_id, apikey_hash, project, file_id, tokens, token_count, tokenizer)
            SELECT id, $1, $2, file_id, jsonb_build_object(chunk_content, 1), 1, 't' FROM chunk
            """,
            tenant, PROJECT, files, moves.index._complete,
        )  # fmt: skip
    assert await enqueue(moves.database, tenant, "/other")
    await clear_jobs(moves.database)
