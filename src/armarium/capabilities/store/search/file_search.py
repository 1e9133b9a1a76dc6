"""Hybrid search: semantic and lexical candidates, rank fusion, and an optional reranker."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence, Set
from contextlib import asynccontextmanager
from dataclasses import KW_ONLY, dataclass, replace
from typing import Final

import anyio
import asyncpg  # pyright: ignore[reportMissingTypeStubs] it has none
import orjson

from armarium.capabilities.store.database.transactions import StoreDatabase
from armarium.capabilities.store.errors import ResourceBusy, SearchBackendError
from armarium.capabilities.store.index.chunker import query_terms
from armarium.capabilities.store.index.embedders import StoreModels
from armarium.capabilities.store.model import Chunks
from armarium.capabilities.store.search.limits import CallerCircuitBreakers, SearchAdmission, SearchesBusy
from armarium.capabilities.store.search.queries import Candidate, ChunkQueries, ScoredChunks, Scores, SearchExtent
from armarium.capabilities.store.settings import SearchSettings
from armarium.providers.errors import ProviderError
from armarium.retrieval.search.hit_order import reorder

LEXICAL_ONLY: Final = "the query could not be embedded in time, so these chunks were found by words alone"

_log = logging.getLogger(__name__)


@dataclass(eq=False)
class FileSearch:
    """Searches indexed files. Returns a chunk only if its file exists and still contains its text."""

    database: StoreDatabase
    models: StoreModels
    settings: SearchSettings
    _: KW_ONLY
    statements: int = 4
    narrow: float = 0.25
    on_rerank_failure: Callable[[], None] = lambda: None
    now: Callable[[], float] = anyio.current_time

    def __post_init__(self) -> None:
        self._admission = SearchAdmission(self.settings, statements=self.statements)
        self._embedding = CallerCircuitBreakers(self.now)
        self._reranking = CallerCircuitBreakers(self.now)

    async def search(
        self,
        tenant: str,
        project: str,
        query: str,
        path_prefix: str,
        limit: int,
        key: str | None,
        hidden: Sequence[str] = (),
    ) -> Chunks:
        """The best chunks for a query, best first; project "*" means all projects of the tenant, without those that
        match a regular expression in `hidden`.

        If the query cannot be embedded in time, only the lexical search runs. If the query has no terms either, or if
        the database fails, raises SEARCH_BACKEND_ERROR.

        There are two transactions, because each costs two round trips more. The first one measures the extent and
        searches by words. Meanwhile the query is embedded; the second one searches by vectors and reads the chunks.
        """
        extent: SearchExtent | None = None
        terms: Sequence[str] = ()
        lexical = ScoredChunks()
        result: Chunks = {"chunks": []}
        extent_known, lexical_done = anyio.Event(), anyio.Event()

        async def search_by_words() -> None:
            nonlocal extent, terms, lexical
            async with self._transaction(tenant) as chunks:
                extent = await chunks.extent(project, path_prefix, hidden)
                terms = query_terms(query, extent.languages) if extent else ()
                extent_known.set()
                if extent and terms:
                    lexical = await chunks.with_terms(extent, terms, self.settings.bm25_candidates)
            lexical_done.set()

        async def search_by_vector() -> None:
            nonlocal result
            await extent_known.wait()
            if extent is None:
                return
            vector = await self._embedded(tenant, query, key, required=not terms)
            semantic: ScoredChunks | None = None
            async with self._transaction(tenant) as chunks:
                if vector is not None:
                    semantic = await chunks.nearest(extent, vector, self.settings.vector_candidates)
                await lexical_done.wait()
                candidates = await chunks.current([semantic or ScoredChunks(), lexical], extent.paths)
                best = self._fused(candidates, semantic or ScoredChunks(), lexical)
                if not self.models.reranks(key):
                    await chunks.record_served(best[:limit])
            if self.models.reranks(key):
                best = await self._reranked(tenant, query, best, key)
                async with self._transaction(tenant) as chunks:
                    await chunks.record_served(best[:limit])
            result = {"chunks": [candidate.chunk for candidate in best[:limit]]}
            if semantic is None:
                result["notice"] = LEXICAL_ONLY

        async with self._admitted(tenant):
            await _run_both(search_by_words, search_by_vector)
        return result

    @asynccontextmanager
    async def _admitted(self, tenant: str) -> AsyncGenerator[None]:
        """A slot for a search of the tenant. Raises SEARCH_BACKEND_ERROR if the database fails."""
        try:
            async with self._admission.search(tenant):
                yield
        except SearchesBusy:
            raise
        except (asyncpg.PostgresError, ResourceBusy) as error:
            raise SearchBackendError(
                "the search failed in the database", hint="try again in a moment", private={"error": str(error)}
            ) from error

    @asynccontextmanager
    async def _transaction(self, tenant: str) -> AsyncGenerator[ChunkQueries]:
        """A transaction in a slot among those of all searches. It is not durable: losing `last_served_at` in a crash is
        harmless, and a search does not wait for the disk."""
        async with (
            self._admission.statement(tenant),
            self.database.write_transaction(tenant, durable=False) as connection,
        ):
            yield ChunkQueries(connection, tenant, self.models.model, self.narrow)

    async def _embedded(self, tenant: str, query: str, key: str | None, *, required: bool) -> str | None:
        """The vector of the query, in the text format of pgvector. If it cannot be computed in time, raises
        SEARCH_BACKEND_ERROR if it is required, and otherwise returns None."""
        try:
            with self._embedding.attempt(tenant) as attempt:
                if not attempt.admitted:
                    raise SearchBackendError("the circuit breaker of the embedder is open")
                try:
                    with anyio.fail_after(self.settings.embed_timeout_ms / 1000):
                        async with self.models.embedder(key) as embedder:
                            vector = await embedder.embed_query(query)
                except TimeoutError:
                    attempt.failed = True
                    raise SearchBackendError("the embedder did not answer in time") from None
                except ProviderError as error:
                    # A permanent refusal is fast, and the circuit breaker could not avoid it.
                    attempt.failed = error.retryable
                    raise
        except (ProviderError, SearchBackendError) as error:
            if required:
                raise SearchBackendError(
                    "the query cannot be embedded, and it has no words to search for",
                    hint="try again in a moment",
                    private={"code": error.code},
                ) from error
            _log.warning("the query cannot be embedded; only the lexical search runs", extra={"code": error.code})
            return None
        return orjson.dumps(vector, option=orjson.OPT_SERIALIZE_NUMPY).decode()

    def _fused(self, candidates: Sequence[Candidate], semantic: ScoredChunks, lexical: ScoredChunks) -> list[Candidate]:
        ids = {candidate.chunk_id for candidate in candidates}
        scores = fused_scores(
            semantic.among(ids),
            lexical.among(ids),
            semantic_weight=self.settings.fallback.semantic_weight,
            lexical_weight=self.settings.fallback.lexical_weight,
            without_vector={candidate.chunk_id for candidate in candidates if not candidate.embedded},
        )
        scored = [_with_score(candidate, scores[candidate.chunk_id]) for candidate in candidates]
        return sorted(scored, key=_best_first)

    async def _reranked(self, tenant: str, query: str, ranked: list[Candidate], key: str | None) -> list[Candidate]:
        if len(ranked) < 2:
            return ranked
        order = None
        try:
            async with self.models.reranker(key) as reranker:
                with self._reranking.attempt(tenant) as attempt:
                    if attempt.admitted:
                        texts = [candidate.chunk["chunk_content"] for candidate in ranked]
                        timeout_s = self.settings.rerank.timeout_ms / 1000
                        order = await reorder(reranker, query, texts, most=len(texts), timeout_s=timeout_s)
                        attempt.failed = not order.scores
        except ProviderError:
            # The key cannot be sent in a header.
            order = None
        if order is None or not order.scores:
            self.on_rerank_failure()
            return ranked
        lowest = min(order.scores.values())
        # Chunks that the reranker left out come last, so their score must not exceed the lowest one.
        return [
            _with_score(ranked[place], order.scores.get(place, min(lowest, ranked[place].chunk["score"])))
            for place in order.places
        ]


def _with_score(candidate: Candidate, score: float) -> Candidate:
    return replace(candidate, chunk={**candidate.chunk, "score": score})


def _best_first(candidate: Candidate) -> tuple[float, str, str, int]:
    chunk = candidate.chunk
    return (-chunk["score"], chunk["project"], chunk["file_path"], chunk["file_seek_start_bytes"])


async def _run_both(first: Callable[[], Awaitable[None]], second: Callable[[], Awaitable[None]]) -> None:
    """Run two functions concurrently. The first failure cancels the other function and is raised as itself, even if
    both fail at the same moment, as they do when the database hangs."""
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
    """The weighted mean of the normalised semantic and lexical scores of each chunk, from 0 to 1.

    A chunk that one search did not find has score 0 there. A search without any results is ignored, so that the best
    chunk of the other one still scores near 1. A chunk without a vector keeps its lexical score.
    """
    sides = [
        (weight, _normalised(scores))
        for weight, scores in ((semantic_weight, semantic), (lexical_weight, lexical))
        if scores
    ]
    whole = sum(weight for weight, _ in sides)
    if whole == 0:
        # All results come from a search with weight 0: their order is better than none.
        sides = [(1.0, scores) for _, scores in sides]
        whole = float(len(sides))
    ids = [*{**semantic, **lexical}]
    fused = {each: sum(weight * scores.get(each, 0.0) for weight, scores in sides) / whole for each in ids}
    # A chunk found by the semantic search had a vector, even if the vector is gone now.
    by_words = without_vector & (lexical.keys() - semantic.keys())
    if by_words:
        alone = _normalised(lexical)
        fused |= {each: alone[each] for each in by_words}
    return fused


def _normalised(scores: Scores) -> dict[int, float]:
    """The scores scaled to the range 0 to 1; all 1 if they are equal."""
    lowest, highest = min(scores.values()), max(scores.values())
    if highest == lowest:
        return dict.fromkeys(scores, 1.0)
    return {each: (score - lowest) / (highest - lowest) for each, score in scores.items()}
