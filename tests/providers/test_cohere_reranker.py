"""Reranking by a Cohere-compatible endpoint."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Generator
from typing import Any

import pytest

from armarium.providers.client import ProviderClient
from armarium.providers.errors import ProviderAuth, ProviderFailed, ProviderRateLimited
from armarium.providers.hosted import CohereReranker
from armarium.providers.interfaces import Reranker
from armarium.providers.vendors import COHERE
from emulators import CohereEmulator, RateLimited, Unusable
from support.manual_clock import ManualClock

TEXTS = ["the sea rises", "rain falls in spring", "rain", "nothing of it"]


@pytest.fixture
def cohere() -> Generator[CohereEmulator]:
    with CohereEmulator() as emulator:
        yield emulator


@pytest.fixture
async def reranker(cohere: CohereEmulator) -> AsyncGenerator[Reranker]:
    reranker = CohereReranker(ProviderClient(COHERE, cohere.key, base_url=cohere.url, clock=ManualClock().clock))
    yield reranker
    await reranker.aclose()


async def test_the_best_texts_come_first_by_their_position(cohere: CohereEmulator, reranker: Reranker) -> None:
    assert await reranker.rerank("spring rain", TEXTS, 2) == [(1, 1.0), (2, 0.5)]
    assert cohere.bodies("/rerank") == [
        {"model": "rerank-v3.5", "query": "spring rain", "documents": TEXTS, "top_n": 2}
    ]


async def test_more_than_there_is_can_be_asked_for(reranker: Reranker) -> None:
    assert [position for position, _ in await reranker.rerank("rain", TEXTS, 100)] == [1, 2, 0, 3]


async def test_nothing_to_rank_needs_no_request(cohere: CohereEmulator, reranker: Reranker) -> None:
    assert await reranker.rerank("rain", [], 5) == []
    assert await reranker.rerank("rain", TEXTS, 0) == []
    assert cohere.requests == []


async def test_long_and_empty_texts_can_be_ranked(cohere: CohereEmulator, reranker: Reranker) -> None:
    assert await reranker.rerank("rain", ["", "rain " * 100_000], 1) == [(1, 1.0)]
    assert max(len(text) for text in cohere.bodies("/rerank")[0]["documents"]) == 12_000


async def test_an_order_that_comes_late_is_given_up_soon(cohere: CohereEmulator, reranker: Reranker) -> None:
    cohere.faults.append(RateLimited(retry_after=30))
    with pytest.raises(ProviderRateLimited) as raised:
        await reranker.rerank("rain", TEXTS, 2)
    assert (raised.value.code, raised.value.retryable) == ("COHERE_RATE_LIMIT", True)
    assert len(cohere.requests) == 1


async def test_a_wrong_key_is_told_as_cohere_knows_it(cohere: CohereEmulator) -> None:
    reranker = CohereReranker(ProviderClient(COHERE, "wrong", base_url=cohere.url))
    with pytest.raises(ProviderAuth) as raised:
        await reranker.rerank("rain", TEXTS, 2)
    await reranker.aclose()
    assert raised.value.code == "COHERE_AUTH"


@pytest.mark.parametrize(
    "change",
    [
        lambda answer: {},
        lambda answer: {"results": []},
        lambda answer: {"results": [1]},
        lambda answer: {"results": [{"index": 4, "relevance_score": 1}]},
        lambda answer: {"results": [{"index": -1, "relevance_score": 1}]},
        lambda answer: {"results": [{"index": True, "relevance_score": 1}]},
        lambda answer: {"results": [{"index": "0", "relevance_score": 1}]},
        lambda answer: {"results": [{"index": 0}]},
        lambda answer: {"results": [{"index": 0, "relevance_score": "high"}]},
        lambda answer: {"results": [{"index": 0, "relevance_score": 1}] * 2},
    ],
)
async def test_an_order_of_texts_that_were_not_sent_is_not_believed(
    cohere: CohereEmulator, reranker: Reranker, change: Callable[[dict[str, Any]], object]
) -> None:
    cohere.faults.append(Unusable(change=change))
    with pytest.raises(ProviderFailed) as raised:
        await reranker.rerank("rain", TEXTS, 2)
    assert (raised.value.code, raised.value.retryable) == ("COHERE_FAILED", False)


async def test_an_order_that_is_not_sorted_gets_sorted(cohere: CohereEmulator, reranker: Reranker) -> None:
    cohere.faults.append(Unusable(change=lambda answer: {"results": answer["results"][::-1]}))
    assert await reranker.rerank("spring rain", TEXTS, 2) == [(1, 1.0), (2, 0.5)]
