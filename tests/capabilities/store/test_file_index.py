"""What is indexed of a file follows the file, embeds nothing twice, and survives workers that overtake each other."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest

from armarium.capabilities.store.database.pool import Connection
from armarium.capabilities.store.database.transactions import StoreDatabase
from armarium.capabilities.store.errors import SearchBackendError
from armarium.capabilities.store.index.embedders import MAX_CACHED_CALLERS, KeyMissing, StoreModels
from armarium.capabilities.store.index.file_index import FileIndex, TermsWritten
from armarium.capabilities.store.model import Scope
from armarium.capabilities.store.settings import LOCAL_DIMENSIONS, EmbeddingSettings, RerankSettings
from armarium.foundation.errors import ConfigError
from armarium.providers.errors import ProviderAuth, ProviderUnavailable
from emulators import OpenAIEmulator
from support.stored_files import StoredFiles, WordVectors, index_file

LONG = "\n\n".join(f"Paragraph {number} tells of things, and {'more ' * 120}" for number in range(12))


class Project:
    """A project, its index, and what the index holds of it."""

    def __init__(self, database: StoreDatabase, scope: Scope, words: WordVectors | None = None, **options: Any) -> None:
        self.database = database
        self.scope = scope
        self.words = words or WordVectors()
        self._index = FileIndex(database, StoreModels(local=self.words), **options)
        files = StoredFiles(database, scope)
        self.write, self.delete, self.rename = files.write, files.delete, files.rename

    def with_embedder(self, words: WordVectors, **options: Any) -> Project:
        """The same project, indexed by a worker with another embedder."""
        return Project(self.database, self.scope, words, **options)

    async def index(self, path: str) -> None:
        """Write terms and vectors, as a worker does it."""
        await index_file(self._index, self.scope, path)

    async def write_terms(self, path: str) -> TermsWritten:
        return await self._index.write_terms(self.scope, path)

    async def embed(self, path: str, *, most: int | None = None) -> bool:
        return await self._index.embed(self.scope, path, None, most=most)

    async def forget(self, path: str) -> None:
        await self._index.forget(self.scope, path)

    async def chunks(self) -> list[dict[str, Any]]:
        """All chunks of the project that have both a vector and words."""
        async with self.database.read_transaction(self.scope.apikey_hash) as connection:
            rows = await connection.fetch(
                """
                SELECT chunk.*, word.tokens, word.token_count, file.content, file.path
                FROM mcp_file_chunks AS chunk
                JOIN mcp_file_chunk_embeddings AS vector
                    ON vector.chunk_id = chunk.id AND vector.file_id = chunk.file_id
                JOIN mcp_file_chunk_bm25 AS word ON word.chunk_id = chunk.id AND word.file_id = chunk.file_id
                LEFT JOIN mcp_files AS file ON file.id = chunk.file_id
                WHERE chunk.project = $1 ORDER BY chunk.file_path, chunk.chunk_index
                """,
                self.scope.project,
            )
            count = "SELECT count(*) FROM mcp_file_chunks WHERE project = $1"
            assert await connection.fetchval(count, self.scope.project) == len(rows)
        return [dict(row) for row in rows]

    async def texts(self) -> list[tuple[str, str]]:
        return [(row["file_path"], row["chunk_content"]) for row in await self.chunks()]

    async def lacking(self) -> list[str]:
        """The chunks that have words and no vector."""
        async with self.database.read_transaction(self.scope.apikey_hash) as connection:
            rows = await connection.fetch(
                """
                SELECT chunk.chunk_content
                FROM mcp_file_chunks AS chunk
                JOIN mcp_file_chunk_bm25 AS word ON word.chunk_id = chunk.id
                WHERE chunk.project = $1 AND chunk.id NOT IN (SELECT chunk_id FROM mcp_file_chunk_embeddings)
                ORDER BY chunk.file_path, chunk.chunk_index
                """,
                self.scope.project,
            )
        return [row["chunk_content"] for row in rows]

    async def write_terms_late(self, path: str, meanwhile: Callable[[], Awaitable[object]]) -> TermsWritten:
        """Write the terms as a worker that is overtaken: something happens after it has read the file."""
        late = FileIndex(_LateDatabase(self.database, meanwhile), StoreModels(local=WordVectors()))
        return await late.write_terms(self.scope, path)


class _LateDatabase:
    """A database that lets something happen before the first write."""

    def __init__(self, database: StoreDatabase, meanwhile: Callable[[], Awaitable[object]]) -> None:
        self._meanwhile: Callable[[], Awaitable[object]] | None = meanwhile
        self._database = database
        self.read_transaction = database.read_transaction

    @asynccontextmanager
    async def write_transaction(self, tenant: str) -> AsyncGenerator[Connection]:
        meanwhile, self._meanwhile = self._meanwhile, None
        if meanwhile is not None:
            await meanwhile()
        async with self._database.write_transaction(tenant) as connection:
            yield connection


@pytest.fixture
def notes(database: StoreDatabase, tenant: str) -> Project:
    return Project(database, Scope(tenant, "notes"))


@pytest.mark.contract("S11.2-3", "S11.3-1")
async def test_chunks_are_slices_of_the_file(notes: Project) -> None:
    await notes.write("/a.txt", LONG + " Größe, 漢字\0and \n" + LONG)
    await notes.index("/a.txt")
    found = await notes.chunks()
    assert len(found) > 6
    assert [row["chunk_index"] for row in found] == list(range(len(found)))
    for row in found:
        assert row["content"][row["start_byte"] : row["end_byte"]] == row["chunk_content"].encode()
        assert row["token_count"] > 0
        assert "tell" in row["tokens"] or "more" in row["tokens"]


async def test_a_file_of_any_bytes_is_indexed(notes: Project) -> None:
    await notes.write("/a", b"half a \xe2\x82 euro")
    await notes.write("/empty", b"")
    await notes.index("/a")
    await notes.index("/empty")
    assert await notes.texts() == [("/a", "half a "), ("/a", " euro")]


async def test_what_is_indexed_already_is_not_read_again(notes: Project) -> None:
    await notes.write("/a", "once")
    await notes.index("/a")
    await notes.index("/a")
    assert notes.words.embedded == ["once"]


async def test_an_append_embeds_and_rewrites_only_the_end(notes: Project) -> None:
    await notes.write("/a", LONG)
    await notes.index("/a")
    before = {row["id"] for row in await notes.chunks()}
    notes.words.embedded.clear()
    await notes.write("/a", f"{LONG}\n\nand a new end")
    await notes.index("/a")
    found = await notes.chunks()
    assert len(before - {row["id"] for row in found}) == 1
    assert len(notes.words.embedded) <= 2
    assert found[-1]["chunk_content"].endswith("and a new end")


async def test_the_sums_of_a_file_are_those_of_its_chunks_after_every_change(notes: Project) -> None:
    german = "Die Häuser in der Stadt wurden von den Gemeinden verkauft, weil sie nicht mehr gebraucht wurden."
    for content in (LONG, f"{LONG}\n\n{german * 20}", f"new beginning {LONG}", "short", ""):
        await notes.write("/a", content)
        await notes.index("/a")
        found = await notes.chunks()
        tenant = notes.scope.apikey_hash
        async with notes.database.read_transaction(tenant) as connection:
            sums = await connection.fetchrow("SELECT * FROM mcp_file_indexed WHERE apikey_hash = $1", tenant)
        assert sums is not None
        assert (sums["passages"], sums["words"]) == (len(found), sum(row["token_count"] for row in found))
        assert ("german" in sums["languages"]) == (german in content)


@pytest.mark.parametrize("forget_first", [True, False])
async def test_a_rename_embeds_nothing_and_keeps_the_rows(notes: Project, forget_first: bool) -> None:
    await notes.write("/old", LONG)
    await notes.index("/old")
    before = [row["id"] for row in await notes.chunks()]
    notes.words.embedded.clear()
    await notes.rename("/old", "/new")
    if forget_first:
        await notes.forget("/old")
    await notes.index("/new")
    await notes.forget("/old")
    found = await notes.chunks()
    assert [row["id"] for row in found] == before
    assert {row["file_path"] for row in found} == {"/new"}
    assert notes.words.embedded == []


async def test_a_file_renamed_onto_another_takes_its_place(notes: Project) -> None:
    for path in ("/a", "/b"):
        await notes.write(path, f"content of {path}")
        await notes.index(path)
    await notes.delete("/b")
    await notes.rename("/a", "/b")
    await notes.index("/b")
    assert await notes.texts() == [("/b", "content of /a")]


async def test_a_new_file_at_the_path_of_a_renamed_one_leaves_both_indexed(notes: Project) -> None:
    await notes.write("/a", "first")
    await notes.index("/a")
    await notes.rename("/a", "/b")
    await notes.write("/a", "second")
    await notes.index("/a")
    await notes.index("/b")
    assert await notes.texts() == [("/a", "second"), ("/b", "first")]


async def test_the_same_text_elsewhere_in_the_tenant_is_not_embedded_again(notes: Project) -> None:
    other = Project(notes.database, Scope(notes.scope.apikey_hash, "elsewhere"), notes.words)
    await notes.write("/a", "said before")
    await notes.index("/a")
    await other.write("/b", "said before")
    await other.index("/b")
    assert notes.words.embedded == ["said before"]
    assert await other.texts() == [("/b", "said before")]


async def test_the_same_text_of_another_tenant_is_embedded_again(notes: Project) -> None:
    tenant = notes.scope.apikey_hash
    stranger = Project(notes.database, Scope("f" * 64, f"of-{tenant[:8]}"), notes.words)
    secret = f"said in secret {tenant}"
    await stranger.write("/a", secret)
    await stranger.index("/a")
    await notes.write("/a", secret)
    await notes.index("/a")
    assert notes.words.embedded == [secret, secret]


@pytest.mark.contract("S11.2-5")
async def test_a_deleted_file_is_forgotten_by_either_call(notes: Project) -> None:
    for path, drop in (("/a", notes.forget), ("/b", notes.index)):
        await notes.write(path, "soon gone")
        await notes.index(path)
        await notes.delete(path)
        await drop(path)
        assert await notes.chunks() == []


async def test_a_file_that_was_renamed_and_deleted_before_its_chunks_followed_leaves_none(notes: Project) -> None:
    await notes.write("/a", "rain")
    await notes.index("/a")
    await notes.rename("/a", "/b")
    await notes.forget("/a")
    assert len(await notes.chunks()) == 1, "it is the index of the file that has another name now"
    await notes.delete("/b")
    await notes.forget("/b")
    assert await notes.chunks() == []


async def test_a_file_that_is_renamed_and_deleted_while_its_chunks_are_written_leaves_none(notes: Project) -> None:
    await notes.write("/a", "rain")
    changing = notes.database.write_transaction(notes.scope.apikey_hash)
    async with anyio.create_task_group() as group, changing as connection:
        await connection.execute("LOCK TABLE mcp_file_chunk_bm25 IN SHARE MODE")
        group.start_soon(notes.write_terms, "/a")
        with anyio.fail_after(60):
            while not await connection.fetchval("SELECT count(*) FROM pg_locks WHERE NOT granted"):
                await anyio.sleep(0.01)
        # The chunks are written, and nobody sees them yet.
        await notes.rename("/a", "/b")
        await notes.delete("/b")
        await notes.forget("/b")
    assert await notes.chunks() == []


async def test_a_file_that_is_moved_to_the_path_of_a_deleted_one_removes_its_chunks(notes: Project) -> None:
    await notes.write("/a", "rain")
    await notes.write("/b", "snow")
    await notes.index("/a")
    await notes.index("/b")
    await notes.delete("/a")
    await notes.rename("/b", "/a")
    async with notes.database.write_transaction(notes.scope.apikey_hash) as connection:
        # As a rename does it: a file that was indexed stays indexed.
        await connection.execute(
            "UPDATE mcp_file_indexed SET version = file.version FROM mcp_files AS file WHERE file.id = file_id"
        )
    await notes.write_terms("/a")
    assert [text for _, text in await notes.texts()] == ["snow"]


async def test_forgetting_a_path_leaves_the_file_that_is_there_now(notes: Project) -> None:
    await notes.write("/a", "old")
    await notes.delete("/a")
    await notes.write("/a", "new")
    await notes.index("/a")
    await notes.forget("/a")
    assert await notes.texts() == [("/a", "new")]


async def test_purging_a_file_purges_its_chunks(notes: Project) -> None:
    await notes.write("/a", "soon purged")
    await notes.index("/a")
    tenant = notes.scope.apikey_hash
    async with notes.database.write_transaction(tenant) as connection:
        await connection.execute("DELETE FROM mcp_files WHERE apikey_hash = $1", tenant)
    assert await notes.chunks() == []


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


async def test_a_slow_worker_does_not_undo_what_a_faster_one_indexed_later(notes: Project) -> None:
    async def overtake() -> None:
        await notes.write("/a", "the second version")
        await notes.index("/a")

    await notes.write("/a", "the first version")
    assert await notes.write_terms_late("/a", overtake) == TermsWritten(new=False, embedded=False)
    assert await notes.texts() == [("/a", "the second version")]


async def test_vectors_that_come_late_do_not_undo_what_a_faster_worker_indexed(notes: Project) -> None:
    held = Held()
    await notes.write("/a", "the first version")
    async with anyio.create_task_group() as group:
        group.start_soon(notes.with_embedder(held).index, "/a")
        await held.asked.wait()
        await notes.write("/a", "the second version")
        await notes.index("/a")
        held.let_go.set()
    assert await notes.texts() == [("/a", "the second version")]


async def test_a_file_that_is_written_all_the_time_is_indexed_all_the_same(notes: Project) -> None:
    await notes.write("/log", "line 1")
    late = await notes.write_terms_late("/log", lambda: notes.write("/log", "line 1\nline 2"))
    assert late == TermsWritten(new=True, embedded=False)
    assert await notes.lacking() == ["line 1"]
    await notes.embed("/log")
    assert await notes.texts() == [("/log", "line 1")]


async def test_a_file_deleted_before_its_terms_were_written_stays_out(notes: Project) -> None:
    await notes.write("/a", "soon gone")
    late = await notes.write_terms_late("/a", lambda: notes.delete("/a"))
    assert late == TermsWritten(new=False, embedded=False)
    assert await notes.write_terms("/a") == TermsWritten(new=False, embedded=True)
    assert await notes.chunks() == []


async def test_many_workers_on_one_file_leave_one_set_of_chunks(notes: Project) -> None:
    await notes.write("/a", LONG)
    async with anyio.create_task_group() as group:
        for _ in range(6):
            group.start_soon(notes.with_embedder(WordVectors()).index, "/a")
    found = await notes.chunks()
    assert [row["chunk_index"] for row in found] == list(range(len(found)))
    assert found[-1]["chunk_content"].endswith("more ")


async def test_another_model_indexes_the_same_version_again(notes: Project) -> None:
    await notes.write("/a", "said once")
    await notes.index("/a")
    other = WordVectors()
    other.model = "another"
    await notes.with_embedder(other).index("/a")
    assert other.embedded == ["said once"]
    assert await notes.texts() == [("/a", "said once")]


async def test_what_fails_to_embed_has_its_terms_and_gets_its_vectors_later(notes: Project) -> None:
    await notes.write("/a", "old")
    await notes.index("/a")
    await notes.write("/a", "new")
    notes.words.failure = ProviderUnavailable("gone")
    with pytest.raises(ProviderUnavailable):
        await notes.index("/a")
    assert await notes.lacking() == ["new"]
    notes.words.failure = None
    await notes.index("/a")
    assert await notes.texts() == [("/a", "new")]


async def test_words_come_first_and_vectors_after(notes: Project) -> None:
    await notes.write("/a", "said once")
    assert await notes.write_terms("/a") == TermsWritten(new=True, embedded=False)
    assert await notes.lacking() == ["said once"]
    assert await notes.write_terms("/a") == TermsWritten(new=False, embedded=False)
    assert notes.words.embedded == []
    for _ in range(2):
        await notes.embed("/a")
        assert notes.words.embedded == ["said once"]
        assert await notes.texts() == [("/a", "said once")]
        assert await notes.write_terms("/a") == TermsWritten(new=False, embedded=True)


async def test_words_bring_the_vectors_that_are_known(notes: Project) -> None:
    await notes.write("/a", "said before")
    await notes.write("/b", "said before")
    await notes.write("/empty", "")
    await notes.index("/a")
    assert await notes.write_terms("/b") == TermsWritten(new=True, embedded=True)
    assert await notes.write_terms("/empty") == TermsWritten(new=True, embedded=True)
    assert await notes.write_terms("/nowhere") == TermsWritten(new=False, embedded=True)
    assert await notes.texts() == [("/a", "said before"), ("/b", "said before")]


async def test_a_long_file_can_be_embedded_a_part_at_a_time(notes: Project) -> None:
    await notes.write("/a", LONG)
    await notes.write_terms("/a")
    turns = 1
    while not await notes.embed("/a", most=5):
        assert len(notes.words.embedded) == 5 * turns
        turns += 1
    found = await notes.chunks()
    assert turns > 1
    assert sorted(notes.words.embedded) == sorted(row["chunk_content"] for row in found)
    assert await notes.write_terms("/a") == TermsWritten(new=False, embedded=True)


async def test_a_text_that_several_files_wait_for_is_embedded_once(notes: Project) -> None:
    for path in ("/a", "/b"):
        await notes.write(path, "said twice")
        await notes.write_terms(path)
    for path in ("/a", "/b"):
        await notes.embed(path)
    assert notes.words.embedded == ["said twice"]
    assert len(await notes.chunks()) == 2


async def test_an_append_to_a_file_that_waits_for_vectors_keeps_its_rows(notes: Project) -> None:
    await notes.write("/a", LONG)
    await notes.write_terms("/a")
    before = await notes.lacking()
    await notes.write("/a", f"{LONG}\n\nand a new end")
    assert await notes.write_terms("/a") == TermsWritten(new=True, embedded=False)
    assert (await notes.lacking())[:-1] == before[:-1]
    await notes.embed("/a")
    assert (await notes.texts())[-1][1].endswith("and a new end")
    assert (await notes.write_terms("/a")).embedded


async def test_what_was_embedded_before_a_failure_is_not_embedded_again(notes: Project) -> None:
    class Fails(WordVectors):
        """Embeds once and then no more."""

        async def embed(self, texts: Sequence[str]) -> Any:
            vectors = await super().embed(texts)
            self.failure = ProviderUnavailable("gone")
            return vectors

    await notes.write("/a", LONG)
    await notes.write_terms("/a")
    before = await notes.lacking()
    with pytest.raises(ProviderUnavailable):
        await notes.with_embedder(Fails(), batch=2).embed("/a")
    assert await notes.lacking() == before[2:]
    assert not (await notes.write_terms("/a")).embedded
    await notes.embed("/a")
    assert notes.words.embedded == before[2:]
    assert len(await notes.chunks()) == len(before)


async def test_a_file_rewritten_while_it_was_embedded_gets_the_vectors_of_what_it_says_now(notes: Project) -> None:
    held = Held()
    await notes.write("/a", "the first version")
    await notes.write_terms("/a")
    async with anyio.create_task_group() as group:
        group.start_soon(notes.with_embedder(held).embed, "/a")
        await held.asked.wait()
        await notes.write("/a", "the second version")
        await notes.write_terms("/a")
        held.let_go.set()
    assert await notes.lacking() == ["the second version"]
    assert await notes.write_terms("/a") == TermsWritten(new=False, embedded=False)
    await notes.embed("/a")
    assert await notes.texts() == [("/a", "the second version")]


@pytest.mark.parametrize("forgotten", [True, False])
async def test_vectors_of_a_file_deleted_meanwhile_bring_nothing_back(notes: Project, forgotten: bool) -> None:
    held = Held()
    await notes.write("/a", "soon gone")
    await notes.write_terms("/a")
    async with anyio.create_task_group() as group:
        group.start_soon(notes.with_embedder(held).embed, "/a")
        await held.asked.wait()
        await notes.delete("/a")
        if forgotten:
            await notes.forget("/a")
        held.let_go.set()
    await notes.forget("/a")
    assert await notes.chunks() == []


async def test_a_file_renamed_before_it_was_embedded_is_embedded_under_its_new_path(notes: Project) -> None:
    await notes.write("/old", "a wandering text")
    await notes.write_terms("/old")
    await notes.rename("/old", "/new")
    await notes.embed("/old")
    assert await notes.lacking() == ["a wandering text"]
    await notes.write_terms("/new")
    await notes.embed("/new")
    assert await notes.texts() == [("/new", "a wandering text")]


async def test_a_file_renamed_while_it_was_embedded_keeps_the_vectors_under_its_new_path(notes: Project) -> None:
    held = Held()
    await notes.write("/old", "a wandering text")
    await notes.write_terms("/old")
    async with anyio.create_task_group() as group:
        group.start_soon(notes.with_embedder(held).embed, "/old")
        await held.asked.wait()
        await notes.rename("/old", "/new")
        await notes.forget("/old")
        assert not (await notes.write_terms("/new")).embedded
        held.let_go.set()
    assert await notes.texts() == [("/new", "a wandering text")]
    assert (await notes.write_terms("/new")).embedded


async def test_vectors_for_a_path_that_another_file_took_meanwhile_go_to_their_own_file(notes: Project) -> None:
    held = Held()
    await notes.write("/a", "the first file")
    await notes.write_terms("/a")
    async with anyio.create_task_group() as group:
        group.start_soon(notes.with_embedder(held).embed, "/a")
        await held.asked.wait()
        await notes.rename("/a", "/b")
        await notes.write("/a", "the second file")
        await notes.write_terms("/b")
        await notes.write_terms("/a")
        held.let_go.set()
    assert await notes.lacking() == ["the second file"]
    await notes.embed("/a")
    assert await notes.texts() == [("/a", "the second file"), ("/b", "the first file")]


async def test_words_that_are_replaced_after_the_vectors_came_wait_for_new_ones(notes: Project) -> None:
    """The words of a later version were read before the vectors of the earlier came, and are written after."""
    await notes.write("/a", LONG)
    await notes.write_terms("/a")
    await notes.write("/a", f"{LONG}\n\nand a new end")
    late = await notes.write_terms_late("/a", lambda: notes.embed("/a"))
    assert late == TermsWritten(new=True, embedded=False)
    assert len(await notes.lacking()) == 1
    await notes.embed("/a")
    assert (await notes.texts())[-1][1].endswith("and a new end")
    assert (await notes.write_terms("/a")).embedded


async def test_words_and_vectors_of_a_file_that_changes_all_the_time_end_up_complete(notes: Project) -> None:
    writing = True

    async def over_and_over(step: Callable[[], Awaitable[object]]) -> None:
        while writing:
            await step()

    await notes.write("/a", LONG)
    async with anyio.create_task_group() as group:
        for _ in range(2):
            group.start_soon(over_and_over, lambda: notes.write_terms("/a"))
            group.start_soon(over_and_over, lambda: notes.embed("/a"))
        for number in range(12):
            await notes.write("/a", f"{number} new beginning {LONG[number * 50 :]}\n\nand end {number}")
        writing = False
    await notes.write_terms("/a")
    await notes.embed("/a")
    found = await notes.chunks()
    assert [row["chunk_index"] for row in found] == list(range(len(found)))
    assert found[-1]["chunk_content"].endswith("and end 11")
    assert (await notes.write_terms("/a")).embedded


async def test_another_model_makes_its_own_vectors_for_words_that_are_there(notes: Project) -> None:
    await notes.write("/a", "said once")
    await notes.index("/a")
    other = WordVectors()
    other.model = "another"
    theirs = notes.with_embedder(other)
    assert not (await theirs.write_terms("/a")).embedded
    await theirs.embed("/a")
    assert other.embedded == ["said once"]
    assert (await theirs.write_terms("/a")).embedded
    assert await notes.texts() == [("/a", "said once")]


async def test_indexing_again_completes_what_has_only_words(notes: Project) -> None:
    await notes.write("/a", LONG)
    await notes.write_terms("/a")
    await notes.index("/a")
    found = await notes.chunks()
    assert [row["chunk_index"] for row in found] == list(range(len(found)))
    assert (await notes.write_terms("/a")).embedded


async def test_many_workers_embedding_one_file_leave_one_vector_for_each_chunk(notes: Project) -> None:
    await notes.write("/a", LONG)
    await notes.write_terms("/a")
    expected = len(await notes.lacking())
    async with anyio.create_task_group() as group:
        for _ in range(6):
            group.start_soon(notes.with_embedder(WordVectors()).embed, "/a")
    assert len(await notes.chunks()) == expected
    assert (await notes.write_terms("/a")).embedded


def hosted(url: str) -> StoreModels:
    embedding = EmbeddingSettings(base_url=url, dimensions=LOCAL_DIMENSIONS)
    return StoreModels(hosted=embedding)


@pytest.mark.contract("S15-6")
async def test_each_file_is_embedded_with_its_callers_key(notes: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "key-of-the-platform")
    with OpenAIEmulator("key-of-the-caller") as endpoint:
        theirs = hosted(endpoint.url)
        index = FileIndex(notes.database, theirs)
        await notes.write("/a", "hosted")
        with pytest.raises(ProviderAuth):
            await index_file(index, notes.scope, "/a", "key-of-a-stranger")
        with pytest.raises(KeyMissing) as missing:
            await index_file(index, notes.scope, "/a")
        await index_file(index, notes.scope, "/a", "key-of-the-caller")
        await theirs.aclose()
        sent = [request.headers["authorization"] for request in endpoint.requests]
    assert sent == ["Bearer key-of-a-stranger", "Bearer key-of-the-caller"]
    assert isinstance(missing.value, SearchBackendError)
    assert (missing.value.code, missing.value.retryable) == ("SEARCH_BACKEND_ERROR", False)
    assert await notes.texts() == [("/a", "hosted")]


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
