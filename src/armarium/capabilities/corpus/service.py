"""The corpus as its callers see it: search, ask, open, list, and how far it is."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import anyio
from anyio.to_thread import run_sync

from armarium.capabilities.corpus.answer import Answer, extractive, generated
from armarium.capabilities.corpus.errors import InvalidField
from armarium.capabilities.corpus.ingest.progress import Progress
from armarium.capabilities.corpus.models import Models
from armarium.capabilities.corpus.opening import Opened, Opening, Slice
from armarium.capabilities.corpus.searching import Filters, Results, Searching
from armarium.capabilities.corpus.settings import CorpusSettings
from armarium.capabilities.corpus.storage import PROTOCOL_VERSION, Storage, StoredChunk
from armarium.foundation.files.errors import InvalidPattern
from armarium.foundation.files.glob_patterns import path_matcher
from armarium.retrieval.routing import IndexChoice

AnswerMode = Literal["answer", "search_only"]


@dataclass(frozen=True, slots=True)
class Asked:
    """An answer with what it rests on."""

    results: Results
    answer: Answer | None


@dataclass(frozen=True, slots=True)
class ListedFile:
    """A document as a listing shows it."""

    rel_path: str
    doc_type: str
    size_bytes: int
    mtime_unix: int
    status: str
    deleted: bool


class Corpus:
    """One directory, open for questions while it is being indexed."""

    def __init__(
        self,
        settings: CorpusSettings,
        root: Path,
        state_dir: Path,
        storage: Storage,
        models: Models,
        opening: Opening,
        progress: Progress,
        searching: Callable[[], Awaitable[Searching]],
        until_indexed: Callable[[], Awaitable[None]],
    ) -> None:
        self._settings = settings
        self._root = root
        self._state_dir = state_dir
        self._storage = storage
        self._models = models
        self._opening = opening
        self._progress = progress
        self._searching = searching
        self.until_indexed = until_indexed
        """Returns once everything that is in the directory now can be found."""

    @property
    def indexing_complete(self) -> bool:
        """Whether nothing is left to be indexed or embedded."""
        return not self._progress.running

    async def search(self, query: str, k: int | None, index: IndexChoice, filters: Filters) -> Results:
        """The passages that fit the query best."""
        if not query.strip():
            raise InvalidField("query has no words in it")
        searching = await self._searching()
        return await searching.search(query, k or self._settings.rag.k_default, index, filters)

    async def ask(
        self,
        question: str,
        k: int | None,
        mode: AnswerMode,
        index: IndexChoice,
        filters: Filters,
        on_text: Callable[[str], None] | None = None,
    ) -> Asked:
        """An answer from the passages that fit the question best, with citations; `on_text` hears it as it comes."""
        results = await self.search(question, k, index, filters)
        if mode == "search_only" or not self._settings.rag.generate_answer:
            return Asked(results, None)
        passages = [hit.chunk for hit in results.hits]
        return Asked(results, await self._answer(question, passages, on_text))

    async def _answer(
        self, question: str, passages: Sequence[StoredChunk], on_text: Callable[[str], None] | None
    ) -> Answer:
        rag = self._settings.rag
        if self._models.chat is None:
            answer = await run_sync(extractive, question, passages)
            if on_text is not None:
                on_text(answer.text)
            return answer
        patience_s = self._settings.chat.timeout_s
        try:
            with anyio.fail_after(patience_s):
                return await generated(
                    self._models.chat, rag.system_prompt, question, passages, rag.max_context_chars, on_text
                )
        except TimeoutError:
            assert self._models.chat_vendor is not None
            vendor = self._models.chat_vendor
            raise vendor.unavailable(f"{vendor.name} took longer than {patience_s:g} seconds to answer") from None

    async def open_file(self, rel_path: str, wanted: Slice, max_chars: int) -> Opened:
        """An exact slice of a document, as it is now."""
        return await run_sync(self._opening.open, rel_path, wanted, max_chars)

    async def list_files(
        self, path_prefix: str, glob: str | None, limit: int, offset: int
    ) -> tuple[int, list[ListedFile]]:
        """One page of the documents, and how many fit in all."""
        return await run_sync(self._list_files, path_prefix, glob, limit, offset)

    def _list_files(self, path_prefix: str, glob: str | None, limit: int, offset: int) -> tuple[int, list[ListedFile]]:
        if glob is None:
            total, rows = self._storage.list_documents(path_prefix, limit, offset)
            return total, [_listed(row) for row in rows]
        try:
            fits = path_matcher(glob)
        except InvalidPattern as error:
            raise InvalidField(error.message, hint=error.hint) from error
        rows = [row for row in self._storage.documents_with_prefix(path_prefix) if fits(row[0])]
        return len(rows), [_listed(row) for row in rows[offset : offset + limit]]

    def stats(self) -> dict[str, Any]:
        """Where the corpus is, how far indexing is, and which models work on it."""
        now = self._progress.now
        return {
            "root": str(self._root),
            "state_dir": str(self._state_dir),
            "protocol_version": PROTOCOL_VERSION,
            "indexing": {
                "job_id": now.job_id,
                "running": now.running,
                "mode": now.mode,
                "scanned": now.scanned,
                "indexed": now.indexed,
                "skipped": now.skipped,
                "deleted": now.deleted,
                "representations": now.representations,
                "chunks_total": now.chunks_total,
                "embedded_ok": now.embedded_ok,
                "errors": now.errors,
            },
            "models": self._model_names(),
        }

    def summary(self) -> dict[str, Any]:
        """`corpus.json`: what another program may want to know without asking the server."""
        counts = self._storage.doc_counts()
        read = sum(count for doc_type, count in counts.items() if doc_type not in ("binary_ignored", "archive"))
        stats = self.stats()
        indexing = {name: value for name, value in stats["indexing"].items() if name != "mode"}
        return {
            "root": stats["root"],
            "profile": {
                "doc_counts": counts,
                "code_ratio": round(counts.get("code", 0) / read, 2) if read else 0.0,
            },
            "models": stats["models"],
            "indexing": indexing,
        }

    def _model_names(self) -> dict[str, str]:
        speech = self._settings.stt
        speech_model = speech.mistral.model if speech.provider == "mistral" else speech.elevenlabs.model
        return {
            "embed_text": self._models.embedders["text"].model,
            "embed_code": self._models.embedders["code"].model,
            "ocr": self._settings.mistral.ocr_model,
            "stt_provider": speech.provider,
            "stt_model": speech_model,
            "chat": self._models.chat.model if self._models.chat is not None else "extractive",
        }


def _listed(row: tuple[str, str, int, int, str, int]) -> ListedFile:
    *facts, deleted = row
    return ListedFile(*facts, deleted=bool(deleted))  # pyright: ignore[reportArgumentType] five columns, in this order
