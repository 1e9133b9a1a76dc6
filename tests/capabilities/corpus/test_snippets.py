"""A snippet is a short part of its chunk that shows the words of the query."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from armarium.capabilities.corpus.query.snippets import snippet

LONGEST = 600
FILLER = "Rain fell on the quay and nothing else was noted that day. "


def bare(shown: str) -> str:
    return shown.removeprefix("… ").removesuffix(" …")


def test_a_short_chunk_is_shown_whole() -> None:
    text = "# Fog\n\nThe horn sounds.\n"
    assert snippet("lamp", text) == text


def test_a_long_chunk_is_shown_from_where_the_words_of_the_query_are() -> None:
    lines = [f"{number}: {FILLER}" for number in range(40)]
    lines[30] = "30: the horn sounds every two minutes in fog"
    shown = snippet("how often does the horn sound", "\n".join(lines))
    assert "30: the horn sounds" in shown
    assert "\n1: " not in shown


def test_words_deep_in_one_long_line_are_shown() -> None:
    text = FILLER * 30 + "The horn sounds every two minutes in fog. " + FILLER * 10
    shown = snippet("how often does the horn sound", text)
    assert "The horn sounds every two minutes" in shown
    assert len(shown) <= LONGEST + 4
    assert bare(shown) in text


def test_words_deep_in_a_line_without_any_sentence_are_shown() -> None:
    row = " ".join(f"value{number}" for number in range(400)).replace("value300", "horn sounds")
    assert "horn sounds" in snippet("horn sounds", row)


def test_words_that_come_together_count_more_than_words_that_come_first() -> None:
    text = "horn\n" + FILLER * 12 + "\nThe horn sounds when fog comes.\n" + FILLER * 12
    assert "The horn sounds when fog comes." in snippet("horn sounds in fog", text)


def test_a_chunk_without_any_word_of_the_query_is_shown_from_its_beginning() -> None:
    assert snippet("zebra", FILLER * 40).startswith(FILLER)


@given(st.text(max_size=40), st.text(st.sampled_from("ab horn.\n\t\r\u2028é漢"), max_size=3000))
def test_whatever_the_chunk_is_the_snippet_is_a_piece_of_it_and_short(query: str, text: str) -> None:
    shown = snippet(query, text)
    assert len(shown) <= LONGEST + 4
    assert bare(shown) in text


@pytest.mark.parametrize("query", ["to be parsed", "Parser, parse_args and of", "arg"])
def test_a_long_query_cuts_as_a_short_one_does(query: str) -> None:
    text = Path(argparse.__file__).read_text()
    windows = [text[start : start + 2500] for start in range(0, len(text), 2500)]
    expected = [snippet(query, window) for window in windows]
    # Words that do not occur make it so long that the stems are looked up instead of searched for with one pattern.
    long_query = " ".join([query, *(f"zq{number:03}" for number in range(100))])
    assert [snippet(long_query, window) for window in windows] == expected
