"""Passes the events of the corpus to a report, and buffers them until the report may begin."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import anyio

from armarium.capabilities.corpus.commands.progress.reports import Report, report_on_stderr
from armarium.capabilities.corpus.events import EmbeddingPaused, FileFailed, IndexingFailed, IndexLoaded, IndexProgress
from armarium.command_line.output import say
from armarium.foundation.events import Events


class EventFeed:
    """Passes events to a report: immediately, or if it starts `paused`, after `begin`."""

    def __init__(self, events: Events, report: Report, *, paused: bool, on_failure: Callable[[], None]) -> None:
        self._buffer: list[Callable[[], None]] | None = [] if paused else None
        self._loaded = False
        self.failure: IndexingFailed | None = None
        """The event of failed indexing, if it failed."""
        self.idle = anyio.Event()
        """Set once the end of an indexing job was reported."""
        self.end = report.close
        self._handlers: dict[type, Callable[[Any], None]] = {
            IndexLoaded: report.index_loaded,
            IndexProgress: report.progress,
            FileFailed: report.file_failed,
            EmbeddingPaused: report.embedding_paused,
            IndexingFailed: lambda failure: on_failure(),
        }
        for kind in self._handlers:
            events.subscribe(kind, self._receive)

    def begin(self) -> None:
        """Report the buffered events, and all further events immediately."""
        buffered, self._buffer = self._buffer or [], None
        for report in buffered:
            report()

    async def _receive(self, event: object) -> None:
        match event:
            case IndexLoaded():
                self._loaded = True
            case IndexProgress() if not self._loaded:
                return  # progress follows the header, which needs the loaded index
            case IndexProgress(running=False):
                self.idle.set()
            case IndexingFailed():
                self.failure = event
            case _:
                pass
        report = partial(self._handlers[type(event)], event)
        if self._buffer is None:
            report()
        else:
            self._buffer.append(report)


def progress_on_stderr(events: Events) -> EventFeed:
    """Subscribe to the progress of indexing. If indexing fails, the server continues, because its other tools work."""
    stopped = partial(say, "indexing stopped; what is indexed stays searchable")
    return EventFeed(events, report_on_stderr(), paused=True, on_failure=stopped)
