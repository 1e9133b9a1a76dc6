"""A new index: nothing is lost, words are found all the time, and vectors of another length have room."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Iterator
from pathlib import Path
from typing import Any

import anyio
import asyncpg
import pytest

from armarium.capabilities.store.arguments import DeleteArgs, WriteArgs
from armarium.capabilities.store.commands.reindex import Reindex
from armarium.capabilities.store.database.pool import connect
from armarium.capabilities.store.database.schema import migrate
from armarium.capabilities.store.errors import DatabaseUnavailable
from armarium.capabilities.store.index.wake_up import LISTENER
from armarium.capabilities.store.lifespan import open_resources, open_store
from armarium.capabilities.store.settings import LOCAL_DIMENSIONS, StoreSettings
from armarium.foundation.security.identity import Principal
from armarium.foundation.telemetry import Metrics
from armarium.foundation.tools import Call
from support.postgres import running_postgres
from support.waiting import eventually

CALL = Call(Principal("someone", (), "ef" * 32))
OTHER_MODEL = {
    "embedding": {"provider": "openai", "dimensions": 8},
    "security": {"encryption_keks": {1: "a key for these tests"}},
}


@pytest.fixture(scope="module")
def own_dsn() -> Iterator[str]:
    """A database that is not shared: a new index concerns all tenants."""
    with running_postgres() as dsn:
        yield dsn


@pytest.fixture
async def empty_dsn(own_dsn: str) -> AsyncGenerator[str]:
    yield own_dsn
    await value(own_dsn, "DROP OWNED BY CURRENT_USER CASCADE")


async def value(dsn: str, statement: str) -> Any:
    connection = await asyncpg.connect(dsn, server_settings={"armarium.tenant": "*"})
    try:
        return await connection.fetchval(statement)
    finally:
        await connection.close()


def settings_for(dsn: str, **other: Any) -> StoreSettings:
    return StoreSettings.model_validate({"dsn": dsn} | other)


async def with_indexed_files(dsn: str, tmp_path: Path) -> None:
    async with open_store(settings_for(dsn), tmp_path, Metrics().registry) as store:
        await store.write(CALL, WriteArgs(project="p", path="/a.md", content="Ships leave the harbour."))
        await store.write(CALL, WriteArgs(project="q", path="/b.md", content="Bread is baked at night."))
        await store.write(CALL, WriteArgs(project="q", path="/gone.md", content="x"))
        await store.delete(CALL, DeleteArgs(project="q", path="/gone.md"))

        async def all_is_indexed() -> bool:
            return not await value(dsn, "SELECT count(*) FROM mcp_file_index_jobs WHERE status <> 'done'")

        await eventually(all_is_indexed)


def no_progress(done: int, of: int) -> None:
    """Nobody is told."""


async def test_a_database_without_a_store_is_left_so(empty_dsn: str, tmp_path: Path) -> None:
    with pytest.raises(DatabaseUnavailable):
        await Reindex(settings_for(empty_dsn), tmp_path).plan()
    assert await value(empty_dsn, "SELECT to_regclass('mcp_files')") is None


async def test_looking_at_what_there_is_to_do_changes_nothing(empty_dsn: str, tmp_path: Path) -> None:
    await with_indexed_files(empty_dsn, tmp_path)
    plan = await Reindex(settings_for(empty_dsn, **OTHER_MODEL), tmp_path).plan()
    assert (plan.files, plan.callers, plan.running) == (2, 1, 0)
    assert (plan.dimensions, plan.wanted_dimensions) == (LOCAL_DIMENSIONS, 8)
    assert await value(empty_dsn, "SELECT count(*) FROM mcp_file_chunk_embeddings") == 2


async def test_every_file_gets_new_vectors_and_progress_ends_with_all(empty_dsn: str, tmp_path: Path) -> None:
    await with_indexed_files(empty_dsn, tmp_path)
    await value(empty_dsn, "UPDATE mcp_file_chunk_embeddings SET embedding = embedding + embedding")
    told: list[tuple[int, int]] = []
    done = await Reindex(settings_for(empty_dsn), tmp_path).run(
        wait=True, on_progress=lambda made, of: told.append((made, of))
    )
    assert (done["queued"], done["failed"], done["complete"]) == (2, 0, True)
    assert told[-1] == (2, 2)
    assert await value(empty_dsn, "SELECT count(*) FROM mcp_file_chunk_embeddings") == 2
    assert await value(empty_dsn, "SELECT max(vector_norm(embedding)) FROM mcp_file_chunk_embeddings") < 1.5


async def test_without_waiting_the_jobs_are_left_to_others(empty_dsn: str, tmp_path: Path) -> None:
    await with_indexed_files(empty_dsn, tmp_path)
    done = await Reindex(settings_for(empty_dsn), tmp_path).run(wait=False, on_progress=no_progress)
    assert (done["queued"], done["complete"]) == (2, False)
    queued = "SELECT string_agg(operation || file_path, ' ' ORDER BY id) FROM mcp_file_index_jobs WHERE status = "
    assert await value(empty_dsn, f"{queued} 'pending'") == "UPSERT/a.md UPSERT/b.md"


async def test_vectors_of_another_length_get_room_and_words_are_found_meanwhile(empty_dsn: str, tmp_path: Path) -> None:
    await with_indexed_files(empty_dsn, tmp_path)
    other = settings_for(empty_dsn, **OTHER_MODEL)
    with pytest.raises(DatabaseUnavailable):
        async with open_store(other, tmp_path, Metrics().registry):
            pass
    done = await Reindex(other, tmp_path).run(wait=True, on_progress=no_progress)
    assert (done["queued"], done["complete"]) == (0, True)
    async with open_store(other, tmp_path, Metrics().registry) as store:
        [found] = (await store.find_chunks(CALL, "p", "harbour"))["chunks"]
        assert found["file_path"] == "/a.md"
    await Reindex(settings_for(empty_dsn), tmp_path).run(wait=True, on_progress=no_progress)
    length = "SELECT DISTINCT vector_dims(embedding) FROM mcp_file_chunk_embeddings"
    assert await value(empty_dsn, length) == LOCAL_DIMENSIONS
    pool = await connect(empty_dsn, size=2)
    await migrate(pool, dimensions=LOCAL_DIMENSIONS)
    await pool.aclose()


async def test_what_was_written_while_search_was_off_is_found_after_it_is_switched_on(
    empty_dsn: str, tmp_path: Path
) -> None:
    async with open_store(settings_for(empty_dsn, search={"enabled": False}), tmp_path, Metrics().registry) as store:
        await store.write(CALL, WriteArgs(project="p", path="/a.md", content="Ships leave the harbour."))
    async with open_store(settings_for(empty_dsn), tmp_path, Metrics().registry) as store:

        async def is_found() -> bool:
            found = await store.find_chunks(CALL, "p", "harbour")
            return [chunk["file_path"] for chunk in found["chunks"]] == ["/a.md"]

        await eventually(is_found)


async def test_another_model_of_the_same_length_is_told_at_every_start_until_there_are_new_vectors(
    empty_dsn: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    dimensions = {"embedding": {"provider": "openai", "dimensions": LOCAL_DIMENSIONS, "model": "another-model"}}
    other = settings_for(empty_dsn, **OTHER_MODEL | dimensions)

    async def warnings() -> list[logging.LogRecord]:
        caplog.clear()
        async with open_store(other, tmp_path, Metrics().registry):
            return [record for record in caplog.records if "another model" in record.msg]

    assert await warnings() == []
    await with_indexed_files(empty_dsn, tmp_path)
    for _ in range(2):
        [warning] = await warnings()
        assert "armarium store reindex" in vars(warning)["hint"]
    await Reindex(other, tmp_path).run(wait=False, on_progress=no_progress)
    assert await warnings() == []


@pytest.mark.contract("S15-7")
@pytest.mark.parametrize(
    ("rerank", "is_used"),
    [
        ({"model": "mine"}, True),
        ({"endpoint": "https://rerank.example/v1/rerank"}, True),
        ({"enabled": True}, True),
        ({"model": "mine", "enabled": False}, False),
        ({"timeout_ms": 5}, False),
        ({}, False),
    ],
)
async def test_a_reranker_that_is_described_is_used_and_told_at_the_start(
    empty_dsn: str, tmp_path: Path, caplog: pytest.LogCaptureFixture, rerank: dict[str, Any], is_used: bool
) -> None:
    caplog.set_level("INFO")
    settings = settings_for(empty_dsn, search={"rerank": rerank})
    async with open_resources(settings, tmp_path, Metrics().registry) as resources:
        assert resources.models.reranks("key") is is_used
        assert ("a reranker gets queries, chunks and callers' keys" in caplog.text) is is_used


async def test_who_would_make_vectors_of_the_old_length_must_stop_first(empty_dsn: str, tmp_path: Path) -> None:
    await with_indexed_files(empty_dsn, tmp_path)
    other = Reindex(settings_for(empty_dsn, **OTHER_MODEL), tmp_path)
    async with open_store(settings_for(empty_dsn), tmp_path, Metrics().registry):
        listening = f"SELECT count(*) FROM pg_stat_activity WHERE application_name = '{LISTENER}'"

        async def somebody_listens() -> bool:
            return bool(await value(empty_dsn, listening))

        await eventually(somebody_listens)
        with pytest.raises(DatabaseUnavailable) as refused:
            await other.run(wait=False, on_progress=no_progress)
        assert "stop them" in str(refused.value.hint)
        assert await value(empty_dsn, "SELECT count(*) FROM mcp_file_chunk_embeddings") == 2
        with anyio.fail_after(20):
            done = await Reindex(settings_for(empty_dsn), tmp_path).run(wait=True, on_progress=no_progress)
        assert (done["queued"], done["failed"]) == (2, 0)
