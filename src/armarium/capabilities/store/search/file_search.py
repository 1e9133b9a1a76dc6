"""Finds chunks by meaning and by words, weighs the two, and lets a reranker have the last word where there is one."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence, Set
from dataclasses import dataclass, replace
from typing import Final

import anyio
import asyncpg  # pyright: ignore[reportMissingTypeStubs] it has none
import orjson

from armarium.capabilities.store.database.transactions import StoreDatabase
from armarium.capabilities.store.errors import ResourceBusy, SearchBackendError
from armarium.capabilities.store.index.embedders import StoreModels
from armarium.capabilities.store.index.terms import query_terms
from armarium.capabilities.store.model import ChunkEntry
from armarium.capabilities.store.search.circuit_breakers import CallerCircuitBreakers
from armarium.capabilities.store.search.limits import SearchAdmission, SearchesBusy, SearchLimits
from armarium.capabilities.store.search.queries import Candidate, ChunkQueries, ScoredChunks, Scores, SearchExtent
from armarium.providers.errors import ProviderError
from armarium.retrieval.rerank import reorder

LEXICAL_ONLY: Final = "the query could not be embedded in time, so these chunks were found by words alone"

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class SearchRules:
    """How much is looked at, and what counts how much."""

    vector_candidates: int = 30
    bm25_candidates: int = 30
    semantic_weight: float = 0.7
    lexical_weight: float = 0.3
    rerank_timeout_s: float = 3.0
    embed_timeout_s: float = 5.0


@dataclass(frozen=True, slots=True)
class SearchResult:
    """What a search found, best first."""

    chunks: Sequence[ChunkEntry] = ()
    notice: str | None = None
    """What the caller should know about how it was found."""


class FileSearch:
    """Searches what is indexed. A chunk is only ever given away while its file is there and still says it."""

    def __init__(
        self,
        database: StoreDatabase,
        models: StoreModels,
        rules: SearchRules,
        limits: SearchLimits | None = None,
        *,
        on_rerank_failure: Callable[[], None] = lambda: None,
        embedding: CallerCircuitBreakers | None = None,
        reranking: CallerCircuitBreakers | None = None,
    ) -> None:
        self._models = models
        self._rules = rules
        self._admission = SearchAdmission(limits or SearchLimits())
        self._chunks = ChunkQueries(database, self._admission, models.model)
        self._on_rerank_failure = on_rerank_failure
        self._embedding = embedding or CallerCircuitBreakers()
        self._reranking = reranking or CallerCircuitBreakers()

    async def search(
        self, tenant: str, project: str, query: str, path_prefix: str, limit: int, key: str | None
    ) -> SearchResult:
        """The best chunks for a query with words in it, best first; project "*" means all of the tenant's.

        When the query cannot be embedded in time, words alone are searched. Only when it has no words either, or the
        database fails, it is a SEARCH_BACKEND_ERROR.
        """
        try:
            async with self._admission.search(tenant):
                return await self._searched(tenant, project, query, path_prefix, limit, key)
        except SearchesBusy:
            raise
        except (asyncpg.PostgresError, ResourceBusy) as error:
            raise SearchBackendError(
                "the search failed in the database", hint="try again in a moment", private={"error": str(error)}
            ) from error

    async def _searched(
        self, tenant: str, project: str, query: str, path_prefix: str, limit: int, key: str | None
    ) -> SearchResult:
        extent = await self._chunks.extent(tenant, project, path_prefix)
        if extent is None:
            return SearchResult()
        semantic, lexical = await self._candidates(tenant, extent, query, key)
        hits = [found for found in (semantic, lexical) if found is not None]
        candidates = await self._chunks.current(tenant, hits, extent.paths)
        ranked = self._fused(candidates, semantic or ScoredChunks(), lexical)
        best = (await self._reranked(tenant, query, ranked, key))[:limit]
        await self._chunks.record_served(tenant, (candidate.chunk_id for candidate in best))
        return SearchResult([candidate.entry for candidate in best], LEXICAL_ONLY if semantic is None else None)

    async def _candidates(
        self, tenant: str, extent: SearchExtent, query: str, key: str | None
    ) -> tuple[ScoredChunks | None, ScoredChunks]:
        """What is found by meaning, None when that could not be asked, and by words."""
        terms = query_terms(query, extent.languages)
        semantic: ScoredChunks | None = None
        lexical = ScoredChunks()

        async def semantic_search() -> None:
            nonlocal semantic
            try:
                vector = await self._embedded(tenant, query, key)
            except (ProviderError, SearchBackendError) as error:
                if not terms:
                    raise SearchBackendError(
                        "the query cannot be embedded, and it has no words to look for",
                        hint="try again in a moment",
                        private={"code": error.code},
                    ) from error
                _log.warning("the query cannot be embedded; words alone are searched", extra={"code": error.code})
                return
            semantic = await self._chunks.nearest(tenant, extent, vector, self._rules.vector_candidates)

        async def lexical_search() -> None:
            nonlocal lexical
            if terms:
                lexical = await self._chunks.with_terms(tenant, extent, terms, self._rules.bm25_candidates)

        await _run_both(semantic_search, lexical_search)
        return semantic, lexical

    async def _embedded(self, tenant: str, query: str, key: str | None) -> str:
        """The vector of the query, as the database reads it."""
        with self._embedding.attempt(tenant) as attempt:
            if not attempt.admitted:
                raise SearchBackendError("the embedder kept failing and is left alone for a while")
            try:
                with anyio.fail_after(self._rules.embed_timeout_s):
                    async with self._models.embedder(key) as embedder:
                        vector = await embedder.embed_query(query)
            except TimeoutError:
                attempt.failed = True
                raise SearchBackendError("the embedder did not answer in time") from None
            except ProviderError as error:
                # A refusal costs no time, and comes again when it is asked for again.
                attempt.failed = error.retryable
                raise
        return orjson.dumps(vector, option=orjson.OPT_SERIALIZE_NUMPY).decode()

    def _fused(self, candidates: Sequence[Candidate], semantic: ScoredChunks, lexical: ScoredChunks) -> list[Candidate]:
        ids = {candidate.chunk_id for candidate in candidates}
        scores = fused_scores(
            semantic.among(ids),
            lexical.among(ids),
            semantic_weight=self._rules.semantic_weight,
            lexical_weight=self._rules.lexical_weight,
            without_vector={candidate.chunk_id for candidate in candidates if not candidate.embedded},
        )
        scored = [_with_score(candidate, scores[candidate.chunk_id]) for candidate in candidates]
        return sorted(scored, key=_best_first)

    async def _reranked(self, tenant: str, query: str, ranked: list[Candidate], key: str | None) -> list[Candidate]:
        order = None
        try:
            async with self._models.reranker(key) as reranker:
                if reranker is None or len(ranked) < 2:
                    return ranked
                with self._reranking.attempt(tenant) as attempt:
                    if attempt.admitted:
                        texts = [candidate.entry.content for candidate in ranked]
                        timeout_s = self._rules.rerank_timeout_s
                        order = await reorder(reranker, query, texts, most=len(texts), timeout_s=timeout_s)
                        attempt.failed = not order.scores
        except ProviderError:
            # The key is none that could be sent.
            order = None
        if order is None or not order.scores:
            self._on_rerank_failure()
            return ranked
        lowest = min(order.scores.values())
        # Those the reranker left out come last, so they may not have a better score than what comes before them.
        return [
            _with_score(ranked[place], order.scores.get(place, min(lowest, ranked[place].entry.score)))
            for place in order.places
        ]


def _with_score(candidate: Candidate, score: float) -> Candidate:
    return replace(candidate, entry=replace(candidate.entry, score=score))


def _best_first(candidate: Candidate) -> tuple[float, str, str, int]:
    entry = candidate.entry
    return (-entry.score, entry.project, entry.file_path, entry.start)


async def _run_both(first: Callable[[], Awaitable[None]], second: Callable[[], Awaitable[None]]) -> None:
    """Run two functions concurrently. The first failure cancels the other function and is raised as itself, even if both
    fail at the same moment, as they do when the database hangs."""
    failure: Exception | None = None

    async def guarded(run: Callable[[], Awaitable[None]]) -> None:
        nonlocal failure
        try:
            await run()
        except Exception as error:  # noqa: BLE001 raised again below, outside of the group that would wrap it
            failure = failure or error
            group.cancel_scope.cancel()

    async with anyio.create_task_group() as group:
        group.start_soon(guarded, first)
        group.start_soon(guarded, second)
    if failure is not None:
        raise failure


def fused_scores(
    semantic: Scores,
    lexical: Scores,
    *,
    semantic_weight: float,
    lexical_weight: float,
    without_vector: Set[int] = frozenset(),
) -> dict[int, float]:
    """One score from 0 to 1 for each chunk: the weighted mean of its two scores, each from 0 to 1 on its own side.

    What a side did not find has 0 there. A side that found nothing at all has no say, so the best chunk of the other
    still comes near 1. Nor have vectors a say about a chunk without one: it stands where its words put it.
    """
    sides = [
        (weight, _normalised(scores))
        for weight, scores in ((semantic_weight, semantic), (lexical_weight, lexical))
        if scores
    ]
    whole = sum(weight for weight, _ in sides)
    if whole == 0:
        # Only a side that was to count for nothing found anything: better its order than none.
        sides = [(1.0, scores) for _, scores in sides]
        whole = float(len(sides))
    ids = [*{**semantic, **lexical}]
    fused = {each: sum(weight * scores.get(each, 0.0) for weight, scores in sides) / whole for each in ids}
    # What was found by its meaning had a vector, whatever became of it since.
    by_words = without_vector & (lexical.keys() - semantic.keys())
    if by_words:
        alone = _normalised(lexical)
        fused |= {each: alone[each] for each in by_words}
    return fused


def _normalised(scores: Scores) -> dict[int, float]:
    """The scores moved to lie between 0 and 1; all 1 when they are alike."""
    lowest, highest = min(scores.values()), max(scores.values())
    if highest == lowest:
        return dict.fromkeys(scores, 1.0)
    return {each: (score - lowest) / (highest - lowest) for each, score in scores.items()}
