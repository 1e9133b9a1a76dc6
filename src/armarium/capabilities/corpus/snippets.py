"""The part of a passage that shows why it was found."""

from __future__ import annotations

import re
from functools import lru_cache

_LONGEST = 600
_STEM_CHARS = 5
_WORD = re.compile(r"\w{2,}")
_SENTENCE_BEGINS = re.compile(r"\n|[.!?]\s+(?=\S)|[。！？]")
_FARTHEST_BEFORE = 200


def snippet(query: str, text: str) -> str:
    """The passage, or as much of it as fits, from where most of the query's words come together."""
    if len(text) <= _LONGEST:
        return text
    words = _words_beginning_as(frozenset(word.lower()[:_STEM_CHARS] for word in _WORD.findall(query)))
    found = [(hit.start(), hit[0][:_STEM_CHARS].lower()) for hit in words.finditer(text)] if words else []
    return _cut(text, _beginning(text, _densest(found)))


@lru_cache(maxsize=64)
def _words_beginning_as(stems: frozenset[str]) -> re.Pattern[str] | None:
    if not stems:
        return None
    return re.compile(rf"\b(?:{'|'.join(map(re.escape, sorted(stems)))})\w*", re.IGNORECASE)


def _densest(found: list[tuple[int, str]]) -> int:
    """Where the stretch begins that holds most different words of the query."""
    best, most = 0, 0
    for first, (start, _) in enumerate(found):
        end = start + _LONGEST - _FARTHEST_BEFORE
        together = len({stem for place, stem in found[first:] if place < end})
        if together > most:
            best, most = start, together
    return best


def _beginning(text: str, place: int) -> int:
    """The beginning of the line or sentence around a place, or of the word where that is too far before it."""
    since = max(0, place - _FARTHEST_BEFORE)
    begins = [match.end() for match in _SENTENCE_BEGINS.finditer(text, since, place)]
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
