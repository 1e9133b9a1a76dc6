"""Reorders the best hits with a reranker, and keeps the fused order when the reranker fails or times out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import anyio

from armarium.providers.errors import ProviderError
from armarium.providers.interfaces import Reranker


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
