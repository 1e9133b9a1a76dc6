"""Passes the events of the corpus to a report, and buffers them until the connection was reported."""

from __future__ import annotations

from collections.abc import Callable

import anyio

from armarium.capabilities.corpus.commands.progress.reports import Report
from armarium.capabilities.corpus.events import EmbeddingPaused, FileFailed, IndexingFailed, IndexLoaded, IndexProgress
from armarium.foundation.events import Events


class EventFeed:
    """Passes events to a report: immediately, or if it starts `paused`, after `resume`."""

    def __init__(self, events: Events, report: Report, *, paused: bool, on_failure: Callable[[], None]) -> None:
        self._report = report
        self._buffer: list[Callable[[], None]] | None = [] if paused else None
        self._on_failure = on_failure
        self._loaded = False
        self.failure: IndexingFailed | None = None
        """The event of failed indexing, if it failed."""
        self.idle = anyio.Event()
        """Set once the end of an indexing job was reported."""
        events.subscribe(IndexLoaded, self._index_loaded)
        events.subscribe(IndexProgress, self._progress)
        events.subscribe(FileFailed, self._file_failed)
        events.subscribe(EmbeddingPaused, self._embedding_paused)
        events.subscribe(IndexingFailed, self._indexing_failed)

    def resume(self) -> None:
        """Report the buffered events, and all further events immediately."""
        buffered, self._buffer = self._buffer or [], None
        for report in buffered:
            report()

    def _report_or_buffer(self, report: Callable[[], None]) -> None:
        if self._buffer is None:
            report()
        else:
            self._buffer.append(report)

    async def _index_loaded(self, event: IndexLoaded) -> None:
        self._loaded = True
        self._report_or_buffer(lambda: self._report.index_loaded(event))

    async def _progress(self, event: IndexProgress) -> None:
        if not self._loaded:
            return  # progress follows the header, which needs the loaded index
        self._report_or_buffer(lambda: self._report.progress(event))
        if not event.running:
            self.idle.set()

    async def _file_failed(self, event: FileFailed) -> None:
        self._report_or_buffer(lambda: self._report.file_failed(event))

    async def _embedding_paused(self, event: EmbeddingPaused) -> None:
        self._report_or_buffer(lambda: self._report.embedding_paused(event))

    async def _indexing_failed(self, event: IndexingFailed) -> None:
        self.failure = event
        self._report_or_buffer(self._on_failure)
