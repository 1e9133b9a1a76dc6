"""Hybrid search: lexical and semantic results within filters, merged by rank fusion and optionally reranked."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from anyio.to_thread import run_sync

from armarium.capabilities.corpus.errors import CorpusError, InvalidField
from armarium.capabilities.corpus.index.search_index import SearchIndex
from armarium.capabilities.corpus.query.snippets import snippet
from armarium.capabilities.corpus.resources import Resources
from armarium.capabilities.corpus.storage.chunks import StoredChunk
from armarium.foundation.concurrency.circuit_breaker import GuardedService
from armarium.foundation.files.errors import InvalidPattern
from armarium.providers.errors import ProviderError
from armarium.providers.interfaces import Embedder, Reranker
from armarium.retrieval.chunks import IndexKind
from armarium.retrieval.search.fusion import FoundBy, FusedRanking, Ranking
from armarium.retrieval.search.hit_order import distinct, reorder
from armarium.retrieval.search.hybrid import EmbeddedQuery, SearchFilter, embed_query, hybrid_search, lexical_search
from armarium.retrieval.search.index_choice import IndexChoice, indexes_for

_log = logging.getLogger(__name__)

IndexUsed = Literal["text", "code", "both"]
_RankingByKind = Mapping[IndexKind, Ranking]
_Scored = tuple[StoredChunk, float]

_FAILURES = 3
_COOL_DOWN_S = 30.0

_READ = 120
"""Chunks read from storage: the largest number a call may ask for, and room for duplicates among them."""


@dataclass(frozen=True, slots=True)
class Filters:
    """Restricts a search to some documents."""

    path_prefix: str | None = None
    file_glob: str | None = None
    doc_types: Sequence[str] = ()
    modified_ns: tuple[int, int] | None = None
    """The first and the last modification time."""


@dataclass(frozen=True, slots=True)
class SearchHit:
    """One result: a chunk with its score."""

    chunk: StoredChunk
    score: float
    snippet: str
    found_by: FoundBy


@dataclass(frozen=True, slots=True)
class SearchResults:
    """The results of a search, best first."""

    k: int
    index_used: IndexUsed
    hits: Sequence[SearchHit]
    lexical_only: str | None = None
    """Why the search was lexical only, if the embedder failed."""


class ModelGuards:
    """Circuit breakers for the models that searches call. They live as long as the corpus is open."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self.embedder = GuardedService(_FAILURES, _COOL_DOWN_S, now)
        self.reranker = GuardedService(_FAILURES, _COOL_DOWN_S, now)
        self.last_failure = ""


@dataclass(frozen=True, slots=True)
class Searcher:
    """Searches one open index."""

    resources: Resources
    index: SearchIndex
    guards: ModelGuards

    async def search(self, query: str, k: int, choice: IndexChoice, filters: Filters) -> SearchResults:
        """The `k` best chunks, or fewer if there are no more."""
        only, worded = await run_sync(self._lexical_results, query, choice, filters)
        kinds = tuple(worded)
        used: IndexUsed = "both" if len(kinds) == 2 else kinds[0]
        asked, lexical_only = await self._question(query, kinds)
        reranker = self.resources.models.reranker
        if reranker is None:
            return SearchResults(k, used, await run_sync(self._hits, asked, only, worded, k), lexical_only)
        ranking = await run_sync(self._ranking, asked, only, worded)
        found = await self._rerank(reranker, query, await run_sync(self._read, ranking, _READ))
        return SearchResults(k, used, _best_of(query, ranking, found, k), lexical_only)

    def _lexical_results(
        self, query: str, choice: IndexChoice, filters: Filters
    ) -> tuple[SearchFilter | None, _RankingByKind]:
        """Apply the filters, choose the indexes and run the lexical search in each."""
        only = self._restriction(filters)
        catalogue = self.index.catalogue
        kinds = indexes_for(choice, catalogue.kinds_of(only.chunks) if only else catalogue.kinds())
        words, alive = self.index.lexical.index, catalogue.alive
        return only, {kind: lexical_search(words, query, kind, only=only, alive=alive) for kind in kinds}

    def _restriction(self, filters: Filters) -> SearchFilter | None:
        try:
            documents = self.index.catalogue.documents(filters.path_prefix, filters.file_glob, filters.doc_types)
        except InvalidPattern as error:
            raise InvalidField(error.message, hint=error.hint) from error
        if filters.modified_ns is not None:
            dated = self.resources.storage.documents.modified_between(*filters.modified_ns)
            documents = dated if documents is None else documents & dated
        if documents is None:
            return None
        return SearchFilter(documents, self.index.catalogue.chunks_of(documents))

    async def _question(self, query: str, kinds: tuple[IndexKind, ...]) -> tuple[EmbeddedQuery, str | None]:
        """The query with its vectors. If the embedder fails, without them and with the reason."""
        vectors = self.index.vectors.by_kind
        embedders: dict[IndexKind, Embedder] = {
            kind: self.resources.models.embedders[kind] for kind in kinds if kind in vectors and len(vectors[kind])
        }
        guards = self.guards
        with guards.embedder.attempt() as attempt:
            if not attempt.admitted:
                return EmbeddedQuery(query, kinds, {}), f"{guards.last_failure} (not retried for a while)"
            try:
                return await embed_query(query, kinds, embedders), None
            except ProviderError as error:
                # An error that waiting cannot fix may concern this query alone, so it does not open the circuit.
                attempt.failed = error.retryable
                guards.last_failure = f"{error.code}: {error.message}"
                _log.warning("lexical search only", extra={"code": error.code, "reason": error.message})
                return EmbeddedQuery(query, kinds, {}), guards.last_failure

    def _hits(self, asked: EmbeddedQuery, only: SearchFilter | None, worded: _RankingByKind, k: int) -> list[SearchHit]:
        """The best chunks without duplicates. More are read only if there are many duplicates."""
        ranking = self._ranking(asked, only, worded)
        for most in (k + k // 2 + 5, _READ):
            hits = _best_of(asked.text, ranking, self._read(ranking, most), k)
            if len(hits) == k or len(ranking) <= most:
                break
        return hits

    def _ranking(self, asked: EmbeddedQuery, only: SearchFilter | None, worded: _RankingByKind) -> FusedRanking:
        return hybrid_search(
            self.index.lexical.index,
            self.index.vectors.by_kind,
            asked,
            only=only,
            alive=self.index.catalogue.alive,
            oversampling=self.resources.settings.rag.oversample_factor,
            lexical=worded,
        )

    def _read(self, ranking: Ranking, most: int) -> list[_Scored]:
        """The best chunks of a ranking, without those that are deleted or damaged."""
        best: list[int] = ranking.ids[:most].tolist()
        scores: list[float] = ranking.scores[:most].tolist()
        stored = self.resources.storage.chunks.by_id(best)
        found = [(stored[each], score) for each, score in zip(best, scores, strict=True) if each in stored]
        # Ids depend on the order of indexing. Paths stay the same when the index is rebuilt.
        return sorted(found, key=lambda hit: (-hit[1], hit[0].rel_path, hit[0].chunk_id))

    async def _rerank(self, reranker: Reranker, query: str, found: list[_Scored]) -> list[_Scored]:
        options = self.resources.settings.rerank
        texts = [chunk.text for chunk, _ in found]
        with self.guards.reranker.attempt() as attempt:
            if not attempt.admitted:
                return found
            order = await reorder(reranker, query, texts, most=options.candidates, timeout_s=options.timeout_s)
            attempt.failed = len(found) > 1 and not order.scores
        return [(found[place][0], order.scores.get(place, found[place][1])) for place in order.places]


class Readiness:
    """Holds searches back until there is an index, and directs them to the newest one."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._newest: asyncio.Future[Searcher] = self._loop.create_future()

    async def searcher(self) -> Searcher:
        """Wait for an index. Raises the error that `fail` was called with."""
        return await asyncio.shield(self._newest)

    @property
    def is_ready(self) -> bool:
        return self._newest.done() and self._newest.exception() is None

    def use(self, searcher: Searcher) -> None:
        self.hold_back().set_result(searcher)

    def fail(self, error: CorpusError) -> None:
        newest = self.hold_back()
        newest.set_exception(error)
        newest.exception()  # retrieved here, because it is not an error if no search ever asks for it

    def hold_back(self) -> asyncio.Future[Searcher]:
        """Make searches wait for the returned future: the current index must not be used any longer."""
        if self._newest.done():
            self._newest = self._loop.create_future()
        return self._newest


def _best_of(query: str, ranking: FusedRanking, found: Sequence[_Scored], k: int) -> list[SearchHit]:
    """The first `k` chunks that are not near-duplicates of an earlier one."""
    best = [found[place] for place in distinct([chunk.text for chunk, _ in found], k)]
    found_by = ranking.found_by([chunk.chunk_id for chunk, _ in best])
    return [
        SearchHit(chunk, score, snippet(query, chunk.text), by)
        for (chunk, score), by in zip(best, found_by, strict=True)
    ]
