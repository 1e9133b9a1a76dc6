"""A reranker's order is used, unless it fails or times out."""

from __future__ import annotations

from collections.abc import Sequence

import anyio
import pytest

from armarium.providers.errors import ProviderUnavailable
from armarium.retrieval.search.hit_order import reorder


class Scripted:
    """Returns a given order, waits forever, or fails."""

    def __init__(self, answer: list[tuple[int, float]] | Exception | None) -> None:
        self._answer = answer
        self.texts: Sequence[str] = ()

    async def rerank(self, query: str, texts: Sequence[str], top_n: int) -> list[tuple[int, float]]:
        self.texts = texts
        if self._answer is None:
            await anyio.sleep_forever()
        if isinstance(self._answer, Exception):
            raise self._answer
        return list(self._answer or [])[:top_n]

    async def aclose(self) -> None:
        pass


TEXTS = ["a", "b", "c", "d"]


async def test_the_rerankers_order_comes_first_and_the_rest_keeps_its_own() -> None:
    reranker = Scripted([(2, 0.9), (0, 0.4)])
    reordered = await reorder(reranker, "q", TEXTS, most=3, timeout_s=5)
    assert reordered.places == [2, 0, 1, 3]
    assert reordered.scores == {2: 0.9, 0: 0.4}
    assert reranker.texts == ["a", "b", "c"]


@pytest.mark.parametrize("answer", [ProviderUnavailable("gone"), None])
async def test_the_order_stays_when_the_reranker_fails_or_is_too_slow(answer: Exception | None) -> None:
    reordered = await reorder(Scripted(answer), "q", TEXTS, most=4, timeout_s=0.01)
    assert reordered.places == [0, 1, 2, 3]
    assert reordered.scores == {}


async def test_places_that_were_never_asked_about_are_ignored() -> None:
    reordered = await reorder(Scripted([(7, 1.0), (-1, 1.0), (1, 0.5)]), "q", TEXTS, most=4, timeout_s=5)
    assert reordered.places == [1, 0, 2, 3]


async def test_a_single_text_needs_no_reranker() -> None:
    reranker = Scripted(None)
    assert (await reorder(reranker, "q", ["a"], most=4, timeout_s=5)).places == [0]
    assert reranker.texts == ()
