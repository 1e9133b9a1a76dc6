"""Opens a corpus, part by part, and closes it in reverse: the right to write, storage, models, root, and its life."""

from __future__ import annotations

import logging
import os
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, Literal

import anyio

from armarium.capabilities.corpus.errors import IndexVersionMismatch, StoreCorrupt
from armarium.capabilities.corpus.files.exclusion import Exclusion
from armarium.capabilities.corpus.health import Health
from armarium.capabilities.corpus.index.search_index import KINDS
from armarium.capabilities.corpus.index.state import (
    META_FILE,
    IndexingLock,
    forget_everything,
    forget_indexes,
    may_write,
    prepare_directory,
    root_directory,
    state_directory,
    state_paths,
)
from armarium.capabilities.corpus.leader import Leadership
from armarium.capabilities.corpus.model_choice import Models, choose_models
from armarium.capabilities.corpus.resources import Parts
from armarium.capabilities.corpus.service import Corpus
from armarium.capabilities.corpus.settings import CorpusSettings
from armarium.capabilities.corpus.storage.storage import Storage, opened_anew
from armarium.foundation.events import Events
from armarium.foundation.files.confine import ConfinedRoot
from armarium.retrieval.chunks import IndexKind

Indexing = Literal["background", "full", "none"]

_log = logging.getLogger(__name__)


@asynccontextmanager
async def open_service(
    settings: CorpusSettings, events: Events, *, indexing: Indexing, private_paths: Iterable[Path] = ()
) -> AsyncGenerator[Corpus]:
    """The corpus itself. `background` keeps it up to date, `full` builds it anew, `none` takes it as it is. What lies
    at `private_paths` is the server's own, and never a document."""
    root = root_directory(settings.root)
    state_dir = state_directory(root, settings.state_dir)
    read_only = indexing == "none" and not may_write(state_dir)
    async with AsyncExitStack() as open_parts:
        if not read_only:
            prepare_directory(state_dir)
        lock = open_parts.enter_context(IndexingLock(state_dir))
        if indexing == "full" or (indexing == "background" and settings.when_locked == "fail"):
            lock.insist()
        elif indexing == "background" and not lock.take():
            _log.warning("another process indexes this directory; answering from its index until it ends")
        own = state_paths(root, state_dir, private_paths)
        exclusion = Exclusion(settings.path_excludes, settings.secret_patterns, state_paths=own)
        health = Health()
        storage, models = _open_storage(
            settings, state_dir, health, anew=indexing == "full", read_only=read_only, leading=lock.held
        )
        open_parts.callback(storage.close)
        open_parts.push_async_callback(models.aclose)
        confined = open_parts.enter_context(ConfinedRoot(str(root)))
        parts = Parts(settings, root, state_dir, confined, own, exclusion, storage, models, events, health)
        mode = "full" if indexing == "full" else "incremental"
        leadership = Leadership(parts, lock, mode, lasting=indexing == "background")
        async with _beside(leadership.run):
            yield Corpus(parts, leadership.progress, leadership.readiness, leadership.indexed)


@asynccontextmanager
async def _beside(work: Callable[[], Coroutine[Any, Any, None]]) -> AsyncGenerator[None]:
    """Let work go on while the block runs. What the block raises stays what it is, not a group of one."""
    try:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(work)
            try:
                yield
            finally:
                tasks.cancel_scope.cancel()
    except BaseExceptionGroup as group:
        if len(group.exceptions) == 1:
            raise group.exceptions[0] from None
        raise


def _open_storage(
    settings: CorpusSettings, state_dir: Path, health: Health, *, anew: bool, read_only: bool, leading: bool
) -> tuple[Storage, Models]:
    """The storage and the models it belongs to. Building anew forgives whatever is wrong with the old one; who leads
    builds a damaged one anew."""
    try:
        return _storage_as_it_is(settings, state_dir, anew=anew, read_only=read_only)
    except StoreCorrupt as error:
        if not (anew or leading):
            raise
        health.warn("damaged storage", f"{error.message}; everything is indexed anew")
        opened_anew(state_dir / META_FILE).close()
        forget_indexes(state_dir)
    except IndexVersionMismatch:
        if not anew:
            raise
        forget_everything(state_dir)
    return _storage_as_it_is(settings, state_dir, anew=anew, read_only=False)


def _storage_as_it_is(
    settings: CorpusSettings, state_dir: Path, *, anew: bool, read_only: bool
) -> tuple[Storage, Models]:
    storage = Storage(state_dir / META_FILE, read_only=read_only)
    try:
        if anew:
            storage.forget_documents()
            storage.notes.put_new({f"embed_{kind}_dim": "" for kind in KINDS})
            forget_indexes(state_dir)
        built_with: Mapping[IndexKind, str | None] = {
            "text": None if anew else storage.notes.get("embed_text_model"),
            "code": None if anew else storage.notes.get("embed_code_model"),
        }
        models = choose_models(settings, built_with)
        if not read_only:
            storage.note_origin(_noted(settings, models, storage.notes.get("corpus_id")))
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
