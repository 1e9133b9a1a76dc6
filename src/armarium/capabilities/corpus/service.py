"""The corpus as its callers see it: search, ask, open a slice, list files, status."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

import anyio
from anyio.to_thread import run_sync

from armarium.capabilities.corpus.errors import InvalidField
from armarium.capabilities.corpus.ingest.progress import Progress
from armarium.capabilities.corpus.query.answer import Answer, extract_answer, generate_answer
from armarium.capabilities.corpus.query.search import Filters, Readiness, SearchResults
from armarium.capabilities.corpus.query.slices import OpenedSlice, Slice, SliceReader
from armarium.capabilities.corpus.resources import Resources
from armarium.capabilities.corpus.storage.chunks import StoredChunk
from armarium.foundation.files.errors import InvalidPattern
from armarium.foundation.files.glob_patterns import path_matcher
from armarium.foundation.schema import Json
from armarium.providers.errors import ProviderError
from armarium.retrieval.search.index_choice import IndexChoice

_log = logging.getLogger(__name__)

AnswerMode = Literal["answer", "search_only"]

MAX_QUERY_CHARACTERS: Final = 20_000
"""The longest query or question, the same as in the gateway."""


def require_searchable(query: str) -> None:
    """Refuse a query that is too long or blank. The length comes first, because the other check reads all of it."""
    if len(query) > MAX_QUERY_CHARACTERS:
        raise InvalidField(
            f"query has {len(query)} characters, and at most {MAX_QUERY_CHARACTERS} are searched for",
            hint="ask for the few sentences or names that matter",
        )
    if not query.strip():
        raise InvalidField("query has no words in it")


@dataclass(frozen=True, slots=True)
class AskResult:
    """An answer and the search results it is based on."""

    results: SearchResults
    answer: Answer | None


@dataclass(frozen=True, slots=True)
class Corpus:
    """One directory, searchable while it is being indexed."""

    resources: Resources
    slices: SliceReader
    progress: Progress
    readiness: Readiness
    indexed: asyncio.Event

    async def until_indexed(self) -> None:
        """Wait until everything in the directory is indexed."""
        await self.indexed.wait()

    @property
    def indexing_complete(self) -> bool:
        """Whether nothing is left to index or embed."""
        return not self.progress.running

    async def search(self, query: str, k: int | None, index: IndexChoice, filters: Filters) -> SearchResults:
        require_searchable(query)
        searcher = await self.readiness.searcher()
        return await searcher.search(query, k or self.resources.settings.rag.k_default, index, filters)

    async def ask(
        self,
        question: str,
        k: int | None,
        mode: AnswerMode,
        index: IndexChoice,
        filters: Filters,
        on_text: Callable[[str], None] | None = None,
    ) -> AskResult:
        """Answer from the chunks that match best, with citations. `on_text` receives the answer as it is written."""
        results = await self.search(question, k, index, filters)
        if mode == "search_only" or not self.resources.settings.rag.generate_answer:
            return AskResult(results, None)
        write: Callable[[str], None] = on_text or (lambda text: None)
        answer = await self._answer(question, [hit.chunk for hit in results.hits], write)
        if results.lexical_only is None:
            return AskResult(results, answer)
        note = f"\n\n(The question could not be embedded, so the search was lexical only: {results.lexical_only})"
        write(note)
        return AskResult(results, Answer(answer.text + note, answer.cited))

    async def _answer(self, question: str, chunks: Sequence[StoredChunk], on_text: Callable[[str], None]) -> Answer:
        """The model's answer. If it fails, times out or is empty, sentences of the chunks and the reason."""
        chat, settings = self.resources.models.chat, self.resources.settings
        if chat is None:
            answer = await run_sync(extract_answer, question, chunks)
            on_text(answer.text)
            return answer
        streamed: list[str] = []

        def stream(piece: str) -> None:
            streamed.append(piece)
            on_text(piece)

        rag, timeout_s = settings.rag, settings.chat.timeout_s
        reason = "The chat model gave an empty answer"
        try:
            with anyio.fail_after(timeout_s):
                limit = rag.max_context_chars
                answer = await generate_answer(chat, rag.system_prompt, question, chunks, limit, stream)
            if answer.text:
                if not streamed:
                    on_text(answer.text)
                return answer
        except TimeoutError:
            reason = f"The chat model took longer than {timeout_s:g} seconds"
        except ProviderError as error:
            reason = f"The chat model failed ({error.code}: {error.message})"
        _log.warning("answering without the chat model", extra={"reason": reason})
        fallback = await run_sync(extract_answer, question, chunks, reason)
        # Text that was streamed already cannot be taken back.
        on_text(f"\n\n{fallback.text}" if "".join(streamed).strip() else fallback.text)
        return fallback

    async def open_file(self, rel_path: str, wanted: Slice, max_chars: int) -> OpenedSlice:
        return await run_sync(self.slices.read, rel_path, wanted, max_chars)

    async def list_files(self, path_prefix: str, glob: str | None, limit: int, offset: int) -> tuple[int, list[Json]]:
        """One page of the documents, and the total number that match."""
        return await run_sync(self._list_files, path_prefix, glob, limit, offset)

    def _list_files(self, path_prefix: str, glob: str | None, limit: int, offset: int) -> tuple[int, list[Json]]:
        documents = self.resources.storage.documents
        if glob is None:
            total, rows = documents.page(path_prefix, limit, offset)
            return total, [_listed(row) for row in rows]
        try:
            matches = path_matcher(glob)
        except InvalidPattern as error:
            raise InvalidField(error.message, hint=error.hint) from error
        rows = [row for row in documents.with_prefix(path_prefix) if matches(row[0])]
        return len(rows), [_listed(row) for row in rows[offset : offset + limit]]

    @property
    def warnings(self) -> list[str]:
        return self.resources.health.warnings

    def stats(self) -> Json:
        return self.resources.stats(self.progress.now)


def _listed(row: tuple[Any, ...]) -> Json:
    columns = ("rel_path", "doc_type", "size_bytes", "mtime_unix", "status", "deleted")
    return dict(zip(columns, row, strict=True)) | {"deleted": bool(row[-1])}
