"""The index is reported as complete only when it is, and idle costs nothing."""

from __future__ import annotations

import threading
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import anyio.from_thread
import pytest

from armarium.capabilities.corpus.events import IndexProgress
from armarium.capabilities.corpus.index.state import read_status
from armarium.capabilities.corpus.ingest import synchronizer as indexing
from armarium.capabilities.corpus.ingest.embedding_task import WakeUp
from armarium.capabilities.corpus.lifespan import open_service
from armarium.capabilities.corpus.service import Corpus
from armarium.capabilities.corpus.settings import CorpusSettings, EmbeddingSettings, IngestSettings
from armarium.foundation.events import Events, FileChanged
from armarium.foundation.refs import FileRef
from armarium.foundation.security.identity import Principal
from support.waiting import eventually

DEADLINE_S = 60.0
WRITER = Principal("keeper", (), "")


class Directory:
    """A directory with its open corpus, which hears of changes from this test alone."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.events = Events()
        self.progress: list[IndexProgress] = []
        self.events.subscribe(IndexProgress, self._hear)

    async def _hear(self, event: IndexProgress) -> None:
        self.progress.append(event)

    @asynccontextmanager
    async def opened(self) -> AsyncGenerator[Corpus]:
        settings = CorpusSettings(
            root=str(self.root),
            embedding=EmbeddingSettings(provider="local"),
            ingest=IngestSettings(watch=False),
        )
        with anyio.fail_after(DEADLINE_S):
            async with open_service(settings, self.events, indexing="background") as corpus:
                yield corpus

    async def write(self, name: str) -> None:
        (self.root / name).write_text(f"What {name} tells.\n")
        ref = FileRef("files", "root", name)
        await self.events.publish(FileChanged(ref, "created", False, WRITER, str(self.root / name)))


@pytest.fixture
def directory(tmp_path: Path) -> Directory:
    root = tmp_path / "root"
    root.mkdir()
    (root / "first.md").write_text("What was there first.\n")
    return Directory(root)


async def listed(corpus: Corpus) -> list[str]:
    _, files = await corpus.list_files("", None, 100, 0)
    return sorted(each["rel_path"] for each in files)


async def test_an_edit_that_comes_just_before_everything_is_said_to_be_indexed_is_indexed_first(
    directory: Directory, monkeypatch: pytest.MonkeyPatch
) -> None:
    give_memory_back, edits = indexing.give_memory_back, ["second.md", "third.md"]

    def edit_meanwhile() -> None:
        give_memory_back()
        if edits:
            anyio.from_thread.run(directory.write, edits.pop(0))

    monkeypatch.setattr(indexing, "give_memory_back", edit_meanwhile)
    async with directory.opened() as corpus:
        await corpus.until_indexed()
        assert await listed(corpus) == ["first.md", "second.md", "third.md"]
        assert corpus.indexing_complete
        await eventually(lambda: bool(directory.progress) and not directory.progress[-1].running)
        assert [event.running for event in directory.progress].count(False) == 1


async def test_an_edit_turns_a_corpus_at_rest_busy_at_once_and_back_when_it_is_found(directory: Directory) -> None:
    async with directory.opened() as corpus:
        await corpus.until_indexed()
        for name in ("second.md", "third.md", "fourth.md"):
            await directory.write(name)
            assert not corpus.indexing_complete
            await eventually(lambda: corpus.indexing_complete)
            assert name in await listed(corpus)
            await corpus.until_indexed()


async def test_nothing_wakes_up_while_there_is_nothing_to_do(
    directory: Directory, monkeypatch: pytest.MonkeyPatch
) -> None:
    limits: dict[WakeUp, float | None] = {}
    wait = WakeUp.wait

    async def noted(wake_up: WakeUp, timeout_s: float | None = None) -> None:
        limits[wake_up] = timeout_s
        await wait(wake_up, timeout_s)

    monkeypatch.setattr(WakeUp, "wait", noted)
    async with directory.opened() as corpus:
        await corpus.until_indexed()
        state_dir = directory.root / ".dir2mcp"
        # Whoever writes the summary has yet to come back from that to waiting.
        await eventually(lambda: _running_in(state_dir) is False and None in limits.values())
        await eventually(lambda: set(limits.values()) == {None})
        await anyio.wait_all_tasks_blocked()
        # The embedding task and the completion tracker both wait for a signal without a timeout.
        assert list(limits.values()) == [None, None]


async def test_the_summary_says_that_indexing_runs_while_it_does(
    directory: Directory, monkeypatch: pytest.MonkeyPatch
) -> None:
    held, give_memory_back = threading.Event(), indexing.give_memory_back

    def wait_then_give_back() -> None:
        assert held.wait(DEADLINE_S)
        give_memory_back()

    monkeypatch.setattr(indexing, "give_memory_back", wait_then_give_back)
    async with directory.opened() as corpus:
        try:
            state_dir = directory.root / ".dir2mcp"
            await eventually(lambda: _running_in(state_dir) is True)
        finally:
            held.set()
        await corpus.until_indexed()
        await eventually(lambda: _running_in(state_dir) is False)


def _running_in(state_dir: Path) -> Any:
    return read_status(state_dir)["indexing"]["running"] if (state_dir / "corpus.json").exists() else None
