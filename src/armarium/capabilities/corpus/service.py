"""The corpus as its callers see it: search, ask, open, list, and how far it is."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal

import anyio
from anyio.to_thread import run_sync

from armarium.capabilities.corpus.answer import Answer, extractive, generated
from armarium.capabilities.corpus.errors import InvalidField
from armarium.capabilities.corpus.ingest.instructions import MEGABYTE
from armarium.capabilities.corpus.ingest.progress import Progress
from armarium.capabilities.corpus.opening import Opened, Opening, Slice
from armarium.capabilities.corpus.parts import Parts
from armarium.capabilities.corpus.readiness import Readiness
from armarium.capabilities.corpus.searching import Filters, Results
from armarium.capabilities.corpus.status import stats
from armarium.capabilities.corpus.storage.passages import StoredChunk
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

    def __init__(self, parts: Parts, progress: Progress, readiness: Readiness, indexed: asyncio.Event) -> None:
        self._parts = parts
        self._settings = parts.settings
        self._documents = parts.storage.documents
        self._models = parts.models
        self._progress = progress
        self._readiness = readiness
        self._indexed = indexed
        max_bytes = int(parts.settings.ingest.max_file_mb * MEGABYTE)
        self._opening = Opening(
            parts.confined, parts.storage, parts.exclusion, max_bytes, gitignore=parts.settings.ingest.gitignore
        )

    async def until_indexed(self) -> None:
        """Return once everything that is in the directory now can be found."""
        await self._indexed.wait()

    @property
    def indexing_complete(self) -> bool:
        """Whether nothing is left to be indexed or embedded."""
        return not self._progress.running

    async def search(self, query: str, k: int | None, index: IndexChoice, filters: Filters) -> Results:
        """The passages that fit the query best."""
        if not query.strip():
            raise InvalidField("query has no words in it")
        searching = await self._readiness.searching()
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
            total, rows = self._documents.page(path_prefix, limit, offset)
            return total, [_listed(row) for row in rows]
        try:
            fits = path_matcher(glob)
        except InvalidPattern as error:
            raise InvalidField(error.message, hint=error.hint) from error
        rows = [row for row in self._documents.with_prefix(path_prefix) if fits(row[0])]
        return len(rows), [_listed(row) for row in rows[offset : offset + limit]]

    def extent(self) -> tuple[int, datetime | None]:
        """How many documents can be found, and when the last of them was indexed."""
        count, recorded_unix = self._documents.extent()
        return count, None if recorded_unix is None else datetime.fromtimestamp(recorded_unix, UTC)

    def stats(self) -> dict[str, Any]:
        """Where the corpus is, how far indexing is, and which models work on it."""
        return stats(self._parts, self._progress.now)


def _listed(row: tuple[str, str, int, int, str, int]) -> ListedFile:
    *facts, deleted = row
    return ListedFile(*facts, deleted=bool(deleted))  # pyright: ignore[reportArgumentType] five columns, in this order
