"""The life of an open corpus: load the index, scan, embed, watch, and write down how far it is."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import AsyncGenerator, Callable, Coroutine, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, Literal

import anyio
from anyio.to_thread import run_sync

from armarium.capabilities.corpus.errors import CorpusError, IndexNotReady, IndexVersionMismatch, StoreCorrupt
from armarium.capabilities.corpus.files.discover import DiscoveryRules
from armarium.capabilities.corpus.files.exclusion import Exclusion
from armarium.capabilities.corpus.files.watch import watch
from armarium.capabilities.corpus.index import KINDS, CorpusIndex
from armarium.capabilities.corpus.ingest.embedding import Embedding
from armarium.capabilities.corpus.ingest.indexer import Indexer
from armarium.capabilities.corpus.ingest.instructions import Instructions
from armarium.capabilities.corpus.ingest.preparers import Preparers
from armarium.capabilities.corpus.ingest.progress import Progress
from armarium.capabilities.corpus.models import Models, choose_models
from armarium.capabilities.corpus.news import IndexingFailed, IndexLoaded, Mode
from armarium.capabilities.corpus.opening import Opening
from armarium.capabilities.corpus.searching import Searching
from armarium.capabilities.corpus.service import Corpus
from armarium.capabilities.corpus.settings import CorpusSettings
from armarium.capabilities.corpus.state import (
    META_FILE,
    IndexingLock,
    forget_everything,
    forget_indexes,
    prepare_directory,
    read_status,
    root_directory,
    state_directory,
    state_paths,
    write_summary,
)
from armarium.capabilities.corpus.storage import Storage
from armarium.foundation.events import Events, FileChanged
from armarium.foundation.files.confine import ConfinedRoot
from armarium.foundation.memory import give_memory_back
from armarium.retrieval.chunking.limits import ChunkLimits
from armarium.retrieval.passages import IndexKind

Indexing = Literal["background", "full", "none"]

_log = logging.getLogger(__name__)

_FILE_DEADLINE_S = 120.0
_MOST_WORKERS = 4
_MEGABYTE = 1_000_000
_SUMMARY_EVERY_S = 2.0
_LOOK_S = 0.05
_FOLLOW_S = 1.0
_DEAD_SHARE = 0.5


@asynccontextmanager
async def open_service(settings: CorpusSettings, events: Events, *, indexing: Indexing) -> AsyncGenerator[Corpus]:
    """The corpus itself. `background` keeps it up to date, `full` builds it anew, `none` takes it as it is."""
    root = root_directory(settings.root)
    state_dir = state_directory(root, settings.state_dir)
    async with AsyncExitStack() as parts:
        prepare_directory(state_dir)
        lock = parts.enter_context(IndexingLock(state_dir))
        if indexing == "full" or (indexing == "background" and settings.when_locked == "fail"):
            lock.insist()
        elif indexing == "background" and not lock.take():
            _log.warning("another process indexes this directory; answering from its index until it ends")
        own = state_paths(root, state_dir)
        exclusion = Exclusion(settings.path_excludes, settings.secret_patterns, state_paths=own)
        storage, models = _open_storage(settings, state_dir, anew=indexing == "full")
        parts.callback(storage.close)
        parts.push_async_callback(models.aclose)
        confined = parts.enter_context(ConfinedRoot(str(root)))
        running = _Running(settings, root, state_dir, confined, exclusion, storage, models, events, indexing, lock)
        corpus = running.corpus()
        async with _beside(running.run, corpus):
            yield corpus


@asynccontextmanager
async def _beside(work: Callable[[Corpus], Coroutine[Any, Any, None]], corpus: Corpus) -> AsyncGenerator[None]:
    """Let work go on while the block runs. What the block raises stays what it is, not a group of one."""
    try:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(work, corpus)
            try:
                yield
            finally:
                tasks.cancel_scope.cancel()
    except BaseExceptionGroup as group:
        if len(group.exceptions) == 1:
            raise group.exceptions[0] from None
        raise


def _open_storage(settings: CorpusSettings, state_dir: Path, *, anew: bool) -> tuple[Storage, Models]:
    """The storage and the models it belongs to. Building anew forgives whatever is wrong with the old one."""
    file = state_dir / META_FILE
    try:
        storage = Storage(file)
    except (StoreCorrupt, IndexVersionMismatch):
        if not anew:
            raise
        forget_everything(state_dir)
        storage = Storage(file)
    try:
        if anew:
            storage.forget_documents()
            storage.note({f"embed_{kind}_dim": "" for kind in KINDS})
            forget_indexes(state_dir)
        built_with: Mapping[IndexKind, str | None] = {
            "text": None if anew else storage.setting("embed_text_model"),
            "code": None if anew else storage.setting("embed_code_model"),
        }
        models = choose_models(settings, built_with)
        storage.note(_noted(settings, models, storage.setting("corpus_id")))
    except BaseException:
        storage.close()
        raise
    return storage, models


def _noted(settings: CorpusSettings, models: Models, corpus_id: str | None) -> dict[str, str]:
    """What the storage remembers about how it came about."""
    speech = settings.stt.mistral if settings.stt.provider == "mistral" else settings.stt.elevenlabs
    noted = {f"embed_{kind}_model": embedder.model for kind, embedder in models.embedders.items()}
    noted |= {
        f"embed_{kind}_dim": str(embedder.dimensions)
        for kind, embedder in models.embedders.items()
        if embedder.dimensions is not None
    }
    return noted | {
        "corpus_id": corpus_id or f"corpus_{os.urandom(8).hex()}",
        "ocr_model": settings.mistral.ocr_model,
        "stt_provider": settings.stt.provider,
        "stt_model": speech.model,
        "chat_model": models.chat.model if models.chat else "",
    }


class _Running:
    """The life of an open corpus: load, scan, embed, watch, and write down how far it is."""

    def __init__(
        self,
        settings: CorpusSettings,
        root: Path,
        state_dir: Path,
        confined: ConfinedRoot,
        exclusion: Exclusion,
        storage: Storage,
        models: Models,
        events: Events,
        indexing: Indexing,
        lock: IndexingLock,
    ) -> None:
        self._settings = settings
        self._root = root
        self._state_dir = state_dir
        self._confined = confined
        self._exclusion = exclusion
        self._storage = storage
        self._models = models
        self._events = events
        self._indexing = indexing
        self._lock = lock
        self._loop = asyncio.get_running_loop()
        self._news: asyncio.Queue[object] = asyncio.Queue()
        self._progress = Progress(lambda news: self._soon(self._news.put_nowait, news))
        self._answering: asyncio.Future[Searching] = self._loop.create_future()
        self._indexed = asyncio.Event()
        if lock.held:
            self._progress.put(running=True, mode=self._mode, phase="scan")

    def corpus(self) -> Corpus:
        """The corpus, which answers as soon as the index is loaded."""
        opening = Opening(
            self._confined, self._storage, self._exclusion, int(self._settings.ingest.max_file_mb * _MEGABYTE)
        )
        return Corpus(
            self._settings,
            self._root,
            self._state_dir,
            self._storage,
            self._models,
            opening,
            self._progress,
            self._searching,
            self._until_indexed,
        )

    async def _until_indexed(self) -> None:
        await self._indexed.wait()

    async def _searching(self) -> Searching:
        return await asyncio.shield(self._answering)

    @property
    def _mode(self) -> Mode:
        return "full" if self._indexing == "full" else "incremental"

    async def run(self, corpus: Corpus) -> None:
        """Everything that goes on behind the answers, until cancelled."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._publish)
            try:
                if not self._lock.held:
                    await self._follow()
                await self._lead(corpus)
            except CorpusError as error:
                self._answering = self._loop.create_future()
                self._answering.set_exception(error)
                self._answering.exception()  # whoever asks is told; nobody need ask
                self._progress.tell(IndexingFailed(error.code, error.message))
                # Whoever waits for the end has it.
                self._indexed.set()

    async def _follow(self) -> None:
        """Answer from an index that is not ours to write, as it is now; return when it has become ours."""
        while True:
            version = self._storage.version()
            try:
                self._answer_from(await run_sync(self._load))
            except IndexNotReady:
                # The other process is just making it.
                await anyio.sleep(_FOLLOW_S)
                continue
            self._indexed.set()
            self._progress.put(running=await run_sync(self._is_indexed_by_another))
            while self._storage.version() == version:
                await anyio.sleep(_FOLLOW_S)
                if self._indexing == "background" and self._lock.take():
                    self._indexed.clear()
                    return

    def _is_indexed_by_another(self) -> bool:
        try:
            return read_status(self._state_dir)["indexing"]["running"]
        except CorpusError:
            return False

    async def _lead(self, corpus: Corpus) -> None:
        """Keep the index up to date, and answer from it."""
        self._storage.take_over()
        index = await run_sync(self._load)
        self._answer_from(index)
        try:
            await self._index(corpus, index)
        finally:
            with anyio.CancelScope(shield=True):
                await run_sync(index.close)

    def _answer_from(self, index: CorpusIndex) -> None:
        searching = Searching(self._storage, index, self._models, self._settings)
        if self._answering.done():
            self._answering = self._loop.create_future()
        self._answering.set_result(searching)

    def _tidy(self) -> None:
        """Forget what is deleted once it is more than what is left, and make the indexes anew without it."""
        if self._storage.dead_share() > _DEAD_SHARE:
            self._storage.purge()
            forget_indexes(self._state_dir)
            self._storage.put_setting("words_up_to", "0")

    def _load(self) -> CorpusIndex:
        if self._lock.held:
            self._tidy()
        dimensions: dict[IndexKind, int | None] = {kind: self._dimensions(kind) for kind in KINDS}
        index = CorpusIndex(self._state_dir, self._storage, dimensions, writing=self._lock.held)
        models: dict[IndexKind, str] = {kind: self._models.embedders[kind].model for kind in KINDS}
        index.load(models)
        counts = self._storage.counts()
        give_memory_back()
        self._progress.put(chunks_total=counts.chunks, embedded_ok=counts.embedded)
        self._progress.tell(
            IndexLoaded(str(self._state_dir), self._mode, counts.documents, counts.chunks, counts.embedded)
        )
        return index

    def _dimensions(self, kind: IndexKind) -> int | None:
        known = self._models.embedders[kind].dimensions
        stored = self._storage.setting(f"embed_{kind}_dim")
        return known or (int(stored) if stored else None)

    async def _index(self, corpus: Corpus, index: CorpusIndex) -> None:
        instructions = self._instructions()
        again = self._storage.setting("prepared_as") != instructions.fingerprint()
        embedding = Embedding(self._storage, index, self._models.embedders, self._progress)
        rules = DiscoveryRules(
            self._exclusion,
            gitignore=self._settings.ingest.gitignore,
            follow_symlinks=self._settings.ingest.follow_symlinks,
        )
        workers = max(1, min(_MOST_WORKERS, (os.cpu_count() or 2) - 1))
        preparers = Preparers(instructions, size=workers, deadline_s=_FILE_DEADLINE_S)
        indexer = Indexer(
            self._confined,
            rules,
            self._storage,
            index,
            preparers,
            self._progress,
            on_recorded=lambda: self._soon(embedding.wake),
        )

        async def on_change(event: FileChanged) -> None:
            inside = event.host_path.removeprefix(f"{self._confined.real_path}/") if event.host_path else "/"
            if not inside.startswith("/"):
                indexer.refresh([inside])

        unsubscribe = self._events.subscribe(FileChanged, on_change)
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(embedding.run)
                tasks.start_soon(self._note_progress, corpus, indexer, embedding, instructions.fingerprint())
                await run_sync(self._storage.retry_unembeddable)
                indexer.scan(self._mode, again=again)
                if self._settings.ingest.watch and self._indexing == "background":
                    tasks.start_soon(watch, self._root, self._exclusion, indexer.refresh, indexer.scan)
        finally:
            unsubscribe()
            with anyio.CancelScope(shield=True):
                await run_sync(indexer.close)
                await run_sync(write_summary, self._state_dir, self._at_rest(corpus))

    def _instructions(self) -> Instructions:
        settings, ingest = self._settings, self._settings.ingest
        return Instructions(
            root=str(self._root),
            path_excludes=settings.path_excludes,
            secret_patterns=settings.secret_patterns,
            state_paths=state_paths(self._root, self._state_dir),
            chunk_limits=ChunkLimits(
                max_chars=settings.chunking.max_chars,
                overlap_chars=settings.chunking.overlap_chars,
                min_chars=settings.chunking.min_chars,
                code_max_lines=settings.chunking.code.max_lines,
                code_overlap_lines=settings.chunking.code.overlap_lines,
            ),
            archives=ingest.archives.mode,
            pdf=ingest.pdf.mode != "off",
            max_bytes=int(ingest.max_file_mb * _MEGABYTE),
            max_bytes_by_type={name: int(size * _MEGABYTE) for name, size in ingest.max_file_mb_by_type.items()},
        )

    async def _note_progress(self, corpus: Corpus, indexer: Indexer, embedding: Embedding, prepared_as: str) -> None:
        """Say when everything is indexed, and keep `corpus.json` near the truth."""
        written_at = 0.0
        while True:
            await anyio.sleep(_LOOK_S)
            complete = not indexer.busy and embedding.idle
            turned = complete == self._progress.running
            if turned and complete:
                await run_sync(self._storage.put_setting, "prepared_as", prepared_as)
                counts = await run_sync(self._storage.counts)
                await run_sync(give_memory_back)
                self._progress.put(running=False, phase="idle", chunks_total=counts.chunks, embedded_ok=counts.embedded)
                self._indexed.set()
            elif turned:
                self._progress.put(running=True)
            if not complete:
                self._indexed.clear()
            if turned or (not complete and anyio.current_time() - written_at >= _SUMMARY_EVERY_S):
                written_at = anyio.current_time()
                await run_sync(write_summary, self._state_dir, corpus.summary())

    def _at_rest(self, corpus: Corpus) -> dict[str, object]:
        summary = corpus.summary()
        summary["indexing"]["running"] = False
        return summary

    async def _publish(self) -> None:
        while True:
            await self._events.publish(await self._news.get())

    def _soon(self, function: Callable[..., object], *arguments: object) -> None:
        """Call on the event loop, from any thread; after the loop is gone there is nobody left to tell."""
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(function, *arguments)
