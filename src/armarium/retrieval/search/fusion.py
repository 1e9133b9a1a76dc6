"""Rank fusion of lexical and vector results, weighted by how reliable each is for the query.

Both indexes of a corpus are ours, so their scores are standardised: ranks alone would lose by how much a hit stands out
(decision 0017). The store's contract prescribes min-max normalisation and a weighted mean. The gateway gets scores that
are not comparable and uses ranks only (reciprocal rank fusion).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

from armarium.retrieval.chunks import IndexKind

if TYPE_CHECKING:
    import numpy
    from numpy.typing import NDArray

    Scores = NDArray[numpy.float32]

CANDIDATES: Final = 100
"""How many hits of each ranking are fused. Measured: more does not improve the quality, half as many is worse."""

# The weight of vectors against terms. Code rarely uses the words of the question, so vectors count most there; an
# identifier in the query is best found lexically. Measured by leave-one-out on three sets of prose: the best weight is
# 0.55 each time, and from 0.5 to 0.6 the quality is the same.
_VECTOR_WEIGHT: Final[dict[IndexKind, float]] = {"text": 0.55, "code": 0.92}
_VECTOR_WEIGHT_FOR_IDENTIFIERS: Final = 0.5
# A model recognises names and numbers even in a language that it was not trained on.
_MIN_CONFIDENCE: Final = 0.15
# The maximum distance of a score from the mean, in standard deviations. Without it, the only chunk that contains one of
# the terms would precede all vector results. Measured: all values from 5 upwards are equally good.
_MAX_DEVIATIONS: Final = 5.0
_INDEX_WEIGHT_EXPONENT: Final = 2.0


@dataclass(frozen=True, slots=True)
class Ranking:
    """Chunk ids with their scores, best first, as indexes return them."""

    ids: NDArray[numpy.int64]
    scores: NDArray[numpy.float32]

    def __len__(self) -> int:
        return len(self.ids)


def empty_ranking() -> Ranking:
    import numpy

    return Ranking(numpy.empty(0, numpy.int64), numpy.empty(0, numpy.float32))


@dataclass(frozen=True, slots=True)
class Candidates:
    """The lexical and vector results of one index, and the weight of its vectors."""

    lexical: Ranking
    vectors: Ranking
    vector_weight: float
    embedded: NDArray[numpy.bool_] | None = None
    """Which lexical results have a vector; None: all of them. During indexing, chunks are embedded later."""


FoundBy = Literal["lexical", "semantic", "both"]


@dataclass(frozen=True, slots=True)
class FusedRanking(Ranking):
    """One ranking of several indexes."""

    indexes: Sequence[Candidates] = ()

    def found_by(self, ids: Sequence[int]) -> list[FoundBy]:
        """Which search found each of these chunks of the ranking."""
        lexical = {each for index in self.indexes for each in index.lexical.ids.tolist()}
        semantic = {each for index in self.indexes for each in index.vectors.ids.tolist()}
        return ["semantic" if each not in lexical else "both" if each in semantic else "lexical" for each in ids]


@dataclass(frozen=True, slots=True)
class _Scale:
    """The distribution of scores: mean, spread, and the standardised scores of the best hit and of a missing one."""

    mean: float
    spread: float
    best: float
    worst: float

    def of(self, scores: Scores) -> Scores:
        return (scores - self.mean) / self.spread

    def raw(self, distance: float) -> float:
        """The score at this many deviations from the mean."""
        return self.mean + distance * self.spread

    def share(self, scores: Scores) -> Scores:
        """Scores scaled so that a missing chunk has 0 and the best hit has 1."""
        import numpy

        reach = self.best - self.worst
        return (self.of(scores) - self.worst) / reach if reach else numpy.ones_like(scores)

    def share_of(self, score: float) -> float:
        reach = self.best - self.worst
        return ((score - self.mean) / self.spread - self.worst) / reach if reach else 1.0


def vector_weight(kind: IndexKind, *, confidence: float = 1.0, has_identifier: bool = False) -> float:
    """The weight of vectors, 0 to 1. `confidence` is how reliable the query's vector is, 0 to 1."""
    weight = min(_VECTOR_WEIGHT[kind], _VECTOR_WEIGHT_FOR_IDENTIFIERS) if has_identifier else _VECTOR_WEIGHT[kind]
    effective = weight * min(1.0, max(confidence, _MIN_CONFIDENCE))
    return effective / (effective + 1 - weight)


def fuse(indexes: Sequence[Candidates], *, chunk_count: int, same_model: bool = True) -> FusedRanking:
    """One ranking of the results of all indexes, with scores between 0 and 1. `chunk_count` is their total size.

    Scores are standardised, so that a hit that stands out counts more. Each index is normalised separately, and then
    scaled to its range among the hits of all indexes: one without relevant chunks ranks low. Vectors of different
    models (not `same_model`) are not comparable: an index is weighted by its best lexical score.
    """
    import numpy

    if not (found := [index for index in indexes if len(index.lexical) or len(index.vectors)]):
        nothing = empty_ranking()
        return FusedRanking(nothing.ids, nothing.scores)
    all_lexical = _scale([index.lexical.scores for index in found], implied_zeros_up_to=chunk_count)
    if len(found) == 1:
        fused = [_fused(found[0], all_lexical, _scale([found[0].vectors.scores]))]
    elif same_model:
        all_vectors = _scale([index.vectors.scores for index in found])
        fused = [_scaled(index, chunk_count, all_lexical, all_vectors) for index in found]
    else:
        fused = [_fused(index, all_lexical, _scale([index.vectors.scores])) for index in found]
        best = [float(index.lexical.scores.max(initial=0)) for index in found]
        weights = [(each / max(best)) ** _INDEX_WEIGHT_EXPONENT if max(best) else 1.0 for each in best]
        fused = [Ranking(each.ids, each.scores * weight) for each, weight in zip(fused, weights, strict=True)]
    ids = numpy.concatenate([ranking.ids for ranking in fused])
    scores = numpy.concatenate([ranking.scores for ranking in fused])
    order = numpy.argsort(-scores, kind="stable")
    shown = numpy.clip(scores[order], 0, 1) * numpy.float32(max(map(_evidence, found)))
    return FusedRanking(ids[order], shown, found)


def _scaled(index: Candidates, chunk_count: int, all_lexical: _Scale, all_vectors: _Scale) -> Ranking:
    """The results of an index, normalised separately and then scaled to its range among all indexes."""
    lexical = _scale([index.lexical.scores], implied_zeros_up_to=chunk_count)
    vectors = _scale([index.vectors.scores])
    own = _fused(index, lexical, vectors)
    weight = _vector_share(index)
    lowest, highest = (
        weight * all_vectors.share_of(vectors.raw(by_vector))
        + (1 - weight) * all_lexical.share_of(lexical.raw(by_term))
        for by_vector, by_term in ((vectors.worst, lexical.worst), (vectors.best, lexical.best))
    )
    return Ranking(own.ids, lowest + (highest - lowest) * own.scores)


def _vector_share(index: Candidates) -> float:
    """The weight of vectors in an index. If one ranking is empty, the other has the full weight."""
    if len(index.lexical) and len(index.vectors):
        return index.vector_weight
    return float(len(index.vectors) > 0)


def _evidence(index: Candidates) -> float:
    """The absolute relevance of the best hit, 0 to 1: by the cosine of the nearest vector and any lexical match. Fused
    scores are relative. Without this factor, the best hit for a meaningless query would have the score 1."""
    if not len(index.vectors) or (index.embedded is not None and not index.embedded.all()):
        return 1.0  # the lexical ranking decides alone
    nearest = min(1.0, max(0.0, float(index.vectors.scores.max())))
    return index.vector_weight * nearest + (1 - index.vector_weight) * (len(index.lexical) > 0)


def _fused(index: Candidates, by_terms: _Scale, by_vectors: _Scale) -> Ranking:
    import numpy

    weight = _vector_share(index)
    ids, places = numpy.unique(numpy.concatenate([index.lexical.ids, index.vectors.ids]), return_inverse=True)
    # A chunk that is missing from one ranking counts there as its last hit.
    lowest = weight * by_vectors.worst + (1 - weight) * by_terms.worst
    highest = weight * by_vectors.best + (1 - weight) * by_terms.best
    total = numpy.full(len(ids), lowest)
    total[places[: len(index.lexical)]] += (1 - weight) * (by_terms.of(index.lexical.scores) - by_terms.worst)
    total[places[len(index.lexical) :]] += weight * (by_vectors.of(index.vectors.scores) - by_vectors.worst)
    share = (total - lowest) / (highest - lowest) if highest > lowest else numpy.ones(len(ids))
    if index.embedded is not None and not index.embedded.all():
        # A chunk without a vector yet is ranked by its lexical score alone.
        waiting = ~index.embedded & ~numpy.isin(index.lexical.ids, index.vectors.ids)
        share[places[: len(index.lexical)][waiting]] = by_terms.share(index.lexical.scores[waiting])
    return Ranking(ids, share.astype(numpy.float32))


def _scale(lists: Sequence[Scores], *, implied_zeros_up_to: int = 0) -> _Scale:
    """The scale of the best `CANDIDATES` of all lists, each best first. Chunks without any query term count as 0."""
    import numpy

    scores = lists[0] if len(lists) == 1 else numpy.sort(numpy.concatenate(lists))[::-1]
    scores = scores[:CANDIDATES].astype(numpy.float64)
    zeros = max(0, min(CANDIDATES, implied_zeros_up_to) - len(scores))
    count = len(scores) + zeros
    if not count:
        return _Scale(0.0, 1.0, 0.0, 0.0)
    best = float(scores[0]) if len(scores) else 0.0
    worst = 0.0 if zeros else float(scores[-1])
    # By sums: numpy's mean and std of a hundred numbers take five times as long.
    mean = float(scores.sum()) / count
    deviation = math.sqrt(max(0.0, float(scores @ scores) / count - mean * mean))
    spread = max(deviation, (best - mean) / _MAX_DEVIATIONS, 1e-6)
    return _Scale(mean, spread, (best - mean) / spread, (worst - mean) / spread)
