"""Finds passages by meaning and by words, weighs the two, and lets a reranker have the last word where there is one."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence, Set
from dataclasses import dataclass, field, replace
from typing import Final

import anyio
import asyncpg  # pyright: ignore[reportMissingTypeStubs] it has none
import orjson

from armarium.capabilities.store.database import Database
from armarium.capabilities.store.errors import SearchBackendError
from armarium.capabilities.store.model import ChunkEntry
from armarium.capabilities.store.models import StoreModels
from armarium.capabilities.store.tokens import query_terms
from armarium.capabilities.store.weighing import Scores, fused_scores
from armarium.foundation.sql import queries
from armarium.providers.errors import ProviderError
from armarium.retrieval.rerank import reorder

_SQL = queries("armarium.capabilities.store.sql", "search.sql")

ALL_PROJECTS: Final = "*"
"""As a project: all projects of the caller, and nobody else's."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Hits:
    """What one way of searching found."""

    scores: Scores = field(default_factory=dict[int, float])
    files: frozenset[int] = frozenset()

    def among(self, ids: Set[int]) -> Scores:
        return {chunk_id: score for chunk_id, score in self.scores.items() if chunk_id in ids}


@dataclass(frozen=True, slots=True)
class SearchRules:
    """How much is looked at, and what counts how much."""

    vector_candidates: int = 30
    bm25_candidates: int = 30
    semantic_weight: float = 0.7
    lexical_weight: float = 0.3
    rerank_timeout_s: float = 3.0


@dataclass(frozen=True, slots=True)
class _Extent:
    """What is searched: one project, or all of a caller's that have passages."""

    projects: list[str]
    passages: float
    mean_words: float
    languages: list[str]


@dataclass(frozen=True, slots=True)
class _Candidate:
    chunk_id: int
    entry: ChunkEntry
    embedded: bool
    """Whether it has a vector. While files are indexed, vectors come after words."""


class FileSearch:
    """Searches what is indexed. A passage is only ever given away while its file is there and still says it."""

    def __init__(
        self,
        database: Database,
        models: StoreModels,
        rules: SearchRules,
        *,
        on_rerank_failure: Callable[[], None] = lambda: None,
    ) -> None:
        self._database = database
        self._models = models
        self._rules = rules
        self._on_rerank_failure = on_rerank_failure

    async def search(
        self, tenant: str, project: str, query: str, path_prefix: str, limit: int, key: str | None
    ) -> list[ChunkEntry]:
        """The best passages for a query with words in it, best first; project "*" means all of the tenant's.

        When the query cannot be embedded, words alone are searched. Only when it has no words either, or the database
        fails, it is a SEARCH_BACKEND_ERROR.
        """
        if not _begins_a_path(path_prefix):
            return []
        try:
            extent = await self._extent(tenant, project)
            if extent is None:
                return []
            semantic, lexical = await self._candidates(tenant, extent, query, path_prefix, key)
            candidates = await self._as_they_are(tenant, semantic, lexical, path_prefix)
            ranked = self._fused(candidates, semantic, lexical)
            best = (await self._reranked(query, ranked, key))[:limit]
            await self._note_served(tenant, best)
        except asyncpg.PostgresError as error:
            raise SearchBackendError(
                "the search failed in the database", hint="try again in a moment", private={"error": str(error)}
            ) from error
        return [candidate.entry for candidate in best]

    async def _extent(self, tenant: str, project: str) -> _Extent | None:
        async with self._database.reading(tenant) as connection:
            row = await connection.fetchrow(_SQL["searched_extent"], tenant, project)
        if row is None or not row["projects"]:
            return None
        return _Extent(row["projects"], row["passages"], max(1.0, row["words"] / row["passages"]), row["languages"])

    async def _candidates(
        self, tenant: str, extent: _Extent, query: str, path_prefix: str, key: str | None
    ) -> tuple[_Hits, _Hits]:
        terms = query_terms(query, extent.languages)
        semantic = lexical = _Hits()

        async def by_meaning() -> None:
            nonlocal semantic
            try:
                async with self._models.embedder(key) as embedder:
                    vector = await embedder.embed_query(query)
            except (ProviderError, SearchBackendError) as error:
                if not terms:
                    raise SearchBackendError(
                        "the query cannot be embedded, and it has no words to look for",
                        hint="try again in a moment",
                        private={"code": error.code},
                    ) from error
                _log.warning("the query cannot be embedded; words alone are searched", extra={"code": error.code})
                return
            written = orjson.dumps(vector, option=orjson.OPT_SERIALIZE_NUMPY).decode()
            semantic = await self._hits(
                tenant,
                "nearest_passages",
                extent.projects,
                path_prefix,
                written,
                self._models.model,
                self._rules.vector_candidates,
            )

        async def by_words() -> None:
            nonlocal lexical
            if terms:
                lexical = await self._hits(
                    tenant,
                    "passages_by_words",
                    extent.projects,
                    path_prefix,
                    terms,
                    extent.passages,
                    extent.mean_words,
                    self._rules.bm25_candidates,
                )

        await _both(by_meaning, by_words)
        return semantic, lexical

    async def _hits(self, tenant: str, statement: str, *arguments: object) -> _Hits:
        async with self._database.reading(tenant) as connection:
            rows = await connection.fetch(_SQL[statement], tenant, *arguments)
        return _Hits({row["chunk_id"]: row["score"] for row in rows}, frozenset(row["file_id"] for row in rows))

    async def _as_they_are(self, tenant: str, semantic: _Hits, lexical: _Hits, path_prefix: str) -> list[_Candidate]:
        ids = [*{**semantic.scores, **lexical.scores}]
        if not ids:
            return []
        files = list(semantic.files | lexical.files)
        async with self._database.reading(tenant) as connection:
            rows = await connection.fetch(
                _SQL["passages_as_they_are"], tenant, ids, files, path_prefix, self._models.model
            )
        return [
            _Candidate(
                row["id"],
                ChunkEntry(
                    project=row["project"],
                    file_path=row["path"],
                    start=row["start_byte"],
                    end=row["end_byte"],
                    content=row["chunk_content"],
                    score=0.0,
                ),
                row["embedded"],
            )
            for row in rows
        ]

    def _fused(self, candidates: Sequence[_Candidate], semantic: _Hits, lexical: _Hits) -> list[_Candidate]:
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

    async def _reranked(self, query: str, ranked: list[_Candidate], key: str | None) -> list[_Candidate]:
        try:
            async with self._models.reranker(key) as reranker:
                if reranker is None or len(ranked) < 2:
                    return ranked
                texts = [candidate.entry.content for candidate in ranked]
                timeout_s = self._rules.rerank_timeout_s
                order = await reorder(reranker, query, texts, most=len(texts), timeout_s=timeout_s)
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

    async def _note_served(self, tenant: str, served: Sequence[_Candidate]) -> None:
        if not served:
            return
        async with self._database.writing(tenant) as connection:
            # Nobody misses a time that a crash forgets, and everybody would wait for the disk.
            await connection.execute("SET LOCAL synchronous_commit = off")
            await connection.execute(_SQL["note_served"], tenant, [candidate.chunk_id for candidate in served])


def _with_score(candidate: _Candidate, score: float) -> _Candidate:
    return replace(candidate, entry=replace(candidate.entry, score=score))


def _best_first(candidate: _Candidate) -> tuple[float, str, str, int]:
    entry = candidate.entry
    return (-entry.score, entry.project, entry.file_path, entry.start)


def _begins_a_path(prefix: str) -> bool:
    """Whether a path can begin so; the database would refuse some of what cannot."""
    return prefix.isascii() and (not prefix or prefix.isprintable())


async def _both(first: Callable[[], Awaitable[None]], second: Callable[[], Awaitable[None]]) -> None:
    """Do two things at once; the first that fails ends the other, and its error is raised as it is."""
    failure: Exception | None = None

    async def guarded(work: Callable[[], Awaitable[None]]) -> None:
        nonlocal failure
        try:
            await work()
        except Exception as error:  # noqa: BLE001 raised again below, outside of the group that would wrap it
            failure = failure or error
            group.cancel_scope.cancel()

    async with anyio.create_task_group() as group:
        group.start_soon(guarded, first)
        group.start_soon(guarded, second)
    if failure is not None:
        raise failure
