"""Finds the passages that fit a query: by words and by meaning, within filters, the two put together."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from anyio.to_thread import run_sync

from armarium.capabilities.corpus.errors import InvalidField
from armarium.capabilities.corpus.index import CorpusIndex
from armarium.capabilities.corpus.models import Models
from armarium.capabilities.corpus.settings import CorpusSettings
from armarium.capabilities.corpus.snippets import snippet
from armarium.capabilities.corpus.storage.passages import StoredChunk
from armarium.capabilities.corpus.storage.storage import Storage
from armarium.foundation.circuit_breaker import GuardedService
from armarium.foundation.files.errors import InvalidPattern
from armarium.providers.errors import ProviderError
from armarium.providers.interfaces import Embedder
from armarium.retrieval.chunks import IndexKind
from armarium.retrieval.search.duplicates import distinct
from armarium.retrieval.search.hybrid import EmbeddedQuery, SearchFilter, embed_query, hybrid_search, lexical_search
from armarium.retrieval.search.index_choice import IndexChoice, indexes_for
from armarium.retrieval.search.ranking import Ranking
from armarium.retrieval.search.rerank import reorder

_log = logging.getLogger(__name__)

IndexUsed = Literal["text", "code", "both"]

_FAILURES = 3
_LEFT_ALONE_S = 30.0

_READ = 120
"""Passages that are read from storage: the most a call may ask for, and room for duplicates among them."""


@dataclass(frozen=True, slots=True)
class Filters:
    """Which documents may be found."""

    path_prefix: str | None = None
    file_glob: str | None = None
    doc_types: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Hit:
    """A passage that was found."""

    chunk: StoredChunk
    score: float
    snippet: str


@dataclass(frozen=True, slots=True)
class Results:
    """What was found, best first."""

    k: int
    index_used: IndexUsed
    hits: Sequence[Hit]
    words_only: str | None = None
    """Why the query has no vector, where it has none because its embedder failed."""


@dataclass(frozen=True, slots=True)
class _Scope:
    """Where a query looks."""

    only: SearchFilter | None
    kinds: tuple[IndexKind, ...]
    worded: Mapping[IndexKind, Ranking]
    """What its words found there."""


class Guards:
    """Keeps searches from waiting for models that keep failing; for as long as a corpus is open."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self.embedder = GuardedService(_FAILURES, _LEFT_ALONE_S, now)
        self.reranker = GuardedService(_FAILURES, _LEFT_ALONE_S, now)
        self.last_failure = ""


class Searching:
    """Searches one open index."""

    def __init__(
        self, storage: Storage, index: CorpusIndex, models: Models, settings: CorpusSettings, guards: Guards
    ) -> None:
        self._guards = guards
        self._storage = storage
        self._index = index
        self._models = models
        self._oversampling = settings.rag.oversample_factor
        self._rerank = settings.rerank

    async def search(self, query: str, k: int, choice: IndexChoice, filters: Filters) -> Results:
        """The `k` best passages; fewer only where there are no more."""
        scope = await run_sync(self._scope, query, choice, filters)
        used: IndexUsed = "both" if len(scope.kinds) == 2 else scope.kinds[0]
        asked, words_only = await self._question(query, scope.kinds)
        if self._models.reranker is None:
            return Results(k, used, await run_sync(self._hits, asked, scope, k), words_only)
        chunks, scores = await run_sync(lambda: self._read(self._ranking(asked, scope), _READ))
        chunks, scores = await self._second_look(query, chunks, scores)
        return Results(k, used, _best_of(query, chunks, scores, k), words_only)

    def _scope(self, query: str, choice: IndexChoice, filters: Filters) -> _Scope:
        """Where to look, and what the words of the query find there."""
        only = self._restriction(filters)
        catalogue = self._index.catalogue
        kinds = indexes_for(choice, catalogue.kinds_of(only.chunks) if only else catalogue.kinds())
        words, alive = self._index.words, catalogue.alive
        return _Scope(only, kinds, {kind: lexical_search(words, query, kind, only=only, alive=alive) for kind in kinds})

    def _restriction(self, filters: Filters) -> SearchFilter | None:
        try:
            documents = self._index.catalogue.documents(filters.path_prefix, filters.file_glob, filters.doc_types)
        except InvalidPattern as error:
            raise InvalidField(error.message, hint=error.hint) from error
        if documents is None:
            return None
        return SearchFilter(documents, self._index.catalogue.chunks_of(documents))

    async def _question(self, query: str, kinds: tuple[IndexKind, ...]) -> tuple[EmbeddedQuery, str | None]:
        """The query with its vectors; when nobody can embed it now, without them and with the reason."""
        vectors = self._index.vectors
        embedders: dict[IndexKind, Embedder] = {
            kind: self._models.embedders[kind] for kind in kinds if kind in vectors and len(vectors[kind])
        }
        guards = self._guards
        with guards.embedder.attempt() as attempt:
            if not attempt.admitted:
                return EmbeddedQuery(query, kinds, {}), f"{guards.last_failure} (it is left alone for a while)"
            try:
                return await embed_query(query, kinds, embedders), None
            except ProviderError as error:
                # What cannot be helped by waiting is told at once, and may be about this query alone.
                attempt.failed = error.retryable
                guards.last_failure = f"{error.code}: {error.message}"
                _log.warning("searching by words alone", extra={"code": error.code, "reason": error.message})
                return EmbeddedQuery(query, kinds, {}), guards.last_failure

    def _hits(self, asked: EmbeddedQuery, scope: _Scope, k: int) -> list[Hit]:
        """The best passages without duplicates; more are read only where there are many of those."""
        ranking = self._ranking(asked, scope)
        for most in (k + k // 2 + 5, _READ):
            chunks, scores = self._read(ranking, most)
            hits = _best_of(asked.text, chunks, scores, k)
            if len(hits) == k or len(ranking) <= most:
                break
        return hits

    def _ranking(self, asked: EmbeddedQuery, scope: _Scope) -> Ranking:
        return hybrid_search(
            self._index.words,
            self._index.vectors,
            asked,
            only=scope.only,
            alive=self._index.catalogue.alive,
            oversampling=self._oversampling,
            lexical=scope.worded,
        )

    def _read(self, ranking: Ranking, most: int) -> tuple[list[StoredChunk], list[float]]:
        """The best passages of a ranking with their scores, those left out that are gone or damaged."""
        best: list[int] = ranking.ids[:most].tolist()
        best_scores: list[float] = ranking.scores[:most].tolist()
        stored = self._storage.passages.by_id(best)
        found = [(stored[each], score) for each, score in zip(best, best_scores, strict=True) if each in stored]
        # Ids tell in which order files happened to be indexed. Paths stay the same when the index is made again.
        found.sort(key=lambda hit: (-hit[1], hit[0].rel_path, hit[0].chunk_id))
        return [chunk for chunk, _ in found], [score for _, score in found]

    async def _second_look(
        self, query: str, chunks: list[StoredChunk], scores: list[float]
    ) -> tuple[list[StoredChunk], list[float]]:
        assert self._models.reranker is not None
        with self._guards.reranker.attempt() as attempt:
            if not attempt.admitted:
                return chunks, scores
            order = await reorder(
                self._models.reranker,
                query,
                [chunk.text for chunk in chunks],
                most=self._rerank.candidates,
                timeout_s=self._rerank.timeout_s,
            )
            attempt.failed = len(chunks) > 1 and not order.scores
        return [chunks[place] for place in order.places], [
            order.scores.get(place, scores[place]) for place in order.places
        ]


def _best_of(query: str, chunks: Sequence[StoredChunk], scores: Sequence[float], k: int) -> list[Hit]:
    kept = distinct([chunk.text for chunk in chunks], k)
    return [Hit(chunks[place], scores[place], snippet(query, chunks[place].text)) for place in kept]
