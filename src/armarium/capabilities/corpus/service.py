"""The corpus as its callers see it: search, ask, open, list, and how far it is."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final, Literal

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
from armarium.providers.errors import ProviderError
from armarium.retrieval.search.index_choice import IndexChoice

_log = logging.getLogger(__name__)

AnswerMode = Literal["answer", "search_only"]

MOST_QUERY_CHARACTERS: Final = 20_000
"""What a query or a question may have; as many as the gateway passes on."""


def require_searchable(query: str) -> None:
    """Refuse a query that is too long or has nothing in it; its length first, since all else reads the whole of it."""
    if len(query) > MOST_QUERY_CHARACTERS:
        raise InvalidField(
            f"query has {len(query)} characters, and at most {MOST_QUERY_CHARACTERS} are searched for",
            hint="ask for the few sentences or names that matter",
        )
    if not query.strip():
        raise InvalidField("query has no words in it")


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
        require_searchable(query)
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
        answer = await self._answer(question, [hit.chunk for hit in results.hits], on_text or _unheard)
        if results.words_only is None:
            return Asked(results, answer)
        note = f"\n\n(The question could not be embedded, so words alone found the passages: {results.words_only})"
        (on_text or _unheard)(note)
        return Asked(results, Answer(answer.text + note, answer.cited))

    async def _answer(self, question: str, passages: Sequence[StoredChunk], on_text: Callable[[str], None]) -> Answer:
        """The model's answer; where it fails, hangs or says nothing, the passages' own sentences and the reason."""
        if self._models.chat is None:
            answer = await run_sync(extractive, question, passages)
            on_text(answer.text)
            return answer
        said: list[str] = []

        def say(piece: str) -> None:
            said.append(piece)
            on_text(piece)

        rag, patience_s = self._settings.rag, self._settings.chat.timeout_s
        why = "The chat model gave an empty answer"
        try:
            with anyio.fail_after(patience_s):
                answer = await generated(
                    self._models.chat, rag.system_prompt, question, passages, rag.max_context_chars, say
                )
            if answer.text:
                if not said:
                    on_text(answer.text)
                return answer
        except TimeoutError:
            why = f"The chat model took longer than {patience_s:g} seconds"
        except ProviderError as error:
            why = f"The chat model failed ({error.code}: {error.message})"
        _log.warning("answering without the chat model", extra={"reason": why})
        instead = await run_sync(extractive, question, passages, why)
        # Whoever heard the beginning of an answer cannot unhear it.
        on_text(f"\n\n{instead.text}" if "".join(said).strip() else instead.text)
        return instead

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

    @property
    def warnings(self) -> list[str]:
        """What is wrong with the corpus now."""
        return self._parts.health.warnings

    def stats(self) -> dict[str, Any]:
        """Where the corpus is, how far indexing is, and which models work on it."""
        return stats(self._parts, self._progress.now)


def _unheard(text: str) -> None:
    """For a caller that wants the whole answer only."""


def _listed(row: tuple[str, str, int, int, str, int]) -> ListedFile:
    *facts, deleted = row
    return ListedFile(*facts, deleted=bool(deleted))  # pyright: ignore[reportArgumentType] five columns, in this order
