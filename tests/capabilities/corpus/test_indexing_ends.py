"""How indexing ends early: by a kill it goes on from, by a full disk or a deleted directory it says so."""

from __future__ import annotations

import shutil
from pathlib import Path
from zipfile import ZIP_DEFLATED, ZipFile

import pytest
from corpus_calls import rows, write_lighthouse

from armarium.capabilities.corpus.ingest.embedding import Embedding
from armarium.capabilities.corpus.settings import ChunkingSettings, IngestSettings
from armarium.retrieval.search.vector_index import VectorIndex
from support.open_corpus import OpenCorpus, found


@pytest.fixture
def corpus(tmp_path: Path) -> OpenCorpus:
    write_lighthouse(tmp_path / "root")
    return OpenCorpus(tmp_path / "root")


async def never(self: Embedding) -> None:
    """Embeds nothing, as while a provider is away."""


async def scanned(corpus: OpenCorpus) -> tuple[int, int]:
    """What a start that ends before anything is embedded counts: indexed and skipped."""
    began = len(corpus.progress)
    async with corpus.opened(wait=False) as service:
        await corpus.until(lambda: any(news.phase == "embed" for news in corpus.progress[began:]))
        counts = service.stats()["indexing"]
    return counts["indexed"], counts["skipped"]


async def test_what_was_read_before_anything_was_embedded_is_not_read_again(
    corpus: OpenCorpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Embedding, "run", never)
    assert await scanned(corpus) == (3, 0)
    assert await scanned(corpus) == (0, 3)


async def test_what_is_prepared_again_and_comes_out_the_same_counts_as_skipped(corpus: OpenCorpus) -> None:
    await corpus.index()
    counts = await corpus.index(chunking=ChunkingSettings(min_chars=199))
    assert (counts["indexed"], counts["skipped"]) == (0, 3)


async def test_a_directory_that_was_moved_is_not_read_again(corpus: OpenCorpus, tmp_path: Path) -> None:
    await corpus.index()
    corpus.root.rename(tmp_path / "moved")
    moved = OpenCorpus(tmp_path / "moved")
    before = rows(moved.state_dir, "SELECT value FROM settings WHERE key = 'prepared_as'")
    counts = await moved.index()
    assert (counts["indexed"], counts["skipped"]) == (0, 3)
    assert rows(moved.state_dir, "SELECT value FROM settings WHERE key = 'prepared_as'") == before


async def test_a_disk_too_full_for_the_vectors_ends_indexing_and_says_so(
    corpus: OpenCorpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(self: VectorIndex, path: Path, *_: object, **__: object) -> None:
        raise RuntimeError("Failed to write to file")

    monkeypatch.setattr(VectorIndex, "save", full)
    async with corpus.opened() as service:
        await corpus.until(lambda: bool(corpus.failures))
        assert corpus.failures[0].code == "INGESTION_FAILED"
        assert (await found(service, "horn in fog"))[0] == "handbook.md", "what is indexed stays searchable"


async def test_a_disk_too_full_for_the_summary_ends_indexing_and_says_so(
    corpus: OpenCorpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(state_dir: Path, summary: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("armarium.capabilities.corpus.indexing.write_summary", full)
    async with corpus.opened(wait=False):
        await corpus.until(lambda: bool(corpus.failures))
    assert corpus.failures[0].code == "INGESTION_FAILED"


@pytest.mark.parametrize("state", ["inside", "outside"])
async def test_a_deleted_directory_is_told_as_one(corpus: OpenCorpus, tmp_path: Path, state: str) -> None:
    elsewhere = {} if state == "inside" else {"state_dir": str(tmp_path / "state")}
    async with corpus.opened(**elsewhere):
        shutil.rmtree(corpus.root)
        await corpus.changed("handbook.md")
        await corpus.until(lambda: bool(corpus.failures))
    assert {failure.code for failure in corpus.failures} == {"ROOT_INACCESSIBLE"}


async def test_there_are_never_more_vectors_than_passages(corpus: OpenCorpus) -> None:
    async with corpus.opened() as service:
        for name in ("handbook.md", "lamp.py"):
            (corpus.root / name).unlink()
            await corpus.changed(name)
            await corpus.until(lambda: service.indexing_complete)
        counts = service.stats()["indexing"]
    assert counts["embedded_ok"] == counts["chunks_total"] == 1
    assert all(news.embedded_ok <= news.chunks_total for news in corpus.progress)


async def test_a_member_that_is_too_large_is_listed_with_its_size_and_told(corpus: OpenCorpus) -> None:
    with ZipFile(corpus.root / "box.zip", "w", ZIP_DEFLATED) as box:
        box.writestr("long.md", "word " * 5000)
        box.writestr("short.md", "Hazelnuts are brown.\n")
    await corpus.index(ingest=IngestSettings(watch=False, max_file_mb=0.01))
    listed = rows(
        corpus.state_dir, "SELECT rel_path, doc_type, size_bytes, status FROM documents WHERE container = 'box.zip'"
    )
    assert sorted(listed) == [("box.zip!/long.md", "md", 25_000, "skipped"), ("box.zip!/short.md", "md", 21, "ok")]
    assert corpus.failed_files == {"box.zip!/long.md": "FILE_TOO_LARGE"}
