"""Cuts a stretch of text that is too long for one passage, at the best place each window offers."""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence

from armarium.retrieval.chunker.limits import ChunkLimits

Stretch = tuple[int, int]
"""Where in the text something begins, and where it has ended."""
Boundary = Callable[[str, int, int, ChunkLimits], tuple[int, bool]]
"""Where to cut text[start:latest], and whether that cut goes through something that belongs together."""

_BLANK_LINES = re.compile(r"\s*\n")
# The greedy `.*` makes each of these find the last place in the window.
_LAST_SPACED_BLANK_LINE = re.compile(r"(?s:.*)\n[ \t]+\n")
_LINE_OF_ITS_OWN = re.compile(r"(?<=[.!?…。！？])\n|\n(?=[ \t]*(?:[-*+|]|\d{1,9}[.)]))")
_LAST_LINE_OF_ITS_OWN = re.compile(f"(?s:.*)(?:{_LINE_OF_ITS_OWN.pattern})")
_LAST_SENTENCE = re.compile(r"(?s:.*)(?:[.!?…][\"'”’)\]]*\s|[。！？])")
_LAST_SPACE = re.compile(r"(?s:.*)\s")
_LAST_UNINDENTED_BLOCK = re.compile(r"(?s:.*)\n[ \t]*\n(?=[^\s)\]}])")
_SENTENCE = re.compile(r"[.!?…][\"'”’)\]]*\s+|[。！？]")
_SPACE = re.compile(r"\s")
# What draws on the character before it: combining marks, joiners, variation selectors, skin tones.
_JOINED = re.compile(
    r"[\u0300-\u036f\u0483-\u0489\u0591-\u05bd\u064b-\u065f\u0900-\u0903\u093a-\u094f"
    r"\u0e31\u0e34-\u0e3a\u1ab0-\u1aff\u200d\u20d0-\u20ff\u3099\u309a\ufe00-\ufe0f\ufe20-\ufe2f"
    r"\U0001f3fb-\U0001f3ff\U000e0100-\U000e01ef]"
)
_MAX_JOINED = 16


def after_blank_lines(text: str, start: int, end: int) -> int:
    """Where the first line with anything on it begins; its indentation stays."""
    blank = _BLANK_LINES.match(text, start, end)
    return blank.end() if blank else start


def windows(text: str, start: int, end: int, limits: ChunkLimits, boundary: Boundary) -> Iterator[Stretch]:
    """Consecutive stretches of at most `max_chars` that together cover text[start:end]."""
    start = after_blank_lines(text, start, end)
    while end - start > limits.max_chars:
        # The last window leaves enough for the rest not to be tiny.
        latest = min(start + limits.max_chars, end - limits.least)
        cut, broken = boundary(text, start, latest, limits)
        yield start, cut
        start = _resumed(text, start, cut, limits.overlap_chars) if broken else after_blank_lines(text, cut, end)
    if start < end:
        yield start, end


def prose_boundary(text: str, start: int, latest: int, limits: ChunkLimits) -> tuple[int, bool]:
    """Between paragraphs; through a paragraph at a list item, table row, line or sentence, else between words."""
    earliest = start + limits.least
    cut = text.rfind("\n\n", earliest, latest)
    if cut >= 0:
        return cut + 1, False
    spaced = _LAST_SPACED_BLANK_LINE.match(text, earliest, latest)
    if spaced:
        return spaced.end(), False
    half = (start + latest) // 2
    own_line = _LAST_LINE_OF_ITS_OWN.match(text, half, latest)
    if own_line:
        return own_line.end(), True
    line = text.rfind("\n", half, latest)
    if line >= 0:
        return line + 1, True
    sentence = _LAST_SENTENCE.match(text, half, latest)
    return (sentence.end() if sentence else _between_words(text, half, latest)), True


def row_boundary(text: str, start: int, latest: int, limits: ChunkLimits) -> tuple[int, bool]:
    """After the last whole line; a line that alone is too long is cut between words."""
    if text[latest : latest + 1] == "\n":
        return latest, False
    line = text.rfind("\n", start, latest)
    if line >= 0:
        return line + 1, False
    return _between_words(text, (start + latest) // 2, latest), True


def line_windows(text: str, start: int, end: int, limits: ChunkLimits, line_starts: Sequence[int]) -> Iterator[Stretch]:
    """Windows over code whose structure is not known: whole lines, cut before unindented blocks or at blank lines."""
    while True:
        start = after_blank_lines(text, start, end)
        past_lines = bisect_right(line_starts, start) - 1 + limits.code_max_lines
        latest = min(start + limits.max_chars, line_starts[past_lines] if past_lines < len(line_starts) else end)
        if latest >= end:
            break
        half = (start + latest) // 2
        block = _LAST_UNINDENTED_BLOCK.match(text, half, min(latest + 1, end))
        if block and start < block.end() <= latest:
            yield start, block.end()
            start = block.end()
            continue
        line = text.rfind("\n\n", half, latest)
        if line < 0:
            line = text.rfind("\n", half, latest)
        if line < 0:
            cut = _between_words(text, half, latest)
            yield start, cut
            start = _resumed(text, start, cut, limits.overlap_chars)
            continue
        yield start, line + 1
        start = _resumed_line(start, line + 1, limits, line_starts)
    if start < end:
        yield start, end


def _between_words(text: str, earliest: int, latest: int) -> int:
    space = _LAST_SPACE.match(text, earliest, latest)
    if space:
        return space.end()
    cut = latest
    for _ in range(_MAX_JOINED):
        if cut <= earliest + 1:
            return latest
        if not _JOINED.match(text, cut) and text[cut - 1] != "\u200d":
            return cut
        cut -= 1
    return latest


def _resumed(text: str, start: int, cut: int, overlap: int) -> int:
    """Where the window after `cut` begins: before it, at a line, sentence or word, but never less than half way on."""
    earliest = max(cut - overlap, (start + cut + 1) // 2)
    if earliest >= cut - 1:
        return cut
    # With the character after the break in sight, which tells a list item from any other line.
    own_line = _LINE_OF_ITS_OWN.search(text, earliest, cut)
    if own_line and own_line.end() < cut:
        return own_line.end()
    line = text.find("\n", earliest, cut - 1)
    if line >= 0:
        return line + 1
    found = _SENTENCE.search(text, earliest, cut - 1) or _SPACE.search(text, earliest, cut - 1)
    if found:
        return found.end()
    while earliest < cut and _JOINED.match(text, earliest):
        earliest += 1
    return earliest


def _resumed_line(start: int, cut: int, limits: ChunkLimits, line_starts: Sequence[int]) -> int:
    earliest = max(cut - limits.overlap_chars, (start + cut + 1) // 2)
    cut_row = bisect_left(line_starts, cut)
    row = max(bisect_left(line_starts, earliest), cut_row - limits.code_overlap_lines)
    return line_starts[row] if row < cut_row else cut
