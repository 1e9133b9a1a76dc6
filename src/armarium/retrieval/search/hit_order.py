"""The final order of hits: near-duplicates removed, and the best ones sorted by a reranker."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import anyio

from armarium.providers.errors import ProviderError
from armarium.providers.interfaces import Reranker

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


@dataclass(frozen=True, slots=True)
class RerankedOrder:
    """The new order of the hits, as positions in the old order."""

    places: list[int]
    scores: dict[int, float]
    """The reranker's score for each position it rated; empty when it failed."""


async def reorder(
    reranker: Reranker, query: str, texts: Sequence[str], *, most: int, timeout_s: float
) -> RerankedOrder:
    """Sort the first `most` texts by the reranker's score. Texts that it omits, and the rest, follow in their order."""
    unchanged = RerankedOrder(list(range(len(texts))), {})
    if (candidates := min(most, len(texts))) < 2:
        return unchanged
    try:
        with anyio.fail_after(timeout_s):
            ranked = await reranker.rerank(query, texts[:candidates], candidates)
    except (ProviderError, TimeoutError):
        return unchanged
    scores = {place: score for place, score in ranked if 0 <= place < candidates}
    first = sorted(scores, key=lambda place: (-scores[place], place))
    return RerankedOrder(first + [place for place in unchanged.places if place not in scores], scores)
