"""Leader election: one process leads and keeps the index in sync, the others follow and search what it writes."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import anyio
import anyio.lowlevel
from anyio.to_thread import run_sync

from armarium.capabilities.corpus.errors import CorpusError, IndexLocked, IndexNotReady, IngestionFailed, StoreCorrupt
from armarium.capabilities.corpus.events import IndexingFailed, IndexLoaded, Mode
from armarium.capabilities.corpus.health import warn_of_rows
from armarium.capabilities.corpus.index.lexical import remove as remove_lexical
from armarium.capabilities.corpus.index.search_index import SearchIndex
from armarium.capabilities.corpus.index.state import META_FILE, IndexLock, read_status, remove_indexes
from armarium.capabilities.corpus.index.vectors import KINDS
from armarium.capabilities.corpus.ingest.instructions import Instructions
from armarium.capabilities.corpus.ingest.progress import Progress
from armarium.capabilities.corpus.ingest.synchronizer import Synchronizer
from armarium.capabilities.corpus.query.search import ModelGuards, Readiness, Searcher
from armarium.capabilities.corpus.resources import Resources
from armarium.capabilities.corpus.storage.errors import damage_of, deleted_root_error, indexing_error
from armarium.capabilities.corpus.storage.storage import remove_damaged
from armarium.foundation.events import FileScanned
from armarium.foundation.processes.memory import give_memory_back
from armarium.retrieval.chunks import IndexKind

_DEAD_SHARE = 0.5
"""Deleted chunks are purged once they are more than this share of all."""
_MAX_FRESH_STARTS = 2
"""If more repairs are needed, the disk itself causes the damage."""


class LeaderElection:
    """Runs the background work of one corpus, as the leader or as a follower that takes over when the leader ends."""

    follow_s = 1.0
    """How often a follower checks whether the leader wrote something or ended."""
    wait_s = 30.0
    """How long a one-off command waits for an index that another process is building."""

    def __init__(
        self, resources: Resources, lock: IndexLock, mode: Mode, instructions: Instructions, *, lasting: bool
    ) -> None:
        """`lasting`: watch the directory, and take over when the leader ends."""
        self._resources = resources
        self._lock = lock
        self._mode: Mode = mode
        self._instructions = instructions
        self._lasting = lasting
        self._next_chunk_id = 1
        self._synchronizer: Synchronizer | None = None
        self._loop = asyncio.get_running_loop()
        self._events: asyncio.Queue[object] = asyncio.Queue()
        self.progress = Progress(self._publish_soon)
        self.readiness = Readiness()
        self._guards = ModelGuards()
        self.indexed = asyncio.Event()
        """Set while the index contains everything in the directory."""
        if lock.held:
            self.progress.put(running=True, mode=mode, phase="scan")
        resources.storage.report_damage(lambda rel_paths: warn_of_rows(resources.health, rel_paths), lambda error: None)

    async def run(self) -> None:
        """Follow while another process leads, then lead, until cancelled."""
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._publish)
                try:
                    if not self._lock.held:
                        await self._follow()
                    await self._lead()
                except Exception as error:
                    reason = indexing_error(error, self._resources.confined.fd)
                    if reason is None:
                        raise
                    self._give_up(reason)
        finally:
            with anyio.CancelScope(shield=True):
                await self._publish_scan_results()

    def index_again(self, rel_path: str | None) -> None:
        """Queue a file, a directory or everything (None) to be indexed again. The path is a file system name. Raises
        unless this process indexes the directory."""
        if self._synchronizer is None:
            raise IndexLocked("another process indexes this directory", hint="call the server that does")
        self._synchronizer.index_again(rel_path)

    def _give_up(self, reason: CorpusError) -> None:
        """End indexing. What is indexed stays searchable; without an index, searches fail with the reason."""
        if not self.readiness.is_ready:
            self.readiness.fail(reason)
        self.progress.publish(IndexingFailed(reason.code, reason.message))
        # Callers that wait for indexing to finish must not wait forever.
        self.indexed.set()

    # Following

    async def _follow(self) -> None:
        """Search the index that another process writes. Returns once this process holds the lock."""
        storage = self._resources.storage
        give_up_at = anyio.current_time() + self.wait_s
        repaired = False
        while True:
            version = storage.version()
            try:
                index = await run_sync(self._load)
            except (IndexNotReady, StoreCorrupt) as error:
                if self._lasting:
                    # The leader builds it; if there is none, this process does.
                    if self._lock.try_acquire():
                        return
                elif isinstance(error, StoreCorrupt):
                    raise
                elif repaired:
                    raise StoreCorrupt("the lexical index cannot be rebuilt", hint="run: dir2mcp reindex") from error
                elif await run_sync(self._repair_files):
                    repaired = True
                    continue
                elif anyio.current_time() > give_up_at:
                    raise
                await anyio.sleep(self.follow_s)
                continue
            self._use(index)
            if index.vectors.unsaved and not self._lasting:
                await run_sync(self._repair_files)
            self.indexed.set()
            self.progress.put(running=await run_sync(self._leader_is_indexing))
            while storage.version() == version:
                await anyio.sleep(self.follow_s)
                if self._lasting and self._lock.try_acquire():
                    self.indexed.clear()
                    return

    def _repair_files(self) -> bool:
        """Rebuild damaged or missing index files. Returns False if another process leads or the state is read-only."""
        try:
            if not self._lock.try_acquire():
                return False
        except IngestionFailed:
            return False
        try:
            self._open_index().close()
        finally:
            self._lock.release()
        return True

    def _leader_is_indexing(self) -> bool:
        try:
            return read_status(self._resources.state_dir)["indexing"]["running"]
        except CorpusError:
            return False

    # Leading

    async def _lead(self) -> None:
        """Keep the index in sync and search it. Damaged parts are rebuilt."""
        for _ in range(_MAX_FRESH_STARTS):
            try:
                await self._synchronize()
                return
            except Exception as error:
                if not self._lock.is_in_place or deleted_root_error(self._resources.confined.fd) is not None:
                    raise
                if (damage := damage_of("lexical index", error)) is not None:
                    self._resources.health.warn("damaged lexical index", f"{damage.message}; it is rebuilt")
                    await run_sync(remove_lexical, self._resources.state_dir)
                elif (damage := damage_of("storage", error)) is not None:
                    await run_sync(self._start_over, damage)
                else:
                    raise
        await self._synchronize()

    async def _synchronize(self) -> None:
        index = await run_sync(self._load)
        self._use(index)
        close = index.close
        try:
            instructions = replace(
                self._instructions, digest_key=await run_sync(self._resources.storage.notes.digest_key)
            )
            self._synchronizer = Synchronizer(self._resources, instructions, index, self.progress, self.indexed)
            await self._synchronizer.run(self._mode, watching=self._lasting)
        except Exception as error:
            if damage_of("storage", error) or damage_of("lexical index", error):
                self.readiness.hold_back()
                self._next_chunk_id = index.catalogue.room
                close = index.abandon
            raise
        finally:
            self._synchronizer = None
            with anyio.CancelScope(shield=True):
                await run_sync(close)

    def _start_over(self, damage: StoreCorrupt) -> None:
        """Replace a damaged storage by an empty one. The next scan fills it from the files."""
        self._resources.health.warn("damaged storage", f"{damage.message}; everything is indexed again")
        self.indexed.clear()
        self._resources.storage.start_over(self._next_chunk_id)
        remove_indexes(self._resources.state_dir)
        self.progress.put(running=True, mode=self._mode, phase="scan")

    # The index

    def _use(self, index: SearchIndex) -> None:
        self.readiness.use(Searcher(self._resources, index, self._guards))

    def _load(self) -> SearchIndex:
        storage, state_dir = self._resources.storage, self._resources.state_dir
        index = self._open_index()
        counts = storage.counts()
        give_memory_back()
        self.progress.put(chunks_total=counts.chunks, embedded_ok=counts.embedded)
        self.progress.publish(IndexLoaded(str(state_dir), self._mode, counts.documents, counts.chunks, counts.embedded))
        return index

    def _open_index(self) -> SearchIndex:
        """The index on disk, brought up to date with the storage."""
        storage, state_dir = self._resources.storage, self._resources.state_dir
        if self._lock.held:
            self._purge_deleted()
        embedders, notes = self._resources.models.embedders, storage.notes
        dimensions: dict[IndexKind, int | None] = {
            kind: embedders[kind].dimensions or int(notes.get(f"embed_{kind}_dim") or 0) or None for kind in KINDS
        }
        index = SearchIndex(state_dir, storage, dimensions, writing=self._lock.held, health=self._resources.health)
        models: dict[IndexKind, str] = {kind: self._resources.models.embedders[kind].model for kind in KINDS}
        try:
            index.load(models)
        except BaseException:
            index.abandon()
            raise
        return index

    def _purge_deleted(self) -> None:
        """Purge deleted rows, and the indexes, if they outnumber live ones or policy excludes some of them."""
        storage = self._resources.storage
        remove_damaged(self._resources.state_dir / META_FILE)
        if storage.holds_forbidden or storage.dead_share() > _DEAD_SHARE:
            wiped = storage.wipe()
            remove_indexes(self._resources.state_dir)
            storage.notes.put("words_up_to", "0")
            if wiped:
                storage.note_wiped()

    # Events

    def _publish_soon(self, event: object) -> None:
        """Queue an event for publication. Thread-safe; does nothing after the event loop has closed."""
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._events.put_nowait, event)

    async def _publish(self) -> None:
        while True:
            await self._resources.events.publish(await self._events.get())

    async def _publish_scan_results(self) -> None:
        """Publish the queued scan results, which the next start would not repeat. Progress is dropped."""
        await anyio.lowlevel.checkpoint()  # lets in the events that threads queued last
        while not self._events.empty():
            event = self._events.get_nowait()
            if isinstance(event, FileScanned):
                await self._resources.events.publish(event)
