"""The corpus's engine in this process: indexing by words alone, or whole with vectors that cost nothing to make."""

from __future__ import annotations

import os
import sys
import threading
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from pydoc_data.topics import topics
from unittest.mock import patch

import anyio
import numpy
from numpy.typing import NDArray

from armarium.capabilities.corpus.events import IndexingFailed
from armarium.capabilities.corpus.files.discover import DiscoveryRules
from armarium.capabilities.corpus.files.exclusion import Exclusion
from armarium.capabilities.corpus.index.ownership import prepare_directory
from armarium.capabilities.corpus.index.search_index import SearchIndex
from armarium.capabilities.corpus.index.state import META_FILE
from armarium.capabilities.corpus.ingest.budgets import StateBudget
from armarium.capabilities.corpus.ingest.indexer import Indexer
from armarium.capabilities.corpus.ingest.instructions import Instructions
from armarium.capabilities.corpus.ingest.progress import Progress
from armarium.capabilities.corpus.ingest.worker_pool import WorkerPool
from armarium.capabilities.corpus.ingest.worker_process import WorkerSetup
from armarium.capabilities.corpus.lifespan import open_service
from armarium.capabilities.corpus.settings import CorpusSettings
from armarium.capabilities.corpus.storage.storage import Storage
from armarium.foundation.events import Events
from armarium.foundation.files.confine import ConfinedRoot
from armarium.providers.local.embedder import LocalEmbedder

Vectors = NDArray[numpy.float32]

INDEX_DEADLINE_S = 3600.0
WORKER_MEMORY_BYTES = 1024**3
MOST_WORKERS = 4
REAL_TEXTS = 1500
REAL_TEXT_CHARACTERS = 250
NOISES = 4096
NOISE_LENGTH = 0.35
"""Beside a mixture of length 1: near enough to be about the same, far enough to have an order."""


class WordsEngine:
    """The indexer with its storage, words and workers, as the server has them, and nobody who embeds."""

    def __init__(self, root: ConfinedRoot, state_dir: Path) -> None:
        settings = CorpusSettings()
        self._events: list[object] = []
        self._at_rest = threading.Condition()
        self._storage = Storage(state_dir / META_FILE)
        self._index = SearchIndex(state_dir, self._storage, {"text": None, "code": None})
        self._index.load({"text": "none", "code": "none"})
        self._progress = Progress(self._events.append)
        setup = WorkerSetup(Instructions(settings.path_excludes, settings.secret_patterns), WORKER_MEMORY_BYTES)
        workers = max(1, min(MOST_WORKERS, (os.cpu_count() or 2) - 1))
        self._indexer = Indexer(
            root,
            DiscoveryRules(Exclusion(settings.path_excludes, settings.secret_patterns)),
            self._storage,
            self._index,
            WorkerPool(root, setup, size=MOST_WORKERS, at_once=workers),
            self._progress,
            StateBudget(state_dir, sys.maxsize),
            prepared_as="",
            report_secrets_again=False,
            on_recorded=lambda: None,
            on_change=self._turned,
            on_damage=lambda error: None,
        )

    def scan(self) -> int:
        """Bring the index to where the directory is, to the last commit; how many files were looked at."""
        self._indexer.scan()
        with self._at_rest:
            if not self._at_rest.wait_for(lambda: not self._indexer.busy, INDEX_DEADLINE_S):
                raise TimeoutError("indexing did not end")
        failures = [event for event in self._events if isinstance(event, IndexingFailed)]
        if failures:
            raise RuntimeError(f"indexing failed: {failures}")
        return self._progress.now.scanned

    @property
    def indexed(self) -> int:
        """Files that the last scan took in."""
        return self._progress.now.indexed

    def close(self) -> None:
        """End workers and thread, and close the files."""
        self._indexer.close()
        self._index.close()
        self._storage.close()

    def _turned(self) -> None:
        with self._at_rest:
            self._at_rest.notify_all()


@contextmanager
def words_engine(top: Path, state_dir: Path) -> Iterator[WordsEngine]:
    """The engine over a directory."""
    prepare_directory(state_dir, top)
    with ConfinedRoot(str(top)) as root:
        engine = WordsEngine(root, state_dir)
        try:
            yield engine
        finally:
            engine.close()


async def _embedded(texts: Sequence[str]) -> Vectors:
    embedder = LocalEmbedder()
    try:
        return await embedder.embed(texts)
    finally:
        await embedder.aclose()


class CheapVectors:
    """Vectors like those of texts, without reading any: two real ones mixed, and some noise, chosen by a text's hash.

    They stand in for the real ones where only their number matters. Their neighbourhoods are as uneven as real ones.
    """

    def __init__(self, seed: int) -> None:
        prose = "\n".join(topics[name] for name in sorted(topics))
        step = len(prose) // REAL_TEXTS
        texts = [prose[start : start + REAL_TEXT_CHARACTERS] for start in range(0, step * REAL_TEXTS, step)]
        self._real = anyio.run(_embedded, texts)
        noise = numpy.random.default_rng(seed).normal(size=(NOISES, LocalEmbedder.dimensions)).astype(numpy.float32)
        self._noise = noise / numpy.linalg.norm(noise, axis=1, keepdims=True) * NOISE_LENGTH

    def of(self, texts: Sequence[str]) -> Vectors:
        """One vector for each text, always the same one."""
        hashes = numpy.array([[zlib.crc32(text.encode(), salt) for salt in range(5)] for text in texts])
        one, two = self._real[hashes[:, 0] % REAL_TEXTS], self._real[hashes[:, 1] % REAL_TEXTS]
        share = (hashes[:, 2:3] % 1000 / 1000).astype(numpy.float32)
        mixed = one * share + two * (1 - share)
        mixed /= numpy.linalg.norm(mixed, axis=1, keepdims=True)
        mixed += self._noise[hashes[:, 3] % NOISES] + self._noise[hashes[:, 4] % NOISES]
        return mixed / numpy.linalg.norm(mixed, axis=1, keepdims=True)


def index_with(vectors: CheapVectors, settings: CorpusSettings) -> None:
    """Index a directory whole, so that a server on it finds nothing left to do."""

    async def embed(embedder: LocalEmbedder, texts: Sequence[str]) -> Vectors:
        return vectors.of(texts)

    async def index() -> None:
        async with open_service(settings, Events(), indexing="background") as corpus:
            with anyio.fail_after(INDEX_DEADLINE_S):
                await corpus.until_indexed()

    with patch.object(LocalEmbedder, "embed", embed):
        anyio.run(index)
