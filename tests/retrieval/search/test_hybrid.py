"""Hybrid search over real lexical and vector indexes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import anyio
import numpy
import pytest
from numpy.typing import NDArray

from armarium.providers.errors import ProviderUnavailable
from armarium.providers.vendors import MISTRAL
from armarium.retrieval.chunks import IndexKind
from armarium.retrieval.search.hybrid import EmbeddedQuery, SearchFilter, embed_query, hybrid_search, lexical_search
from armarium.retrieval.search.lexical_index import LexicalChunk, LexicalIndex
from armarium.retrieval.search.vector_index import VectorIndex

Vector = NDArray[numpy.float32]


def axis(place: int) -> Vector:
    vector = numpy.zeros(8, numpy.float32)
    vector[place] = 1
    return vector


class AxisEmbedder:
    """Gives every text the vector of its first letter."""

    dimensions = 8

    def __init__(self, model: str, confidence: float | None = None) -> None:
        self.model = model
        self.asked = 0
        if confidence is not None:
            self.confidence = lambda text: self._constant(confidence)

    async def _constant(self, confidence: float) -> float:
        return confidence

    async def embed(self, texts: list[str]) -> Vector:
        return numpy.stack([axis(ord(text[0]) % 8) for text in texts])

    async def embed_query(self, text: str) -> Vector:
        self.asked += 1
        return axis(ord(text[0]) % 8)

    async def aclose(self) -> None:
        pass


class Indexes:
    def __init__(self, directory: Path) -> None:
        self.words = LexicalIndex.open(directory)
        self.vectors: dict[IndexKind, VectorIndex] = {"text": VectorIndex(8), "code": VectorIndex(8)}

    def put(self, chunk: int, kind: IndexKind, text: str, place: int) -> None:
        self.words.add([LexicalChunk(chunk, chunk, kind, "", "", text)])
        self.vectors[kind].add(numpy.array([chunk]), axis(place)[None])

    def ask(self, text: str, *kinds: IndexKind, place: int, **more: object) -> list[int]:
        vectors: Mapping[IndexKind, Vector] = dict.fromkeys(kinds, axis(place))
        return hybrid_search(self.words, self.vectors, EmbeddedQuery(text, kinds, vectors), **more).ids.tolist()  # type: ignore[arg-type]


@pytest.fixture
def indexes(tmp_path: Path) -> Iterator[Indexes]:
    indexes = Indexes(tmp_path / "words")
    indexes.put(1, "text", "the ship left the harbour", 0)
    indexes.put(2, "text", "a vessel departed from the port", 1)
    indexes.put(3, "text", "bread is baked from flour", 2)
    indexes.put(4, "code", "def leave_harbour(ship): ...", 0)
    indexes.words.commit()
    yield indexes
    indexes.words.close()


def test_what_words_and_what_vectors_find_are_both_answered(indexes: Indexes) -> None:
    assert set(indexes.ask("ship in the harbour", "text", place=1)[:2]) == {1, 2}


def test_only_the_indexes_asked_for_are_searched(indexes: Indexes) -> None:
    assert 4 not in indexes.ask("ship in the harbour", "text", place=0)
    assert indexes.ask("ship in the harbour", "code", place=0) == [4]
    assert set(indexes.ask("ship in the harbour", "text", "code", place=0)) == {1, 2, 3, 4}


def test_a_restriction_holds_for_words_and_for_vectors(indexes: Indexes) -> None:
    only = SearchFilter({2, 3}, numpy.array([2, 3]))
    assert set(indexes.ask("ship in the harbour", "text", place=0, only=only)) <= {2, 3}


def test_the_dead_are_found_neither_by_words_nor_by_vectors(indexes: Indexes) -> None:
    assert 1 not in indexes.ask("ship in the harbour", "text", place=0, alive=lambda ids: ids != 1)


def test_without_a_vector_words_alone_answer(indexes: Indexes) -> None:
    ranking = hybrid_search(indexes.words, indexes.vectors, EmbeddedQuery("harbour ship", ("text",), {}))
    assert ranking.ids.tolist() == [1]


def test_while_vectors_are_coming_an_exact_match_is_not_behind_what_has_one(indexes: Indexes) -> None:
    indexes.words.add([LexicalChunk(5, 5, "text", "", "", "the astrolabe stands in the cellar")])
    indexes.words.commit()
    assert indexes.ask("astrolabe in the cellar", "text", place=2)[0] == 5
    indexes.vectors["text"].add(numpy.array([5]), axis(4)[None])
    assert indexes.ask("astrolabe in the cellar", "text", place=2)[0] == 3, "its vector says that it is about bread"


def test_what_words_found_is_not_looked_for_again(indexes: Indexes) -> None:
    known = lexical_search(indexes.words, "bread", "text")
    assert known.ids.tolist() == [3]
    ranking = hybrid_search(
        indexes.words, indexes.vectors, EmbeddedQuery("harbour ship", ("text",), {}), lexical={"text": known}
    )
    assert ranking.ids.tolist() == [3]


def test_words_alone_keep_to_the_restriction_and_the_living(indexes: Indexes) -> None:
    assert lexical_search(indexes.words, "ship harbour", "text").ids.tolist() == [1]
    assert not len(lexical_search(indexes.words, "ship harbour", "text", only=SearchFilter({2}, numpy.array([2]))))
    assert not len(lexical_search(indexes.words, "ship harbour", "text", alive=lambda ids: ids != 1))


async def test_a_model_used_for_both_indexes_is_asked_once() -> None:
    embedder = AxisEmbedder("one")
    asked = await embed_query("hello", ("text", "code"), {"text": embedder, "code": embedder})  # type: ignore[dict-item]
    assert embedder.asked == 1
    assert asked.same_model
    assert set(asked.vectors) == {"text", "code"}


async def test_vectors_of_two_models_are_not_comparable() -> None:
    embedders = {"text": AxisEmbedder("one"), "code": AxisEmbedder("two")}
    asked = await embed_query("hello", ("text", "code"), embedders)  # type: ignore[arg-type]
    assert not asked.same_model


async def test_two_models_that_fail_together_raise_one_error() -> None:
    both_asked = anyio.Event()

    class FailingEmbedder(AxisEmbedder):
        async def embed_query(self, text: str) -> Vector:
            if self.model == "two":
                both_asked.set()
            with anyio.CancelScope(shield=True):
                await both_asked.wait()
            raise MISTRAL.unavailable(f"{self.model} is down")

    with pytest.raises(ProviderUnavailable):
        await embed_query("hello", ("text", "code"), {"text": FailingEmbedder("one"), "code": FailingEmbedder("two")})  # type: ignore[arg-type]


async def test_a_query_carries_the_confidence_that_its_embedder_reports() -> None:
    assert (await embed_query("hola", ("text",), {"text": AxisEmbedder("one", confidence=0.2)})).confidence == 0.2  # type: ignore[dict-item]
    assert (await embed_query("hola", ("text",), {"text": AxisEmbedder("one")})).confidence == 1.0  # type: ignore[dict-item]
