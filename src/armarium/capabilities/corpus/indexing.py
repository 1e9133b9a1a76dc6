"""Keeps an index where its directory is: scan, watch, embed, and write down how far it is."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Collection

import anyio
from anyio.to_thread import run_sync

from armarium.capabilities.corpus.errors import IsolationMissing, StoreCorrupt
from armarium.capabilities.corpus.files.discover import DiscoveryRules
from armarium.capabilities.corpus.files.watch import Watcher
from armarium.capabilities.corpus.health import warn_of_rows
from armarium.capabilities.corpus.index import CorpusIndex
from armarium.capabilities.corpus.ingest.bell import Bell
from armarium.capabilities.corpus.ingest.embedding import Embedding
from armarium.capabilities.corpus.ingest.indexer import Indexer
from armarium.capabilities.corpus.ingest.instructions import instructions_for
from armarium.capabilities.corpus.ingest.preparers import Preparers
from armarium.capabilities.corpus.ingest.progress import Progress
from armarium.capabilities.corpus.ingest.state_budget import StateBudget
from armarium.capabilities.corpus.ingest.worker_process import WorkerSetup, worker_memory_bytes
from armarium.capabilities.corpus.news import Mode
from armarium.capabilities.corpus.parts import Parts
from armarium.capabilities.corpus.state import write_summary
from armarium.capabilities.corpus.status import summary
from armarium.capabilities.corpus.troubles import damaged
from armarium.foundation.events import FileChanged, FileScanned
from armarium.foundation.processes.isolation import available_isolation
from armarium.foundation.processes.memory import give_memory_back
from armarium.retrieval.errors import TornIndex

_WORKERS = 4
"""Also on one core: fewer than this many files, however slow, stop none of the others."""
_SUMMARY_EVERY_S = 2.0


class Upkeep:
    """The work of the process that leads. `indexed` is set while everything in the directory can be found."""

    def __init__(
        self, parts: Parts, index: CorpusIndex, progress: Progress, indexed: asyncio.Event, digest_key: bytes
    ) -> None:
        """`digest_key` is what credentials are told apart with."""
        self._parts = parts
        self._progress = progress
        self._indexed = indexed
        ingest = parts.settings.ingest
        if ingest.isolation == "required" and (missing := available_isolation().missing):
            raise IsolationMissing(f"the kernel lacks {missing}", hint="set ingest.isolation: auto to index anyway")
        self._instructions = instructions_for(parts.settings, parts.own_paths, digest_key)
        # Rings whenever there may be more or less to do, so that nobody has to look while there is nothing.
        self._turn = Bell()
        self._embedding = Embedding(parts.storage, index, parts.models.embedders, progress, on_turn=self._turn.ring)
        setup = WorkerSetup(
            self._instructions,
            worker_memory_bytes(self._instructions.most_bytes, _WORKERS),
            isolated=ingest.isolation != "off",
            required=ingest.isolation == "required",
        )
        at_once = max(1, min(_WORKERS, (os.cpu_count() or 2) - 1))
        self._indexer = Indexer(
            parts.confined,
            DiscoveryRules(parts.exclusion, gitignore=ingest.gitignore, follow_symlinks=ingest.follow_symlinks),
            parts.storage,
            index,
            Preparers(parts.confined, setup, size=_WORKERS, at_once=at_once),
            progress,
            on_recorded=self._embedding.wake,
            on_turn=self._turn.ring,
            prepared_as=self._instructions.fingerprint(),
            tell_secrets_again=parts.events.is_heard(FileScanned),
            budget=StateBudget(parts.state_dir, int(ingest.max_state_gb * 1e9)),
            on_damage=self._found_damage,
        )
        self._loop = asyncio.get_running_loop()
        self._damage: asyncio.Future[None] = self._loop.create_future()
        self._storage_checked = False
        self._repaired: set[str] = set()

    async def run(self, mode: Mode, *, watching: bool) -> None:
        """Scan the directory, then follow its changes until cancelled."""
        parts = self._parts
        unsubscribe = parts.events.subscribe(FileChanged, self._look_at)
        parts.storage.report_damage(self._repair, self._found_damage)
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._end_when_damaged)
                tasks.start_soon(self._check_storage)
                tasks.start_soon(self._embedding.run)
                tasks.start_soon(self._note_progress)
                await run_sync(parts.storage.embeddings.retry_unembeddable)
                if watching:
                    refresh, scan = self._indexer.refresh, self._indexer.scan
                    await tasks.start(Watcher(parts.root, parts.exclusion, refresh, scan, parts.health).run)
                self._indexer.scan(mode)
        finally:
            unsubscribe()
            with anyio.CancelScope(shield=True):
                await run_sync(self._indexer.close)
                if not self._damage.done():
                    await run_sync(self._write_summary, True)

    # Damage

    def _found_damage(self, error: StoreCorrupt | TornIndex) -> None:
        """The database or the words index is damaged as a whole: end, so that it can be built anew. In any thread."""

        def end() -> None:
            if not self._damage.done():
                self._damage.set_exception(error)
                self._damage.exception()  # who waits is told; when something else ends the work first, nobody waits

        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(end)

    async def _end_when_damaged(self) -> None:
        await asyncio.shield(self._damage)

    async def _check_storage(self) -> None:
        """Have SQLite look through its file, beside everything else."""
        if not await run_sync(lambda: self._parts.storage.is_whole):
            raise damaged("the structure")
        self._storage_checked = True
        self._turn.ring()

    def _repair(self, rel_paths: Collection[str]) -> None:
        """Prepare documents again of which rows are damaged. In any thread."""
        if "" in rel_paths or self._repaired.issuperset(rel_paths):
            # It cannot be told which, or preparing them did not help.
            self._found_damage(damaged("a row"))
            return
        self._repaired.update(rel_paths)
        warn_of_rows(self._parts.health, rel_paths)
        self._indexer.repair(list(rel_paths))

    async def _look_at(self, event: FileChanged) -> None:
        inside = event.host_path.removeprefix(f"{self._parts.confined.real_path}/") if event.host_path else "/"
        if not inside.startswith("/"):
            self._indexer.refresh([inside])

    @property
    def _complete(self) -> bool:
        """Whether nothing is left to do. The indexer is asked first: it wakes the embedding before it is done."""
        return not self._indexer.busy and self._embedding.idle and self._storage_checked

    async def _note_progress(self) -> None:
        """Say when everything is indexed, and keep `corpus.json` near the truth."""
        write_at = 0.0
        while True:
            await self._turn.wait(None if self._complete else max(0.0, write_at - anyio.current_time()))
            if self._complete:
                turned = self._progress.running and await self._declare_complete()
            else:
                turned = False
                self._indexed.clear()
                if not self._progress.running:
                    self._progress.put(running=True)
            if turned or (not self._complete and anyio.current_time() >= write_at):
                write_at = anyio.current_time() + _SUMMARY_EVERY_S
                await run_sync(self._write_summary)

    async def _declare_complete(self) -> bool:
        """Say that everything can be found, unless something changes before it is said."""
        storage = self._parts.storage
        counts = await run_sync(storage.counts)
        await run_sync(give_memory_back)
        if not self._complete:
            return False
        self._progress.put(running=False, phase="idle", chunks_total=counts.chunks, embedded_ok=counts.embedded)
        self._indexed.set()
        return True

    def _write_summary(self, at_rest: bool = False) -> None:
        told = summary(self._parts, self._progress.now)
        # Whether the next process finds anything left to do, as far as this one knows.
        told["indexing"]["complete"] = not self._progress.running
        if at_rest:
            told["indexing"]["running"] = False
        write_summary(self._parts.state_dir, told)
