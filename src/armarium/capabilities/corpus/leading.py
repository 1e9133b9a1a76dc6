"""Who writes the index: one process leads and keeps it up to date, the others follow and answer from what it writes."""

from __future__ import annotations

import asyncio

import anyio
import anyio.lowlevel
from anyio.to_thread import run_sync

from armarium.capabilities.corpus.errors import CorpusError, IndexNotReady, StateUnwritable, StoreCorrupt
from armarium.capabilities.corpus.health import warn_of_rows
from armarium.capabilities.corpus.index import KINDS, CorpusIndex
from armarium.capabilities.corpus.indexing import Upkeep
from armarium.capabilities.corpus.ingest.progress import Progress
from armarium.capabilities.corpus.news import IndexingFailed, IndexLoaded, Mode
from armarium.capabilities.corpus.parts import Parts
from armarium.capabilities.corpus.readiness import Readiness
from armarium.capabilities.corpus.searching import Guards, Searching
from armarium.capabilities.corpus.state import META_FILE, IndexingLock, forget_indexes, read_status
from armarium.capabilities.corpus.storage.storage import remove_damaged
from armarium.capabilities.corpus.troubles import root_trouble, storage_damage, what_ended_it, words_damage
from armarium.capabilities.corpus.words_directory import remove as remove_words
from armarium.foundation.events import FileScanned
from armarium.foundation.processes.memory import give_memory_back
from armarium.retrieval.chunks import IndexKind

_FOLLOW_S = 1.0
_PATIENCE_S = 30.0
"""How long a question waits for words that another process is making."""
_DEAD_SHARE = 0.5
_MOST_FRESH_STARTS = 2
"""More than that, and it is the disk that does the damage."""


class Leadership:
    """What goes on behind the answers of one corpus, whether this process leads or follows."""

    def __init__(self, parts: Parts, lock: IndexingLock, mode: Mode, *, lasting: bool) -> None:
        """`lasting` watches the directory, and takes over when the process that leads ends."""
        self._parts = parts
        self._lock = lock
        self._mode: Mode = mode
        self._lasting = lasting
        self._next_chunk_id = 1
        self._loop = asyncio.get_running_loop()
        self._news: asyncio.Queue[object] = asyncio.Queue()
        self.progress = Progress(self._tell)
        self.readiness = Readiness()
        self._guards = Guards()
        self.indexed = asyncio.Event()
        """Set while everything that is in the directory can be found."""
        if lock.held:
            self.progress.put(running=True, mode=mode, phase="scan")
        parts.storage.report_damage(lambda rel_paths: warn_of_rows(parts.health, rel_paths), lambda error: None)

    async def run(self) -> None:
        """Follow for as long as another process leads, then lead, until cancelled."""
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._publish)
                try:
                    if not self._lock.held:
                        await self._follow()
                    await self._lead()
                except Exception as error:
                    reason = what_ended_it(error, self._parts.confined.fd)
                    if reason is None:
                        raise
                    self._give_up(reason)
        finally:
            with anyio.CancelScope(shield=True):
                await self._publish_what_is_recorded()

    def _give_up(self, reason: CorpusError) -> None:
        """What is indexed stays searchable; where nothing is, whoever asks is told why."""
        if not self.readiness.answers:
            self.readiness.give_up(reason)
        self.progress.tell(IndexingFailed(reason.code, reason.message))
        # Whoever waits for the end has it.
        self.indexed.set()

    async def _follow(self) -> None:
        """Answer from an index that is not ours to write, as it is now; return when it has become ours."""
        storage = self._parts.storage
        give_up_at = anyio.current_time() + _PATIENCE_S
        mended = False
        while True:
            version = storage.version()
            try:
                index = await run_sync(self._load)
            except IndexNotReady as error:
                if self._lasting:
                    if self._lock.take():
                        return
                elif mended:
                    raise StoreCorrupt("the words index cannot be made again", hint="run: dir2mcp reindex") from error
                elif await run_sync(self._mend):
                    mended = True
                    continue
                elif anyio.current_time() > give_up_at:
                    raise
                # The other process is just making it.
                await anyio.sleep(_FOLLOW_S)
                continue
            except StoreCorrupt:
                # The process that leads builds it anew; without one, this process does.
                if not self._lasting:
                    raise
                if self._lock.take():
                    return
                await anyio.sleep(_FOLLOW_S)
                continue
            self._answer_from(index)
            if index.unsaved and not self._lasting:
                await run_sync(self._mend)
            self.indexed.set()
            self.progress.put(running=await run_sync(self._is_indexed_by_another))
            while storage.version() == version:
                await anyio.sleep(_FOLLOW_S)
                if self._lasting and self._lock.take():
                    self.indexed.clear()
                    return

    def _mend(self) -> bool:
        """Make again what is torn or missing on disk, unless another process has the right to, or nobody has."""
        try:
            if not self._lock.take():
                return False
        except StateUnwritable:
            return False
        try:
            self._opened().close()
        finally:
            self._lock.give_back()
        return True

    def _is_indexed_by_another(self) -> bool:
        try:
            return read_status(self._parts.state_dir)["indexing"]["running"]
        except CorpusError:
            return False

    async def _lead(self) -> None:
        """Keep the index up to date, and answer from it. What turns out to be damaged is built anew."""
        for _ in range(_MOST_FRESH_STARTS):
            try:
                await self._keep_up()
                return
            except Exception as error:
                if not self._lock.is_in_place or root_trouble(self._parts.confined.fd) is not None:
                    raise
                if (damage := words_damage(error)) is not None:
                    self._parts.health.warn("damaged words", f"{damage.message}; it is built anew")
                    await run_sync(remove_words, self._parts.state_dir)
                elif (damage := storage_damage(error)) is not None:
                    await run_sync(self._start_over, damage)
                else:
                    raise
        await self._keep_up()

    async def _keep_up(self) -> None:
        index = await run_sync(self._load)
        self._answer_from(index)
        ending = index.close
        try:
            digest_key = await run_sync(self._parts.storage.notes.digest_key)
            upkeep = Upkeep(self._parts, index, self.progress, self.indexed, digest_key)
            await upkeep.run(self._mode, watching=self._lasting and self._parts.settings.ingest.watch)
        except Exception as error:
            if storage_damage(error) is not None or words_damage(error) is not None:
                self.readiness.wait_again()
                self._next_chunk_id = index.catalogue.room
                ending = index.abandon
            raise
        finally:
            with anyio.CancelScope(shield=True):
                await run_sync(ending)

    def _start_over(self, damage: StoreCorrupt) -> None:
        """Put an empty storage in the place of a damaged one; the next scan fills it from the files."""
        self._parts.health.warn("damaged storage", f"{damage.message}; everything is indexed anew")
        self.indexed.clear()
        self._parts.storage.start_over(self._next_chunk_id)
        forget_indexes(self._parts.state_dir)
        self.progress.put(running=True, mode=self._mode, phase="scan")

    def _answer_from(self, index: CorpusIndex) -> None:
        parts = self._parts
        self.readiness.answer_from(Searching(parts.storage, index, parts.models, parts.settings, self._guards))

    def _load(self) -> CorpusIndex:
        """The index, and news of how much there is in it."""
        storage, state_dir = self._parts.storage, self._parts.state_dir
        index = self._opened()
        counts = storage.counts()
        give_memory_back()
        self.progress.put(chunks_total=counts.chunks, embedded_ok=counts.embedded)
        self.progress.tell(IndexLoaded(str(state_dir), self._mode, counts.documents, counts.chunks, counts.embedded))
        return index

    def _opened(self) -> CorpusIndex:
        """The index as it is on disk, brought to where the storage is."""
        storage, state_dir = self._parts.storage, self._parts.state_dir
        if self._lock.held:
            self._tidy()
        dimensions: dict[IndexKind, int | None] = {kind: self._dimensions(kind) for kind in KINDS}
        index = CorpusIndex(state_dir, storage, dimensions, writing=self._lock.held, health=self._parts.health)
        models: dict[IndexKind, str] = {kind: self._parts.models.embedders[kind].model for kind in KINDS}
        try:
            index.load(models)
        except BaseException:
            index.abandon()
            raise
        return index

    def _tidy(self) -> None:
        """Forget what is deleted once it is more than what is left, or when policy excludes some of it.

        The indexes are made anew without it.
        """
        storage = self._parts.storage
        remove_damaged(self._parts.state_dir / META_FILE)
        if storage.holds_forbidden or storage.dead_share() > _DEAD_SHARE:
            wiped = storage.wipe()
            forget_indexes(self._parts.state_dir)
            storage.notes.put("words_up_to", "0")
            if wiped:
                storage.note_wiped()

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

    async def _publish_what_is_recorded(self) -> None:
        """Tell what the index will not tell again because it knows it now; how far it is, nobody asks at the end."""
        await anyio.lowlevel.checkpoint()  # lets in what threads told last
        while not self._news.empty():
            news = self._news.get_nowait()
            if isinstance(news, FileScanned):
                await self._parts.events.publish(news)
