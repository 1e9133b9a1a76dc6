"""Publishes changes of the index to clients outside the server, as a bounded number of public events."""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, Final

import anyio

from armarium.capabilities.corpus.errors import hint_for
from armarium.capabilities.corpus.events import (
    DocumentChanged,
    EmbeddingPaused,
    FileFailed,
    IndexingFailed,
    IndexProgress,
)
from armarium.capabilities.corpus.ingest.rates import ProgressReporter
from armarium.foundation.concurrency.tasks import background
from armarium.foundation.events import Events, PublicEvent

INTERVAL_S: Final = 0.5
"""At least this long passes between two events of a kind."""
_MOST_FILES: Final = 20
"""In one event. Clients read the state after an event that left files out."""
_CAPABILITY: Final = "corpus"


class _Unpublished:
    """What was not published yet."""

    def __init__(self) -> None:
        self.signal = anyio.Event()
        self.latest: dict[str, dict[str, Any]] = {}
        """By the name of the event. A later one replaces an earlier one."""
        self.files: dict[str, deque[dict[str, Any]]] = {}
        self.omitted: dict[str, int] = {}

    def put(self, name: str, data: dict[str, Any]) -> None:
        self.latest[name] = data
        self.signal.set()

    def add_file(self, name: str, file: dict[str, Any]) -> None:
        files = self.files.setdefault(name, deque())
        if len(files) < _MOST_FILES:
            files.append(file)
        else:
            self.omitted[name] = self.omitted.get(name, 0) + 1
        self.signal.set()

    def take(self) -> list[PublicEvent]:
        self.signal = anyio.Event()
        listed = {
            name: {"files": list(files), "omitted": self.omitted.get(name, 0)} for name, files in self.files.items()
        }
        events = [PublicEvent(name, data, capability=_CAPABILITY) for name, data in (self.latest | listed).items()]
        self.latest, self.files, self.omitted = {}, {}, {}
        return events


@asynccontextmanager
async def announce(
    events: Events, reporter: ProgressReporter, *, interval_s: float = INTERVAL_S
) -> AsyncGenerator[None]:
    """Publish the events of the corpus for clients who may read it, inside the block: each kind at most once in an
    interval, the last state always."""
    unpublished = _Unpublished()

    async def progress(event: IndexProgress) -> None:
        reporter.record(event)
        unpublished.put("index_progress", dict(reporter.report(event)))

    async def file_failed(event: FileFailed) -> None:
        file = {"rel_path": event.rel_path, "code": event.code, "message": event.message}
        unpublished.add_file("file_failed", file | ({"hint": hint} if (hint := hint_for(event.code)) else {}))

    async def changed(event: DocumentChanged) -> None:
        unpublished.add_file("file_changed", {"rel_path": event.rel_path, "change": event.change})

    async def failed(event: IndexingFailed) -> None:
        unpublished.put("indexing_failed", {"code": event.code, "message": event.message})

    async def paused(event: EmbeddingPaused) -> None:
        unpublished.put("embedding_paused", {"code": event.code, "message": event.message})

    async def publish() -> None:
        while True:
            await unpublished.signal.wait()
            for event in unpublished.take():
                await events.publish(event)
            await anyio.sleep(interval_s)

    async with AsyncExitStack() as subscriptions:
        subscriptions.callback(events.subscribe(IndexProgress, progress))
        subscriptions.callback(events.subscribe(FileFailed, file_failed))
        subscriptions.callback(events.subscribe(DocumentChanged, changed))
        subscriptions.callback(events.subscribe(IndexingFailed, failed))
        subscriptions.callback(events.subscribe(EmbeddingPaused, paused))
        await subscriptions.enter_async_context(background(publish))
        yield
