"""Prose is split at paragraphs, Markdown at headings, tables at rows; headings and header rows become the context."""

from __future__ import annotations

from itertools import pairwise

import pytest

from armarium.retrieval.chunker.document import chunk_document
from armarium.retrieval.chunks import ChunkLimits, ExtractedText, Structure
from armarium.retrieval.spans import LineSpan, PageSpan

SMALL = ChunkLimits(max_chars=200, overlap_chars=40, min_chars=20)


def cut(text: str, structure: Structure, limits: ChunkLimits = SMALL) -> list[tuple[str, str]]:
    return [(each.context, each.text) for each in chunk_document(ExtractedText(text, structure), limits)]


def contexts(text: str, limits: ChunkLimits = SMALL) -> list[str]:
    return [context for context, _ in cut(text, "markdown", limits)]


def body(word: str) -> str:
    return " ".join([word] * 12)


def test_paragraphs_are_gathered_and_not_cut_while_they_fit() -> None:
    paragraphs = [body(word) for word in ("alpha", "bravo", "charlie", "delta", "echo", "foxtrot")]
    chunks = [text for _, text in cut("\n\n".join(paragraphs), "plain")]
    assert chunks == ["\n\n".join(paragraphs[at : at + 2]) for at in (0, 2, 4)]


def test_a_blank_line_may_hold_spaces() -> None:
    first, second = body("alpha") + " alpha" * 12, body("bravo") + " bravo" * 12
    assert [text for _, text in cut(f"{first}\n \t\n{second}", "plain")] == [first, second]


def test_a_paragraph_that_is_too_long_is_cut_after_sentences_and_repeats_the_last() -> None:
    sentences = [f"Sentence number {number} is here." for number in range(20)]
    chunks = [text for _, text in cut(" ".join(sentences), "plain")]
    assert all(text.startswith("Sentence") and text.endswith(".") for text in chunks)
    assert all(chunk.split(". ")[-1].rstrip(".") in later for chunk, later in pairwise(chunks))


def test_lists_are_cut_between_items() -> None:
    items = [f"- item {number} that goes on\n  on a second line" for number in range(20)]
    chunks = cut("\n".join(items), "markdown", ChunkLimits(max_chars=200, overlap_chars=60, min_chars=20))
    assert all(text.startswith("- item") and text.endswith("second line") for _, text in chunks)


def test_the_rest_of_a_text_is_never_a_tiny_chunk() -> None:
    words = "word " * 41
    assert min(len(text) for _, text in cut(words, "plain")) >= 20


def test_letters_are_not_torn_from_their_accents() -> None:
    chunks = cut("e\u0301" * 500, "plain", ChunkLimits(max_chars=101, overlap_chars=10, min_chars=0))
    assert all(text.startswith("e") and text.endswith("\u0301") for _, text in chunks)


def test_sections_carry_the_path_of_their_headings() -> None:
    text = (
        f"# Guide\n\n{body('intro')}\n\n## Install ##\n\n{body('install')}\n\n"
        f"### [Linux](x.md) `apt`\n\n{body('linux')}\n\n"
        f"## Use\n\n{body('use')}\n"
    )
    assert contexts(text) == ["Guide", "Guide > Install", "Guide > Install > Linux apt", "Guide > Use"]


def test_underlined_headings_count_and_rules_and_table_lines_do_not() -> None:
    text = f"Guide\n=====\n\n{body('one')}\n\nUse\n---\n\n{body('two')}\n\n---\n\n| a | b |\n|---|---|\n| 1 | 2 |\n"
    assert contexts(text) == ["Guide", "Guide > Use"]


@pytest.mark.parametrize(("opening", "closing"), [("```sh", "```"), ("~~~", "~~~~"), ("````", "````")])
def test_what_looks_like_a_heading_in_fenced_code_is_none(opening: str, closing: str) -> None:
    text = (
        f"# Real\n\n{opening}\n# not one\n```sh\n## nor this\n{closing}\n\n{body('text')}\n\n# Next\n\n{body('next')}"
    )
    assert contexts(text) == ["Real", "Next"]


def test_front_matter_has_no_headings() -> None:
    text = f"---\ntitle: x\n# comment\ntags: [a]\n---\n\n# Real\n\n{body('text')}\n"
    assert contexts(text, ChunkLimits(max_chars=200, min_chars=0)) == ["", "Real"]


def test_tiny_sections_join_their_siblings_but_not_another_chapter() -> None:
    text = f"# A\n\n{body('alpha')}\n\n## One\n\nx\n\n## Two\n\ny\n\n# B\n\n{body('bravo')}\n"
    limits = ChunkLimits(max_chars=200, min_chars=40)
    assert cut(text, "markdown", limits) == [
        ("A", f"# A\n\n{body('alpha')}\n\n## One\n\nx\n\n## Two\n\ny"),
        ("B", f"# B\n\n{body('bravo')}"),
    ]


def test_a_heading_alone_goes_with_what_follows_it() -> None:
    text = f"# Guide\n\n## Install\n\n{body('install')}\n"
    assert cut(text, "markdown") == [("Guide > Install", text.rstrip())]


def test_every_chunk_of_a_long_section_has_its_path() -> None:
    text = "# Guide\n\n## Install\n\n" + "\n\n".join(body(f"w{number}") for number in range(20))
    found = contexts(text)
    assert len(found) > 3
    assert set(found) == {"Guide > Install"}


def test_headings_stay_in_force_on_the_next_page() -> None:
    pages = [f"# Guide\n\n{body('one')}\n", f"{body('two')}\n\n# Next\n\n{body('three')}\n"]
    extracted = ExtractedText("".join(pages), "markdown", page_starts=[0, len(pages[0])])
    found = [(each.context, each.span) for each in chunk_document(extracted, SMALL)]
    assert found == [("Guide", PageSpan(1)), ("Guide", PageSpan(2)), ("Next", PageSpan(2))]


def test_rows_stay_whole_and_the_header_goes_with_each_chunk_after_the_first() -> None:
    rows = [f"{number},name{number},{number * 7}" for number in range(60)]
    chunks = cut("id,name,score\n" + "\n".join(rows) + "\n", "rows")
    assert [context for context, _ in chunks] == ["", *["id,name,score"] * (len(chunks) - 1)]
    assert "\n".join(text for _, text in chunks).split("\n") == ["id,name,score", *rows]


@pytest.mark.parametrize("first", ['{"id": 1, "name": "a"}', "1,2,3", "just words"])
def test_a_first_line_that_is_no_header_is_no_context(first: str) -> None:
    assert {context for context, _ in cut(f"{first}\n" * 60, "rows")} == {""}


def test_a_chunk_is_cited_by_the_lines_it_stands_on() -> None:
    text = f"\n\n# A\n\n{body('alpha')}\n\n\n# B\n\n{body('bravo')}\n\n"
    assert [each.span for each in chunk_document(ExtractedText(text, "markdown"), SMALL)] == [
        LineSpan(3, 5),
        LineSpan(8, 10),
    ]
