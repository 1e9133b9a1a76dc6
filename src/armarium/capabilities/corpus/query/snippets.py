"""Excerpts: the part of a chunk that shows why it matches, and the cited part of a long text."""

from __future__ import annotations

import re
from collections import Counter
from functools import lru_cache
from typing import Any, Final, cast

import re2  # pyright: ignore[reportMissingTypeStubs] the package has no type information

_LONGEST = 600
_STEM_CHARS = 5
_SHORTEST_WORD = 2
_FEW_STEMS = 32
_WORD = re.compile(r"\w{2,}")
_SENTENCE_START = re.compile(r"\n|[.!?]\s+(?=\S)|[。！？]")
_FARTHEST_BEFORE = 200
_ANY_WORD: Final = re.compile(r"[A-Za-z0-9]+")
_FIRST_WORDS: Final = 6
_BEGINNING_CHARS: Final = 500
_MARKUP: Final = ".{0,40}?"


def snippet(query: str, text: str) -> str:
    """The chunk, or an excerpt that begins where most words of the query occur together."""
    if len(text) <= _LONGEST:
        return text
    return _cut(text, _beginning(text, _densest(_matches(_stems(query), text))))


@lru_cache(maxsize=16)
def _stems(query: str) -> frozenset[str]:
    return frozenset(word.lower()[:_STEM_CHARS] for word in _WORD.findall(query))


@lru_cache(maxsize=64)
def _words_beginning_as(stems: frozenset[str]) -> re.Pattern[str]:
    return re.compile(rf"\b(?=\w\w)(?:{'|'.join(map(re.escape, sorted(stems)))})\w*", re.IGNORECASE)


def _matches(stems: frozenset[str], text: str) -> list[tuple[int, str]]:
    """The words of the text that begin like a word of the query, with their positions. One pattern is fastest for few
    stems; for many it would take the product of both lengths, so they are looked up."""
    if not stems:
        return []
    if len(stems) <= _FEW_STEMS:
        return [(hit.start(), hit[0][:_STEM_CHARS].lower()) for hit in _words_beginning_as(stems).finditer(text)]
    return [
        (word.start(), beginning)
        for word in _WORD.finditer(text)
        for beginning in [word[0][:_STEM_CHARS].lower()]
        if any(beginning[:length] in stems for length in range(_SHORTEST_WORD, len(beginning) + 1))
    ]


def _densest(found: list[tuple[int, str]]) -> int:
    """The start of the window that contains most different words of the query."""
    best = most = last = 0
    within: Counter[str] = Counter()
    for start, stem in found:
        while last < len(found) and found[last][0] < start + _LONGEST - _FARTHEST_BEFORE:
            within[found[last][1]] += 1
            last += 1
        if len(within) > most:
            best, most = start, len(within)
        within[stem] -= 1
        if not within[stem]:
            del within[stem]
    return best


def _beginning(text: str, place: int) -> int:
    """The start of the line or sentence around a position, or the position itself if that is too far away."""
    since = max(0, place - _FARTHEST_BEFORE)
    begins = [match.end() for match in _SENTENCE_START.finditer(text, since, place)]
    if begins:
        return begins[-1]
    return 0 if since == 0 else place


def _cut(text: str, start: int) -> str:
    begins_a_line = start == 0 or text[start - 1] == "\n"
    mark, rest = ("" if begins_a_line else "… "), text[start:].rstrip("\n")
    if len(rest) <= _LONGEST:
        return mark + rest
    end = rest.rfind("\n", _LONGEST // 2, _LONGEST)
    return mark + rest[: end if end > 0 else _LONGEST].rstrip() + " …"


def shown_part(whole: str, chunk: str, max_chars: int) -> tuple[int, str]:
    """The start of the shown part of a text, and that part: all of it, or `max_chars` from the chunk on."""
    if len(whole) <= max_chars:
        return 0, whole
    start = _place_of(chunk, whole)
    return start, whole[start : start + max_chars]


def _place_of(chunk: str, whole: str) -> int:
    """The position of a chunk in a text, or 0. If the text contains markup, as a web page does, the first words are
    searched for, with some markup in between."""
    if (place := whole.find(chunk)) >= 0:
        return place
    words = [re.escape(word) for word in _ANY_WORD.findall(chunk[:_BEGINNING_CHARS])[:_FIRST_WORDS]]
    found = cast(Any, re2).search(f"(?s){_MARKUP.join(words)}", whole) if words else None
    return found.start() if found else 0
