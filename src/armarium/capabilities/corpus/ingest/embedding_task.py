"""The task that embeds chunks, window by window, concurrently with search and indexing."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import anyio
from anyio.to_thread import run_sync

from armarium.capabilities.corpus.errors import IndexVersionMismatch
from armarium.capabilities.corpus.events import EmbeddingPaused
from armarium.capabilities.corpus.index.search_index import SearchIndex
from armarium.capabilities.corpus.index.vectors import pack_vectors, unpack_vectors
from armarium.capabilities.corpus.ingest.progress import Progress
from armarium.capabilities.corpus.storage.embeddings import PendingChunk
from armarium.capabilities.corpus.storage.storage import Storage
from armarium.providers.errors import ProviderAuth, ProviderError
from armarium.providers.interfaces import Embedder, embedding_input
from armarium.retrieval.chunks import IndexKind

if TYPE_CHECKING:
    from armarium.providers.interfaces import Vectors

_log = logging.getLogger(__name__)

_WINDOW = 24
_WINDOWS_AT_ONCE = 4
_SAVE_EVERY_S = 60.0
_LONGEST_PAUSE_S = 60.0
_UNUSABLE_ANSWER = 200
_REFUSED_TEXT = (400, 413, 422)


class WakeUp:
    """A signal from any thread to one waiting task. It carries no data: the task checks for itself what changed."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._signalled = asyncio.Event()

    def signal(self) -> None:
        """Wake the task up, or make its next wait return at once. Does nothing after the event loop has closed."""
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._signalled.set)

    async def wait(self, timeout_s: float | None = None) -> None:
        """Return after a signal since the last wait, or after the timeout."""
        with anyio.move_on_after(timeout_s):
            await self._signalled.wait()
        self._signalled.clear()


@dataclass(slots=True)
class EmbeddingTask:
    """Embeds all stored chunks that have no vector."""

    storage: Storage
    index: SearchIndex
    embedders: Mapping[IndexKind, Embedder]
    progress: Progress
    on_change: Callable[[], None]
    """Called when `idle` may have changed."""
    first_pause_s: float = 2.0
    """The first delay after a failure. It doubles with each further failure."""
    _wake_up: WakeUp = field(default_factory=WakeUp)
    _counting: threading.Lock = field(default_factory=threading.Lock)
    _signals: int = 0
    _done_up_to: int = -1
    """Before the first pass it is unknown whether any chunk lacks a vector."""
    _storing: threading.Lock = field(default_factory=threading.Lock)
    _saved_at: float = field(default_factory=time.monotonic)

    def wake(self) -> None:
        """Signal that there may be chunks without a vector. Thread-safe."""
        with self._counting:
            self._signals += 1
        self._wake_up.signal()
        self.on_change()

    @property
    def idle(self) -> bool:
        """Whether no chunk is waiting for a vector that the provider would give."""
        return self._done_up_to == self._signals

    async def run(self) -> None:
        pause_s = self.first_pause_s
        while True:
            await self._wake_up.wait()
            if self.idle:
                # A late signal, for chunks that the last pass has already embedded.
                continue
            woken = self._signals
            try:
                await self._drain()
                pause_s = self.first_pause_s
            except (ProviderError, IndexVersionMismatch) as error:
                _log.warning("embedding pauses", extra={"code": error.code, "reason": error.message})
                self.progress.publish(EmbeddingPaused(error.code, error.message))
                if error.retryable:
                    asked_to_wait_s = error.retry_after_s if isinstance(error, ProviderError) else None
                    await anyio.sleep(asked_to_wait_s or pause_s)
                    pause_s = min(pause_s * 2, _LONGEST_PAUSE_S)
                    self._wake_up.signal()
                    continue
            if woken == self._signals:
                await run_sync(self.index.vectors.save)
                self._done_up_to = woken
                self.on_change()

    async def _drain(self) -> None:
        """Embed all pending chunks, a few windows at a time."""
        after = 0
        failure: ProviderError | IndexVersionMismatch | None = None
        room = anyio.Semaphore(_WINDOWS_AT_ONCE)

        async def embed(window: list[PendingChunk]) -> None:
            nonlocal failure
            try:
                await self._embed(window)
            except (ProviderError, IndexVersionMismatch) as error:
                failure = failure or error
            finally:
                room.release()

        async with anyio.create_task_group() as tasks:
            while failure is None:
                await room.acquire()
                window = await run_sync(self.storage.embeddings.pending, after, _WINDOW)
                if not window:
                    break
                after = window[-1].chunk_id
                tasks.start_soon(embed, window)
        if failure is not None:
            raise failure

    async def _embed(self, window: Sequence[PendingChunk]) -> None:
        for kind, embedder in self.embedders.items():
            chunks = [chunk for chunk in window if chunk.kind == kind]
            if not chunks:
                continue
            known = await run_sync(self._from_before, embedder.model, chunks)
            same: dict[bytes, list[PendingChunk]] = {}
            for chunk in chunks:
                if chunk.chunk_id not in known:
                    same.setdefault(chunk.text_hash, []).append(chunk)
            await self._embed_new(kind, embedder, list(same.values()))
        if time.monotonic() - self._saved_at > _SAVE_EVERY_S:
            self._saved_at = time.monotonic()
            await run_sync(self.index.vectors.save)

    def _from_before(self, model: str, chunks: Sequence[PendingChunk]) -> set[int]:
        """Reuse the stored vectors of texts that were embedded before. Returns the chunks found."""
        found = {each.chunk_id: self.storage.embeddings.of_text(model, each.text_hash) for each in chunks}
        vectors = {chunk_id: vector for chunk_id, vector in found.items() if vector is not None}
        if vectors:
            with self._storing:
                self.index.vectors.add(chunks[0].kind, list(vectors), unpack_vectors(list(vectors.values())))
                living = self.storage.embeddings.put(model, (), vectors)
            self.progress.count(embedded_ok=living)
        return set(vectors)

    async def _embed_new(self, kind: IndexKind, embedder: Embedder, same: Sequence[Sequence[PendingChunk]]) -> None:
        """Embed new texts. Each group of chunks has the same text."""
        if not same:
            return
        is_code = kind == "code"
        inputs = [embedding_input(embedder, each[0].context, each[0].text, is_code=is_code) for each in same]
        try:
            vectors = await embedder.embed(inputs)
        except ProviderError as error:
            if not _blames_a_text(error):
                raise
            if len(same) == 1:
                # The provider refuses this text. Lexical search still finds it.
                ids = [chunk.chunk_id for chunk in same[0]]
                await run_sync(self.storage.embeddings.mark_unembeddable, ids, error.message)
            else:
                half = len(same) // 2
                await self._embed_new(kind, embedder, same[:half])
                await self._embed_new(kind, embedder, same[half:])
        else:
            await run_sync(self._keep, kind, embedder.model, same, vectors)

    def _keep(self, kind: IndexKind, model: str, same: Sequence[Sequence[PendingChunk]], vectors: Vectors) -> None:
        import numpy

        hashes = [each[0].text_hash for each in same]
        ids = [chunk.chunk_id for each in same for chunk in each]
        # One window at a time, because the first vectors determine the dimensions.
        with self._storing:
            known = self.index.vectors.by_kind.get(kind)
            if known is not None and known.dimensions != vectors.shape[1]:
                raise IndexVersionMismatch(
                    f"{model} gives vectors of {vectors.shape[1]} numbers, those of the index have {known.dimensions}",
                    hint="run: dir2mcp reindex",
                )
            # Storage first: a crash in between leaves a vector to load again, never one without its chunk.
            living = self.storage.embeddings.put(model, zip(hashes, pack_vectors(vectors), strict=True), ids)
            self.index.vectors.add(kind, ids, numpy.repeat(vectors, [len(each) for each in same], axis=0))
        self.progress.count(embedded_ok=living)


def _blames_a_text(error: ProviderError) -> bool:
    """Whether the error concerns one text: not if key, account or address are wrong."""
    if error.retryable or isinstance(error, ProviderAuth):
        return False
    return error.private.get("status", _UNUSABLE_ANSWER) in (_UNUSABLE_ANSWER, *_REFUSED_TEXT)
