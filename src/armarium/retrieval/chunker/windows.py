"""Splits text that is too long for one chunk into windows, at the best boundary of each."""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence

from armarium.retrieval.chunks import ChunkLimits

TextRange = tuple[int, int]
"""Start and end offsets in the text."""
Boundary = Callable[[str, int, int, ChunkLimits], tuple[int, bool]]
"""Where to split text[start:latest], and whether the split is inside a unit such as a paragraph."""

_BLANK_LINES = re.compile(r"\s*\n")
# The greedy `.*` finds the last match in the window.
_LAST_SPACED_BLANK_LINE = re.compile(r"(?s:.*)\n[ \t]+\n")
_LINE_OF_ITS_OWN = re.compile(r"(?<=[.!?…。！？])\n|\n(?=[ \t]*(?:[-*+|]|\d{1,9}[.)]))")
_LAST_LINE_OF_ITS_OWN = re.compile(f"(?s:.*)(?:{_LINE_OF_ITS_OWN.pattern})")
_LAST_SENTENCE = re.compile(r"(?s:.*)(?:[.!?…][\"'”’)\]]*\s|[。！？])")
_LAST_SPACE = re.compile(r"(?s:.*)\s")
_LAST_UNINDENTED_BLOCK = re.compile(r"(?s:.*)\n[ \t]*\n(?=[^\s)\]}])")
_SENTENCE = re.compile(r"[.!?…][\"'”’)\]]*\s+|[。！？]")
_SPACE = re.compile(r"\s")
# Characters that modify the previous one: combining marks, joiners, variation selectors, skin tones.
_JOINED = re.compile(
    r"[\u0300-\u036f\u0483-\u0489\u0591-\u05bd\u064b-\u065f\u0900-\u0903\u093a-\u094f"
    r"\u0e31\u0e34-\u0e3a\u1ab0-\u1aff\u200d\u20d0-\u20ff\u3099\u309a\ufe00-\ufe0f\ufe20-\ufe2f"
    r"\U0001f3fb-\U0001f3ff\U000e0100-\U000e01ef]"
)
_MAX_JOINED = 16


def after_blank_lines(text: str, start: int, end: int) -> int:
    """The start of the first line that is not blank, before its indentation."""
    blank = _BLANK_LINES.match(text, start, end)
    return blank.end() if blank else start


def windows(text: str, start: int, end: int, limits: ChunkLimits, boundary: Boundary) -> Iterator[TextRange]:
    """Consecutive ranges of at most `max_chars` that together cover text[start:end]."""
    start = after_blank_lines(text, start, end)
    while end - start > limits.max_chars:
        # Leaves at least `min_size` for the last window.
        latest = min(start + limits.max_chars, end - limits.min_size)
        cut, broken = boundary(text, start, latest, limits)
        yield start, cut
        start = _resumed(text, start, cut, limits.overlap_chars) if broken else after_blank_lines(text, cut, end)
    if start < end:
        yield start, end


def prose_boundary(text: str, start: int, latest: int, limits: ChunkLimits) -> tuple[int, bool]:
    """Between paragraphs; inside a paragraph at a list item, table row, line or sentence, else between words."""
    earliest = start + limits.min_size
    if (cut := text.rfind("\n\n", earliest, latest)) >= 0:
        return cut + 1, False
    if spaced := _LAST_SPACED_BLANK_LINE.match(text, earliest, latest):
        return spaced.end(), False
    half = (start + latest) // 2
    if own_line := _LAST_LINE_OF_ITS_OWN.match(text, half, latest):
        return own_line.end(), True
    if (line := text.rfind("\n", half, latest)) >= 0:
        return line + 1, True
    sentence = _LAST_SENTENCE.match(text, half, latest)
    return (sentence.end() if sentence else _between_words(text, half, latest)), True


def row_boundary(text: str, start: int, latest: int, limits: ChunkLimits) -> tuple[int, bool]:
    """After the last complete line. A line that is too long is split between words."""
    if text[latest : latest + 1] == "\n":
        return latest, False
    if (line := text.rfind("\n", start, latest)) >= 0:
        return line + 1, False
    return _between_words(text, (start + latest) // 2, latest), True


def line_windows(
    text: str, start: int, end: int, limits: ChunkLimits, line_starts: Sequence[int]
) -> Iterator[TextRange]:
    """Windows over code of unknown structure: complete lines, split before unindented blocks or at blank lines."""
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
        earliest = max(line + 1 - limits.overlap_chars, (start + line + 2) // 2)
        cut_row = bisect_left(line_starts, line + 1)
        row = max(bisect_left(line_starts, earliest), cut_row - limits.code_overlap_lines)
        start = line_starts[row] if row < cut_row else line + 1
    if start < end:
        yield start, end


def _between_words(text: str, earliest: int, latest: int) -> int:
    if space := _LAST_SPACE.match(text, earliest, latest):
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
    """The start of the window after `cut`, with overlap: at a line, sentence or word, at least half a window on."""
    earliest = max(cut - overlap, (start + cut + 1) // 2)
    if earliest >= cut - 1:
        return cut
    # Includes the character after the line break, which identifies list items.
    if (own_line := _LINE_OF_ITS_OWN.search(text, earliest, cut)) and own_line.end() < cut:
        return own_line.end()
    if (line := text.find("\n", earliest, cut - 1)) >= 0:
        return line + 1
    if found := _SENTENCE.search(text, earliest, cut - 1) or _SPACE.search(text, earliest, cut - 1):
        return found.end()
    while earliest < cut and _JOINED.match(text, earliest):
        earliest += 1
    return earliest
