"""A corpus opened in the process of the test, with the events it publishes."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio

from armarium.capabilities.corpus.events import FileFailed, IndexingFailed, IndexProgress
from armarium.capabilities.corpus.lifespan import IndexingMode, open_service
from armarium.capabilities.corpus.query.search import Filters
from armarium.capabilities.corpus.service import Corpus
from armarium.capabilities.corpus.settings import CorpusSettings, EmbeddingSettings, IngestSettings
from armarium.foundation.events import Events, FileChanged
from armarium.foundation.refs import FileRef
from armarium.foundation.security.identity import Principal

DEADLINE_S = 60.0
WRITER = Principal("keeper", (), "")


class OpenCorpus:
    """One directory that a test opens as often as it likes. Without a watcher, only the test reports changes."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.state_dir = root / ".dir2mcp"
        self.events = Events()
        self.progress: list[IndexProgress] = []
        self.failures: list[IndexingFailed] = []
        self.failed_files: dict[str, str] = {}
        self.events.subscribe(IndexProgress, self._hear_progress)
        self.events.subscribe(IndexingFailed, self._hear_failure)
        self.events.subscribe(FileFailed, self._hear_of_file)

    async def _hear_progress(self, event: IndexProgress) -> None:
        self.progress.append(event)

    async def _hear_failure(self, event: IndexingFailed) -> None:
        self.failures.append(event)

    async def _hear_of_file(self, event: FileFailed) -> None:
        self.failed_files[event.rel_path] = event.code

    @asynccontextmanager
    async def opened(
        self, indexing: IndexingMode = "background", *, wait: bool = True, **settings: Any
    ) -> AsyncGenerator[Corpus]:
        """The open corpus, after indexing has finished unless `wait` is false."""
        chosen: dict[str, Any] = {
            "root": str(self.root),
            "embedding": EmbeddingSettings(provider="local"),
            "ingest": IngestSettings(watch=False),
        }
        with anyio.fail_after(DEADLINE_S):
            async with open_service(CorpusSettings(**chosen | settings), self.events, indexing=indexing) as corpus:
                if wait and indexing != "none":
                    await corpus.until_indexed()
                yield corpus

    async def index(self, **settings: Any) -> dict[str, Any]:
        """Index the directory and close. Returns the counters."""
        async with self.opened(**settings) as corpus:
            return corpus.stats()["indexing"]

    async def changed(self, name: str) -> None:
        """Report that a file was written."""
        ref = FileRef("files", "root", name)
        await self.events.publish(FileChanged(ref, "modified", False, WRITER, str(self.root / name)))


async def found(corpus: Corpus, query: str) -> list[str]:
    """The paths of the hits of a search."""
    results = await corpus.search(query, 10, "both", Filters())
    return [hit.chunk.rel_path for hit in results.hits]
