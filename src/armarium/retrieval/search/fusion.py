"""Merges what words found with what vectors found, weighing each by how far it can be trusted for this query."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from armarium.retrieval.chunks import IndexKind

if TYPE_CHECKING:
    import numpy
    from numpy.typing import NDArray

    Scores = NDArray[numpy.float32]

CANDIDATES: Final = 100
"""How many hits of each side are merged. With more the measured quality is level, with half as many it is lower."""

# What vectors weigh against words. Code answers a question in other words than it was asked in, so meaning counts
# most there; a name that is written out is found by its letters, whatever it stands in. Measured with each of three
# sets of prose left out: the other two always ask for 0.55, and from 0.5 to 0.6 all are level.
_VECTOR_WEIGHT: Final[dict[IndexKind, float]] = {"text": 0.55, "code": 0.92}
_VECTOR_WEIGHT_FOR_NAMES: Final = 0.5
# A model recognises names and numbers even in a language it does not know.
_LEAST_KNOWN: Final = 0.15
# How far out a hit can be, in standard deviations. Without it the only passage that has one of the words would come
# before everything that vectors find; level from 5 upwards.
_FARTHEST_OUT: Final = 5.0
_STANDING: Final = 2.0


@dataclass(frozen=True, slots=True)
class Ranking:
    """Chunks with scores, best first."""

    ids: NDArray[numpy.int64]
    scores: Scores

    def __len__(self) -> int:
        return len(self.ids)


@dataclass(frozen=True, slots=True)
class Found:
    """What one index found by words and by vectors, and what its vectors weigh."""

    words: Ranking
    vectors: Ranking
    vector_weight: float
    embedded: NDArray[numpy.bool_] | None = None
    """Which of what words found has a vector; None: all of it. While an index grows, vectors come after words."""


@dataclass(frozen=True, slots=True)
class _Scale:
    """Where scores lie: their mean, their spread, and how far out the best and a passage not found are."""

    mean: float
    spread: float
    best: float
    worst: float

    def of(self, scores: Scores) -> Scores:
        return (scores - self.mean) / self.spread

    def raw(self, distance: float) -> float:
        """The score that lies so many deviations from the mean."""
        return self.mean + distance * self.spread

    def share(self, scores: Scores) -> Scores:
        """Where scores lie between a passage not found, which is 0, and the best, which is 1."""
        import numpy

        reach = self.best - self.worst
        return (self.of(scores) - self.worst) / reach if reach else numpy.ones_like(scores)

    def share_of(self, score: float) -> float:
        """Where one score lies between a passage not found and the best."""
        reach = self.best - self.worst
        return ((score - self.mean) / self.spread - self.worst) / reach if reach else 1.0


def vector_weight(kind: IndexKind, *, known: float = 1.0, names_something: bool = False) -> float:
    """What vectors weigh, 0 to 1: `known` is how far the model knows the query's language, 0 to 1."""
    weight = min(_VECTOR_WEIGHT[kind], _VECTOR_WEIGHT_FOR_NAMES) if names_something else _VECTOR_WEIGHT[kind]
    trusted = weight * min(1.0, max(known, _LEAST_KNOWN))
    return trusted / (trusted + 1 - weight)


def fuse(indexes: Sequence[Found], *, passages: int, comparable: bool = True) -> Ranking:
    """One ranking of all that was found in indexes of together so many passages, with scores between 0 and 1.

    Scores count as distances from their side's mean, in standard deviations: a side where one hit stands out then has
    more to say than one where all are alike, and it does not matter how low a list happens to end. Each index is
    normalised on its own, and its range is then laid where its best and its last hit stand among those of all indexes:
    an index that holds nothing on the subject stays behind. When the vectors come from different models (not
    `comparable`), an index counts as much as its best words do against those of the others.
    """
    import numpy

    found = [index for index in indexes if len(index.words) or len(index.vectors)]
    if not found:
        return Ranking(numpy.empty(0, numpy.int64), numpy.empty(0, numpy.float32))
    all_words = _scale([index.words.scores for index in found], implied_zeros_up_to=passages)
    if len(found) == 1:
        fused = [_fused(found[0], all_words, _scale([found[0].vectors.scores]))]
    elif comparable:
        all_vectors = _scale([index.vectors.scores for index in found])
        fused = [_placed(index, passages, all_words, all_vectors) for index in found]
    else:
        fused = [_fused(index, all_words, _scale([index.vectors.scores])) for index in found]
        standings = _standings(found)
        fused = [Ranking(each.ids, each.scores * standing) for each, standing in zip(fused, standings, strict=True)]
    ids = numpy.concatenate([ranking.ids for ranking in fused])
    scores = numpy.concatenate([ranking.scores for ranking in fused])
    order = numpy.argsort(-scores, kind="stable")
    return Ranking(ids[order], numpy.clip(scores[order], 0, 1) * numpy.float32(_evidence(found)))


def _placed(index: Found, passages: int, all_words: _Scale, all_vectors: _Scale) -> Ranking:
    """What an index found, normalised on its own and then laid into its range among all indexes."""
    words = _scale([index.words.scores], implied_zeros_up_to=passages)
    vectors = _scale([index.vectors.scores])
    own = _fused(index, words, vectors)
    weight = _trust(index)
    lowest, highest = (
        weight * all_vectors.share_of(vectors.raw(of_vectors)) + (1 - weight) * all_words.share_of(words.raw(of_words))
        for of_vectors, of_words in ((vectors.worst, words.worst), (vectors.best, words.best))
    )
    return Ranking(own.ids, lowest + (highest - lowest) * own.scores)


def _trust(index: Found) -> float:
    """What vectors weigh in an index; where one side found nothing, the other decides alone."""
    if len(index.words) and len(index.vectors):
        return index.vector_weight
    return float(len(index.vectors) > 0)


def _evidence(found: Sequence[Found]) -> float:
    """How much speaks for the best hit at all, 0 to 1: the nearest vector counts by its cosine, words by being there.

    The order of hits is relative, so without it the best hit for a query of nonsense would look like a perfect one.
    """
    return max(map(_evidence_in, found))


def _evidence_in(index: Found) -> float:
    if not len(index.vectors) or (index.embedded is not None and not index.embedded.all()):
        return 1.0  # words decide alone
    nearest = min(1.0, max(0.0, float(index.vectors.scores.max())))
    return index.vector_weight * nearest + (1 - index.vector_weight) * (len(index.words) > 0)


def _standings(found: Sequence[Found]) -> list[float]:
    """How well the best words of each index do against the best of all; words are scored alike in all of them."""
    best = [float(index.words.scores.max(initial=0)) for index in found]
    return [(each / max(best)) ** _STANDING if max(best) else 1.0 for each in best]


def _fused(index: Found, by_words: _Scale, by_vectors: _Scale) -> Ranking:
    import numpy

    weight = _trust(index)
    ids, places = numpy.unique(numpy.concatenate([index.words.ids, index.vectors.ids]), return_inverse=True)
    # What a side did not list counts as the last it would list.
    lowest = weight * by_vectors.worst + (1 - weight) * by_words.worst
    highest = weight * by_vectors.best + (1 - weight) * by_words.best
    total = numpy.full(len(ids), lowest)
    total[places[: len(index.words)]] += (1 - weight) * (by_words.of(index.words.scores) - by_words.worst)
    total[places[len(index.words) :]] += weight * (by_vectors.of(index.vectors.scores) - by_vectors.worst)
    share = (total - lowest) / (highest - lowest) if highest > lowest else numpy.ones(len(ids))
    if index.embedded is not None and not index.embedded.all():
        # Vectors say nothing against a passage that has none yet: it stands where its words put it.
        waiting = ~index.embedded & ~numpy.isin(index.words.ids, index.vectors.ids)
        share[places[: len(index.words)][waiting]] = by_words.share(index.words.scores[waiting])
    return Ranking(ids, share.astype(numpy.float32))


def _scale(lists: Sequence[Scores], *, implied_zeros_up_to: int = 0) -> _Scale:
    """The scale of the best `CANDIDATES`; each list is best first. Passages with none of the words count with 0."""
    import numpy

    scores = lists[0] if len(lists) == 1 else numpy.sort(numpy.concatenate(lists))[::-1]
    scores = scores[:CANDIDATES].astype(numpy.float64)
    zeros = max(0, min(CANDIDATES, implied_zeros_up_to) - len(scores))
    count = len(scores) + zeros
    if not count:
        return _Scale(0.0, 1.0, 0.0, 0.0)
    best = float(scores[0]) if len(scores) else 0.0
    worst = 0.0 if zeros else float(scores[-1])
    # By sums: numpy's own mean and deviation of a hundred numbers take five times as long.
    mean = float(scores.sum()) / count
    deviation = math.sqrt(max(0.0, float(scores @ scores) / count - mean * mean))
    spread = max(deviation, (best - mean) / _FARTHEST_OUT, 1e-6)
    return _Scale(mean, spread, (best - mean) / spread, (worst - mean) / spread)
