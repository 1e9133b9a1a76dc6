"""Each text is embedded once, in spite of texts that cannot be embedded and providers that fail for a while."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from hashlib import blake2b
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import numpy
import pytest
from anyio.to_thread import run_sync

from armarium.capabilities.corpus.events import EmbeddingPaused
from armarium.capabilities.corpus.index.search_index import SearchIndex
from armarium.capabilities.corpus.ingest.embedding_task import EmbeddingTask
from armarium.capabilities.corpus.ingest.progress import Progress
from armarium.capabilities.corpus.storage.prepared import Prepared, PreparedChunk, Representation
from armarium.capabilities.corpus.storage.storage import Storage
from armarium.providers.errors import ProviderError
from armarium.providers.vendors import MISTRAL
from armarium.retrieval.chunks import IndexKind
from support.corpus_calls import rows
from support.waiting import eventually

DEADLINE_S = 20.0
DIMENSIONS = 8

Fails = Callable[[Sequence[str]], ProviderError | None]


class FakeEmbedder:
    """Remembers every text, and fails as it is told."""

    dimensions: int | None = DIMENSIONS

    def __init__(self, model: str = "fake", fails: Fails = lambda texts: None) -> None:
        self.model = model
        self.length = DIMENSIONS
        self.requests: list[list[str]] = []
        self._fails = fails

    @property
    def texts(self) -> list[str]:
        return [text for request in self.requests for text in request]

    async def embed(self, texts: Sequence[str]) -> Any:
        self.requests.append(list(texts))
        if (error := self._fails(texts)) is not None:
            raise error
        rows = [blake2b(text.encode(), digest_size=self.length).digest() for text in texts]
        vectors = numpy.frombuffer(b"".join(rows), numpy.uint8).reshape(-1, self.length).astype(numpy.float32) + 1
        return vectors / numpy.linalg.norm(vectors, axis=1, keepdims=True)

    async def embed_query(self, text: str) -> Any:
        return (await self.embed([text]))[0]

    async def aclose(self) -> None:
        """Nothing to let go of."""


class Bench:
    """A storage with an index and the task over them."""

    def __init__(self, directory: Path, text: FakeEmbedder, code: FakeEmbedder | None = None) -> None:
        self.directory = directory
        self.storage = Storage(directory / "meta.sqlite")
        self.index = SearchIndex(directory, self.storage, {"text": DIMENSIONS, "code": DIMENSIONS})
        embedders = {"text": text, "code": code or text}
        self.index.load({"text": text.model, "code": embedders["code"].model})
        self.events: list[Any] = []
        self.progress = Progress(self.events.append)
        self.turns: list[bool] = []
        self.task = EmbeddingTask(
            self.storage, self.index, embedders, self.progress, on_change=self.turned, first_pause_s=0.01
        )

    def turned(self) -> None:
        self.turns.append(self.task.idle)

    def record(self, rel_path: str, *texts: str, kind: IndexKind = "text") -> list[int]:
        chunks = [
            PreparedChunk(text, "", blake2b(text.encode(), digest_size=16).digest(), kind, "lines", line, line)
            for line, text in enumerate(texts, 1)
        ]
        prepared = Prepared(
            rel_path, "md", 1, 1, "hash", "ok", representations=[Representation("raw_text", rel_path, chunks)]
        )
        with self.storage.documents.changing() as changes:
            recorded = changes.record(prepared)
        self.index.put(prepared, recorded)
        return [chunk_id for chunk_id, _ in recorded.added]

    def statuses(self) -> dict[str, str]:
        return dict(rows(self.directory, "SELECT text, embedding_status FROM chunks"))

    def has_vectors(self, kind: IndexKind, chunk_ids: list[int]) -> bool:
        return bool(self.index.vectors.by_kind[kind].contains(numpy.array(chunk_ids, numpy.int64)).all())

    async def until_idle(self) -> None:
        await eventually(lambda: self.task.idle)

    @property
    def pauses(self) -> list[str]:
        return [each.code for each in self.events if isinstance(each, EmbeddingPaused)]


@asynccontextmanager
async def running(bench: Bench) -> AsyncGenerator[Bench]:
    try:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(bench.task.run)
            bench.task.wake()
            yield bench
            tasks.cancel_scope.cancel()
    finally:
        bench.index.lexical.index.close()
        bench.storage.close()


async def test_every_chunk_gets_the_vector_of_its_kind(tmp_path: Path) -> None:
    prose, code = FakeEmbedder("prose"), FakeEmbedder("code")
    bench = Bench(tmp_path, prose, code)
    texts = [f"chunk {number}" for number in range(100)]
    in_prose = bench.record("a.md", *texts)
    in_code = bench.record("a.py", "def f(): pass", kind="code")
    async with running(bench):
        await bench.until_idle()
        assert sorted(prose.texts) == sorted(texts)
        assert len(code.texts) == 1
        assert set(bench.statuses().values()) == {"ok"}
        assert bench.has_vectors("text", in_prose)
        assert bench.has_vectors("code", in_code)
        assert bench.progress.now.embedded_ok == 101
        assert (tmp_path / "vectors_text.hnsw").exists()


async def test_a_text_nobody_can_embed_is_found_and_set_aside_alone(tmp_path: Path) -> None:
    def refuses(texts: Sequence[str]) -> ProviderError | None:
        return MISTRAL.failed("refused", private={"status": 400}) if any("poison" in each for each in texts) else None

    embedder = FakeEmbedder(fails=refuses)
    bench = Bench(tmp_path, embedder)
    bench.record(
        "a.md", *(f"good {number}" for number in range(13)), "poison", *(f"fine {number}" for number in range(9))
    )
    async with running(bench):
        await bench.until_idle()
        statuses = bench.statuses()
        assert [text for text, status in statuses.items() if status != "ok"] == ["poison"]
        assert statuses["poison"] == "error"
        assert bench.pauses == []
        assert bench.progress.now.embedded_ok == 22


async def test_the_same_text_is_embedded_once_wherever_it_stands(tmp_path: Path) -> None:
    embedder = FakeEmbedder()
    bench = Bench(tmp_path, embedder)
    ids = bench.record("a.md", "same", "other", "same") + bench.record("b.md", "same")
    async with running(bench):
        await bench.until_idle()
        assert sorted(embedder.texts) == ["other", "same"]
        ids += bench.record("c.md", "same", "new")
        bench.task.wake()
        await bench.until_idle()
        assert sorted(embedder.texts) == ["new", "other", "same"]
        assert set(bench.statuses().values()) == {"ok"}
        assert bench.has_vectors("text", ids)
        assert bench.progress.now.embedded_ok == len(ids)


@pytest.mark.parametrize("error", [MISTRAL.rate_limited, MISTRAL.unavailable])
async def test_what_may_work_later_is_waited_for_and_then_goes_on(tmp_path: Path, error: type[ProviderError]) -> None:
    troubles: list[ProviderError] = [error("later"), error("later still", retry_after_s=0.02)]
    embedder = FakeEmbedder(fails=lambda texts: troubles.pop(0) if troubles else None)
    bench = Bench(tmp_path, embedder)
    bench.record("a.md", "one", "two")
    async with running(bench):
        await bench.until_idle()
        assert bench.pauses == [error.code] * 2
        assert set(bench.statuses().values()) == {"ok"}


@pytest.mark.parametrize(
    "error",
    [
        MISTRAL.auth("no"),
        MISTRAL.failed("the account has no quota left", private={"status": 429}),
        MISTRAL.failed("no such place", private={"status": 404}),
    ],
    ids=["key", "quota", "address"],
)
async def test_what_no_text_is_to_blame_for_stops_embedding_until_there_is_a_reason_to_try_again(
    tmp_path: Path, error: ProviderError
) -> None:
    working = False
    embedder = FakeEmbedder(fails=lambda texts: None if working else error)
    bench = Bench(tmp_path, embedder)
    bench.record("a.md", *(f"chunk {number}" for number in range(20)))
    async with running(bench):
        await bench.until_idle()
        assert len(embedder.requests) == 1
        assert bench.pauses == [error.code]
        assert set(bench.statuses().values()) == {"pending"}
        working = True
        bench.record("b.md", "a new one")
        bench.task.wake()
        await bench.until_idle()
        assert set(bench.statuses().values()) == {"ok"}


async def test_vectors_of_another_length_than_the_indexs_are_not_taken_in(tmp_path: Path) -> None:
    embedder = FakeEmbedder()
    embedder.length = DIMENSIONS + 2
    bench = Bench(tmp_path, embedder)
    bench.record("a.md", "one", "two")
    async with running(bench):
        await bench.until_idle()
        assert bench.pauses == ["INDEX_VERSION_MISMATCH"]
        assert set(bench.statuses().values()) == {"pending"}
        assert bench.storage.embeddings.of_text("fake", blake2b(b"one", digest_size=16).digest()) is None


async def test_more_chunks_that_come_while_it_works_are_embedded_too(tmp_path: Path) -> None:
    bench = Bench(tmp_path, FakeEmbedder())
    async with running(bench):
        for number in range(30):
            bench.record(f"{number}.md", f"chunk {number}")
            bench.task.wake()
            await anyio.lowlevel.checkpoint()
        await bench.until_idle()
        assert len(bench.statuses()) == 30
        assert set(bench.statuses().values()) == {"ok"}


async def test_whoever_listens_hears_that_there_is_work_whatever_thread_it_comes_from_and_that_it_is_done(
    tmp_path: Path,
) -> None:
    bench = Bench(tmp_path, FakeEmbedder())
    assert not bench.task.idle
    async with running(bench):
        await bench.until_idle()
        assert (bench.turns[0], bench.turns[-1]) == (False, True)
        bench.record("a.md", "one")
        await run_sync(bench.task.wake)
        assert False in bench.turns[1:]
        await bench.until_idle()
        assert bench.turns[-1]
        assert set(bench.statuses().values()) == {"ok"}
