"""The content that findings are recognised by: hashes of the tokens around a place, and a sketch of a whole file.

Hashes of 16 bits tell places of one file apart, and say next to nothing about the tokens: a registry has no code in it.
"""

from __future__ import annotations

import heapq
import re
from array import array
from collections.abc import Iterator, Sequence
from functools import cached_property, lru_cache
from itertools import islice
from zlib import crc32

TOKENS_BEFORE = 12
TOKENS_AFTER = 20
PLACE_BYTES = 2 * (TOKENS_BEFORE + TOKENS_AFTER)
UNKNOWN = 0
"""In place of a token beyond the end of the known text."""
SKETCH_HASHES = 64
MAX_FILE_BYTES = 4 * 1024 * 1024
"""Larger files are not read: findings in them are recognised as if the file were missing."""

_MAX_LINE_CHARS = 2000
"""Of a line that is split into tokens, on each side of the place. Minified files are one line."""
_MAX_LINES = 60
"""How far to look for tokens."""
_LINE_END = re.compile(r"\r\n|\n|\r")
# Formatters add, remove and exchange what is missing here: white space, quotes, brackets around lines, final commas.
_TOKEN = re.compile(r"\w+|[^\w\s,;()'\"`\\]")
_WORD = re.compile(r"\w")
_LAYOUT = str.maketrans("", "", " \t\f\v,;()'\"`\\")
_WEIGHT_AFTER = 0.65
_MIN_LINE_CHARS = 6
"""Shorter lines, such as brackets, are in every file."""


class Contents:
    """The text of a file, or a part of it that begins at `first_line`. Lines and columns are counted from 1."""

    def __init__(self, text: str, first_line: int = 1) -> None:
        self._text, self._first_line = text, first_line

    @cached_property
    def _lines(self) -> Sequence[str]:
        return _LINE_END.split(self._text)

    @property
    def line_count(self) -> int:
        return len(self._lines)

    def place(self, line: int, column: int | None) -> bytes:
        """The hashes of the tokens before and after a place; empty if the text has none there."""
        index = line - self._first_line
        if not 0 <= index < len(self._lines):
            return b""
        at = self._lines[index]
        start = _start_of_word(at, (column or 1) - 1)
        if start is None:
            return b""
        after = [*islice(self._tokens_after(at[start : start + _MAX_LINE_CHARS], index), TOKENS_AFTER)]
        if not after:
            return b""
        before = [*islice(self._tokens_before(at[max(0, start - _MAX_LINE_CHARS) : start], index), TOKENS_BEFORE)]
        before += [UNKNOWN] * (TOKENS_BEFORE - len(before))
        after += [UNKNOWN] * (TOKENS_AFTER - len(after))
        return array("H", before[::-1] + after).tobytes()

    def sketch(self) -> bytes:
        """The smallest hashes of the file's lines: files with equal lines have most of them in common."""
        stripped = {line[:_MAX_LINE_CHARS].translate(_LAYOUT) for line in self._lines}
        hashes = {crc32(line.encode("utf-8", "replace")) for line in stripped if len(line) >= _MIN_LINE_CHARS}
        return array("I", heapq.nsmallest(SKETCH_HASHES, hashes)).tobytes()

    def _tokens_after(self, rest: str, index: int) -> Iterator[int]:
        yield from map(_token_hash, _TOKEN.findall(rest))
        for line in self._lines[index + 1 : index + 1 + _MAX_LINES]:
            yield from map(_token_hash, _TOKEN.findall(line[:_MAX_LINE_CHARS]))

    def _tokens_before(self, rest: str, index: int) -> Iterator[int]:
        yield from map(_token_hash, reversed(_TOKEN.findall(rest)))
        for line in reversed(self._lines[max(0, index - _MAX_LINES) : index]):
            yield from map(_token_hash, reversed(_TOKEN.findall(line[-_MAX_LINE_CHARS:])))


def _start_of_word(text: str, index: int) -> int | None:
    """The start of the word at an index; None if it is too far. Hashes of parts of a word would tell its characters,
    one after the other, to whoever compares them with guesses."""
    start, first = index, max(0, index - _MAX_LINE_CHARS)
    if _WORD.match(text[index : index + 1]):
        while start > first and _WORD.match(text[start - 1]):
            start -= 1
    return start if start > first or not first else None


@lru_cache(256)
def place_in_snippet(text: str, first_line: int, line: int, column: int | None) -> bytes:
    """The place in a snippet of a report. Scanners repeat snippets."""
    return Contents(text, first_line).place(line, column)


def tokens_of(place: bytes) -> array[int]:
    return array("H", place)


def hashes_of(sketch: bytes) -> set[int]:
    return set(array("I", sketch))


def similarity(one: bytes, other: bytes) -> float:
    """How similar two places are, from 0 to 1. What follows counts more than what precedes, and tokens that either
    side does not know do not count."""
    after = _common(one, other, TOKENS_BEFORE, None)
    before = _common(one, other, 0, TOKENS_BEFORE)
    if after is None or before is None:
        return after or 0.0
    return _WEIGHT_AFTER * after + (1 - _WEIGHT_AFTER) * before


def _common(one: bytes, other: bytes, start: int, end: int | None) -> float | None:
    """The share of tokens in common, in whatever order, because a change moves the rest; None if one side has none."""
    left = [token for token in tokens_of(one)[start:end] if token]
    right = [token for token in tokens_of(other)[start:end] if token]
    least = min(len(left), len(right))
    if not least:
        return None
    # Only as much as both sides know: a snippet may be shorter.
    left, right = (left[-least:], right[-least:]) if end is not None else (left[:least], right[:least])
    for token in left:
        if token in right:
            right.remove(token)
    return 1 - len(right) / least


@lru_cache(1 << 16)
def _token_hash(token: str) -> int:
    return crc32(token.encode("utf-8", "replace")) & 0xFFFF or 1
