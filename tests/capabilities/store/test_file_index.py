"""What is indexed of a file follows the file, embeds nothing twice, and survives workers that overtake each other."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import anyio
import pytest

from armarium.capabilities.store.database.transactions import StoreDatabase
from armarium.capabilities.store.errors import SearchBackendError
from armarium.capabilities.store.index import file_index as indexing
from armarium.capabilities.store.index.embedders import (
    MAX_CACHED_CALLERS,
    KeyMissing,
    StoreModels,
)
from armarium.capabilities.store.index.file_index import FileIndex, TermsWritten
from armarium.capabilities.store.model import Scope
from armarium.capabilities.store.settings import LOCAL_DIMENSIONS, EmbeddingSettings, RerankSettings
from armarium.foundation.errors import ConfigError
from armarium.providers.errors import ProviderAuth, ProviderUnavailable
from emulators import OpenAIEmulator
from support.stored_files import StoredFiles, WordVectors

LONG = "\n\n".join(f"Paragraph {number} tells of things, and {'more ' * 120}" for number in range(12))


@pytest.fixture
def words() -> WordVectors:
    return WordVectors()


@pytest.fixture
def scope(tenant: str) -> Scope:
    return Scope(tenant, "notes")


@pytest.fixture
def files(database: StoreDatabase, scope: Scope) -> StoredFiles:
    return StoredFiles(database, scope)


def models(embedder: WordVectors) -> StoreModels:
    return StoreModels(local=embedder)


@pytest.fixture
def index(database: StoreDatabase, words: WordVectors) -> FileIndex:
    return FileIndex(database, models(words))


async def stored_chunks(database: StoreDatabase, scope: Scope) -> list[dict[str, Any]]:
    """All chunks of the project that have both a vector and words."""
    async with database.read_transaction(scope.apikey_hash) as connection:
        rows = await connection.fetch(
            """
            SELECT chunk.*, word.tokens, word.token_count, file.content, file.path
            FROM mcp_file_chunks AS chunk
            JOIN mcp_file_chunk_embeddings AS vector ON vector.chunk_id = chunk.id AND vector.file_id = chunk.file_id
            JOIN mcp_file_chunk_bm25 AS word ON word.chunk_id = chunk.id AND word.file_id = chunk.file_id
            LEFT JOIN mcp_files AS file ON file.id = chunk.file_id
            WHERE chunk.project = $1 ORDER BY chunk.file_path, chunk.chunk_index
            """,
            scope.project,
        )
        counted = await connection.fetchval("SELECT count(*) FROM mcp_file_chunks WHERE project = $1", scope.project)
    assert counted == len(rows)
    return [dict(row) for row in rows]


async def texts(database: StoreDatabase, scope: Scope) -> list[tuple[str, str]]:
    return [(row["file_path"], row["chunk_content"]) for row in await stored_chunks(database, scope)]


async def test_chunks_are_slices_of_the_file(
    database: StoreDatabase, files: StoredFiles, index: FileIndex, scope: Scope
) -> None:
    await files.write("/a.txt", LONG + " Größe, 漢字\0and \n" + LONG)
    await index.index(scope, "/a.txt", None)
    found = await stored_chunks(database, scope)
    assert len(found) > 6
    assert [row["chunk_index"] for row in found] == list(range(len(found)))
    for row in found:
        assert row["content"][row["start_byte"] : row["end_byte"]] == row["chunk_content"].encode()
        assert row["token_count"] > 0
        assert "tell" in row["tokens"] or "more" in row["tokens"]


async def test_a_file_of_any_bytes_is_indexed(
    database: StoreDatabase, files: StoredFiles, index: FileIndex, scope: Scope
) -> None:
    await files.write("/a", b"half a \xe2\x82 euro")
    await files.write("/empty", b"")
    await index.index(scope, "/a", None)
    await index.index(scope, "/empty", None)
    assert await texts(database, scope) == [("/a", "half a "), ("/a", " euro")]


async def test_what_is_indexed_already_is_not_read_again(
    files: StoredFiles, index: FileIndex, scope: Scope, words: WordVectors
) -> None:
    await files.write("/a", "once")
    await index.index(scope, "/a", None)
    await index.index(scope, "/a", None)
    assert words.embedded == ["once"]


async def test_an_append_embeds_and_rewrites_only_the_end(
    database: StoreDatabase, files: StoredFiles, index: FileIndex, scope: Scope, words: WordVectors
) -> None:
    await files.write("/a", LONG)
    await index.index(scope, "/a", None)
    before = {row["id"] for row in await stored_chunks(database, scope)}
    words.embedded.clear()
    await files.write("/a", f"{LONG}\n\nand a new end")
    await index.index(scope, "/a", None)
    found = await stored_chunks(database, scope)
    assert len(before - {row["id"] for row in found}) == 1
    assert len(words.embedded) <= 2
    assert found[-1]["chunk_content"].endswith("and a new end")


async def test_the_sums_of_a_file_are_those_of_its_chunks_after_every_change(
    database: StoreDatabase, files: StoredFiles, index: FileIndex, scope: Scope
) -> None:
    german = "Die Häuser in der Stadt wurden von den Gemeinden verkauft, weil sie nicht mehr gebraucht wurden."
    for content in (LONG, f"{LONG}\n\n{german * 20}", f"new beginning {LONG}", "short", ""):
        await files.write("/a", content)
        await index.index(scope, "/a", None)
        found = await stored_chunks(database, scope)
        async with database.read_transaction(scope.apikey_hash) as connection:
            sums = await connection.fetchrow("SELECT * FROM mcp_file_indexed WHERE apikey_hash = $1", scope.apikey_hash)
        assert sums is not None
        assert (sums["passages"], sums["words"]) == (len(found), sum(row["token_count"] for row in found))
        assert ("german" in sums["languages"]) == (german in content)


@pytest.mark.parametrize("forget_first", [True, False])
async def test_a_rename_embeds_nothing_and_keeps_the_rows(
    database: StoreDatabase, files: StoredFiles, index: FileIndex, scope: Scope, words: WordVectors, forget_first: bool
) -> None:
    await files.write("/old", LONG)
    await index.index(scope, "/old", None)
    before = [row["id"] for row in await stored_chunks(database, scope)]
    words.embedded.clear()
    await files.rename("/old", "/new")
    if forget_first:
        await index.forget(scope, "/old")
    await index.index(scope, "/new", None)
    await index.forget(scope, "/old")
    found = await stored_chunks(database, scope)
    assert [row["id"] for row in found] == before
    assert {row["file_path"] for row in found} == {"/new"}
    assert words.embedded == []


async def test_a_file_renamed_onto_another_takes_its_place(
    database: StoreDatabase, files: StoredFiles, index: FileIndex, scope: Scope
) -> None:
    for path in ("/a", "/b"):
        await files.write(path, f"content of {path}")
        await index.index(scope, path, None)
    await files.delete("/b")
    await files.rename("/a", "/b")
    await index.index(scope, "/b", None)
    assert await texts(database, scope) == [("/b", "content of /a")]


async def test_a_new_file_at_the_path_of_a_renamed_one_leaves_both_indexed(
    database: StoreDatabase, files: StoredFiles, index: FileIndex, scope: Scope
) -> None:
    await files.write("/a", "first")
    await index.index(scope, "/a", None)
    await files.rename("/a", "/b")
    await files.write("/a", "second")
    await index.index(scope, "/a", None)
    await index.index(scope, "/b", None)
    assert await texts(database, scope) == [("/a", "second"), ("/b", "first")]


async def test_the_same_text_elsewhere_in_the_tenant_is_not_embedded_again(
    database: StoreDatabase, files: StoredFiles, index: FileIndex, scope: Scope, words: WordVectors
) -> None:
    other = StoredFiles(database, Scope(scope.apikey_hash, "elsewhere"))
    await files.write("/a", "said before")
    await index.index(scope, "/a", None)
    await other.write("/b", "said before")
    await index.index(other.scope, "/b", None)
    assert words.embedded == ["said before"]
    assert await texts(database, other.scope) == [("/b", "said before")]


async def test_the_same_text_of_another_tenant_is_embedded_again(
    database: StoreDatabase, files: StoredFiles, index: FileIndex, scope: Scope, words: WordVectors
) -> None:
    stranger = StoredFiles(database, Scope("f" * 64, f"of-{scope.apikey_hash[:8]}"))
    secret = f"said in secret {scope.apikey_hash}"
    await stranger.write("/a", secret)
    await index.index(stranger.scope, "/a", None)
    await files.write("/a", secret)
    await index.index(scope, "/a", None)
    assert words.embedded == [secret, secret]


async def test_a_deleted_file_is_forgotten_by_either_call(
    database: StoreDatabase, files: StoredFiles, index: FileIndex, scope: Scope
) -> None:
    for path, drop in (("/a", index.forget), ("/b", lambda scope, path: index.index(scope, path, None))):
        await files.write(path, "soon gone")
        await index.index(scope, path, None)
        await files.delete(path)
        await drop(scope, path)
        assert await stored_chunks(database, scope) == []


async def test_a_file_that_was_renamed_and_deleted_before_its_chunks_followed_leaves_none(
    database: StoreDatabase, files: StoredFiles, index: FileIndex, scope: Scope
) -> None:
    await files.write("/a", "rain")
    await index.index(scope, "/a", None)
    await files.rename("/a", "/b")
    await index.forget(scope, "/a")
    assert len(await stored_chunks(database, scope)) == 1, "it is the index of the file that has another name now"
    await files.delete("/b")
    await index.forget(scope, "/b")
    assert await stored_chunks(database, scope) == []


async def test_a_file_that_is_renamed_and_deleted_while_its_chunks_are_written_leaves_none(
    database: StoreDatabase, files: StoredFiles, index: FileIndex, scope: Scope
) -> None:
    await files.write("/a", "rain")
    async with anyio.create_task_group() as group, database.write_transaction(scope.apikey_hash) as connection:
        await connection.execute("LOCK TABLE mcp_file_chunk_bm25 IN SHARE MODE")
        group.start_soon(index.write_terms, scope, "/a")
        with anyio.fail_after(60):
            while not await connection.fetchval("SELECT count(*) FROM pg_locks WHERE NOT granted"):
                await anyio.sleep(0.01)
        # The chunks are written, and nobody sees them yet.
        await files.rename("/a", "/b")
        await files.delete("/b")
        await index.forget(scope, "/b")
    assert await stored_chunks(database, scope) == []


async def test_a_file_that_is_moved_to_the_path_of_a_deleted_one_removes_its_chunks(
    database: StoreDatabase, files: StoredFiles, index: FileIndex, scope: Scope
) -> None:
    await files.write("/a", "rain")
    await files.write("/b", "snow")
    await index.index(scope, "/a", None)
    await index.index(scope, "/b", None)
    await files.delete("/a")
    await files.rename("/b", "/a")
    async with database.write_transaction(scope.apikey_hash) as connection:
        # As a rename does it: a file that was indexed stays indexed.
        await connection.execute(
            "UPDATE mcp_file_indexed SET version = file.version FROM mcp_files AS file WHERE file.id = file_id"
        )
    await index.write_terms(scope, "/a")
    assert [text for _, text in await texts(database, scope)] == ["snow"]


async def test_forgetting_a_path_leaves_the_file_that_is_there_now(
    database: StoreDatabase, files: StoredFiles, index: FileIndex, scope: Scope
) -> None:
    await files.write("/a", "old")
    await files.delete("/a")
    await files.write("/a", "new")
    await index.index(scope, "/a", None)
    await index.forget(scope, "/a")
    assert await texts(database, scope) == [("/a", "new")]


async def test_purging_a_file_purges_its_chunks(
    database: StoreDatabase, files: StoredFiles, index: FileIndex, scope: Scope
) -> None:
    await files.write("/a", "soon purged")
    await index.index(scope, "/a", None)
    async with database.write_transaction(scope.apikey_hash) as connection:
        await connection.execute("DELETE FROM mcp_files WHERE apikey_hash = $1", scope.apikey_hash)
    assert await stored_chunks(database, scope) == []


class Held(WordVectors):
    """Waits with the vectors until it is let go."""

    def __init__(self) -> None:
        super().__init__()
        self.asked = anyio.Event()
        self.let_go = anyio.Event()

    async def embed(self, texts: Sequence[str]) -> Any:
        self.asked.set()
        await self.let_go.wait()
        return await super().embed(texts)


async def test_a_slow_worker_does_not_undo_what_a_faster_one_indexed_later(
    database: StoreDatabase, files: StoredFiles, index: FileIndex, scope: Scope
) -> None:
    held = Held()
    slow = FileIndex(database, models(held))
    await files.write("/a", "the first version")
    async with anyio.create_task_group() as group:
        group.start_soon(slow.index, scope, "/a", None)
        await held.asked.wait()
        await files.write("/a", "the second version")
        await index.index(scope, "/a", None)
        held.let_go.set()
    assert await texts(database, scope) == [("/a", "the second version")]


async def test_a_file_that_is_written_all_the_time_is_indexed_all_the_same(
    database: StoreDatabase, files: StoredFiles, scope: Scope
) -> None:
    held = Held()
    slow = FileIndex(database, models(held))
    await files.write("/log", "line 1")
    async with anyio.create_task_group() as group:
        group.start_soon(slow.index, scope, "/log", None)
        await held.asked.wait()
        await files.write("/log", "line 1\nline 2")
        held.let_go.set()
    assert await texts(database, scope) == [("/log", "line 1")]


async def test_a_file_deleted_while_it_was_embedded_stays_out(
    database: StoreDatabase, files: StoredFiles, scope: Scope
) -> None:
    held = Held()
    async with anyio.create_task_group() as group:
        await files.write("/a", "soon gone")
        group.start_soon(FileIndex(database, models(held)).index, scope, "/a", None)
        await held.asked.wait()
        await files.delete("/a")
        held.let_go.set()
    assert await stored_chunks(database, scope) == []


async def test_many_workers_on_one_file_leave_one_set_of_chunks(
    database: StoreDatabase, files: StoredFiles, scope: Scope
) -> None:
    await files.write("/a", LONG)
    async with anyio.create_task_group() as group:
        for _ in range(6):
            group.start_soon(FileIndex(database, models(WordVectors())).index, scope, "/a", None)
    found = await stored_chunks(database, scope)
    assert [row["chunk_index"] for row in found] == list(range(len(found)))
    assert found[-1]["chunk_content"].endswith("more ")


async def test_another_model_indexes_the_same_version_again(
    database: StoreDatabase, files: StoredFiles, index: FileIndex, scope: Scope
) -> None:
    await files.write("/a", "said once")
    await index.index(scope, "/a", None)
    other = WordVectors()
    other.model = "another"
    await FileIndex(database, models(other)).index(scope, "/a", None)
    assert other.embedded == ["said once"]
    assert await texts(database, scope) == [("/a", "said once")]


async def test_what_fails_to_embed_leaves_the_index_as_it_was(
    database: StoreDatabase, files: StoredFiles, index: FileIndex, scope: Scope, words: WordVectors
) -> None:
    await files.write("/a", "old")
    await index.index(scope, "/a", None)
    await files.write("/a", "new")
    words.failure = ProviderUnavailable("gone")
    with pytest.raises(ProviderUnavailable):
        await index.index(scope, "/a", None)
    assert await texts(database, scope) == [("/a", "old")]
    words.failure = None
    await index.index(scope, "/a", None)
    assert await texts(database, scope) == [("/a", "new")]


async def lacking(database: StoreDatabase, scope: Scope) -> list[str]:
    """The chunks that have words and no vector."""
    async with database.read_transaction(scope.apikey_hash) as connection:
        rows = await connection.fetch(
            """
            SELECT chunk.chunk_content
            FROM mcp_file_chunks AS chunk
            JOIN mcp_file_chunk_bm25 AS word ON word.chunk_id = chunk.id
            WHERE chunk.project = $1 AND chunk.id NOT IN (SELECT chunk_id FROM mcp_file_chunk_embeddings)
            ORDER BY chunk.file_path, chunk.chunk_index
            """,
            scope.project,
        )
    return [row["chunk_content"] for row in rows]


async def test_words_come_first_and_vectors_after(
    database: StoreDatabase, files: StoredFiles, index: FileIndex, scope: Scope, words: WordVectors
) -> None:
    await files.write("/a", "said once")
    assert await index.write_terms(scope, "/a") == TermsWritten(new=True, embedded=False)
    assert await lacking(database, scope) == ["said once"]
    assert await index.write_terms(scope, "/a") == TermsWritten(new=False, embedded=False)
    assert words.embedded == []
    for _ in range(2):
        await index.embed(scope, "/a", None)
        assert words.embedded == ["said once"]
        assert await texts(database, scope) == [("/a", "said once")]
        assert await index.write_terms(scope, "/a") == TermsWritten(new=False, embedded=True)


async def test_words_bring_the_vectors_that_are_known(
    database: StoreDatabase, files: StoredFiles, index: FileIndex, scope: Scope, words: WordVectors
) -> None:
    await files.write("/a", "said before")
    await files.write("/b", "said before")
    await files.write("/empty", "")
    await index.index(scope, "/a", None)
    assert await index.write_terms(scope, "/b") == TermsWritten(new=True, embedded=True)
    assert await index.write_terms(scope, "/empty") == TermsWritten(new=True, embedded=True)
    assert await index.write_terms(scope, "/nowhere") == TermsWritten(new=False, embedded=True)
    assert await texts(database, scope) == [("/a", "said before"), ("/b", "said before")]


async def test_a_long_file_can_be_embedded_a_part_at_a_time(
    database: StoreDatabase, files: StoredFiles, index: FileIndex, scope: Scope, words: WordVectors
) -> None:
    await files.write("/a", LONG)
    await index.write_terms(scope, "/a")
    turns = 1
    while not await index.embed(scope, "/a", None, most=5):
        assert len(words.embedded) == 5 * turns
        turns += 1
    found = await stored_chunks(database, scope)
    assert turns > 1
    assert sorted(words.embedded) == sorted(row["chunk_content"] for row in found)
    assert await index.write_terms(scope, "/a") == TermsWritten(new=False, embedded=True)


async def test_a_text_that_several_files_wait_for_is_embedded_once(
    database: StoreDatabase, files: StoredFiles, index: FileIndex, scope: Scope, words: WordVectors
) -> None:
    for path in ("/a", "/b"):
        await files.write(path, "said twice")
        await index.write_terms(scope, path)
    for path in ("/a", "/b"):
        await index.embed(scope, path, None)
    assert words.embedded == ["said twice"]
    assert len(await stored_chunks(database, scope)) == 2


async def test_an_append_to_a_file_that_waits_for_vectors_keeps_its_rows(
    database: StoreDatabase, files: StoredFiles, index: FileIndex, scope: Scope
) -> None:
    await files.write("/a", LONG)
    await index.write_terms(scope, "/a")
    before = await lacking(database, scope)
    await files.write("/a", f"{LONG}\n\nand a new end")
    assert await index.write_terms(scope, "/a") == TermsWritten(new=True, embedded=False)
    assert (await lacking(database, scope))[:-1] == before[:-1]
    await index.embed(scope, "/a", None)
    assert (await texts(database, scope))[-1][1].endswith("and a new end")
    assert (await index.write_terms(scope, "/a")).embedded


async def test_what_was_embedded_before_a_failure_is_not_embedded_again(
    database: StoreDatabase,
    files: StoredFiles,
    index: FileIndex,
    scope: Scope,
    words: WordVectors,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(indexing, "EMBEDDED_AT_ONCE", 2)

    class Fails(WordVectors):
        """Embeds once and then no more."""

        async def embed(self, texts: Sequence[str]) -> Any:
            vectors = await super().embed(texts)
            self.failure = ProviderUnavailable("gone")
            return vectors

    await files.write("/a", LONG)
    await index.write_terms(scope, "/a")
    before = await lacking(database, scope)
    with pytest.raises(ProviderUnavailable):
        await FileIndex(database, models(Fails())).embed(scope, "/a", None)
    assert await lacking(database, scope) == before[2:]
    assert not (await index.write_terms(scope, "/a")).embedded
    await index.embed(scope, "/a", None)
    assert words.embedded == before[2:]
    assert len(await stored_chunks(database, scope)) == len(before)


async def test_a_file_rewritten_while_it_was_embedded_gets_the_vectors_of_what_it_says_now(
    database: StoreDatabase, files: StoredFiles, index: FileIndex, scope: Scope
) -> None:
    held = Held()
    await files.write("/a", "the first version")
    await index.write_terms(scope, "/a")
    async with anyio.create_task_group() as group:
        group.start_soon(FileIndex(database, models(held)).embed, scope, "/a", None)
        await held.asked.wait()
        await files.write("/a", "the second version")
        await index.write_terms(scope, "/a")
        held.let_go.set()
    assert await lacking(database, scope) == ["the second version"]
    assert await index.write_terms(scope, "/a") == TermsWritten(new=False, embedded=False)
    await index.embed(scope, "/a", None)
    assert await texts(database, scope) == [("/a", "the second version")]


@pytest.mark.parametrize("forgotten", [True, False])
async def test_vectors_of_a_file_deleted_meanwhile_bring_nothing_back(
    database: StoreDatabase, files: StoredFiles, index: FileIndex, scope: Scope, forgotten: bool
) -> None:
    held = Held()
    await files.write("/a", "soon gone")
    await index.write_terms(scope, "/a")
    async with anyio.create_task_group() as group:
        group.start_soon(FileIndex(database, models(held)).embed, scope, "/a", None)
        await held.asked.wait()
        await files.delete("/a")
        if forgotten:
            await index.forget(scope, "/a")
        held.let_go.set()
    await index.forget(scope, "/a")
    assert await stored_chunks(database, scope) == []


async def test_a_file_renamed_before_it_was_embedded_is_embedded_under_its_new_path(
    database: StoreDatabase, files: StoredFiles, index: FileIndex, scope: Scope
) -> None:
    await files.write("/old", "a wandering text")
    await index.write_terms(scope, "/old")
    await files.rename("/old", "/new")
    await index.embed(scope, "/old", None)
    assert await lacking(database, scope) == ["a wandering text"]
    await index.write_terms(scope, "/new")
    await index.embed(scope, "/new", None)
    assert await texts(database, scope) == [("/new", "a wandering text")]


async def test_a_file_renamed_while_it_was_embedded_keeps_the_vectors_under_its_new_path(
    database: StoreDatabase, files: StoredFiles, index: FileIndex, scope: Scope
) -> None:
    held = Held()
    await files.write("/old", "a wandering text")
    await index.write_terms(scope, "/old")
    async with anyio.create_task_group() as group:
        group.start_soon(FileIndex(database, models(held)).embed, scope, "/old", None)
        await held.asked.wait()
        await files.rename("/old", "/new")
        await index.forget(scope, "/old")
        assert not (await index.write_terms(scope, "/new")).embedded
        held.let_go.set()
    assert await texts(database, scope) == [("/new", "a wandering text")]
    assert (await index.write_terms(scope, "/new")).embedded


async def test_vectors_for_a_path_that_another_file_took_meanwhile_go_to_their_own_file(
    database: StoreDatabase, files: StoredFiles, index: FileIndex, scope: Scope
) -> None:
    held = Held()
    await files.write("/a", "the first file")
    await index.write_terms(scope, "/a")
    async with anyio.create_task_group() as group:
        group.start_soon(FileIndex(database, models(held)).embed, scope, "/a", None)
        await held.asked.wait()
        await files.rename("/a", "/b")
        await files.write("/a", "the second file")
        await index.write_terms(scope, "/b")
        await index.write_terms(scope, "/a")
        held.let_go.set()
    assert await lacking(database, scope) == ["the second file"]
    await index.embed(scope, "/a", None)
    assert await texts(database, scope) == [("/a", "the second file"), ("/b", "the first file")]


async def test_words_that_are_replaced_after_the_vectors_came_wait_for_new_ones(
    database: StoreDatabase, files: StoredFiles, index: FileIndex, scope: Scope, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The words of a later version were read before the vectors of the earlier came, and are written after."""
    await files.write("/a", LONG)
    await index.write_terms(scope, "/a")
    await files.write("/a", f"{LONG}\n\nand a new end")
    late = FileIndex(database, models(WordVectors()))
    known = late._known

    async def meanwhile(*asked: Any) -> Any:
        await index.embed(scope, "/a", None)
        return await known(*asked)

    monkeypatch.setattr(late, "_known", meanwhile)
    assert await late.write_terms(scope, "/a") == TermsWritten(new=True, embedded=False)
    assert len(await lacking(database, scope)) == 1
    await index.embed(scope, "/a", None)
    assert (await texts(database, scope))[-1][1].endswith("and a new end")
    assert (await index.write_terms(scope, "/a")).embedded


async def test_words_and_vectors_of_a_file_that_changes_all_the_time_end_up_complete(
    database: StoreDatabase, files: StoredFiles, index: FileIndex, scope: Scope
) -> None:
    writing = True

    async def over_and_over(step: Callable[[], Awaitable[object]]) -> None:
        while writing:
            await step()

    await files.write("/a", LONG)
    async with anyio.create_task_group() as group:
        for _ in range(2):
            group.start_soon(over_and_over, lambda: index.write_terms(scope, "/a"))
            group.start_soon(over_and_over, lambda: index.embed(scope, "/a", None))
        for number in range(12):
            await files.write("/a", f"{number} new beginning {LONG[number * 50 :]}\n\nand end {number}")
        writing = False
    await index.write_terms(scope, "/a")
    await index.embed(scope, "/a", None)
    found = await stored_chunks(database, scope)
    assert [row["chunk_index"] for row in found] == list(range(len(found)))
    assert found[-1]["chunk_content"].endswith("and end 11")
    assert (await index.write_terms(scope, "/a")).embedded


async def test_another_model_makes_its_own_vectors_for_words_that_are_there(
    database: StoreDatabase, files: StoredFiles, index: FileIndex, scope: Scope
) -> None:
    await files.write("/a", "said once")
    await index.index(scope, "/a", None)
    other = WordVectors()
    other.model = "another"
    theirs = FileIndex(database, models(other))
    assert not (await theirs.write_terms(scope, "/a")).embedded
    await theirs.embed(scope, "/a", None)
    assert other.embedded == ["said once"]
    assert (await theirs.write_terms(scope, "/a")).embedded
    assert await texts(database, scope) == [("/a", "said once")]


async def test_both_at_once_complete_what_has_only_words(
    database: StoreDatabase, files: StoredFiles, index: FileIndex, scope: Scope
) -> None:
    await files.write("/a", LONG)
    await index.write_terms(scope, "/a")
    await index.index(scope, "/a", None)
    found = await stored_chunks(database, scope)
    assert [row["chunk_index"] for row in found] == list(range(len(found)))
    assert (await index.write_terms(scope, "/a")).embedded


async def test_many_workers_embedding_one_file_leave_one_vector_for_each_chunk(
    database: StoreDatabase, files: StoredFiles, index: FileIndex, scope: Scope
) -> None:
    await files.write("/a", LONG)
    await index.write_terms(scope, "/a")
    expected = len(await lacking(database, scope))
    async with anyio.create_task_group() as group:
        for _ in range(6):
            group.start_soon(FileIndex(database, models(WordVectors())).embed, scope, "/a", None)
    assert len(await stored_chunks(database, scope)) == expected
    assert (await index.write_terms(scope, "/a")).embedded


def hosted(url: str) -> StoreModels:
    embedding = EmbeddingSettings(base_url=url, dimensions=LOCAL_DIMENSIONS)
    return StoreModels(hosted=embedding)


async def test_each_file_is_embedded_with_its_callers_key(
    database: StoreDatabase, files: StoredFiles, scope: Scope, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "key-of-the-platform")
    with OpenAIEmulator("key-of-the-caller") as endpoint:
        theirs = hosted(endpoint.url)
        index = FileIndex(database, theirs)
        await files.write("/a", "hosted")
        with pytest.raises(ProviderAuth):
            await index.index(scope, "/a", "key-of-a-stranger")
        with pytest.raises(KeyMissing) as missing:
            await index.index(scope, "/a", None)
        await index.index(scope, "/a", "key-of-the-caller")
        await theirs.aclose()
        sent = [request.headers["authorization"] for request in endpoint.requests]
    assert sent == ["Bearer key-of-a-stranger", "Bearer key-of-the-caller"]
    assert isinstance(missing.value, SearchBackendError)
    assert (missing.value.code, missing.value.retryable) == ("SEARCH_BACKEND_ERROR", False)
    assert await texts(database, scope) == [("/a", "hosted")]


async def test_connections_of_callers_are_kept_for_the_last_few_only() -> None:
    many = hosted("http://127.0.0.1:9/v1")
    async with many.embedder("first") as first:
        for number in range(MAX_CACHED_CALLERS + 5):
            async with many.embedder(f"key {number}"):
                pass
        async with many.embedder("first") as again:
            assert again is first
    async with many.embedder("key 0") as forgotten, many.embedder("key 0") as same:
        assert forgotten is same
    await many.aclose()


async def test_a_rerank_endpoint_must_be_one() -> None:
    with pytest.raises(ConfigError, match="/rerank"):
        StoreModels(reranker=RerankSettings(endpoint="https://example.org/v1"))
