"""Chunks are exact slices of the bytes, whatever the bytes are."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from armarium.capabilities.store.index.chunker import MOST_BYTES, ByteChunk, split_chunks

PROSE = "A sentence that says something. Another one follows it! Does a third? Yes."


def is_left_out(content: bytes, start: int, end: int) -> bool:
    """Whether nothing between two places could be in a chunk."""
    return not content[start:end].decode("utf-8", "ignore").replace("\0", "").strip()


def check(content: bytes, found: list[ByteChunk]) -> None:
    covered = 0
    for chunk in found:
        assert chunk.text.encode() == content[chunk.start : chunk.end]
        assert 0 < chunk.end - chunk.start <= MOST_BYTES
        assert chunk.text.strip()
        assert "\0" not in chunk.text
        assert is_left_out(content, covered, max(covered, chunk.start))
        assert chunk.end > covered
        covered = chunk.end
    assert is_left_out(content, covered, len(content))


texts = st.text() | st.lists(
    st.sampled_from([PROSE, "\n", "\n\n", "  ", "x" * 700, "漢字" * 300, "。", "\0", "é"])
).map("".join)


@pytest.mark.contract("S7-6", "S11.3-1")
@given(texts)
def test_chunks_are_slices_that_leave_nothing_out(text: str) -> None:
    content = text.encode()
    check(content, split_chunks(content))


@given(st.lists(st.binary(max_size=20) | texts.map(str.encode)).map(b"".join))
def test_bytes_that_are_no_text_are_left_out_and_the_rest_is_not(content: bytes) -> None:
    check(content, split_chunks(content))


@given(st.lists(st.sampled_from([PROSE, PROSE + "\n", "\n\n", "漢字" * 80]), min_size=20).map("".join), texts)
def test_what_is_appended_leaves_all_but_the_last_chunks_as_they_are(text: str, more: str) -> None:
    before, after = split_chunks(text.encode()), split_chunks((text + more).encode())
    untouched = [chunk for chunk in before if chunk.end < len(text.encode()) - MOST_BYTES]
    assert after[: len(untouched)] == untouched


def test_a_short_file_is_one_chunk() -> None:
    assert split_chunks(PROSE.encode()) == [ByteChunk(0, len(PROSE), PROSE)]


@pytest.mark.parametrize("content", ["", " ", "\n\t \n", "\0", " " * 5000])
def test_a_file_without_a_word_has_no_chunks(content: str) -> None:
    assert split_chunks(content.encode()) == []


@pytest.mark.parametrize(
    ("piece", "end"),
    [
        (f"{PROSE}\n\n", "\n\n"),
        (f"{PROSE}\n", "\n"),
        (f"{PROSE} ", (". ", "! ", "? ")),
        ("word ", " "),
        ("これは文です。", "。"),
    ],
)
def test_chunks_end_where_paragraphs_lines_sentences_or_words_do(piece: str, end: str | tuple[str, ...]) -> None:
    found = split_chunks((piece * 2000).encode())
    assert len(found) > 5
    assert all(chunk.text.endswith(end) for chunk in found[:-1])


def test_a_chunk_begins_a_little_before_the_last_one_ends_with_a_whole_sentence() -> None:
    found = split_chunks(f"{PROSE} ".encode() * 200)
    for before, after in pairwise(found):
        assert 50 <= before.end - after.start <= 250
        assert after.text.startswith(("A sentence", "Another", "Does", "Yes"))


def test_ten_megabytes_in_one_line_are_cut_between_characters() -> None:
    content = "é€𝄞x".encode() * 1_000_000
    found = split_chunks(content)
    assert len(found) > 5000
    assert all(chunk.text.encode() == content[chunk.start : chunk.end] for chunk in found)
    assert (found[0].start, found[-1].end) == (0, len(content))
