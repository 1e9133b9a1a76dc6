"""Gives passages their vectors, window by window, while the rest of the corpus is searched and indexed."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import anyio
from anyio.to_thread import run_sync

from armarium.capabilities.corpus.errors import IndexVersionMismatch
from armarium.capabilities.corpus.index import CorpusIndex, packed, unpacked
from armarium.capabilities.corpus.ingest.bell import Bell
from armarium.capabilities.corpus.ingest.progress import Progress
from armarium.capabilities.corpus.news import EmbeddingPaused
from armarium.capabilities.corpus.storage.embeddings import Pending
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
_FIRST_PAUSE_S = 2.0
_LONGEST_PAUSE_S = 60.0
_UNUSABLE_ANSWER = 200
_REFUSED_TEXT = (400, 413, 422)


class Embedding:
    """The task that embeds whatever is stored without a vector."""

    def __init__(
        self,
        storage: Storage,
        index: CorpusIndex,
        embedders: Mapping[IndexKind, Embedder],
        progress: Progress,
        on_turn: Callable[[], None],
    ) -> None:
        """`on_turn` hears that `idle` may have changed."""
        self._storage = storage
        self._index = index
        self._embedders = embedders
        self._progress = progress
        self._on_turn = on_turn
        self._bell = Bell()
        self._counting = threading.Lock()
        self._woken = 0
        # Nothing is known of the passages before the first look, so not that all have their vector.
        self._looked_after = -1
        self._keeping = threading.Lock()
        self._saved_at = time.monotonic()

    def wake(self) -> None:
        """There may be passages without a vector. Any thread may call it."""
        with self._counting:
            self._woken += 1
        self._bell.ring()
        self._on_turn()

    @property
    def idle(self) -> bool:
        """Whether every passage has its vector, or none can be had."""
        return self._looked_after == self._woken

    async def run(self) -> None:
        """Embed until cancelled."""
        pause_s = _FIRST_PAUSE_S
        while True:
            await self._bell.wait()
            if self.idle:
                # It rang late, for what the last look has found already.
                continue
            woken = self._woken
            try:
                await self._drain()
                pause_s = _FIRST_PAUSE_S
            except (ProviderError, IndexVersionMismatch) as error:
                _log.warning("embedding pauses", extra={"code": error.code, "reason": error.message})
                self._progress.tell(EmbeddingPaused(error.code, error.message))
                if error.retryable:
                    asked_to_wait_s = error.retry_after_s if isinstance(error, ProviderError) else None
                    await anyio.sleep(asked_to_wait_s or pause_s)
                    pause_s = min(pause_s * 2, _LONGEST_PAUSE_S)
                    self._bell.ring()
                    continue
            if woken == self._woken:
                await run_sync(self._index.save_vectors)
                self._looked_after = woken
                self._on_turn()

    async def _drain(self) -> None:
        """Embed everything that waits, a few windows at a time."""
        after = 0
        failure: ProviderError | IndexVersionMismatch | None = None
        room = anyio.Semaphore(_WINDOWS_AT_ONCE)

        async def embed(window: list[Pending]) -> None:
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
                window = await run_sync(self._storage.embeddings.pending, after, _WINDOW)
                if not window:
                    break
                after = window[-1].chunk_id
                tasks.start_soon(embed, window)
        if failure is not None:
            raise failure

    async def _embed(self, window: Sequence[Pending]) -> None:
        for kind, embedder in self._embedders.items():
            passages = [passage for passage in window if passage.kind == kind]
            if not passages:
                continue
            known = await run_sync(self._from_before, embedder.model, passages)
            same: dict[bytes, list[Pending]] = {}
            for passage in passages:
                if passage.chunk_id not in known:
                    same.setdefault(passage.text_hash, []).append(passage)
            await self._embed_new(kind, embedder, list(same.values()))
        if time.monotonic() - self._saved_at > _SAVE_EVERY_S:
            self._saved_at = time.monotonic()
            await run_sync(self._index.save_vectors)

    def _from_before(self, model: str, passages: Sequence[Pending]) -> set[int]:
        """Passages whose text was embedded before, here or in another file."""
        found = {each.chunk_id: self._storage.embeddings.of_text(model, each.text_hash) for each in passages}
        vectors = {chunk_id: vector for chunk_id, vector in found.items() if vector is not None}
        if vectors:
            with self._keeping:
                self._index.add_vectors(passages[0].kind, list(vectors), unpacked(list(vectors.values())))
                living = self._storage.embeddings.put(model, (), vectors)
            self._progress.count(embedded_ok=living)
        return set(vectors)

    async def _embed_new(self, kind: IndexKind, embedder: Embedder, same: Sequence[Sequence[Pending]]) -> None:
        """Embed texts that were never embedded, each with all the passages that have it."""
        if not same:
            return
        try:
            is_code = kind == "code"
            inputs = [embedding_input(embedder, each[0].context, each[0].text, is_code=is_code) for each in same]
            vectors = await embedder.embed(inputs)
        except ProviderError as error:
            if not _blames_a_text(error):
                raise
            if len(same) == 1:
                # Nobody can embed this one; it is still found by its words.
                ids = [passage.chunk_id for passage in same[0]]
                await run_sync(self._storage.embeddings.mark_unembeddable, ids, error.message)
                return
            half = len(same) // 2
            await self._embed_new(kind, embedder, same[:half])
            await self._embed_new(kind, embedder, same[half:])
            return
        await run_sync(self._keep, kind, embedder.model, same, vectors)

    def _keep(self, kind: IndexKind, model: str, same: Sequence[Sequence[Pending]], vectors: Vectors) -> None:
        import numpy

        hashes = [each[0].text_hash for each in same]
        ids = [passage.chunk_id for each in same for passage in each]
        # The first vectors decide how long all are, so only one window at a time.
        with self._keeping:
            known = self._index.vectors.get(kind)
            if known is not None and known.dimensions != vectors.shape[1]:
                raise IndexVersionMismatch(
                    f"{model} gives vectors of {vectors.shape[1]} numbers, those of the index have {known.dimensions}",
                    hint="run: dir2mcp reindex",
                )
            # Storage first: a crash in between leaves a vector to be read again, never one without its passage.
            living = self._storage.embeddings.put(model, zip(hashes, packed(vectors), strict=True), ids)
            self._index.add_vectors(kind, ids, numpy.repeat(vectors, [len(each) for each in same], axis=0))
        self._progress.count(embedded_ok=living)


def _blames_a_text(error: ProviderError) -> bool:
    """Whether other texts may do better: not where the key, the account or the address is what is wrong."""
    if error.retryable or isinstance(error, ProviderAuth):
        return False
    return error.private.get("status", _UNUSABLE_ANSWER) in (_UNUSABLE_ANSWER, *_REFUSED_TEXT)
