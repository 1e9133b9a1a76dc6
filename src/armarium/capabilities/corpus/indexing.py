"""Keeps an index where its directory is: scan, watch, embed, and write down how far it is."""

from __future__ import annotations

import asyncio
import os

import anyio
from anyio.to_thread import run_sync

from armarium.capabilities.corpus.files.discover import DiscoveryRules
from armarium.capabilities.corpus.files.watch import watch
from armarium.capabilities.corpus.index import CorpusIndex
from armarium.capabilities.corpus.ingest.bell import Bell
from armarium.capabilities.corpus.ingest.embedding import Embedding
from armarium.capabilities.corpus.ingest.indexer import Indexer
from armarium.capabilities.corpus.ingest.instructions import instructions_for
from armarium.capabilities.corpus.ingest.preparers import Preparers
from armarium.capabilities.corpus.ingest.progress import Progress
from armarium.capabilities.corpus.news import Mode
from armarium.capabilities.corpus.parts import Parts
from armarium.capabilities.corpus.state import write_summary
from armarium.capabilities.corpus.status import summary
from armarium.foundation.events import FileChanged, FileScanned
from armarium.foundation.memory import give_memory_back

_FILE_DEADLINE_S = 120.0
_MOST_WORKERS = 4
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
        self._instructions = instructions_for(parts.root, parts.settings, parts.own_paths, digest_key)
        # Rings whenever there may be more or less to do, so that nobody has to look while there is nothing.
        self._turn = Bell()
        self._embedding = Embedding(parts.storage, index, parts.models.embedders, progress, on_turn=self._turn.ring)
        workers = max(1, min(_MOST_WORKERS, (os.cpu_count() or 2) - 1))
        ingest = parts.settings.ingest
        self._indexer = Indexer(
            parts.confined,
            DiscoveryRules(parts.exclusion, gitignore=ingest.gitignore, follow_symlinks=ingest.follow_symlinks),
            parts.storage,
            index,
            Preparers(self._instructions, size=workers, deadline_s=_FILE_DEADLINE_S),
            progress,
            on_recorded=self._embedding.wake,
            on_turn=self._turn.ring,
            prepared_as=self._instructions.fingerprint(),
            tell_secrets_again=parts.events.is_heard(FileScanned),
        )

    async def run(self, mode: Mode, *, watching: bool) -> None:
        """Scan the directory, then follow its changes until cancelled."""
        parts = self._parts
        unsubscribe = parts.events.subscribe(FileChanged, self._look_at)
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._embedding.run)
                tasks.start_soon(self._note_progress)
                await run_sync(parts.storage.embeddings.retry_unembeddable)
                self._indexer.scan(mode)
                if watching:
                    tasks.start_soon(watch, parts.root, parts.exclusion, self._indexer.refresh, self._indexer.scan)
        finally:
            unsubscribe()
            with anyio.CancelScope(shield=True):
                await run_sync(self._indexer.close)
                await run_sync(self._write_summary, True)

    async def _look_at(self, event: FileChanged) -> None:
        inside = event.host_path.removeprefix(f"{self._parts.confined.real_path}/") if event.host_path else "/"
        if not inside.startswith("/"):
            self._indexer.refresh([inside])

    @property
    def _complete(self) -> bool:
        """Whether nothing is left to do. The indexer is asked first: it wakes the embedding before it is done."""
        return not self._indexer.busy and self._embedding.idle

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
        if at_rest:
            told["indexing"]["running"] = False
        write_summary(self._parts.state_dir, told)
