"""Weighs what meaning and words say of the same chunks, without a reranker, as the contract's formula has it."""

from __future__ import annotations

from collections.abc import Mapping, Set

Scores = Mapping[int, float]
"""What one way of searching thinks of the chunks it found, by their ids."""


def fused_scores(
    semantic: Scores,
    lexical: Scores,
    *,
    semantic_weight: float,
    lexical_weight: float,
    without_vector: Set[int] = frozenset(),
) -> dict[int, float]:
    """One score from 0 to 1 for each chunk: the weighted mean of its two scores, each from 0 to 1 on its own side.

    What a side did not find has 0 there. A side that found nothing at all has no say, so the best chunk of the other
    still comes near 1. Nor have vectors a say about a chunk without one: it stands where its words put it.
    """
    sides = [
        (weight, _normalised(scores))
        for weight, scores in ((semantic_weight, semantic), (lexical_weight, lexical))
        if scores
    ]
    whole = sum(weight for weight, _ in sides)
    if whole == 0:
        # Only a side that was to count for nothing found anything: better its order than none.
        sides = [(1.0, scores) for _, scores in sides]
        whole = float(len(sides))
    ids = [*{**semantic, **lexical}]
    fused = {each: sum(weight * scores.get(each, 0.0) for weight, scores in sides) / whole for each in ids}
    # What was found by its meaning had a vector, whatever became of it since.
    by_words = without_vector & (lexical.keys() - semantic.keys())
    if by_words:
        alone = _normalised(lexical)
        fused |= {each: alone[each] for each in by_words}
    return fused


def _normalised(scores: Scores) -> dict[int, float]:
    """The scores moved to lie between 0 and 1; all 1 when they are alike."""
    lowest, highest = min(scores.values()), max(scores.values())
    if highest == lowest:
        return dict.fromkeys(scores, 1.0)
    return {each: (score - lowest) / (highest - lowest) for each, score in scores.items()}
