"""Finds near-duplicates among texts: copies, and copies with a few words changed."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

_SHINGLE_WORDS: Final = 3
_MIN_SIMILARITY: Final = 0.8
_WORD = re.compile(r"\w+")

_Shingles = set[tuple[str, ...]]


def distinct(texts: Sequence[str], most: int) -> list[int]:
    """The positions of the first `most` texts that are not near-duplicates of an earlier one."""
    kept: list[int] = []
    seen: list[_Shingles] = []
    for place, text in enumerate(texts):
        if len(kept) == most:
            break
        shingles = _shingles(text)
        if any(_alike(shingles, other) for other in seen):
            continue
        kept.append(place)
        seen.append(shingles)
    return kept


def _shingles(text: str) -> _Shingles:
    """The sets of three consecutive words. A shorter text is its own only shingle."""
    words = _WORD.findall(text.lower())
    if len(words) < _SHINGLE_WORDS:
        return {tuple(words) or (text.strip(),)}
    return set(zip(words, words[1:], words[2:], strict=False))


def _alike(one: _Shingles, other: _Shingles) -> bool:
    smaller, larger = sorted((len(one), len(other)))
    # The smaller set bounds the overlap, which avoids most comparisons.
    if smaller < _MIN_SIMILARITY * larger:
        return False
    shared = len(one & other)
    return shared >= _MIN_SIMILARITY * (smaller + larger - shared)
