"""Waits until a directory that is being indexed can be asked: for its words, and a little while for its vectors."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

import anyio

from armarium.capabilities.corpus.commands.progress.reports import Report
from armarium.capabilities.corpus.errors import IndexNotReady
from armarium.capabilities.corpus.news import EmbeddingPaused, IndexingFailed, IndexProgress
from armarium.capabilities.corpus.service import Corpus
from armarium.foundation.events import Events

_HEARTBEAT_S: Final = 2.0
_STALLED_S: Final = 300.0
"""Longer than any one file may take: without any progress for so long, there will be none."""


class Waiting:
    """Hears how indexing goes, and knows when there is enough to answer from."""

    def __init__(self, events: Events, report: Report | None) -> None:
        """`report` is told the latest progress again and again: whoever waits sees that something goes on."""
        self._report = report
        self._now: IndexProgress | None = None
        self._moved_at = anyio.current_time()
        self._words = anyio.Event()
        self._halted = anyio.Event()
        events.subscribe(IndexProgress, self._progress)
        events.subscribe(EmbeddingPaused, self._paused)
        events.subscribe(IndexingFailed, self._failed)

    async def until_answerable(self, corpus: Corpus, vectors_s: float) -> None:
        """Return once everything can be found, or all of it by words and as much by meaning as takes `vectors_s`."""

        async def first(enough: Callable[[], Awaitable[None]]) -> None:
            await enough()
            tasks.cancel_scope.cancel()

        async def words_and_some_vectors() -> None:
            await self._words.wait()
            with anyio.move_on_after(vectors_s):
                await self._halted.wait()

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(first, corpus.until_indexed)
            tasks.start_soon(first, words_and_some_vectors)
            tasks.start_soon(self._watch)

    async def _watch(self) -> None:
        while True:
            await anyio.sleep(_HEARTBEAT_S)
            if self._report is not None and self._now is not None:
                self._report.progress(self._now)
            if anyio.current_time() - self._moved_at > _STALLED_S:
                raise IndexNotReady(
                    f"indexing has made no progress for {_STALLED_S:.0f} seconds",
                    hint="see what another process does with this directory: dir2mcp status",
                )

    async def _progress(self, news: IndexProgress) -> None:
        if news != self._now:
            self._moved_at = anyio.current_time()
        self._now = news
        if news.phase == "embed":
            self._words.set()

    async def _paused(self, news: EmbeddingPaused) -> None:
        self._halted.set()

    async def _failed(self, news: IndexingFailed) -> None:
        self._halted.set()
        self._words.set()
