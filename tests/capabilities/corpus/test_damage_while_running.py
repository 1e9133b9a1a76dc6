"""State files that are lost, damaged or planted while a server runs are rebuilt, and nothing hangs or crashes."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from anyio.to_thread import run_sync

from armarium.capabilities.corpus.index.state import IndexLock
from support.corpus_calls import rows, run_dir2mcp, write_lighthouse
from support.open_corpus import OpenCorpus, found
from support.waiting import eventually


@pytest.fixture
async def corpus(tmp_path: Path) -> OpenCorpus:
    write_lighthouse(tmp_path / "root")
    opened = OpenCorpus(tmp_path / "root")
    await opened.index()
    return opened


def no_words(state: Path) -> None:
    shutil.rmtree(state / "words")


def other_words(state: Path) -> None:
    shutil.rmtree(state / "words")
    (state / "words").mkdir()
    (state / "words/meta.json").write_text("garbage")


def no_database(state: Path) -> None:
    for name in ("meta.sqlite", "meta.sqlite-wal", "meta.sqlite-shm"):
        (state / name).unlink(missing_ok=True)


def other_database(state: Path) -> None:
    no_database(state)
    (state / "meta.sqlite").write_bytes(b"")


@pytest.mark.parametrize("damage", [no_words, other_words, no_database, other_database])
async def test_what_a_running_server_loses_is_told_and_made_again(
    corpus: OpenCorpus, damage: Callable[[Path], None]
) -> None:
    async with corpus.opened() as service:
        damage(corpus.state_dir)
        (corpus.root / "ferry.md").write_text("The ferry leaves at noon.\n")
        await corpus.changed("ferry.md")
        await eventually(lambda: bool(service.warnings))
        await service.until_indexed()
        await eventually(lambda: service.indexing_complete)
        assert (await found(service, "when does the ferry leave"))[0] == "ferry.md"
        assert (await found(service, "horn in fog"))[0] == "handbook.md"
    assert not corpus.failures
    async with corpus.opened("none") as service:
        assert (await found(service, "when does the ferry leave"))[0] == "ferry.md"
        assert not service.warnings
    assert rows(corpus.state_dir, "SELECT count(*) FROM documents WHERE rel_path = 'ferry.md'") == [(1,)]


async def test_a_state_directory_that_is_gone_ends_indexing_and_is_not_made_without_its_lock(
    corpus: OpenCorpus,
) -> None:
    async with corpus.opened() as service:
        shutil.rmtree(corpus.state_dir)
        await corpus.changed("handbook.md")
        (corpus.root / "ferry.md").write_text("The ferry leaves at noon.\n")
        await corpus.changed("ferry.md")
        await eventually(lambda: bool(corpus.failures))
        assert (await found(service, "horn in fog"))[0] == "handbook.md"
    await corpus.index()
    async with corpus.opened("none") as service:
        assert (await found(service, "when does the ferry leave"))[0] == "ferry.md"


def as_directory(path: Path) -> None:
    path.mkdir()
    (path / "planted").touch()


def as_pipe(path: Path) -> None:
    os.mkfifo(path)


def as_file(path: Path) -> None:
    path.write_text("planted")


PLACES = ("meta.sqlite", "vectors_text.hnsw", "words", "words/meta.json", "corpus.json")
# A file that is no database is told as one, and built anew by the next server.
PLANTED = [
    (name, plant)
    for name in PLACES
    for plant in (as_directory, as_pipe, as_file)
    if (name, plant) != ("meta.sqlite", as_file)
]


@pytest.mark.parametrize(("name", "plant"), PLANTED)
async def test_whatever_stands_in_the_place_of_a_state_file_ask_answers_and_makes_it_again(
    corpus: OpenCorpus, name: str, plant: Callable[[Path], None]
) -> None:
    place = corpus.state_dir / name
    if place.is_dir():
        shutil.rmtree(place)
    else:
        place.unlink()
    plant(place)
    for _ in range(2):
        ended = run_dir2mcp("ask", corpus.root, "--mode", "search_only", "horn in fog")
        assert ended.returncode == 0, ended.stderr
        assert "handbook.md" in ended.stdout.splitlines()[0]
    assert "warn" not in ended.stderr.lower()
    assert place.is_dir() == (name == "words")


async def test_ask_beside_a_server_that_is_still_indexing_answers_from_what_it_has(corpus: OpenCorpus) -> None:
    summary = json.loads((corpus.state_dir / "corpus.json").read_text())
    summary["indexing"]["complete"] = False
    (corpus.state_dir / "corpus.json").write_text(json.dumps(summary))
    with IndexLock(corpus.state_dir) as server:
        assert server.try_acquire()
        ended = await run_sync(run_dir2mcp, "ask", corpus.root, "--mode", "search_only", "horn in fog")
    assert ended.returncode == 0, ended.stderr
    assert "handbook.md" in ended.stdout.splitlines()[0]
    assert "another process is indexing this directory" in ended.stderr
