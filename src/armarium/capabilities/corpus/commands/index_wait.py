"""Waits until enough is indexed to answer a question: all of the lexical index, and some embeddings."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

import anyio

from armarium.capabilities.corpus.commands.progress.reports import Report
from armarium.capabilities.corpus.errors import IndexNotReady
from armarium.capabilities.corpus.events import EmbeddingPaused, IndexingFailed, IndexProgress
from armarium.capabilities.corpus.service import Corpus
from armarium.foundation.events import Events

_HEARTBEAT_S: Final = 2.0
_STALLED_S: Final = 300.0
"""Indexing without progress for this long has stalled. No single file may take as long."""


class IndexWait:
    """Follows indexing, and waits until a question can be answered. With a report, it repeats the latest progress at an
    interval, so that the wait is never silent."""

    def __init__(
        self, events: Events, report: Report | None, *, interval_s: float = _HEARTBEAT_S, stalled_s: float = _STALLED_S
    ) -> None:
        self._interval_s = interval_s
        self._stalled_s = stalled_s
        self._report = report
        self._latest: IndexProgress | None = None
        self._progress_at = anyio.current_time()
        self._lexical_complete = anyio.Event()
        self._embedding_ended = anyio.Event()
        events.subscribe(IndexProgress, self._progress)
        events.subscribe(EmbeddingPaused, self._paused)
        events.subscribe(IndexingFailed, self._failed)

    async def until_answerable(self, corpus: Corpus, vectors_s: float) -> None:
        """Return once indexing is complete, or `vectors_s` seconds after the lexical index is complete."""

        async def first(enough: Callable[[], Awaitable[None]]) -> None:
            await enough()
            tasks.cancel_scope.cancel()

        async def lexical_index_and_some_vectors() -> None:
            await self._lexical_complete.wait()
            with anyio.move_on_after(vectors_s):
                await self._embedding_ended.wait()

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(first, corpus.until_indexed)
            tasks.start_soon(first, lexical_index_and_some_vectors)
            tasks.start_soon(self._report_and_check)

    async def _report_and_check(self) -> None:
        while True:
            await anyio.sleep(self._interval_s)
            if self._report is not None and self._latest is not None:
                self._report.progress(self._latest)
            if anyio.current_time() - self._progress_at > self._stalled_s:
                raise IndexNotReady(
                    f"indexing has made no progress for {self._stalled_s:.0f} seconds",
                    hint="check whether another process indexes this directory: dir2mcp status",
                )

    async def _progress(self, event: IndexProgress) -> None:
        if event != self._latest:
            self._progress_at = anyio.current_time()
        self._latest = event
        if event.phase == "embed":
            self._lexical_complete.set()

    async def _paused(self, event: EmbeddingPaused) -> None:
        self._embedding_ended.set()

    async def _failed(self, event: IndexingFailed) -> None:
        self._embedding_ended.set()
        self._lexical_complete.set()
