"""Puts the hits of several servers into one order, by their ranks: what one server scores says nothing of another."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from armarium.capabilities.gateway.model import Hit
from armarium.providers.interfaces import Reranker
from armarium.retrieval.rerank import reorder

_DAMPING: Final = 60
"""The constant of reciprocal rank fusion: how slowly trust in a place falls with its number."""


@dataclass(frozen=True, slots=True)
class MergedHit:
    """A hit with its place in the whole."""

    hit: Hit
    server: str
    rank: int
    """Its place in its server's list, from 1."""
    score: float
    """1 for what every server puts first; a reranker's own where it looked."""


def merged(lists: Mapping[str, Sequence[Hit]]) -> list[MergedHit]:
    """All hits, best first. Among equals the order of the servers decides, so servers take turns.

    The same passage of the same document from two servers is one hit, and counts for both.
    """
    scores: dict[object, float] = {}
    first: dict[object, tuple[int, int, MergedHit]] = {}
    best_possible = len([hits for hits in lists.values() if hits]) / (_DAMPING + 1)
    for turn, (server, hits) in enumerate(lists.items()):
        counted: set[object] = set()
        for rank, hit in enumerate(hits, 1):
            passage = _identity(server, hit)
            if passage in counted:
                continue
            counted.add(passage)
            scores[passage] = scores.get(passage, 0.0) + 1 / (_DAMPING + rank)
            first.setdefault(passage, (rank, turn, MergedHit(hit, server, rank, 0.0)))
    order = sorted(first, key=lambda passage: (-scores[passage], first[passage][:2]))
    return [
        MergedHit(found.hit, found.server, found.rank, round(scores[passage] / best_possible, 6))
        for passage in order
        for found in [first[passage][2]]
    ]


async def reranked(
    reranker: Reranker, query: str, hits: Sequence[MergedHit], *, candidates: int, timeout_s: float
) -> tuple[list[MergedHit], bool]:
    """The hits in a reranker's order, and whether it answered; without an answer they stay as they are."""
    texts = [each.hit.text or each.hit.title or "" for each in hits]
    order = await reorder(reranker, query, texts, most=candidates, timeout_s=timeout_s)
    if not order.scores:
        return list(hits), False
    lowest = min(order.scores.values())
    return [
        MergedHit(
            hits[place].hit,
            hits[place].server,
            hits[place].rank,
            # What it did not look at comes last, and may not seem better than what comes before.
            order.scores.get(place, min(lowest, hits[place].score)),
        )
        for place in order.places
    ], True


def _identity(server: str, hit: Hit) -> object:
    if hit.uri and hit.text:
        return hit.uri, hit.text
    return server, hit.resource_id, hit.id
