"""Lets a reranker put the best hits in order, and does without it when it fails or takes too long."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import anyio

from armarium.providers.errors import ProviderError
from armarium.providers.interfaces import Reranker


@dataclass(frozen=True, slots=True)
class Reordered:
    """The new order of the hits, as places in the old one."""

    places: list[int]
    scores: dict[int, float]
    """What the reranker thinks of each place it looked at; empty when it did not answer."""


async def reorder(reranker: Reranker, query: str, texts: Sequence[str], *, most: int, timeout_s: float) -> Reordered:
    """Put the first `most` texts in the reranker's order; those it leaves out and the rest follow as they were."""
    unchanged = Reordered(list(range(len(texts))), {})
    looked_at = min(most, len(texts))
    if looked_at < 2:
        return unchanged
    try:
        with anyio.fail_after(timeout_s):
            ranked = await reranker.rerank(query, texts[:looked_at], looked_at)
    except (ProviderError, TimeoutError):
        # An answer in the fused order now is worth more than a better one that does not come.
        return unchanged
    scores = {place: score for place, score in ranked if 0 <= place < looked_at}
    first = sorted(scores, key=lambda place: (-scores[place], place))
    return Reordered(first + [place for place in unchanged.places if place not in scores], scores)
