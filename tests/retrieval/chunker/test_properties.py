"""Properties of the chunker: no text is lost, no chunk is too long, every span names the lines of its chunk."""

from __future__ import annotations

from itertools import pairwise
from typing import get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from armarium.retrieval.chunker.document import chunk_document
from armarium.retrieval.chunker.grammars import GRAMMARS
from armarium.retrieval.chunks import Chunk, ChunkLimits, ExtractedText, Structure
from armarium.retrieval.spans import LineSpan, PageSpan

STRUCTURES: list[Structure] = list(get_args(Structure))
FRAGMENTS = [
    "\n", "\n\n", "\n \n", "  ", "\t", " ", "x", "word", "Ein Satz. ", "本日は晴天。", "e\u0301", "👩‍👩‍👧", "\u2028",
    "\x0c", "# Title\n", "\n## Sub ##\n", "\nTitle\n=====\n", "\n---\n", "```\n", "\n~~~ sh\n",
    "---\nkey: value\n---\n",
    "- item\n", "| a | b |\n", "name,age\n", '{"a": 1}\n', "def f(x):\n    return x\n", "class A:\n    pass\n",
    "    def m(self):\n        pass\n", "function f() {\n", "}\n", "{", "/* c */", "// c\n", "# c\n",
    '"', "'", "(", ")",
    "@d\n", "#[a]\n", "import os\n", "x = [\n1,\n]\n", "if x {\n", "é = 'ß'\n", "struct S {\n", "end\n",
    "y" * 90, "z " * 60,
]  # fmt: skip
TEXTS = st.lists(st.sampled_from(FRAGMENTS) | st.text(max_size=8), max_size=60).map(
    lambda parts: "".join(parts).replace("\r", "").replace("\0", "").encode(errors="ignore").decode()
)
LIMITS = st.builds(
    ChunkLimits,
    max_chars=st.integers(1, 200),
    overlap_chars=st.integers(0, 250),
    min_chars=st.integers(0, 250),
    code_max_lines=st.integers(1, 20),
    code_overlap_lines=st.integers(0, 25),
)
LANGUAGES = st.sampled_from([None, "unheard-of", *sorted(GRAMMARS)])


def check(extracted: ExtractedText, chunks: list[Chunk], limits: ChunkLimits) -> None:
    text = extracted.text
    lines = text.split("\n")
    covered = bytearray(len(text))
    for each in chunks:
        assert each.text == text[each.start : each.end]
        assert each.text.strip()
        assert len(each.text) <= limits.max_chars
        assert each.index_kind == ("code" if extracted.structure == "code" else "text")
        covered[each.start : each.end] = b"\1" * (each.end - each.start)
        if extracted.page_starts is None and extracted.source_lines is None:
            assert isinstance(each.span, LineSpan)
            named = "\n".join(lines[each.span.start - 1 : each.span.end])
            assert each.text in named
            assert each.span.end - each.span.start == each.text.count("\n")
            assert each.span.start == text.count("\n", 0, each.start) + 1
    assert all(first.start < second.start and first.end <= second.end for first, second in pairwise(chunks))
    assert all(covered[at] or character.isspace() for at, character in enumerate(text))


@pytest.mark.parametrize("structure", STRUCTURES)
@given(text=TEXTS, limits=LIMITS, language=LANGUAGES)
@settings(max_examples=150, deadline=None)
def test_every_character_is_in_a_chunk_of_bounded_length_on_the_lines_it_names(
    structure: Structure, text: str, limits: ChunkLimits, language: str | None
) -> None:
    extracted = ExtractedText(text, structure, language)
    check(extracted, chunk_document(extracted, limits), limits)


@pytest.mark.parametrize("structure", STRUCTURES)
@given(pages=st.lists(TEXTS, min_size=1, max_size=4), limits=LIMITS)
@settings(max_examples=60, deadline=None)
def test_no_chunk_crosses_a_page(structure: Structure, pages: list[str], limits: ChunkLimits) -> None:
    starts = [sum(map(len, pages[:number])) for number in range(len(pages))]
    extracted = ExtractedText("".join(pages), structure, "python", page_starts=starts)
    chunks = chunk_document(extracted, limits)
    check(extracted, chunks, limits)
    for each in chunks:
        assert isinstance(each.span, PageSpan)
        page_start = starts[each.span.number - 1]
        assert page_start <= each.start
        assert each.end <= page_start + len(pages[each.span.number - 1])


@pytest.mark.parametrize("structure", STRUCTURES)
@given(text=TEXTS, limits=LIMITS, drawn=st.data())
@settings(max_examples=60, deadline=None)
def test_spans_name_the_lines_of_the_file_that_the_lines_of_the_text_came_from(
    structure: Structure, text: str, limits: ChunkLimits, drawn: st.DataObject
) -> None:
    count = text.count("\n") + 1
    firsts = drawn.draw(st.lists(st.integers(1, 500), min_size=count, max_size=count))
    source_lines = [(first, first + index % 3) for index, first in enumerate(firsts)]
    extracted = ExtractedText(text, structure, "javascript", source_lines=source_lines)
    chunks = chunk_document(extracted, limits)
    check(extracted, chunks, limits)
    for each in chunks:
        assert isinstance(each.span, LineSpan)
        first = text.count("\n", 0, each.start)
        came_from = source_lines[first : first + each.text.count("\n") + 1]
        assert each.span == LineSpan(min(line for line, _ in came_from), max(line for _, line in came_from))


@pytest.mark.parametrize("structure", STRUCTURES)
@pytest.mark.parametrize("text", ["", "\n", "\n\n\n\n", " \n\t\n", "   "])
def test_a_text_without_anything_in_it_has_no_chunks(structure: Structure, text: str) -> None:
    assert chunk_document(ExtractedText(text, structure, "python"), ChunkLimits()) == []


@pytest.mark.parametrize("structure", STRUCTURES)
def test_a_very_long_line_is_cut_by_characters_and_cited_by_that_line(structure: Structure) -> None:
    text = "a = 1\n" + "x" * 30_000 + "\nb = 2\n"
    extracted = ExtractedText(text, structure, "javascript")
    chunks = chunk_document(extracted, ChunkLimits())
    check(extracted, chunks, ChunkLimits())
    assert LineSpan(2, 2) in [each.span for each in chunks]


def test_a_line_as_long_as_the_largest_file_is_cut_like_any_other() -> None:
    limits = ChunkLimits()
    text = "word " * 3_000_000
    chunks = chunk_document(ExtractedText(text), limits)
    assert {each.span for each in chunks} == {LineSpan(1, 1)}
    assert all(each.text == text[each.start : each.end] and len(each.text) <= limits.max_chars for each in chunks)
    # What lies between two chunks is at most the space between two words.
    assert all(first.start < second.start <= first.end + 1 for first, second in pairwise(chunks))
    assert (chunks[0].start, text[chunks[-1].end :].strip()) == (0, "")
