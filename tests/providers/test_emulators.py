"""The emulators are as strict as the providers."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import httpx
import pytest

from emulators import CohereEmulator, Emulator, MistralEmulator, OpenAIEmulator, RateLimited, schemas
from emulators.model_output import NOTHING_KNOWN, embedding

CHAT: dict[str, Any] = {"model": "mistral-small-2506", "messages": [{"role": "user", "content": "Why?"}]}


@pytest.fixture
def mistral() -> Generator[MistralEmulator]:
    with MistralEmulator() as emulator:
        yield emulator


def ask(emulator: Emulator, path: str, body: dict[str, Any]) -> httpx.Response:
    headers = {"authorization": f"Bearer {emulator.key}"}
    return httpx.post(f"{emulator.url}{path}", json=body, headers=headers, timeout=10, trust_env=False)


@pytest.mark.parametrize(
    ("kind", "path", "body"),
    [
        (MistralEmulator, "/embeddings", {"model": "mistral-embed"}),
        (MistralEmulator, "/embeddings", {"model": "mistral-embed", "input": [1]}),
        (MistralEmulator, "/embeddings", {"model": "mistral-embed", "input": ["a"], "unknown": 1}),
        (MistralEmulator, "/chat/completions", {"model": "mistral-small-2506"}),
        (MistralEmulator, "/chat/completions", {**CHAT, "messages": [{"role": "nobody", "content": "a"}]}),
        (MistralEmulator, "/chat/completions", {**CHAT, "temperature": 9}),
        (OpenAIEmulator, "/embeddings", {"input": ["a"]}),
        (OpenAIEmulator, "/chat/completions", {"model": "llama3.2", "messages": "hello"}),
        (CohereEmulator, "/rerank", {"model": "rerank-v3.5", "query": "a"}),
        (CohereEmulator, "/rerank", {"model": "rerank-v3.5", "query": "a", "documents": ["a"], "top_n": 0}),
    ],
)
def test_a_request_that_does_not_fit_the_schema_is_refused_and_fails_the_test(
    kind: type[Emulator], path: str, body: dict[str, Any]
) -> None:
    with pytest.raises(AssertionError, match="request: "), kind() as emulator:  # pyright: ignore[reportCallIssue]
        assert ask(emulator, path, body).status_code == 422


@pytest.mark.parametrize(
    ("small", "fits"),
    [
        (schemas.EMBEDDING_REQUEST, {"model": "m", "input": ["a"]}),
        (schemas.EMBEDDING_ANSWER, {"object": "list", "data": [{"index": 0, "embedding": [0.5]}], "model": "m"}),
        (schemas.CHAT_REQUEST, {**CHAT, "stream": True, "max_tokens": 5}),
        (schemas.CHAT_EVENT, {"id": "1", "model": "m", "choices": [{"index": 0, "delta": {}, "finish_reason": None}]}),
        (schemas.RERANK_REQUEST, {"model": "m", "query": "q", "documents": ["a"], "top_n": 1}),
        (schemas.RERANK_ANSWER, {"results": [{"index": 0, "relevance_score": 0.5}]}),
    ],
)
def test_where_the_published_schemas_are_missing_small_ones_still_want_every_field_we_use(
    small: dict[str, Any], fits: dict[str, Any]
) -> None:
    complaint = schemas.check(small)
    assert complaint(fits) is None
    for name in small["required"]:
        without = {key: value for key, value in fits.items() if key != name}
        assert name in (complaint(without) or "")


def test_an_answer_can_come_in_one_piece(mistral: MistralEmulator) -> None:
    answer = ask(mistral, "/chat/completions", CHAT).json()
    assert answer["choices"][0]["message"] == {"role": "assistant", "content": NOTHING_KNOWN}
    assert answer["choices"][0]["finish_reason"] == "stop"


def test_unknown_paths_models_and_keys_are_refused_and_the_requests_recorded(mistral: MistralEmulator) -> None:
    body = {"model": "mistral-embed", "input": "a"}
    assert ask(mistral, "/nowhere", body).status_code == 404
    assert ask(mistral, "/embeddings", {**body, "model": "none"}).status_code == 400
    mistral.key, key = "another", mistral.key
    refused = httpx.post(f"{mistral.url}/embeddings", json=body, headers={"authorization": f"Bearer {key}"})
    assert refused.status_code == 401
    assert [request.path for request in mistral.requests] == ["/v1/nowhere", "/v1/embeddings", "/v1/embeddings"]


def test_a_fault_befalls_the_path_it_is_meant_for(mistral: MistralEmulator) -> None:
    mistral.faults.append(RateLimited(on="/chat/completions", retry_after=3))
    assert ask(mistral, "/embeddings", {"model": "mistral-embed", "input": "a"}).status_code == 200
    limited = ask(mistral, "/chat/completions", CHAT)
    assert (limited.status_code, limited.headers["retry-after"]) == (429, "3")
    assert limited.json()["type"] == "rate_limited"
    assert ask(mistral, "/chat/completions", CHAT).status_code == 200


def test_texts_that_share_words_are_near() -> None:
    def nearness(one: str, other: str) -> float:
        return sum(a * b for a, b in zip(embedding(one, 1024), embedding(other, 1024), strict=True))

    assert nearness("rain in spring", "spring rain") > 0.7
    assert abs(nearness("rain in spring", "parse the command line")) < 0.3
    assert nearness("get_user_name", "the user name") > 0.5
