"""Who writes the index: one process leads and keeps it up to date, the others follow and answer from what it writes."""

from __future__ import annotations

import asyncio

import anyio
from anyio.to_thread import run_sync

from armarium.capabilities.corpus.errors import CorpusError, IndexNotReady
from armarium.capabilities.corpus.index import KINDS, CorpusIndex
from armarium.capabilities.corpus.indexing import Upkeep
from armarium.capabilities.corpus.ingest.progress import Progress
from armarium.capabilities.corpus.news import IndexingFailed, IndexLoaded, Mode
from armarium.capabilities.corpus.parts import Parts
from armarium.capabilities.corpus.readiness import Readiness
from armarium.capabilities.corpus.searching import Searching
from armarium.capabilities.corpus.state import IndexingLock, forget_indexes, read_status
from armarium.foundation.memory import give_memory_back
from armarium.retrieval.passages import IndexKind

_FOLLOW_S = 1.0
_DEAD_SHARE = 0.5


class Leadership:
    """What goes on behind the answers of one corpus, whether this process leads or follows."""

    def __init__(self, parts: Parts, lock: IndexingLock, mode: Mode, *, lasting: bool) -> None:
        """`lasting` watches the directory, and takes over when the process that leads ends."""
        self._parts = parts
        self._lock = lock
        self._mode: Mode = mode
        self._lasting = lasting
        self._loop = asyncio.get_running_loop()
        self._news: asyncio.Queue[object] = asyncio.Queue()
        self.progress = Progress(self._tell)
        self.readiness = Readiness()
        self.indexed = asyncio.Event()
        """Set while everything that is in the directory can be found."""
        if lock.held:
            self.progress.put(running=True, mode=mode, phase="scan")

    async def run(self) -> None:
        """Follow for as long as another process leads, then lead, until cancelled."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._publish)
            try:
                if not self._lock.held:
                    await self._follow()
                await self._lead()
            except CorpusError as error:
                self.readiness.give_up(error)
                self.progress.tell(IndexingFailed(error.code, error.message))
                # Whoever waits for the end has it.
                self.indexed.set()

    async def _follow(self) -> None:
        """Answer from an index that is not ours to write, as it is now; return when it has become ours."""
        storage = self._parts.storage
        while True:
            version = storage.version()
            try:
                self._answer_from(await run_sync(self._load))
            except IndexNotReady:
                # The other process is just making it.
                await anyio.sleep(_FOLLOW_S)
                continue
            self.indexed.set()
            self.progress.put(running=await run_sync(self._is_indexed_by_another))
            while storage.version() == version:
                await anyio.sleep(_FOLLOW_S)
                if self._lasting and self._lock.take():
                    self.indexed.clear()
                    return

    def _is_indexed_by_another(self) -> bool:
        try:
            return read_status(self._parts.state_dir)["indexing"]["running"]
        except CorpusError:
            return False

    async def _lead(self) -> None:
        """Keep the index up to date, and answer from it."""
        index = await run_sync(self._load)
        self._answer_from(index)
        try:
            upkeep = Upkeep(self._parts, index, self.progress, self.indexed)
            await upkeep.run(self._mode, watching=self._lasting and self._parts.settings.ingest.watch)
        finally:
            with anyio.CancelScope(shield=True):
                await run_sync(index.close)

    def _answer_from(self, index: CorpusIndex) -> None:
        parts = self._parts
        self.readiness.answer_from(Searching(parts.storage, index, parts.models, parts.settings))

    def _load(self) -> CorpusIndex:
        """The index as it is on disk, brought to where the storage is."""
        storage, state_dir = self._parts.storage, self._parts.state_dir
        if self._lock.held:
            self._tidy()
        dimensions: dict[IndexKind, int | None] = {kind: self._dimensions(kind) for kind in KINDS}
        index = CorpusIndex(state_dir, storage, dimensions, writing=self._lock.held)
        models: dict[IndexKind, str] = {kind: self._parts.models.embedders[kind].model for kind in KINDS}
        index.load(models)
        counts = storage.counts()
        give_memory_back()
        self.progress.put(chunks_total=counts.chunks, embedded_ok=counts.embedded)
        self.progress.tell(IndexLoaded(str(state_dir), self._mode, counts.documents, counts.chunks, counts.embedded))
        return index

    def _tidy(self) -> None:
        """Forget what is deleted once it is more than what is left, and make the indexes anew without it."""
        storage = self._parts.storage
        if storage.dead_share() > _DEAD_SHARE:
            storage.purge()
            forget_indexes(self._parts.state_dir)
            storage.notes.put("words_up_to", "0")

    def _dimensions(self, kind: IndexKind) -> int | None:
        known = self._parts.models.embedders[kind].dimensions
        stored = self._parts.storage.notes.get(f"embed_{kind}_dim")
        return known or (int(stored) if stored else None)

    def _tell(self, news: object) -> None:
        """Have news published, from any thread; after the loop is gone there is nobody left to tell."""
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._news.put_nowait, news)

    async def _publish(self) -> None:
        while True:
            await self._parts.events.publish(await self._news.get())
