"""A one-off search of an index without a server: damaged files are rebuilt, read-only state is only read."""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from armarium.capabilities.corpus.errors import IndexNotReady
from armarium.capabilities.corpus.index import lexical
from armarium.capabilities.corpus.index.state import IndexLock
from armarium.capabilities.corpus.leader import LeaderElection
from support.corpus_calls import write_lighthouse
from support.open_corpus import OpenCorpus, found


@pytest.fixture
async def corpus(tmp_path: Path) -> OpenCorpus:
    write_lighthouse(tmp_path / "root")
    opened = OpenCorpus(tmp_path / "root")
    await opened.index()
    return opened


def without_terms(words: Path) -> None:
    for file in words.glob("*.term"):
        file.unlink()


def broken_meta(words: Path) -> None:
    (words / "meta.json").write_text("{")


def truncated_postings(words: Path) -> None:
    for file in words.glob("*.idx"):
        os.truncate(file, file.stat().st_size // 2)


def truncated_store(words: Path) -> None:
    for file in words.glob("*.store"):
        os.truncate(file, file.stat().st_size // 2)


def gone(words: Path) -> None:
    shutil.rmtree(words)


DAMAGES = [without_terms, broken_meta, truncated_postings, truncated_store, gone]


@pytest.mark.parametrize("damage", DAMAGES)
async def test_a_damaged_lexical_index_is_rebuilt_for_the_question(
    corpus: OpenCorpus, damage: Callable[[Path], None]
) -> None:
    damage(corpus.state_dir / "words")
    async with corpus.opened("none") as service:
        assert (await found(service, "horn in fog"))[0] == "handbook.md"
    async with corpus.opened("none") as service:
        assert (await found(service, "horn in fog"))[0] == "handbook.md"
    with IndexLock(corpus.state_dir) as lock:
        assert lock.try_acquire(), "the right to write was given back"


async def test_a_lexical_index_that_another_process_builds_is_waited_for_and_not_for_ever(
    corpus: OpenCorpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(LeaderElection, "wait_s", 0.0)
    monkeypatch.setattr(LeaderElection, "follow_s", 0.01)
    broken_meta(corpus.state_dir / "words")
    with IndexLock(corpus.state_dir) as other:
        assert other.try_acquire()
        async with corpus.opened("none") as service:
            with pytest.raises(IndexNotReady):
                await found(service, "horn in fog")


@pytest.mark.parametrize("damage", ["missing", "garbled"])
async def test_vectors_that_are_lost_are_saved_again_after_the_first_question(
    corpus: OpenCorpus, damage: str, caplog: pytest.LogCaptureFixture
) -> None:
    files = [corpus.state_dir / "vectors_text.hnsw", corpus.state_dir / "vectors_code.hnsw"]
    for file in files:
        file.unlink() if damage == "missing" else file.write_bytes(b"garbled")
    async with corpus.opened("none") as service:
        assert (await found(service, "horn in fog"))[0] == "handbook.md"
    assert all(file.stat().st_size > 100 for file in files)
    caplog.clear()
    async with corpus.opened("none") as service:
        assert (await found(service, "horn in fog"))[0] == "handbook.md"
    assert not caplog.records


async def test_a_state_that_may_not_be_written_answers_and_stays_as_it_is(
    corpus: OpenCorpus, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def as_it_is() -> dict[Path, tuple[int, int]]:
        return {file: (file.stat().st_mtime_ns, file.stat().st_size) for file in corpus.state_dir.rglob("*")}

    access, elsewhere = os.access, tmp_path / "elsewhere"
    elsewhere.mkdir()

    def denied(path: Path, mode: int) -> bool:
        return access(path, mode) and not (mode & os.W_OK and Path(path).is_relative_to(corpus.state_dir))

    # Permissions do not bind the user that tests may run as, so nobody may write is said, and then looked at.
    monkeypatch.setattr(os, "access", denied)
    monkeypatch.setattr(lexical.tempfile, "tempdir", str(elsewhere))
    for place in (corpus.state_dir, *corpus.state_dir.rglob("*")):
        place.chmod(stat.S_IMODE(place.stat().st_mode) & ~0o222)
    before = as_it_is()
    try:
        async with corpus.opened("none") as service:
            assert (await found(service, "horn in fog"))[0] == "handbook.md"
            assert list(elsewhere.iterdir())
        assert as_it_is() == before
    finally:
        for place in (corpus.state_dir, *corpus.state_dir.rglob("*")):
            place.chmod(stat.S_IMODE(place.stat().st_mode) | 0o200)
