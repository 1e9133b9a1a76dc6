"""The sentences that an extractive answer quotes."""

from __future__ import annotations

from armarium.retrieval.search.quotes import Quotable, best_sentences


def test_sentences_with_words_of_the_question_are_chosen_in_the_order_of_their_chunks() -> None:
    chunks = [
        Quotable("The boat comes on Mondays. The lamp is lit at dusk."),
        Quotable("A lamp burns oil. Nothing else does."),
    ]
    assert best_sentences("When is the lamp lit?", chunks) == [
        (0, "The lamp is lit at dusk."),
        (1, "A lamp burns oil."),
    ]


def test_without_a_word_of_the_question_nothing_is_chosen() -> None:
    assert best_sentences("When is the lamp lit?", [Quotable("Bread arrives weekly.")]) == []


def test_code_is_quoted_as_code() -> None:
    ((place, quote),) = best_sentences("rotate lens", [Quotable("def rotate_lens():\n    turn()", is_code=True)])
    assert (place, quote) == (0, "`def rotate_lens(): turn()`")


def test_what_must_not_stand_in_a_quotation_is_cleaned_out_of_it() -> None:
    chosen = best_sentences("lamp", [Quotable("The lamp [1] burns.")], lambda text: text.replace("[1]", ""))
    assert chosen == [(0, "The lamp  burns.")]


def test_what_stands_directly_under_a_heading_is_quoted_without_it() -> None:
    for text in (
        "# Lamp\nThe lamp is lit at dusk.",
        "## Lamp ##\nThe lamp is lit at dusk.\n## Boat\nIt comes on Mondays.",
        "Lamp\n====\nThe lamp is lit at dusk.",
        "Before.\n\nLamp\n----\nThe lamp is lit at dusk.",
    ):
        assert best_sentences("When is the lamp lit?", [Quotable(text)]) == [(0, "The lamp is lit at dusk.")]


def test_a_heading_alone_is_no_sentence() -> None:
    assert best_sentences("When is the lamp lit?", [Quotable("# The lamp is lit\n\nLamp\n====\n")]) == []
