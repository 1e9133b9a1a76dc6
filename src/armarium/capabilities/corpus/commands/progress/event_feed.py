"""Hands the corpus's news to a report, from the moment it may; how to connect comes before how indexing goes."""

from __future__ import annotations

from collections.abc import Callable

import anyio

from armarium.capabilities.corpus.commands.progress.reports import Report
from armarium.capabilities.corpus.news import EmbeddingPaused, FileFailed, IndexingFailed, IndexLoaded, IndexProgress
from armarium.foundation.events import Events


class Feed:
    """Listens to the news from the moment it is made, and tells it: at once, or if it `waits`, once it is open."""

    def __init__(self, events: Events, report: Report, *, waits: bool, on_failure: Callable[[], None]) -> None:
        self._report = report
        self._waiting: list[Callable[[], None]] | None = [] if waits else None
        self._on_failure = on_failure
        self._loaded = False
        self.failure: IndexingFailed | None = None
        """Why indexing could not go on, if it could not."""
        self.at_rest = anyio.Event()
        """Set once a job was told to be over."""
        events.subscribe(IndexLoaded, self._index_loaded)
        events.subscribe(IndexProgress, self._progress)
        events.subscribe(FileFailed, self._file_failed)
        events.subscribe(EmbeddingPaused, self._embedding_paused)
        events.subscribe(IndexingFailed, self._indexing_failed)

    def open(self) -> None:
        """Tell what was heard so far, and from now on everything at once."""
        waiting, self._waiting = self._waiting or [], None
        for tell in waiting:
            tell()

    def _soon(self, tell: Callable[[], None]) -> None:
        if self._waiting is None:
            tell()
        else:
            self._waiting.append(tell)

    async def _index_loaded(self, news: IndexLoaded) -> None:
        self._loaded = True
        self._soon(lambda: self._report.index_loaded(news))

    async def _progress(self, news: IndexProgress) -> None:
        if not self._loaded:
            return  # there is nothing to tell before that
        self._soon(lambda: self._report.progress(news))
        if not news.running:
            self.at_rest.set()

    async def _file_failed(self, news: FileFailed) -> None:
        self._soon(lambda: self._report.file_failed(news))

    async def _embedding_paused(self, news: EmbeddingPaused) -> None:
        self._soon(lambda: self._report.embedding_paused(news))

    async def _indexing_failed(self, news: IndexingFailed) -> None:
        self.failure = news
        self._soon(self._on_failure)
