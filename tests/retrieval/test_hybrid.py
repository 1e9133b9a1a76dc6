"""One search over real word and vector indexes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy
import pytest
from numpy.typing import NDArray

from armarium.retrieval.chunks import IndexKind
from armarium.retrieval.search.hybrid import Question, Restriction, by_words, question, search
from armarium.retrieval.search.lexical_index import WordIndex, WordPassage
from armarium.retrieval.search.vector_index import VectorIndex

Vector = NDArray[numpy.float32]


def axis(place: int) -> Vector:
    vector = numpy.zeros(8, numpy.float32)
    vector[place] = 1
    return vector


class AxisEmbedder:
    """Gives every text the vector of its first letter."""

    dimensions = 8

    def __init__(self, model: str, known: float | None = None) -> None:
        self.model = model
        self.asked = 0
        if known is not None:
            self.knows = lambda text: self._known(known)

    async def _known(self, known: float) -> float:
        return known

    async def embed(self, texts: list[str]) -> Vector:
        return numpy.stack([axis(ord(text[0]) % 8) for text in texts])

    async def embed_query(self, text: str) -> Vector:
        self.asked += 1
        return axis(ord(text[0]) % 8)

    async def aclose(self) -> None:
        pass


class Indexes:
    def __init__(self, directory: Path) -> None:
        self.words = WordIndex.open(directory)
        self.vectors: dict[IndexKind, VectorIndex] = {"text": VectorIndex(8), "code": VectorIndex(8)}

    def put(self, chunk: int, kind: IndexKind, text: str, place: int) -> None:
        self.words.add([WordPassage(chunk, chunk, kind, "", "", text)])
        self.vectors[kind].add(numpy.array([chunk]), axis(place)[None])

    def ask(self, text: str, *kinds: IndexKind, place: int, **more: object) -> list[int]:
        vectors: Mapping[IndexKind, Vector] = dict.fromkeys(kinds, axis(place))
        return search(self.words, self.vectors, Question(text, kinds, vectors), **more).ids.tolist()  # type: ignore[arg-type]


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
    only = Restriction({2, 3}, numpy.array([2, 3]))
    assert set(indexes.ask("ship in the harbour", "text", place=0, only=only)) <= {2, 3}


def test_the_dead_are_found_neither_by_words_nor_by_vectors(indexes: Indexes) -> None:
    assert 1 not in indexes.ask("ship in the harbour", "text", place=0, alive=lambda ids: ids != 1)


def test_without_a_vector_words_alone_answer(indexes: Indexes) -> None:
    ranking = search(indexes.words, indexes.vectors, Question("harbour ship", ("text",), {}))
    assert ranking.ids.tolist() == [1]


def test_while_vectors_are_coming_an_exact_match_is_not_behind_what_has_one(indexes: Indexes) -> None:
    indexes.words.add([WordPassage(5, 5, "text", "", "", "the astrolabe stands in the cellar")])
    indexes.words.commit()
    assert indexes.ask("astrolabe in the cellar", "text", place=2)[0] == 5
    indexes.vectors["text"].add(numpy.array([5]), axis(4)[None])
    assert indexes.ask("astrolabe in the cellar", "text", place=2)[0] == 3, "its vector says that it is about bread"


def test_what_words_found_is_not_looked_for_again(indexes: Indexes) -> None:
    known = by_words(indexes.words, "bread", "text")
    assert known.ids.tolist() == [3]
    ranking = search(indexes.words, indexes.vectors, Question("harbour ship", ("text",), {}), worded={"text": known})
    assert ranking.ids.tolist() == [3]


def test_words_alone_keep_to_the_restriction_and_the_living(indexes: Indexes) -> None:
    assert by_words(indexes.words, "ship harbour", "text").ids.tolist() == [1]
    assert not len(by_words(indexes.words, "ship harbour", "text", only=Restriction({2}, numpy.array([2]))))
    assert not len(by_words(indexes.words, "ship harbour", "text", alive=lambda ids: ids != 1))


async def test_a_model_used_for_both_indexes_is_asked_once() -> None:
    embedder = AxisEmbedder("one")
    asked = await question("hello", ("text", "code"), {"text": embedder, "code": embedder})  # type: ignore[dict-item]
    assert embedder.asked == 1
    assert asked.comparable
    assert set(asked.vectors) == {"text", "code"}


async def test_vectors_of_two_models_are_not_comparable() -> None:
    embedders = {"text": AxisEmbedder("one"), "code": AxisEmbedder("two")}
    asked = await question("hello", ("text", "code"), embedders)  # type: ignore[arg-type]
    assert not asked.comparable


async def test_an_embedder_that_can_say_so_tells_how_far_it_knows_the_language() -> None:
    assert (await question("hola", ("text",), {"text": AxisEmbedder("one", known=0.2)})).known == 0.2  # type: ignore[dict-item]
    assert (await question("hola", ("text",), {"text": AxisEmbedder("one")})).known == 1.0  # type: ignore[dict-item]
