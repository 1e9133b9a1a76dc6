"""One search over words and vectors: asks both, in every index the query is for, and merges the answers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, runtime_checkable

import anyio

from armarium.providers.interfaces import Embedder
from armarium.retrieval.chunks import IndexKind
from armarium.retrieval.search.fusion import CANDIDATES, Found, Ranking, fuse, vector_weight
from armarium.retrieval.search.index_choice import names_something
from armarium.retrieval.search.lexical_index import WordIndex
from armarium.retrieval.search.vector_index import VectorIndex

if TYPE_CHECKING:
    import numpy
    from numpy.typing import NDArray

    from armarium.retrieval.search.vector_index import Alive, Ids


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked, and what the embedder made of it."""

    text: str
    kinds: tuple[IndexKind, ...]
    vectors: Mapping[IndexKind, NDArray[numpy.float32]]
    """The question's vector for each index. Where there is none, words alone decide."""
    known: float = 1.0
    """How far the embedder knows the question's language, 0 to 1."""
    comparable: bool = True
    """Whether the vectors of all kinds come from one model."""


@runtime_checkable
class KnowsLanguages(Protocol):
    """An embedder that was not taught every language, and can say so."""

    async def knows(self, text: str) -> float:
        """How far the vector of this text can be trusted, 0 to 1."""
        ...


async def question(text: str, kinds: tuple[IndexKind, ...], embedders: Mapping[IndexKind, Embedder]) -> Question:
    """The question with its vectors, one from each embedder of the indexes it is for; they are asked side by side."""
    asked = {embedders[kind].model: embedders[kind] for kind in kinds if kind in embedders}
    models: dict[str, NDArray[numpy.float32]] = {}
    known = 1.0

    async def embed(embedder: Embedder) -> None:
        nonlocal known
        models[embedder.model] = (await embedder.embed_query(text)).reshape(-1)
        if isinstance(embedder, KnowsLanguages):
            known = min(known, await embedder.knows(text))

    if len(asked) == 1:
        await embed(*asked.values())
    else:
        await _for_each(embed, asked.values())
    vectors: dict[IndexKind, NDArray[numpy.float32]] = {
        kind: models[embedders[kind].model] for kind in kinds if kind in embedders
    }
    return Question(text, kinds, vectors, known, comparable=len(models) < 2)


async def _for_each(embed: Callable[[Embedder], Awaitable[None]], embedders: Iterable[Embedder]) -> None:
    """Embed with all of them at once. The first failure cancels the others, and is raised as itself."""
    failure: Exception | None = None

    async def attempt(embedder: Embedder) -> None:
        nonlocal failure
        try:
            await embed(embedder)
        except Exception as error:  # noqa: BLE001 raised below, not as a group of one
            failure = failure or error
            tasks.cancel_scope.cancel()

    async with anyio.create_task_group() as tasks:
        for embedder in embedders:
            tasks.start_soon(attempt, embedder)
    if failure is not None:
        raise failure


@dataclass(frozen=True, slots=True)
class Restriction:
    """The documents that may be answered, and the passages they consist of."""

    documents: Collection[int]
    chunks: Ids


def by_words(
    words: WordIndex,
    text: str,
    kind: IndexKind,
    *,
    candidates: int = CANDIDATES,
    only: Restriction | None = None,
    alive: Alive | None = None,
) -> Ranking:
    """The best passages of one index by words alone, of `only` and `alive` ones."""
    found = words.search(text, candidates, kind=kind, documents=only.documents if only else None)
    # Words of what is gone stay in their index until its next commit.
    living = slice(None) if alive is None else alive(found.ids)
    return Ranking(found.ids[living], found.scores[living])


def search(
    words: WordIndex,
    vectors: Mapping[IndexKind, VectorIndex],
    question: Question,
    *,
    candidates: int = CANDIDATES,
    only: Restriction | None = None,
    alive: Alive | None = None,
    oversampling: int = 5,
    worded: Mapping[IndexKind, Ranking] | None = None,
) -> Ranking:
    """The best passages, at least `candidates` of them where there are so many, of `only` and `alive` ones.

    `worded` is what `by_words` found, where that is known already. Blocks for milliseconds: call it in a worker thread.
    """
    found: list[Found] = []
    for kind in question.kinds:
        if worded is not None and kind in worded:
            of_words = worded[kind]
        else:
            of_words = by_words(words, question.text, kind, candidates=candidates, only=only, alive=alive)
        index = vectors.get(kind)
        # Before the vectors are searched: what gets its vector in between is found by it, not held to have a bad one.
        embedded = None if index is None else index.contains(of_words.ids)
        of_vectors = _nearest(
            index,
            question.vectors.get(kind),
            candidates,
            only.chunks if only else None,
            alive,
            oversampling,
        )
        weight = vector_weight(kind, known=question.known, names_something=names_something(question.text))
        found.append(Found(of_words, of_vectors, weight, embedded))
    passages = len(only.chunks) if only else len(words)
    return fuse(found, passages=passages, comparable=question.comparable)


def _nearest(
    index: VectorIndex | None,
    vector: NDArray[numpy.float32] | None,
    candidates: int,
    among: Ids | None,
    alive: Alive | None,
    oversampling: int,
) -> Ranking:
    import numpy

    if index is None or vector is None:
        return Ranking(numpy.empty(0, numpy.int64), numpy.empty(0, numpy.float32))
    hits = index.search(vector, candidates, among=among, alive=alive, oversampling=oversampling)
    return Ranking(hits.ids, hits.scores)
