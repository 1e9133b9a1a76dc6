"""Opens a corpus and closes it again: lock, storage, models, root directory, background work."""

from __future__ import annotations

import logging
import os
from collections.abc import AsyncGenerator, Iterable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, closing, suppress
from pathlib import Path
from typing import Literal

from armarium.capabilities.corpus.errors import CorpusError, ForeignState, IndexVersionMismatch, StoreCorrupt
from armarium.capabilities.corpus.files.exclusion import Exclusion
from armarium.capabilities.corpus.health import Health
from armarium.capabilities.corpus.index.ownership import (
    OWNER_MARK,
    prepare_directory,
    require_own_index,
    require_own_storage,
)
from armarium.capabilities.corpus.index.state import (
    META_FILE,
    IndexLock,
    may_write,
    remove_indexes,
    remove_state,
    root_directory,
    state_paths,
)
from armarium.capabilities.corpus.index.vectors import KINDS
from armarium.capabilities.corpus.ingest.instructions import Instructions
from armarium.capabilities.corpus.ingest.page_workers import PageWorkers, page_worker_setup
from armarium.capabilities.corpus.leader import LeaderElection
from armarium.capabilities.corpus.model_choice import Models, choose_models, destinations
from armarium.capabilities.corpus.pages import Pages
from armarium.capabilities.corpus.query.slices import SliceReader
from armarium.capabilities.corpus.resources import Resources
from armarium.capabilities.corpus.service import Corpus
from armarium.capabilities.corpus.settings import MEGABYTE, CorpusSettings, state_directory
from armarium.capabilities.corpus.storage.storage import Storage, replace_damaged
from armarium.foundation.concurrency.tasks import background
from armarium.foundation.events import Events
from armarium.foundation.files.confine import ConfinedRoot
from armarium.foundation.security.ownership import mark_of
from armarium.retrieval.chunks import ChunkLimits, IndexKind

IndexingMode = Literal["background", "full", "none"]

_log = logging.getLogger(__name__)


@asynccontextmanager
async def open_service(
    settings: CorpusSettings,
    events: Events,
    *,
    indexing: IndexingMode,
    private_paths: Iterable[Path] = (),
    hidden: Sequence[str] = (),
) -> AsyncGenerator[Corpus]:
    """The corpus, for as long as the block runs. `background` keeps the index in sync, `full` rebuilds it, `none` uses
    it as it is. Files below `private_paths` belong to the server and are never indexed, nor what
    the patterns in `hidden` match."""
    root = root_directory(settings.root)
    state_dir = state_directory(root, settings.state_dir)
    read_only = indexing == "none" and not may_write(state_dir)
    async with AsyncExitStack() as stack:
        if not read_only:
            prepare_directory(state_dir, root)
        lock = stack.enter_context(IndexLock(state_dir))
        if indexing == "full" or (indexing == "background" and settings.when_locked == "fail"):
            lock.acquire()
        elif indexing == "background" and not lock.try_acquire():
            _log.warning("another process indexes this directory; searching its index until it ends")
        own_paths = (*state_paths(root, state_dir, private_paths), *hidden)
        exclusion = Exclusion(settings.path_excludes, settings.secret_patterns, state_paths=own_paths)
        health = Health()
        storage, models = _open_storage(
            settings, root, state_dir, health, rebuild=indexing == "full", read_only=read_only, leading=lock.held
        )
        stack.callback(storage.close)
        stack.push_async_callback(models.aclose)
        confined = stack.enter_context(ConfinedRoot(str(root)))
        names = _model_names(settings, models)
        resources = Resources(root, state_dir, confined, exclusion, storage, settings, models, names, events, health)
        mode = "full" if indexing == "full" else "incremental"
        instructions = _instructions(settings, own_paths)
        election = LeaderElection(resources, lock, mode, instructions, lasting=indexing == "background")
        max_bytes = int(settings.ingest.max_file_mb * MEGABYTE)
        slices = SliceReader(confined, storage, exclusion, max_bytes, gitignore=settings.ingest.gitignore)
        workers = PageWorkers(page_worker_setup(instructions, settings.ingest.isolation))
        stack.callback(workers.close)
        async with background(workers.end_idle), background(election.run):
            yield Corpus(
                resources,
                slices,
                election.progress,
                election.readiness,
                election.indexed,
                election.index_again,
                Pages(slices, workers),
            )


def text_destinations(settings: CorpusSettings) -> list[tuple[str, str]]:
    """The addresses to which a corpus with these settings sends text, each with the purpose."""
    root = Path(os.path.abspath(os.path.expanduser(settings.root)))
    state_dir = state_directory(root, settings.state_dir)
    built_with = None
    with suppress(CorpusError, OSError):
        require_own_index(state_dir, root)
        with closing(Storage(state_dir / META_FILE, read_only=True)) as storage:
            built_with = storage.notes.get("embed_text_model")
    return destinations(settings, built_with)


def _open_storage(
    settings: CorpusSettings,
    root: Path,
    state_dir: Path,
    health: Health,
    *,
    rebuild: bool,
    read_only: bool,
    leading: bool,
) -> tuple[Storage, Models]:
    """The storage and the models it was built with. With `rebuild`, any fault of the old storage is ignored. The
    leading process replaces a damaged one, and one that this user did not write."""
    try:
        return _existing_storage(settings, root, state_dir, rebuild=rebuild, read_only=read_only)
    except ForeignState as error:
        if not (rebuild or leading):
            raise
        _log.warning("%s; everything is indexed again", error.message)
        remove_state(state_dir)
    except StoreCorrupt as error:
        if not (rebuild or leading):
            raise
        health.warn("damaged storage", f"{error.message}; everything is indexed again")
        replace_damaged(state_dir / META_FILE).close()
        remove_indexes(state_dir)
    except IndexVersionMismatch:
        if not rebuild:
            raise
        remove_state(state_dir)
    return _existing_storage(settings, root, state_dir, rebuild=rebuild, read_only=False)


def _existing_storage(
    settings: CorpusSettings, root: Path, state_dir: Path, *, rebuild: bool, read_only: bool
) -> tuple[Storage, Models]:
    storage = Storage(state_dir / META_FILE, read_only=read_only)
    try:
        require_own_storage(storage, state_dir=state_dir, root=root, read_only=read_only)
        if rebuild:
            storage.forget_documents()
            storage.notes.put_new({f"embed_{kind}_dim": "" for kind in KINDS})
            remove_indexes(state_dir)
        built_with: dict[IndexKind, str | None] = {
            kind: None if rebuild else storage.notes.get(f"embed_{kind}_model") for kind in KINDS
        }
        models = choose_models(settings, built_with)
        if not read_only:
            storage.note_origin(_origin(settings, models, storage.notes.get("corpus_id")))
    except BaseException:
        storage.close()
        raise
    return storage, models


def _origin(settings: CorpusSettings, models: Models, known_id: str | None) -> dict[str, str]:
    corpus_id = known_id or f"corpus_{os.urandom(8).hex()}"
    names = _model_names(settings, models)
    origin: dict[str, str] = {}
    for kind, embedder in models.embedders.items():
        origin[f"embed_{kind}_model"] = embedder.model
        if embedder.dimensions is not None:
            origin[f"embed_{kind}_dim"] = str(embedder.dimensions)
    return origin | {
        "corpus_id": corpus_id,
        OWNER_MARK: mark_of("corpus", corpus_id),
        "ocr_model": names["ocr"],
        "stt_provider": names["stt_provider"],
        "stt_model": names["stt_model"],
        "chat_model": models.chat.model if models.chat else "",
    }


def _model_names(settings: CorpusSettings, models: Models) -> dict[str, str]:
    speech = settings.stt.mistral if settings.stt.provider == "mistral" else settings.stt.elevenlabs
    return {
        "embed_text": models.embedders["text"].model,
        "embed_code": models.embedders["code"].model,
        "ocr": settings.mistral.ocr_model,
        "stt_provider": settings.stt.provider,
        "stt_model": speech.model,
        "chat": models.chat.model if models.chat is not None else "extractive",
    }


def _instructions(settings: CorpusSettings, own_paths: Sequence[str]) -> Instructions:
    ingest, chunking = settings.ingest, settings.chunking
    return Instructions(
        path_excludes=settings.path_excludes,
        secret_patterns=settings.secret_patterns,
        state_paths=own_paths,
        chunk_limits=ChunkLimits(
            max_chars=chunking.max_chars,
            overlap_chars=chunking.overlap_chars,
            min_chars=chunking.min_chars,
            code_max_lines=chunking.code.max_lines,
            code_overlap_lines=chunking.code.overlap_lines,
        ),
        archives=ingest.archives.mode,
        pdf=ingest.pdf.mode != "off",
        max_bytes=int(ingest.max_file_mb * MEGABYTE),
        max_bytes_by_type={name: int(size * MEGABYTE) for name, size in ingest.max_file_mb_by_type.items()},
    )
