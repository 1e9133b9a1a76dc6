"""Keeps the index in sync with the directory: initial scan, file watching, embedding, and the summary on disk."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Collection

import anyio
from anyio.to_thread import run_sync

from armarium.capabilities.corpus.errors import IsolationMissing, StoreCorrupt
from armarium.capabilities.corpus.events import Mode
from armarium.capabilities.corpus.files.discover import DiscoveryRules
from armarium.capabilities.corpus.files.watcher import Watcher
from armarium.capabilities.corpus.health import warn_of_rows
from armarium.capabilities.corpus.index.search_index import SearchIndex
from armarium.capabilities.corpus.index.state import write_summary
from armarium.capabilities.corpus.ingest.budgets import StateBudget
from armarium.capabilities.corpus.ingest.embedding_task import EmbeddingTask, WakeUp
from armarium.capabilities.corpus.ingest.indexer import Indexer
from armarium.capabilities.corpus.ingest.instructions import Instructions
from armarium.capabilities.corpus.ingest.progress import Progress
from armarium.capabilities.corpus.ingest.worker_pool import WorkerPool
from armarium.capabilities.corpus.ingest.worker_process import WorkerSetup, worker_memory_bytes
from armarium.capabilities.corpus.resources import Resources
from armarium.capabilities.corpus.storage.errors import damaged_error
from armarium.foundation.events import FileChanged, FileScanned
from armarium.foundation.processes.isolation import available_isolation
from armarium.foundation.processes.memory import give_memory_back
from armarium.retrieval.errors import DamagedIndex

_WORKERS = 4
"""Even on one core: up to three slow files at a time do not stop the others."""
_SUMMARY_EVERY_S = 2.0


class Synchronizer:
    """The work of the leading process. `indexed` is set while the index contains the whole directory."""

    def __init__(
        self,
        resources: Resources,
        instructions: Instructions,
        index: SearchIndex,
        progress: Progress,
        indexed: asyncio.Event,
    ) -> None:
        self._resources = resources
        self._progress = progress
        self._indexed = indexed
        options = resources.settings.ingest
        if options.isolation == "required" and (missing := available_isolation().missing):
            raise IsolationMissing(f"the kernel lacks {missing}", hint="set ingest.isolation: auto to index anyway")
        # Signalled whenever the amount of remaining work may have changed, so that nothing polls.
        self._work_changed = WakeUp()
        self._embedding = EmbeddingTask(
            resources.storage, index, resources.models.embedders, progress, on_change=self._work_changed.signal
        )
        memory_bytes = worker_memory_bytes(instructions.most_bytes, _WORKERS)
        setup = WorkerSetup(instructions, memory_bytes, options.isolation)
        at_once = max(1, min(_WORKERS, (os.cpu_count() or 2) - 1))
        self._indexer = Indexer(
            resources.confined,
            DiscoveryRules(resources.exclusion, gitignore=options.gitignore, follow_symlinks=options.follow_symlinks),
            resources.storage,
            index,
            WorkerPool(resources.confined, setup, size=_WORKERS, at_once=at_once),
            progress,
            StateBudget(resources.state_dir, int(options.max_state_gb * 1e9)),
            prepared_as=instructions.fingerprint(),
            report_secrets_again=resources.events.is_heard(FileScanned),
            on_recorded=self._embedding.wake,
            on_change=self._work_changed.signal,
            on_damage=self._found_damage,
        )
        self._loop = asyncio.get_running_loop()
        self._damage: asyncio.Future[None] = self._loop.create_future()
        self._storage_checked = False
        self._repaired: set[str] = set()

    async def run(self, mode: Mode, *, watching: bool) -> None:
        """Scan the directory, then follow its changes until cancelled."""
        resources = self._resources
        unsubscribe = resources.events.subscribe(FileChanged, self._refresh)
        resources.storage.report_damage(self._repair, self._found_damage)
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._end_when_damaged)
                tasks.start_soon(self._check_storage)
                tasks.start_soon(self._embedding.run)
                tasks.start_soon(self._track_completion)
                await run_sync(resources.storage.embeddings.retry_unembeddable)
                if watching and resources.settings.ingest.watch:
                    refresh, scan = self._indexer.refresh, self._indexer.scan
                    await tasks.start(Watcher(resources.root, resources.exclusion, refresh, scan, resources.health).run)
                self._indexer.scan(mode)
        finally:
            unsubscribe()
            with anyio.CancelScope(shield=True):
                await run_sync(self._indexer.close)
                if not self._damage.done():
                    await run_sync(self._write_summary, True)

    def index_again(self, rel_path: str | None) -> None:
        """Queue a file, a directory or everything (None) to be indexed again. The path is a file system name."""
        self._indexer.prepare_again(rel_path)

    # Damage

    def _found_damage(self, error: StoreCorrupt | DamagedIndex) -> None:
        """The database or the lexical index is damaged as a whole: end, so that it is rebuilt. Thread-safe."""

        def end() -> None:
            if not self._damage.done():
                self._damage.set_exception(error)
                self._damage.exception()  # retrieved here, because `run` may end before it awaits the future

        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(end)

    async def _end_when_damaged(self) -> None:
        await asyncio.shield(self._damage)

    async def _check_storage(self) -> None:
        """Run SQLite's integrity check concurrently with all other work."""
        if not await run_sync(self._resources.storage.is_whole):
            raise damaged_error("the structure")
        self._storage_checked = True
        self._work_changed.signal()

    def _repair(self, rel_paths: Collection[str]) -> None:
        """Prepare documents with damaged rows again. Thread-safe."""
        if "" in rel_paths or self._repaired.issuperset(rel_paths):
            # The document is unknown, or preparing it again did not help.
            self._found_damage(damaged_error("a row"))
            return
        self._repaired.update(rel_paths)
        warn_of_rows(self._resources.health, rel_paths)
        self._indexer.repair(list(rel_paths))

    async def _refresh(self, event: FileChanged) -> None:
        inside = event.host_path.removeprefix(f"{self._resources.confined.real_path}/") if event.host_path else "/"
        if not inside.startswith("/"):
            self._indexer.refresh([inside])

    # Completion

    @property
    def _complete(self) -> bool:
        """Whether no work is left. The order matters: the indexer wakes the embedding task before it becomes idle."""
        return not self._indexer.busy and self._embedding.idle and self._storage_checked

    async def _track_completion(self) -> None:
        """Set `indexed` when everything is indexed, clear it when there is new work, and update `corpus.json`."""
        write_at = 0.0
        while True:
            await self._work_changed.wait(None if self._complete else max(0.0, write_at - anyio.current_time()))
            if self._complete:
                changed = self._progress.running and await self._declare_complete()
            else:
                changed = False
                self._indexed.clear()
                if not self._progress.running:
                    self._progress.put(running=True)
            if changed or (not self._complete and anyio.current_time() >= write_at):
                write_at = anyio.current_time() + _SUMMARY_EVERY_S
                await run_sync(self._write_summary)

    async def _declare_complete(self) -> bool:
        """Set `indexed`, unless there is new work by then."""
        storage = self._resources.storage
        counts = await run_sync(storage.counts)
        await run_sync(give_memory_back)
        if not self._complete:
            return False
        self._progress.put(running=False, phase="idle", chunks_total=counts.chunks, embedded_ok=counts.embedded)
        self._indexed.set()
        return True

    def _write_summary(self, at_rest: bool = False) -> None:
        content = self._resources.summary(self._progress.now)
        # Whether the next process will find work to do, as far as this one knows.
        content["indexing"]["complete"] = not self._progress.running
        if at_rest:
            content["indexing"]["running"] = False
        write_summary(self._resources.state_dir, content)
