"""Merges the hits of several servers by rank, since scores of different servers are not comparable."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from armarium.capabilities.gateway.model import RagHit
from armarium.providers.interfaces import Reranker
from armarium.retrieval.search.hit_order import reorder

_DAMPING: Final = 60
"""The constant of reciprocal rank fusion."""


@dataclass(frozen=True, slots=True)
class MergedHit:
    """A hit with its server and its merged score."""

    hit: RagHit
    server: str
    rank: int
    """Its rank in its server's list, from 1."""
    score: float
    """1 if every server ranks it first; after reranking, the reranker's score."""


@dataclass(frozen=True, slots=True)
class RerankPolicy:
    """A reranker, with the number of hits it reorders and its timeout."""

    reranker: Reranker
    candidates: int
    timeout_s: float


def fuse(lists: Mapping[str, Sequence[RagHit]]) -> list[MergedHit]:
    """All hits, best first. Ties are broken by the order of the servers, so servers alternate. The same chunk of the
    same document from two servers is one hit, with the scores of both."""
    scores: dict[object, float] = {}
    first: dict[object, tuple[int, int, str, RagHit]] = {}
    best_possible = len([hits for hits in lists.values() if hits]) / (_DAMPING + 1)
    for turn, (server, hits) in enumerate(lists.items()):
        counted: set[object] = set()
        for rank, hit in enumerate(hits, 1):
            chunk = _identity(server, hit)
            if chunk in counted:
                continue
            counted.add(chunk)
            scores[chunk] = scores.get(chunk, 0.0) + 1 / (_DAMPING + rank)
            first.setdefault(chunk, (rank, turn, server, hit))
    order = sorted(first, key=lambda chunk: (-scores[chunk], first[chunk][:2]))
    return [
        MergedHit(hit, server, rank, round(scores[chunk] / best_possible, 6))
        for chunk in order
        for rank, _, server, hit in [first[chunk]]
    ]


async def rerank(policy: RerankPolicy, query: str, hits: Sequence[MergedHit]) -> tuple[list[MergedHit], bool]:
    """The hits in the reranker's order, and whether it responded. If not, the order stays unchanged."""
    texts = [each.hit.text or each.hit.title or "" for each in hits]
    order = await reorder(policy.reranker, query, texts, most=policy.candidates, timeout_s=policy.timeout_s)
    if not order.scores:
        return list(hits), False
    lowest = min(order.scores.values())
    # Hits that were not reranked come last, so their score must not exceed the others.
    scores = {place: order.scores.get(place, min(lowest, hits[place].score)) for place in order.places}
    return [replace(hits[place], score=score) for place, score in scores.items()], True


def _identity(server: str, hit: RagHit) -> object:
    if hit.uri and hit.text:
        return hit.uri, hit.text
    return server, hit.resource_id, hit.id
