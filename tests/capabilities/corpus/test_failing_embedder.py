"""An embedder or reranker that keeps failing is not called for a while, so that searches do not wait for it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from armarium.capabilities.corpus import leader as leading
from armarium.capabilities.corpus.query.search import Filters, ModelGuards
from armarium.capabilities.corpus.service import Corpus
from armarium.capabilities.corpus.settings import RerankSettings
from armarium.foundation.concurrency.circuit_breaker import GuardedService
from armarium.providers.errors import ProviderFailed, ProviderUnavailable
from armarium.providers.local.embedder import LocalEmbedder
from support.corpus_calls import write_lighthouse
from support.open_corpus import OpenCorpus


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(leading, "ModelGuards", lambda: ModelGuards(clock))
    return clock


@pytest.fixture
async def corpus(tmp_path: Path) -> OpenCorpus:
    write_lighthouse(tmp_path / "root")
    opened = OpenCorpus(tmp_path / "root")
    await opened.index()
    return opened


async def lexical_only(service: Corpus) -> str | None:
    results = await service.search("horn in fog", 5, "text", Filters())
    assert results.hits[0].chunk.rel_path == "handbook.md"
    return results.lexical_only


async def test_an_embedder_that_keeps_failing_is_asked_by_one_search_in_a_while(
    corpus: OpenCorpus, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    works, embed_query = False, LocalEmbedder.embed_query

    async def failing(embedder: LocalEmbedder, text: str) -> Any:
        asked.append(text)
        if not works:
            raise ProviderUnavailable("no answer within 15 seconds")
        return await embed_query(embedder, text)

    monkeypatch.setattr(LocalEmbedder, "embed_query", failing)
    async with corpus.opened("none") as service:
        for _ in range(10):
            told = await lexical_only(service)
            assert told is not None
            assert "no answer within 15 seconds" in told
        assert len(asked) == 3
        assert "not retried for a while" in told
        clock.now += 31
        for _ in range(5):
            assert await lexical_only(service) is not None
        assert len(asked) == 4
        clock.now += 31
        works = True
        for _ in range(5):
            assert await lexical_only(service) is None
        assert len(asked) == 9


async def test_a_query_that_an_embedder_refuses_does_not_count_against_it(
    corpus: OpenCorpus, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    async def refusing(_: LocalEmbedder, text: str) -> Any:
        asked.append(text)
        raise ProviderFailed("not this text")

    monkeypatch.setattr(LocalEmbedder, "embed_query", refusing)
    async with corpus.opened("none") as service:
        for _ in range(6):
            assert await lexical_only(service) is not None
    assert len(asked) == 6


class DeadReranker:
    """Fails, and counts how often it is asked."""

    asked = 0

    async def rerank(self, query: str, texts: Sequence[str], top_n: int) -> list[tuple[int, float]]:
        self.asked += 1
        raise ProviderUnavailable("no answer")

    async def aclose(self) -> None:
        """Nothing to let go of."""


async def test_a_reranker_that_keeps_failing_is_left_alone_too(
    corpus: OpenCorpus, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    reranker = DeadReranker()
    monkeypatch.setattr("armarium.capabilities.corpus.model_choice.CohereReranker", lambda client, model: reranker)
    async with corpus.opened("none", rerank=RerankSettings(base_url="http://127.0.0.1:1")) as service:
        for _ in range(8):
            assert await lexical_only(service) is None
        assert reranker.asked == 3
        clock.now += 31
        await lexical_only(service)
        await lexical_only(service)
    assert reranker.asked == 4


def test_a_trial_that_is_cut_short_leaves_the_next_call_to_try() -> None:
    clock = Clock()
    service = GuardedService(1, 10.0, clock)
    with service.attempt() as attempt:
        attempt.failed = True
    clock.now += 11

    def cut_short() -> None:
        with service.attempt() as attempt:
            assert attempt.admitted
            with service.attempt() as another:
                assert not another.admitted
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        cut_short()
    with service.attempt() as attempt:
        assert attempt.admitted
    with service.attempt() as attempt:
        assert attempt.admitted


def test_calls_that_are_cut_short_do_not_count_as_answers() -> None:
    service = GuardedService(2, 10.0, Clock())

    def give_up() -> None:
        with service.attempt():
            raise KeyboardInterrupt

    with service.attempt() as attempt:
        attempt.failed = True
    with pytest.raises(KeyboardInterrupt):
        give_up()
    with service.attempt() as attempt:
        attempt.failed = True
    with service.attempt() as attempt:
        assert not attempt.admitted
