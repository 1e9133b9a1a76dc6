"""Hybrid search: queries the lexical and the vector index of each kind and fuses the rankings."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from armarium.foundation.concurrency.tasks import task_group
from armarium.providers.interfaces import Embedder
from armarium.retrieval.chunks import IndexKind
from armarium.retrieval.search.fusion import (
    CANDIDATES,
    Candidates,
    FusedRanking,
    Ranking,
    empty_ranking,
    fuse,
    vector_weight,
)
from armarium.retrieval.search.index_choice import contains_identifier
from armarium.retrieval.search.lexical_index import LexicalIndex
from armarium.retrieval.search.vector_index import VectorIndex

if TYPE_CHECKING:
    from armarium.providers.interfaces import Vectors
    from armarium.retrieval.search.vector_index import Alive, Ids


@dataclass(frozen=True, slots=True)
class EmbeddedQuery:
    text: str
    kinds: tuple[IndexKind, ...]
    vectors: Mapping[IndexKind, Vectors]
    """The vector of the query for each index. An index without one is searched lexically only."""
    confidence: float = 1.0
    """How reliable the vectors are, 0 to 1; see `ReportsConfidence`."""
    same_model: bool = True
    """Whether the vectors of all kinds come from one model, so that their scores are comparable."""


@runtime_checkable
class ReportsConfidence(Protocol):
    """An embedder that was not trained on every language and can report it."""

    async def confidence(self, text: str) -> float:
        """How reliable the vector of this text is, 0 to 1."""
        ...


async def embed_query(
    text: str, kinds: tuple[IndexKind, ...], embedders: Mapping[IndexKind, Embedder]
) -> EmbeddedQuery:
    """Embed the query with the model of each index. Different models run concurrently."""
    by_model = {embedders[kind].model: embedders[kind] for kind in kinds if kind in embedders}
    vectors: dict[str, Vectors] = {}
    confidence = 1.0

    async def embed(embedder: Embedder) -> None:
        nonlocal confidence
        vectors[embedder.model] = (await embedder.embed_query(text)).reshape(-1)
        if isinstance(embedder, ReportsConfidence):
            confidence = min(confidence, await embedder.confidence(text))

    if len(by_model) == 1:
        await embed(*by_model.values())
    else:
        try:
            async with task_group() as tasks:
                for embedder in by_model.values():
                    tasks.start_soon(embed, embedder)
        except ExceptionGroup as failures:  # several models failed at the same moment
            raise failures.exceptions[0] from None
    by_kind: dict[IndexKind, Vectors] = {kind: vectors[embedders[kind].model] for kind in kinds if kind in embedders}
    return EmbeddedQuery(text, kinds, by_kind, confidence, same_model=len(vectors) < 2)


@dataclass(frozen=True, slots=True)
class SearchFilter:
    """The documents to search in, and their chunks."""

    documents: Collection[int]
    chunks: Ids


def lexical_search(
    words: LexicalIndex,
    text: str,
    kind: IndexKind,
    *,
    only: SearchFilter | None = None,
    alive: Alive | None = None,
) -> Ranking:
    """The best chunks of one index by BM25, limited to `only` and to `alive` chunks."""
    found = words.search(text, CANDIDATES, kind=kind, documents=only.documents if only else None)
    if alive is None:
        return found
    # Deleted chunks stay in the lexical index until its next commit.
    living = alive(found.ids)
    return Ranking(found.ids[living], found.scores[living])


def hybrid_search(
    words: LexicalIndex,
    vectors: Mapping[IndexKind, VectorIndex],
    query: EmbeddedQuery,
    *,
    only: SearchFilter | None = None,
    alive: Alive | None = None,
    oversampling: int = 5,
    lexical: Mapping[IndexKind, Ranking] | None = None,
) -> FusedRanking:
    """The best chunks, at least `CANDIDATES` if there are so many, limited to `only` and to `alive` chunks. `lexical`:
    results of `lexical_search` that are known already. Blocks for milliseconds: call it in a worker thread."""
    results: list[Candidates] = []
    for kind in query.kinds:
        if lexical is not None and kind in lexical:
            by_terms = lexical[kind]
        else:
            by_terms = lexical_search(words, query.text, kind, only=only, alive=alive)
        index = vectors.get(kind)
        # Before the vector search: a chunk embedded in between is then found by its vector, not ranked as a bad match.
        embedded = None if index is None else index.contains(by_terms.ids)
        vector = query.vectors.get(kind)
        if index is None or vector is None:
            by_vector = empty_ranking()
        else:
            among = only.chunks if only else None
            by_vector = index.search(vector, CANDIDATES, among=among, alive=alive, oversampling=oversampling)
        weight = vector_weight(kind, confidence=query.confidence, has_identifier=contains_identifier(query.text))
        results.append(Candidates(by_terms, by_vector, weight, embedded))
    chunk_count = len(only.chunks) if only else len(words)
    return fuse(results, chunk_count=chunk_count, same_model=query.same_model)
