"""The lexical index: results, their order, and what survives a restart."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from armarium.retrieval.chunks import IndexKind
from armarium.retrieval.errors import DamagedIndex, IndexBusy
from armarium.retrieval.search.lexical_index import LexicalChunk, LexicalIndex
from armarium.retrieval.search.stop_words import STOP_WORDS


def chunk(number: int, text: str, *, kind: IndexKind = "text", title: str = "", doc: int | None = None) -> LexicalChunk:
    return LexicalChunk(number, number if doc is None else doc, kind, title, "", text)


@pytest.fixture
def index(tmp_path: Path) -> Iterator[LexicalIndex]:
    index = LexicalIndex.open(tmp_path / "words")
    yield index
    index.close()


def fill(index: LexicalIndex, *chunks: LexicalChunk) -> None:
    index.add(chunks)
    index.commit()


def found(index: LexicalIndex, query: str, k: int = 10, *, kind: IndexKind | None = None, **more: object) -> list[int]:
    return index.search(query, k, kind=kind, **more).ids.tolist()  # type: ignore[arg-type]


def test_chunks_are_found_after_a_commit_and_not_before(index: LexicalIndex) -> None:
    index.add([chunk(1, "a boundary layer")])
    assert found(index, "boundary") == []
    index.commit()
    assert found(index, "boundary") == [1]


def test_endings_do_not_matter(index: LexicalIndex) -> None:
    fill(index, chunk(1, "He was indexing documents"), chunk(2, "nothing of it"))
    assert found(index, "document index") == [1]


def test_accents_do_not_matter(index: LexicalIndex) -> None:
    fill(index, chunk(1, "the café in Zürich"), chunk(2, "a bar"))
    assert found(index, "cafe") == found(index, "zurich") == [1]


@pytest.mark.parametrize("query", ["user name", "getUserName", "get_user_name"])
def test_an_identifier_is_found_by_its_words_and_by_either_spelling(index: LexicalIndex, query: str) -> None:
    fill(
        index,
        chunk(1, "def getUserName(self): ...", kind="code"),
        chunk(2, "def get_user_name(self): ...", kind="code"),
        chunk(3, "def close(self): ...", kind="code"),
    )
    assert sorted(found(index, query)) == [1, 2]


def test_an_identifier_written_out_comes_before_texts_with_only_its_parts(index: LexicalIndex) -> None:
    others = [chunk(number, "get the name of a user; the user has a name to get") for number in range(2, 12)]
    fill(index, chunk(1, "call get_user_name, and much more is said here of other things"), *others)
    assert found(index, "get_user_name")[0] == 1


def test_chinese_is_found_by_what_is_in_the_middle_of_a_sentence(index: LexicalIndex) -> None:
    fill(index, chunk(1, "我住在东京都的中心"), chunk(2, "他喜欢吃苹果"))
    assert found(index, "东京") == [1]
    assert found(index, "果") == []
    assert found(index, "苹") == [2]


def test_a_spanish_text_is_found_by_another_form_of_its_words(index: LexicalIndex) -> None:
    fill(
        index,
        chunk(1, "Los jugadores de la liga que cedieron los puntos en el campo fueron expulsados por el árbitro"),
        chunk(2, "Las casas de la ciudad son más altas que las de los pueblos y no tienen jardines"),
        chunk(3, "The players of the league were sent off"),
    )
    assert found(index, "¿Qué jugador fue expulsado?")[0] == 1
    assert found(index, "player leagues") == [3]


def test_words_in_the_title_count_more(index: LexicalIndex) -> None:
    fill(
        index,
        chunk(1, "turbines are mentioned here among pumps and valves and a great many other things"),
        chunk(2, "pumps and valves and a great many other things that are mentioned here", title="turbines"),
    )
    assert found(index, "turbine") == [2, 1]


def test_a_word_asked_for_twice_counts_twice(index: LexicalIndex) -> None:
    fill(index, chunk(1, "wing lift"), chunk(2, "flow heat"), chunk(3, "something else"))
    once = index.search("wing flow", 10)
    twice = index.search("flow wing flow", 10)
    assert once.scores[0] == pytest.approx(once.scores[1])
    assert twice.ids[0] == 2
    assert twice.scores[0] == pytest.approx(2 * twice.scores[1], rel=1e-4)


def test_little_words_are_dropped_unless_nothing_else_is_asked(index: LexicalIndex) -> None:
    fill(index, chunk(1, "to be or not to be"), chunk(2, "the river"))
    assert found(index, "what is the river") == [2]
    assert found(index, "to be") == [1]


def test_only_the_kind_asked_for_is_answered(index: LexicalIndex) -> None:
    fill(index, chunk(1, "parse the file"), chunk(2, "def parse(file): ...", kind="code"))
    assert found(index, "parse", kind="code") == [2]
    assert found(index, "parse", kind="text") == [1]
    assert sorted(found(index, "parse")) == [1, 2]


@pytest.mark.parametrize("documents", [{7}, range(7, 8), set(range(7, 4000, 1000))])
def test_a_narrow_filter_still_answers_all_it_can(index: LexicalIndex, documents: set[int]) -> None:
    fill(index, *(chunk(number, "the same flow everywhere", doc=number) for number in range(3000)))
    assert sorted(found(index, "flow", 10, documents=documents)) == sorted(each for each in documents if each < 3000)


def test_a_filter_of_more_documents_than_are_named_one_by_one_answers_alike(index: LexicalIndex) -> None:
    fill(index, *(chunk(number, "flow " * (1 + number % 7) + "and heat", doc=number) for number in range(4000)))
    wide = frozenset(range(1500, 4000))
    ids = found(index, "flow", 50, documents=wide)
    assert len(ids) == len(set(ids)) == 50
    assert set(ids) <= wide
    assert found(index, "flow", 50, documents=frozenset()) == []


def test_a_wide_filter_of_the_worst_hits_still_answers_them(tmp_path: Path) -> None:
    index = LexicalIndex.open(tmp_path / "index", max_oversampled_hits=1000)
    best = (chunk(number, "flow " * 5, doc=number) for number in range(3000))
    worst = (chunk(number, "flow and much else that is not it", doc=number) for number in range(3000, 6000))
    fill(index, *best, *worst)
    ids = found(index, "flow", 20, documents=frozenset(range(3000, 6000)))
    assert len(ids) == 20
    assert min(ids) >= 3000


@pytest.mark.parametrize("language", sorted(STOP_WORDS))
def test_every_language_we_can_tell_can_be_indexed_and_found(index: LexicalIndex, language: str) -> None:
    fill(index, chunk(1, " ".join(sorted(STOP_WORDS[language])) + " zeppelin"), chunk(2, "another text"))
    assert found(index, "zeppelin") == [1]


def test_removed_chunks_are_gone_after_a_commit(index: LexicalIndex) -> None:
    fill(
        index,
        chunk(1, "flow", doc=1),
        chunk(2, "flow", doc=1),
        chunk(3, "flow", doc=2),
        chunk(4, "flow", doc=3),
    )
    index.remove([1, 2, 4])
    index.commit()
    assert found(index, "flow") == [3]
    assert len(index) == 1


def test_a_chunk_can_be_replaced_in_one_commit(index: LexicalIndex) -> None:
    fill(index, chunk(1, "old words"))
    index.remove([1])
    index.add([chunk(1, "new words")])
    index.commit()
    assert found(index, "old") == []
    assert found(index, "new") == [1]


def test_an_index_is_the_same_after_it_was_opened_again(tmp_path: Path) -> None:
    index = LexicalIndex.open(tmp_path / "words")
    fill(index, chunk(1, "boundary layer"), chunk(2, "¿Qué es lo que hay en la casa de los perros?"))
    before = found(index, "perro"), found(index, "boundary")
    index.close()
    again = LexicalIndex.open(tmp_path / "words")
    assert (found(again, "perro"), found(again, "boundary")) == before == ([2], [1])
    assert len(again) == 2


def test_what_was_not_committed_is_lost(tmp_path: Path) -> None:
    index = LexicalIndex.open(tmp_path / "words")
    fill(index, chunk(1, "kept"))
    index.add([chunk(2, "lost")])
    index.close()
    assert len(LexicalIndex.open(tmp_path / "words")) == 1


def test_an_index_of_another_version_is_torn(tmp_path: Path) -> None:
    LexicalIndex.open(tmp_path / "words").close()
    (tmp_path / "words" / "format").write_text("0")
    with pytest.raises(DamagedIndex):
        LexicalIndex.open(tmp_path / "words")


@pytest.mark.parametrize("damage", ["cut", "gone", "meta"])
def test_a_damaged_index_is_torn(tmp_path: Path, damage: str) -> None:
    index = LexicalIndex.open(tmp_path / "words")
    fill(index, *(chunk(number, f"word{number} flow") for number in range(100)))
    index.close()
    del index
    victim = max((tmp_path / "words").glob("*.term" if damage != "meta" else "meta.json"))
    if damage == "gone":
        victim.unlink()
    else:
        victim.write_bytes(victim.read_bytes()[:40])
    with pytest.raises(DamagedIndex):
        LexicalIndex.open(tmp_path / "words")


def test_a_second_writer_is_told_that_the_index_is_busy(tmp_path: Path) -> None:
    first = LexicalIndex.open(tmp_path / "words")
    fill(first, chunk(1, "flow"))
    second = LexicalIndex.open(tmp_path / "words")
    assert found(second, "flow") == [1]
    with pytest.raises(IndexBusy):
        second.add([chunk(2, "flow")])


def test_threads_search_while_another_adds(index: LexicalIndex) -> None:
    fill(index, chunk(0, "flow"))
    failures: list[Exception] = []
    done = threading.Event()

    def look() -> None:
        seen = 0
        while not done.is_set():
            try:
                number = len(index.search("flow", 1000).ids)
            except Exception as error:  # noqa: BLE001 whatever it is, the test shall tell
                failures.append(error)
                return
            if number < seen:
                failures.append(AssertionError(f"{number} hits after {seen}"))
            seen = number

    lookers = [threading.Thread(target=look) for _ in range(3)]
    for looker in lookers:
        looker.start()
    for number in range(1, 21):
        fill(index, *(chunk(number * 100 + each, "the flow") for each in range(10)))
    done.set()
    for looker in lookers:
        looker.join()
    assert failures == []
    assert len(found(index, "flow", 1000)) == 201


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LexicalIndex]:
    index = LexicalIndex.open(tmp_path_factory.mktemp("shared") / "words")
    fill(index, chunk(1, "flow 水 x_y getName"), chunk(2, "¿Qué es lo que hay en la casa de los perros?"))
    yield index
    index.close()


@given(query=st.text(max_size=300))
@settings(max_examples=150, deadline=None)
def test_any_query_is_answered(shared: LexicalIndex, query: str) -> None:
    hits = shared.search(query, 5)
    assert set(hits.ids.tolist()) <= {1, 2}


def test_a_query_of_half_characters_and_one_of_a_megabyte_are_answered(shared: LexicalIndex) -> None:
    assert found(shared, "flow \ud800") == [1]
    assert found(shared, "flow " * 200_000) == [1]
    assert found(shared, "") == []
