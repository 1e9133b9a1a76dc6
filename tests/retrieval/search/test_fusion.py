"""Rank fusion of lexical and vector results, and removal of near-duplicates."""

from __future__ import annotations

from collections.abc import Sequence

import numpy
import pytest
from hypothesis import given
from hypothesis import strategies as st

from armarium.retrieval.search.fusion import Candidates, Ranking, fuse, vector_weight
from armarium.retrieval.search.hit_order import distinct


def ranking(scores: dict[int, float]) -> Ranking:
    order = sorted(scores, key=lambda chunk: -scores[chunk])
    return Ranking(numpy.array(order, numpy.int64), numpy.array([scores[chunk] for chunk in order], numpy.float32))


NOTHING = ranking({})


def fused(
    words: dict[int, float], vectors: dict[int, float], weight: float = 0.5, chunk_count: int = 1000
) -> list[int]:
    return fuse([Candidates(ranking(words), ranking(vectors), weight)], chunk_count=chunk_count).ids.tolist()


def test_what_both_sides_find_comes_first() -> None:
    words = {1: 9.0, 2: 8.8} | {chunk: 9.0 - chunk / 20 for chunk in range(10, 60)}
    vectors = {4: 0.8, 2: 0.79} | {chunk: 0.8 - chunk / 200 for chunk in range(50, 100)}
    assert fused(words, vectors)[0] == 2


def test_nothing_found_is_nothing_fused() -> None:
    assert fused({}, {}) == []


def test_one_side_alone_keeps_its_order() -> None:
    assert fused({3: 5.0, 1: 4.0, 2: 1.0}, {}) == [3, 1, 2]
    assert fused({}, {3: 0.9, 1: 0.8, 2: 0.1}) == [3, 1, 2]


def test_the_weight_decides_between_sides_that_disagree() -> None:
    words, vectors = {1: 9.0, 2: 3.0, 3: 2.0}, {4: 0.9, 5: 0.5, 6: 0.4}
    assert fused(words, vectors, weight=0.9, chunk_count=3)[0] == 4
    assert fused(words, vectors, weight=0.1, chunk_count=3)[0] == 1


def test_a_hit_that_stands_out_counts_more_than_the_first_among_equals() -> None:
    one_stands_out = {1: 30.0} | {chunk: 5.0 + chunk / 1000 for chunk in range(2, 102)}
    all_alike = {chunk: 0.5 + chunk / 1000 for chunk in range(201, 301)}
    assert fused(one_stands_out, all_alike)[0] == 1


def test_the_only_chunk_with_one_of_the_words_does_not_outdo_the_best_of_the_vectors() -> None:
    nearest = {chunk: 0.9 - chunk / 100 for chunk in range(2, 62)}
    assert set(fused({1: 3.0}, nearest, weight=0.6)[:2]) == {1, 2}
    assert fused({1: 3.0}, nearest, weight=0.9)[:3] == [2, 3, 4]


def test_what_has_no_vector_yet_is_judged_by_its_words_and_what_has_one_by_both() -> None:
    words, vectors = ranking({1: 9.0, 2: 3.0}), ranking({3: 0.2, 4: 0.19, 5: 0.1})

    def merged(*embedded: bool) -> Ranking:
        return fuse([Candidates(words, vectors, 0.9, numpy.array(embedded))], chunk_count=1000)

    assert merged(True, True).ids.tolist()[0] == 3
    assert merged(False, True).ids.tolist()[0] == 1
    assert merged(False, True).scores[0] == pytest.approx(1)
    alone = fuse([Candidates(words, NOTHING, 0.9)], chunk_count=1000)
    weak = merged(True, False)
    assert weak.scores[weak.ids == 2] == pytest.approx(alone.scores[alone.ids == 2])


def test_a_vector_that_came_while_searching_counts() -> None:
    found = Candidates(ranking({1: 9.0, 2: 3.0}), ranking({1: 0.1, 3: 0.9}), 0.9, numpy.array([False, True]))
    assert fuse([found], chunk_count=1000).ids.tolist()[0] == 3


def test_scores_are_between_0_and_1_and_1_is_the_best_of_both_sides_at_a_cosine_of_1() -> None:
    merged = fuse([Candidates(ranking({1: 9.0, 2: 1.0}), ranking({1: 1.0, 3: 0.1}), 0.5)], chunk_count=1000)
    assert merged.scores[0] == pytest.approx(1)
    assert merged.scores.min() >= 0


@given(
    words=st.dictionaries(st.integers(1, 60), st.floats(0.125, 40, width=32), max_size=40),
    vectors=st.dictionaries(st.integers(1, 60), st.floats(-1, 1, width=32), max_size=40),
    weight=st.floats(0, 1),
    chunk_count=st.integers(0, 100),
    waiting=st.sets(st.integers(1, 60)),
)
def test_every_hit_is_ranked_once_with_a_sound_score(
    words: dict[int, float], vectors: dict[int, float], weight: float, chunk_count: int, waiting: set[int]
) -> None:
    by_words = ranking(words)
    embedded = numpy.array([chunk not in waiting for chunk in by_words.ids.tolist()], numpy.bool_)
    merged = fuse([Candidates(by_words, ranking(vectors), weight, embedded)], chunk_count=chunk_count)
    assert sorted(merged.ids.tolist()) == sorted(words.keys() | vectors.keys())
    assert numpy.isfinite(merged.scores).all()
    assert (numpy.diff(merged.scores) <= 0).all()
    assert merged.scores.min(initial=0) >= -1e-6
    assert merged.scores.max(initial=1) <= 1 + 1e-6


def test_an_index_with_nothing_on_the_subject_stays_behind_the_other() -> None:
    text = Candidates(ranking({1: 20.0, 2: 15.0}), ranking({1: 0.9, 2: 0.85, 3: 0.8}), 0.57)
    code = Candidates(ranking({11: 1.0}), ranking({11: 0.3, 12: 0.29, 13: 0.28}), 0.92)
    assert fuse([text, code], chunk_count=100).ids.tolist()[:3] == [1, 2, 3]
    assert fuse([code, text], chunk_count=100).ids.tolist()[:3] == [1, 2, 3]


def test_each_index_is_normalised_on_its_own_and_keeps_the_order_it_has_alone() -> None:
    text = Candidates(
        ranking({n: 20.0 - n for n in range(1, 11)}), ranking({n: 0.9 - n / 50 for n in range(3, 14)}), 0.57
    )
    code = Candidates(
        ranking({n: 14.0 - n / 9 for n in range(21, 30)}), ranking({n: 0.8 - n / 99 for n in range(25, 35)}), 0.92
    )
    merged = fuse([text, code], chunk_count=100).ids.tolist()
    assert [chunk for chunk in merged if chunk < 20] == fuse([text], chunk_count=100).ids.tolist()
    assert [chunk for chunk in merged if chunk > 20] == fuse([code], chunk_count=100).ids.tolist()


def test_a_small_index_beside_a_large_one_does_not_hide_its_hits() -> None:
    code = Candidates(
        ranking({n: 12.0 - n / 10 for n in range(1, 80)}), ranking({n: 0.85 - n / 300 for n in range(1, 100)}), 0.9
    )
    readme = Candidates(ranking({200: 2.0}), ranking({200: 0.6, 201: 0.58}), 0.55)
    assert fuse([readme, code], chunk_count=500).ids.tolist()[:10] == list(range(1, 11))


def test_a_query_that_nothing_fits_gets_no_high_score() -> None:
    fitting = fuse([Candidates(ranking({1: 9.0}), ranking({1: 0.85, 2: 0.6}), 0.55)], chunk_count=100)
    nonsense = fuse([Candidates(NOTHING, ranking({1: 0.6, 2: 0.58}), 0.155)], chunk_count=100)
    assert fitting.scores[0] > 0.8
    assert nonsense.scores[0] < 0.2


def test_words_without_vectors_lose_nothing_of_their_score() -> None:
    assert fuse([Candidates(ranking({1: 9.0, 2: 1.0}), NOTHING, 0.55)], chunk_count=100).scores[0] == pytest.approx(1)


def test_cosines_of_different_models_are_not_compared() -> None:
    text = Candidates(NOTHING, ranking({1: 0.95, 2: 0.94, 3: 0.93}), 1.0)
    code = Candidates(NOTHING, ranking({11: 0.5, 12: 0.2, 13: 0.1}), 1.0)
    assert fuse([text, code], chunk_count=100).ids.tolist()[0] == 1
    assert 11 in fuse([text, code], chunk_count=100, same_model=False).ids.tolist()[:2]


def test_vectors_count_most_for_code_least_for_languages_the_model_does_not_know() -> None:
    assert vector_weight("code") > vector_weight("text")
    assert vector_weight("code", has_identifier=True) < vector_weight("code")
    weights = [vector_weight("text", confidence=confidence) for confidence in (0.0, 0.3, 0.6, 1.0)]
    assert weights == sorted(weights)
    assert 0 < weights[0] < 0.2


LICENCE = "Permission is hereby granted, free of charge, to any person obtaining a copy of this software " * 5


@pytest.mark.parametrize(
    ("texts", "kept"),
    [
        (["one two three four", "one  two\nthree four"], [0]),
        ([LICENCE, LICENCE.replace("any person", "anybody", 1), "another text altogether, on ships"], [0, 2]),
        (["def a(): return 1", "def b(): return 2"], [0, 1]),
        (["x", "x", "y"], [0, 2]),
        (["", "", "---"], [0, 2]),
    ],
)
def test_near_duplicates_are_listed_once(texts: Sequence[str], kept: list[int]) -> None:
    assert distinct(texts, 10) == kept


def test_a_long_text_that_contains_a_short_one_is_not_its_duplicate() -> None:
    assert distinct([LICENCE, LICENCE + " ".join(f"and{n} more{n} of it" for n in range(200))], 10) == [0, 1]


def test_no_more_are_listed_than_asked_for() -> None:
    assert distinct([f"text number {number} is on subject {number}" for number in range(20)], 3) == [0, 1, 2]


@given(st.lists(st.text(max_size=30), max_size=12))
def test_the_first_of_any_texts_is_always_listed(texts: list[str]) -> None:
    kept = distinct(texts, 12)
    assert kept == sorted(set(kept))
    assert kept[:1] == ([0] if texts else [])
