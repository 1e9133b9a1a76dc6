"""Finds the lines of a buffer that match a pattern.

A line ends at a line feed; a carriage return before it is not part of the line. A match never spans two lines.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Self

from armarium.capabilities.sandbox.reads.byte_scan import Find, lower_copy
from armarium.capabilities.sandbox.search.needles import CANDIDATE_NS, Needle, Needles, needles_for, rate
from armarium.capabilities.sandbox.search.patterns import line_pattern, path_pattern
from armarium.capabilities.sandbox.search.regex import bytes_finder, quoted
from armarium.foundation.files.walk import Entries

_SAMPLE_BYTES = 32 * 1024
_REGEX_NS_PER_BYTE = 1.6
_CARRIAGE_RETURN = 13


Line = tuple[int, int, int]
"""A line that matches: a place of the match in it, its start, and its line feed or the end of what was searched."""


class LineSearch:
    """A search for a pattern. It adapts to what it searches, so use one object for each search, in one thread."""

    def __init__(self, pattern: str, *, fold: bool = False) -> None:
        self._pattern = line_pattern(pattern, fold=fold)
        self._in_buffer = self._pattern.in_buffer
        self._required = self._pattern.required
        literals = [literal.text for clause in self._required.clauses for literal in clause]
        self._has_return = any("\r" in text for text in literals)
        # Non-ASCII forms of ASCII letters (long s, Kelvin sign), which the needles do not find.
        folded = "".join(literal.text for clause in self._required.clauses for literal in clause if literal.fold)
        odd = [form for letter, form in (("s", "\u017f"), ("k", "\u212a")) if letter in folded]
        self._odd_cases = [bytes_finder(quoted(form.encode())) for form in odd]
        self._needles: Needles | None = None
        self._folded = bytearray()
        self._folded_part: tuple[int, int] | None = None
        self._sampled = 0
        self._searched = 0
        self._misled = 0

    def lines(self, buffer: bytearray, begin: int, end: int) -> Iterator[Line]:
        """The matching lines in [begin, end), which starts and, unless a line is too long to be held, ends with one."""
        if self._in_buffer is None:
            return self._each_line(buffer, begin, end)
        if self._sampled < _SAMPLE_BYTES // 2:
            self._plan(bytes(buffer[begin : min(end, begin + _SAMPLE_BYTES)]))
        if self._needles is None or any(find(buffer, begin, end) >= 0 for find in self._odd_cases):
            return self._by_regex(self._in_buffer, buffer, begin, end)
        self._folded_part = None
        if len(self._needles.needles) == 1 and self._is_sure(self._needles):
            (needle,) = self._needles.needles
            return self._by_needle(needle.find, self._text_for(needle, buffer, begin, end), begin, end)
        return self._by_needles(self._needles, self._in_buffer, buffer, begin, end)

    def _plan(self, sample: bytes) -> None:
        self._sampled = len(sample)
        self._needles = None
        cheapest = _REGEX_NS_PER_BYTE
        for clause in self._required.clauses:
            needles = needles_for(clause, sample)
            price = needles.price
            if not (self._required.exact and needles.certain):
                price += CANDIDATE_NS * sum(rate(literal, sample) for literal in clause)
            if price < cheapest:
                cheapest, self._needles = price, needles

    def _each_line(self, buffer: bytearray, begin: int, end: int) -> Iterator[Line]:
        while begin < end:
            newline = buffer.find(b"\n", begin, end)
            if newline < 0:
                newline = end
            if self._matches_alone(buffer, begin, newline):
                yield begin, begin, newline
            begin = newline + 1

    def _by_regex(self, find: Find, buffer: bytearray, begin: int, end: int) -> Iterator[Line]:
        while begin < end:
            at = find(buffer, begin, end)
            if at < 0 or at >= end:
                return
            start = buffer.rfind(b"\n", begin, at) + 1 or begin
            newline = buffer.find(b"\n", at, end)
            if newline < 0:
                newline = end
            if (
                buffer[newline - 1] != _CARRIAGE_RETURN
                or newline == start
                or self._matches_alone(buffer, start, newline)
            ):
                yield at, start, newline
            begin = newline + 1

    def _by_needle(self, find: Find, text: bytearray, begin: int, end: int) -> Iterator[Line]:
        """Fast path: every occurrence of the only needle is a match."""
        while (at := find(text, begin, end)) >= 0:
            newline = text.find(b"\n", at, end)
            if newline < 0:
                newline = end
            yield at, text.rfind(b"\n", begin, at) + 1 or begin, newline
            begin = newline + 1

    def _by_needles(self, needles: Needles, regex: Find, buffer: bytearray, begin: int, end: int) -> Iterator[Line]:
        sure = self._is_sure(needles)
        self._searched += end - begin
        finds = [(needle.find, self._text_for(needle, buffer, begin, end)) for needle in needles.needles]
        places = [_or_end(find(text, begin, end), end) for find, text in finds]
        while (at := min(places)) < end:
            start = buffer.rfind(b"\n", begin, at) + 1 or begin
            newline = buffer.find(b"\n", at, end)
            if newline < 0:
                newline = end
            if not sure:
                at = regex(buffer, start, newline)
                has_return = at >= 0 and buffer[newline - 1] == _CARRIAGE_RETURN
                if has_return and not self._matches_alone(buffer, start, newline):
                    at = -1
            if at >= 0:
                yield at, start, newline
            else:
                self._misled += 1
            begin = newline + 1
            for index, place in enumerate(places):
                if place < begin:
                    find, text = finds[index]
                    places[index] = _or_end(find(text, begin, end), end)
        if self._misled * CANDIDATE_NS > self._searched * _REGEX_NS_PER_BYTE:
            # The sample was not representative: RE2 on all of the text is faster than so many false candidates.
            self._needles = None

    def _text_for(self, needle: Needle, buffer: bytearray, begin: int, end: int) -> bytearray:
        """The text to search: the buffer, or a lower-case copy of this part of it, which is created once."""
        if not needle.in_folded:
            return buffer
        if self._folded_part != (begin, end):
            if len(self._folded) < end:
                self._folded = bytearray(len(buffer))
            lower_copy(buffer, begin, end, self._folded)
            self._folded_part = (begin, end)
        return self._folded

    def _is_sure(self, needles: Needles) -> bool:
        """Whether every line that contains a needle matches."""
        return needles.certain and self._required.exact and not self._has_return

    def _matches_alone(self, buffer: bytearray, start: int, newline: int) -> bool:
        line = bytes(buffer[start:newline])
        if line.endswith(b"\r"):
            line = line[:-1]
        return self._pattern.alone(line, 0, len(line)) >= 0


def _or_end(place: int, end: int) -> int:
    return end if place < 0 else place


class PathSearch:
    """Selects paths that contain a match, at any depth. Many paths are joined in one buffer, because a call for each
    costs more than the search."""

    def __init__(self, pattern: str) -> None:
        self._pattern = path_pattern(pattern)

    def choose(self, entries: Entries, directory: str, /) -> Entries:
        return [entries[index] for index in self.matching([directory + entry.name for entry in entries])]

    def enter(self, name: str, /) -> Self:
        return self

    def matching(self, paths: list[str]) -> list[int]:
        if not paths:
            return []
        buffer = "\n".join(paths).encode("utf-8", "surrogateescape")
        find = self._pattern.in_buffer
        if find is None or buffer.count(b"\n") >= len(paths):
            encoded = [path.encode("utf-8", "surrogateescape") for path in paths]
            alone = self._pattern.alone
            return [index for index, path in enumerate(encoded) if alone(path, 0, len(path)) >= 0]
        found: list[int] = []
        index = counted = begin = 0
        while (at := find(buffer, begin, len(buffer))) >= 0:
            index += buffer.count(b"\n", counted, at)
            found.append(index)
            counted = at
            begin = buffer.find(b"\n", at) + 1
            if begin == 0:
                break
        return found
