"""Words of chunks and of queries meet, however they are written."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from armarium.capabilities.store.index.chunker import MOST_QUERY_WORDS, chunk_terms, query_terms

GERMAN = "Die Häuser in der Stadt wurden von den Gemeinden verkauft, weil sie nicht mehr gebraucht wurden."


@pytest.mark.parametrize(
    ("chunk", "query"),
    [
        ("The houses were sold", "house"),
        ("def getUserName(): ...", "user name"),
        ("call get_user_name here", "getUserName"),
        ("Crème brûlée", "creme brulee"),
        ("東京都の天気", "天気"),
        ("吾輩は猫である", "猫"),
        (GERMAN, "Haus"),
        (GERMAN, "Gemeinde"),
    ],
)
def test_a_query_finds_the_words_of_a_chunk(chunk: str, query: str) -> None:
    terms = chunk_terms(chunk)
    assert set(query_terms(query, [terms.language])) & set(terms.counts)


def test_words_are_counted() -> None:
    terms = chunk_terms("Tree, trees; a TREE and grass")
    assert terms.counts["tree"] == 3
    assert (terms.length, terms.language) == (6, "english")


def test_little_words_are_not_looked_for_unless_there_are_no_others() -> None:
    assert query_terms("what is the weather", ["english"]) == ["weather"]
    assert query_terms("to be or not to be", ["english"])


def test_a_chunk_of_any_language_is_asked_for_in_its_own_stems() -> None:
    assert chunk_terms(GERMAN).language == "german"
    assert "haus" not in query_terms("Häuser", ["english"])
    assert "haus" in query_terms("Häuser", ["english", "german"])


def test_a_query_without_a_letter_has_no_terms() -> None:
    assert query_terms("!?", ["english"]) == []


def test_of_a_long_query_the_first_words_count() -> None:
    assert len(query_terms(" ".join(f"w{number}" for number in range(1000)), ["english"])) == MOST_QUERY_WORDS


@given(st.text())
def test_any_text_has_words_that_the_database_can_keep(text: str) -> None:
    terms = chunk_terms(text.replace("\0", ""))
    assert all("\0" not in stem and count > 0 for stem, count in terms.counts.items())
    assert not any("\0" in stem for stem in query_terms(text, ["english"]))
