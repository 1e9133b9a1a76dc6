"""The terms of texts and queries, and the detection of languages."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from armarium.retrieval.search.stop_words import STOP_WORDS
from armarium.retrieval.search.terms import index_text, is_lone_character, language_of, stop_words_for


def words(text: str) -> list[str]:
    return index_text(text).lower().replace("_", " ").split()


@pytest.mark.parametrize(
    "name", ["getUserName", "GetUserName", "get_user_name", "__get_user_name__", "test_getUserName"]
)
def test_an_identifier_is_found_by_its_parts(name: str) -> None:
    assert {"get", "user", "name"} <= set(words(name))


@pytest.mark.parametrize("name", ["getUserName", "get_user_name", "GET_USER_NAME"])
def test_an_identifier_is_found_however_it_is_written(name: str) -> None:
    assert "getusername" in words(name)


def test_a_run_of_capitals_ends_before_the_word_that_follows() -> None:
    assert {"http", "server"} <= set(words("class HTTPServer:"))


def test_prose_is_left_as_it_is() -> None:
    prose = "The panel, as of 1998, was shut: see 3.1 (below)."
    assert index_text(prose) == prose


def test_chinese_is_cut_in_pairs() -> None:
    assert words("我住在东京都。") == ["我住", "住在", "在东", "东京", "京都", "。"]


def test_korean_and_thai_are_cut_in_pairs_too() -> None:
    assert "검색" in words("검색엔진")
    assert "ภา" in words("ภาษา")


def test_a_single_chinese_character_stays_a_word() -> None:
    assert words("the 水 sign") == ["the", "水", "sign"]
    assert is_lone_character("水")
    assert not is_lone_character("水素")
    assert not is_lone_character("a")


def test_ligatures_full_width_letters_and_combining_marks_become_plain_letters() -> None:
    assert words("ﬁle ＡＢＣ cafe\u0301") == ["file", "abc", "café"]


def test_a_hindi_word_is_not_broken_by_its_marks() -> None:
    # The tokenizer ends a word at a virama.
    assert "\u094d" not in index_text("हिन्दी")
    assert len(words("हिन्दी")) == 1


@pytest.mark.parametrize(
    ("language", "text"),
    [
        ("english", "What is the name of the river that flows through the town?"),
        ("spanish", "¿Cuál es el nombre del río que pasa por la ciudad y los pueblos?"),
        ("german", "Wie heißt der Fluss, der durch die Stadt und das Tal fließt?"),
        ("french", "Quel est le nom du fleuve qui passe dans la ville et les villages ?"),
        ("italian", "Qual è il nome del fiume che passa per la città e gli altri paesi?"),
        ("portuguese", "Qual é o nome do rio que passa pela cidade e não pelos campos?"),
        ("dutch", "Hoe heet de rivier die manifest het dorp en de stad naar zee stroomt?"),
        ("russian", "Как называется река, которая течет в городе и на юге?"),
        ("turkish", "Bu nehir için en çok ne kadar su var ve hangi şehir daha büyük?"),
        ("english", "x = y + z"),
        ("english", ""),
    ],
)
def test_a_text_is_told_by_its_little_words(language: str, text: str) -> None:
    assert language_of(text) == language


def test_a_query_drops_the_little_words_of_its_own_language_and_of_the_texts() -> None:
    dropped = stop_words_for("Was ist der Name von dem Fluss und der Stadt?", "french")
    assert {"der", "und", "le", "les"} <= dropped
    assert "fluss" not in dropped


def test_little_words_are_lower_case() -> None:
    assert all(word == word.lower() for words in STOP_WORDS.values() for word in words)


@given(st.text())
def test_any_text_keeps_its_ascii_words(text: str) -> None:
    ascii_words = [word for word in text.lower().split() if word.isascii() and word.isalnum()]
    assert set(ascii_words) <= set(words(text))


@given(st.text(alphabet=st.characters(codec="utf-8")))
def test_any_text_can_be_encoded_again(text: str) -> None:
    index_text(text).encode()
    assert language_of(text) in STOP_WORDS
