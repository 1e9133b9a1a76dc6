"""The corpus as its callers see it: search, ask, open a slice, list files, status."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Literal

import anyio
from anyio.to_thread import run_sync

from armarium.capabilities.corpus.errors import FileNotFound, InvalidField
from armarium.capabilities.corpus.files.discover import MEMBER_MARK
from armarium.capabilities.corpus.ingest.progress import Progress
from armarium.capabilities.corpus.pages import Pages
from armarium.capabilities.corpus.query.answer import Answer, extract_answer, generate_answer
from armarium.capabilities.corpus.query.search import Filters, Readiness, SearchResults
from armarium.capabilities.corpus.query.slices import OpenedSlice, Slice, SliceReader
from armarium.capabilities.corpus.query.troubles import TroublePage, TroubleState, list_troubles
from armarium.capabilities.corpus.resources import Resources
from armarium.capabilities.corpus.storage.chunks import StoredChunk
from armarium.foundation.files.errors import FileError, InvalidPattern
from armarium.foundation.files.glob_patterns import path_matcher
from armarium.foundation.files.names import escape_name
from armarium.foundation.schema import Json
from armarium.providers.errors import ProviderError
from armarium.retrieval.search.follow_ups import searchable_question
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
    searched_for: str = ""
    """The question, or what it was made of it because it refers to earlier ones."""


@dataclass(frozen=True, slots=True)
class AskListener:
    """Receives the parts of an answer as they are known."""

    on_text: Callable[[str], None] = lambda text: None
    on_results: Callable[[str, SearchResults], None] = lambda searched_for, results: None
    """Also receives what was searched for."""


@dataclass(frozen=True, slots=True)
class Corpus:
    """One directory, searchable while it is being indexed."""

    resources: Resources
    slices: SliceReader
    progress: Progress
    readiness: Readiness
    indexed: asyncio.Event
    reindex: Callable[[str | None], None]
    """Queues a file, a directory or everything (None) to be indexed again. The path is a file system name."""
    pages: Pages

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
        listener: AskListener = AskListener(),  # noqa: B008 it is immutable
        *,
        earlier: Sequence[str] = (),
    ) -> AskResult:
        """Answer from the chunks that match best, with citations. `earlier` are the questions that this one may refer
        to, oldest first."""
        require_searchable(question)
        searched_for = await searchable_question(question, earlier, self.resources.models.chat)
        results = await self.search(searched_for, k, index, filters)
        listener.on_results(searched_for, results)
        if mode == "search_only" or not self.resources.settings.rag.generate_answer:
            return AskResult(results, None, searched_for)
        answer = await self._answer(searched_for, [hit.chunk for hit in results.hits], listener.on_text)
        if results.lexical_only is None:
            return AskResult(results, answer, searched_for)
        note = f"\n\n(The question could not be embedded, so the search was lexical only: {results.lexical_only})"
        listener.on_text(note)
        return AskResult(results, replace(answer, text=answer.text + note), searched_for)

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
        storage = self.resources.storage
        if glob is None:
            total, rows = storage.documents.page(path_prefix, limit, offset)
            return total, [_listed(row) for row in rows]
        try:
            matches = path_matcher(glob)
        except InvalidPattern as error:
            raise InvalidField(error.message, hint=error.hint) from error
        rows = [row for row in storage.read("paths_below", {"prefix": path_prefix}) if matches(row[0])]
        return len(rows), [_listed(row) for row in rows[offset : offset + limit]]

    async def troubles(self, state: TroubleState | None, limit: int, cursor: str | None) -> TroublePage:
        """The documents that failed or were skipped, failed ones first."""
        return await run_sync(list_troubles, self.resources.storage.documents, state, limit, cursor)

    async def index_again(self, rel_path: str | None) -> None:
        """Index a file, a directory or everything again, although it has not changed."""
        self.reindex(None if rel_path is None else await run_sync(self._located, rel_path))

    def _located(self, rel_path: str) -> str:
        """The file system name of a file or directory that may be indexed; of an archive for its members."""
        path = self.slices.located(rel_path).partition(MEMBER_MARK)[0]
        shown = escape_name(path)
        documents = self.resources.storage.documents
        if documents.state(shown) is None and not documents.paths_below(shown) and not self._exists(path):
            raise FileNotFound(f"{shown} not found", hint="list_files shows the documents")
        return path

    def _exists(self, path: str) -> bool:
        try:
            with self.resources.confined.opened(path, os.O_PATH | os.O_NOFOLLOW):
                return True
        except (FileError, OSError):
            return False

    @property
    def warnings(self) -> list[str]:
        return self.resources.health.warnings

    def stats(self) -> Json:
        return self.resources.stats(self.progress.now)


def _listed(row: tuple[Any, ...]) -> Json:
    columns = ("rel_path", "doc_type", "size_bytes", "mtime_unix", "status", "deleted")
    return dict(zip(columns, row, strict=True)) | {"deleted": bool(row[-1])}
