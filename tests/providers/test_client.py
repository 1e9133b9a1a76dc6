"""The HTTP client, against providers with every known fault."""

from __future__ import annotations

import logging
import socket
import threading
from collections.abc import AsyncGenerator, Generator
from contextlib import aclosing, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import httpx2
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from armarium.foundation.errors import ConfigError
from armarium.foundation.settings.file_secrets import FileSecret
from armarium.providers.client import ProviderClient
from armarium.providers.error_responses import error_from_event, error_from_response
from armarium.providers.errors import (
    ProviderAuth,
    ProviderError,
    ProviderFailed,
    ProviderRateLimited,
    ProviderUnavailable,
)
from armarium.providers.retry import Clock, RetryPolicy
from armarium.providers.vendors import COHERE, MISTRAL, OPENAI, Vendor
from emulators import (
    CohereEmulator,
    Fault,
    Malformed,
    MistralEmulator,
    OpenAIEmulator,
    Overlong,
    RateLimited,
    Redirected,
    Refused,
    ServerError,
    Silent,
    Stalled,
    Together,
    Truncated,
    Unusable,
)
from support.manual_clock import WALL, ManualClock

BODY = {"model": "mistral-embed", "input": ["hello"]}
CHAT: dict[str, Any] = {
    "model": "mistral-small-2506",
    "messages": [{"role": "user", "content": "What? [a.md:L1-L2] Rain falls."}],
    "stream": True,
}
# Long enough for an answer of the emulator on a busy machine, and short enough to wait for where none comes.
QUICK = RetryPolicy(attempt_timeout_s=3.0)


@pytest.fixture
def mistral() -> Generator[MistralEmulator]:
    with MistralEmulator() as emulator:
        yield emulator


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@asynccontextmanager
async def client_of(
    emulator: MistralEmulator | OpenAIEmulator, clock: ManualClock | Clock, **options: Any
) -> AsyncGenerator[ProviderClient]:
    options = {"key": emulator.key, "clock": clock.clock if isinstance(clock, ManualClock) else clock} | options
    client = ProviderClient(MISTRAL, base_url=emulator.url, **options)
    try:
        yield client
    finally:
        await client.aclose()


async def failure_of(client: ProviderClient, **options: Any) -> ProviderError:
    with pytest.raises(ProviderError) as raised:
        await client.post("/embeddings", BODY, **options)
    return raised.value


def finished(event: dict[str, Any]) -> bool:
    return event["choices"][0]["finish_reason"] is not None


async def test_an_answer_comes_back_as_the_object_it_is(mistral: MistralEmulator, clock: ManualClock) -> None:
    async with client_of(mistral, clock) as client:
        answer = await client.post("/embeddings", BODY)
    assert answer["model"] == "mistral-embed"
    assert mistral.requests[0].headers["authorization"] == f"Bearer {mistral.key}"
    assert clock.waits == []


async def test_a_key_in_a_file_that_changes_applies_to_the_next_request(
    mistral: MistralEmulator, clock: ManualClock, tmp_path: Path
) -> None:
    file = tmp_path / "key"
    file.write_text("canary-revoked\n")
    async with client_of(mistral, clock, key=FileSecret("corpus.mistral.api_key", file)) as client:
        assert (await failure_of(client)).code == "MISTRAL_AUTH"
        file.write_text(f"{mistral.key}\n")
        assert (await client.post("/embeddings", BODY))["model"] == "mistral-embed"
        assert "canary" not in repr(client)
    sent = [request.headers["authorization"] for request in mistral.requests]
    assert sent == ["Bearer canary-revoked", f"Bearer {mistral.key}"]


@pytest.mark.parametrize("shape", ["typed", "message", "detail"])
async def test_every_shape_of_a_rate_limit_is_waited_out(
    mistral: MistralEmulator, clock: ManualClock, shape: Any
) -> None:
    mistral.faults.extend([RateLimited(shape=shape), RateLimited(shape=shape, retry_after=7)])
    async with client_of(mistral, clock) as client:
        await client.post("/embeddings", BODY)
    assert clock.waits == [0.5, 7.0]
    assert len(mistral.requests) == 3


async def test_a_rate_limit_may_name_a_date(mistral: MistralEmulator, clock: ManualClock) -> None:
    assert WALL == 1_800_000_000
    mistral.faults.append(RateLimited(retry_after="Fri, 15 Jan 2027 08:00:20 GMT"))
    async with client_of(mistral, clock) as client:
        await client.post("/embeddings", BODY)
    assert clock.waits == [20.0]


async def test_a_vendor_that_wants_to_be_left_alone_for_long_is_left_alone(
    mistral: MistralEmulator, clock: ManualClock
) -> None:
    mistral.faults.append(RateLimited(retry_after=3600))
    async with client_of(mistral, clock) as client:
        error = await failure_of(client)
    assert (error.code, error.retryable, error.retry_after_s) == ("MISTRAL_RATE_LIMIT", True, 3600.0)
    assert clock.waits == []


@pytest.mark.parametrize("status", [408, 500, 502, 503, 504, 529])
async def test_a_failing_server_is_asked_again(mistral: MistralEmulator, clock: ManualClock, status: int) -> None:
    mistral.faults.extend([ServerError(status=status)] * 2)
    async with client_of(mistral, clock) as client:
        await client.post("/embeddings", BODY)
    assert clock.waits == [0.5, 1.0]


async def test_a_failing_server_can_say_how_long_it_will(mistral: MistralEmulator, clock: ManualClock) -> None:
    mistral.faults.append(ServerError(retry_after=3))
    async with client_of(mistral, clock) as client:
        await client.post("/embeddings", BODY)
    assert clock.waits == [3.0]


async def test_after_the_last_try_the_last_error_is_raised(mistral: MistralEmulator, clock: ManualClock) -> None:
    mistral.faults.extend([ServerError(), ServerError(), RateLimited()])
    async with client_of(mistral, clock, retry_policy=RetryPolicy(max_attempts=3)) as client:
        error = await failure_of(client, urgent=True)
    assert error.code == "MISTRAL_RATE_LIMIT"
    assert len(mistral.requests) == 3


@pytest.mark.parametrize(
    "fault",
    [Silent(), Truncated(), Malformed(), Malformed(body=b""), Malformed(body=b"\xff\xfe"), ServerError()],
    ids=["silent", "cut off", "not JSON", "empty", "no text", "failing"],
)
async def test_trouble_on_the_way_is_tried_again_and_then_is_retryable(
    mistral: MistralEmulator, clock: ManualClock, fault: Fault
) -> None:
    mistral.faults.append(fault)
    async with client_of(mistral, clock, retry_policy=QUICK) as client:
        await client.post("/embeddings", BODY)
        mistral.faults.append(fault)
    async with client_of(mistral, clock, retry_policy=replace(QUICK, max_attempts=1)) as client:
        error = await failure_of(client)
    assert isinstance(error, ProviderUnavailable)
    assert (error.code, error.retryable) == ("MISTRAL_FAILED", True)


async def test_a_server_that_is_not_there_is_a_retryable_failure(clock: ManualClock) -> None:
    with MistralEmulator() as emulator:
        url = emulator.url
    client = ProviderClient(MISTRAL, "k", base_url=url, clock=clock.clock, retry_policy=RetryPolicy(max_attempts=3))
    error = await failure_of(client)
    assert (error.code, error.retryable) == ("MISTRAL_FAILED", True)
    assert "127.0.0.1" not in error.message
    assert clock.waits == [0.5, 1.0]


async def test_a_batch_outlasts_a_quota_by_the_minute(mistral: MistralEmulator, clock: ManualClock) -> None:
    mistral.faults.extend([RateLimited(shape="message")] * 8)
    async with client_of(mistral, clock) as client:
        await client.post("/embeddings", BODY)
    assert clock.waits == [0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 20.0, 20.0]


async def test_a_secure_connection_to_a_server_that_has_none_is_a_failure(
    mistral: MistralEmulator, clock: ManualClock
) -> None:
    secure = mistral.url.replace("http://", "https://")
    client = ProviderClient(MISTRAL, "k", base_url=secure, clock=clock.clock, retry_policy=RetryPolicy(max_attempts=1))
    error = await failure_of(client)
    await client.aclose()
    assert (error.code, error.retryable) == ("MISTRAL_FAILED", True)
    assert mistral.requests == []


async def test_certificates_that_cannot_be_read_are_reported_without_their_place(
    clock: ManualClock, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    certificates = tmp_path / "broken.pem"
    certificates.write_text("no certificate")
    monkeypatch.setenv("SSL_CERT_FILE", str(certificates))
    client = ProviderClient(MISTRAL, "k", base_url="https://localhost:9", clock=clock.clock)
    error = await failure_of(client)
    assert (error.code, error.retryable) == ("MISTRAL_FAILED", False)
    assert str(tmp_path) not in str(vars(error))


async def test_all_tries_together_end_at_the_deadline(mistral: MistralEmulator, clock: ManualClock) -> None:
    mistral.faults.extend([ServerError()] * 10)
    async with client_of(mistral, clock, retry_policy=RetryPolicy(max_attempts=10, first_delay_s=2.0)) as client:
        error = await failure_of(client, deadline_s=7.0)
    assert error.code == "MISTRAL_FAILED"
    assert clock.waits == [2.0, 4.0]


async def test_a_try_is_cut_at_the_deadline_even_if_it_could_take_longer(
    mistral: MistralEmulator, clock: ManualClock
) -> None:
    mistral.faults.append(Silent())
    async with client_of(mistral, clock, retry_policy=RetryPolicy(max_attempts=1, attempt_timeout_s=60)) as client:
        with anyio.fail_after(5):
            error = await failure_of(client, deadline_s=0.05)
    assert error.retryable


@pytest.mark.parametrize("status", [400, 404, 413, 422])
async def test_a_refused_request_is_not_repeated(mistral: MistralEmulator, clock: ManualClock, status: int) -> None:
    mistral.faults.append(Refused(status=status))
    async with client_of(mistral, clock) as client:
        error = await failure_of(client)
    assert (error.code, error.retryable) == ("MISTRAL_FAILED", False)
    assert error.private["status"] == status
    assert len(mistral.requests) == 1


async def test_an_empty_account_is_not_taken_for_a_rate_limit(mistral: MistralEmulator, clock: ManualClock) -> None:
    body = {"error": {"message": "You exceeded your quota", "type": "insufficient_quota", "code": "insufficient_quota"}}
    mistral.faults.append(Refused(status=429, body=body))
    async with client_of(mistral, clock) as client:
        error = await failure_of(client)
    assert (error.code, error.retryable) == ("MISTRAL_FAILED", False)
    assert len(mistral.requests) == 1


async def test_a_redirect_is_not_followed(mistral: MistralEmulator, clock: ManualClock) -> None:
    mistral.faults.append(Redirected(location=f"{mistral.url}/embeddings"))
    async with client_of(mistral, clock) as client:
        error = await failure_of(client)
    assert (error.code, error.retryable) == ("MISTRAL_FAILED", False)
    assert len(mistral.requests) == 1


async def test_an_answer_that_never_ends_is_not_read_to_its_end(mistral: MistralEmulator, clock: ManualClock) -> None:
    mistral.faults.append(Overlong(bytes=200_000))
    async with client_of(mistral, clock, max_response_bytes=100_000) as client:
        error = await failure_of(client)
        assert (error.code, error.retryable) == ("MISTRAL_FAILED", False)
        await client.post("/embeddings", BODY)


async def test_an_answer_that_is_no_object_cannot_be_used(mistral: MistralEmulator, clock: ManualClock) -> None:
    mistral.faults.append(Malformed(body=b"[1, 2]"))
    async with client_of(mistral, clock) as client:
        error = await failure_of(client)
    assert isinstance(error, ProviderFailed)
    assert not error.retryable


@pytest.mark.parametrize(
    ("vendor", "name"), [(MISTRAL, "MISTRAL"), (OPENAI, "OPENAI"), (COHERE, "COHERE")], ids=lambda value: str(value)[:8]
)
@pytest.mark.parametrize(
    ("status", "kind", "code", "retryable"),
    [
        (401, ProviderAuth, "AUTH", False),
        (403, ProviderAuth, "AUTH", False),
        (429, ProviderRateLimited, "RATE_LIMIT", True),
        (400, ProviderFailed, "FAILED", False),
        (503, ProviderUnavailable, "FAILED", True),
    ],
)
async def test_each_vendor_has_its_own_codes(
    vendor: Vendor, name: str, status: int, kind: type[ProviderError], code: str, retryable: bool, clock: ManualClock
) -> None:
    with CohereEmulator(None) as emulator:
        emulator.faults.append(Refused(status=status))
        client = ProviderClient(
            vendor, base_url=emulator.url, clock=clock.clock, retry_policy=RetryPolicy(max_attempts=1)
        )
        error = await failure_of(client, urgent=True)
        await client.aclose()
    assert isinstance(error, kind)
    assert (error.code, error.retryable) == (f"{name}_{code}", retryable)


async def test_neither_key_nor_body_are_reported_or_logged(
    mistral: MistralEmulator, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, logger="armarium")
    key = "sk-very-secret-key"
    page = f"key {key} " + "what the vendor wrote " * 500
    mistral.faults.append(Refused(status=503, body=page))
    async with client_of(mistral, clock, key=key) as client:
        error = await failure_of(client)
        reported = f"{error!r} {error.message} {error.hint} {error.details} {client!r} {vars(error)}"
    assert error.code == "MISTRAL_AUTH"
    assert key not in reported
    assert "what the vendor wrote" not in reported
    records = [str(vars(record)) for record in caplog.records if record.name.startswith("armarium")]
    assert len(records) == 1
    assert key not in records[0]
    assert len(records[0]) < 2000


@pytest.mark.parametrize("key", ["two\nlines", "schlüssel", "nul\0"])
def test_a_key_that_cannot_be_sent_is_refused_without_being_reported(key: str) -> None:
    with pytest.raises(ProviderAuth) as raised:
        ProviderClient(MISTRAL, key)
    assert raised.value.code == "MISTRAL_AUTH"
    assert key not in str(vars(raised.value))


async def test_an_endpoint_without_a_key_is_asked_without_one(clock: ManualClock) -> None:
    with OpenAIEmulator() as emulator:
        async with client_of(emulator, clock, key=" ") as client:
            await client.post("/embeddings", {"model": "nomic-embed-text", "input": ["hello"]})
        assert "authorization" not in emulator.requests[0].headers


async def test_no_more_requests_are_under_way_than_allowed(mistral: MistralEmulator, clock: ManualClock) -> None:
    barrier = threading.Barrier(3)
    mistral.faults.extend([Together(barrier=barrier)] * 9)
    async with client_of(mistral, clock, concurrency=3) as client, anyio.create_task_group() as group:
        for _ in range(9):
            group.start_soon(client.post, "/embeddings", BODY)
    assert mistral.most_in_flight == 3
    assert len(mistral.requests) == 9


async def test_a_question_does_not_queue_behind_batches(mistral: MistralEmulator, clock: ManualClock) -> None:
    # The one slot is taken by a batch that is only answered together with the question.
    mistral.faults.extend([Together(barrier=threading.Barrier(2))] * 2)
    async with client_of(mistral, clock, concurrency=1) as client, anyio.create_task_group() as group:
        group.start_soon(client.post, "/embeddings", BODY)
        await client.post("/embeddings", BODY, urgent=True)
    assert mistral.most_in_flight == 2


async def test_requests_keep_to_the_rate(mistral: MistralEmulator, clock: ManualClock) -> None:
    async with client_of(mistral, clock, requests_per_minute=120) as client:
        for _ in range(3):
            await client.post("/embeddings", BODY)
    assert clock.waits == [0.5, 0.5]


async def test_what_one_request_is_reported_about_the_rate_holds_for_all(
    mistral: MistralEmulator, clock: ManualClock
) -> None:
    mistral.faults.append(RateLimited(retry_after=40))
    waits: list[float] = []
    waiting, released = anyio.Event(), anyio.Event()

    async def wait(seconds: float) -> None:
        waits.append(seconds)
        waiting.set()
        await released.wait()
        clock.now += seconds

    blocking = replace(clock.clock, sleep=wait)
    async with client_of(mistral, blocking) as client, anyio.create_task_group() as group:
        group.start_soon(client.post, "/embeddings", BODY)
        await waiting.wait()
        error = await failure_of(client, urgent=True, deadline_s=10.0)
        released.set()
    assert error.code == "MISTRAL_RATE_LIMIT"
    assert error.retry_after_s == 40.0
    assert waits == [40.0]
    assert len(mistral.requests) == 2


async def test_a_cancelled_request_leaves_the_vendor(mistral: MistralEmulator, clock: ManualClock) -> None:
    mistral.faults.append(Silent())
    async with client_of(mistral, clock, concurrency=1) as client:
        async with anyio.create_task_group() as group:
            group.start_soon(client.post, "/embeddings", BODY)
            assert await anyio.to_thread.run_sync(mistral.silent.wait, 5)
            group.cancel_scope.cancel()
        assert await anyio.to_thread.run_sync(mistral.left.wait, 5)
        await client.post("/embeddings", BODY)


async def test_a_stream_comes_event_by_event(mistral: MistralEmulator, clock: ManualClock) -> None:
    async with client_of(mistral, clock) as client:
        events = [event async for event in client.events("/chat/completions", CHAT, is_last=finished)]
    text = "".join(event["choices"][0]["delta"]["content"] for event in events)
    assert text == "It says: Rain falls. [a.md:L1-L2]."
    assert len(events) > 4


@pytest.mark.parametrize(
    "fault",
    [
        Truncated(after_events=2),
        Truncated(after_events=2, cleanly=True),
        Stalled(after_events=2),
    ],
    ids=["connection lost", "ended early", "gone quiet"],
)
async def test_a_stream_that_breaks_off_is_a_failure_and_not_a_short_answer(
    mistral: MistralEmulator, clock: ManualClock, fault: Fault
) -> None:
    mistral.faults.append(fault)
    received: list[dict[str, Any]] = []
    async with client_of(mistral, clock, retry_policy=QUICK) as client:

        async def receive() -> None:
            async for event in client.events("/chat/completions", CHAT, is_last=finished):
                received.append(event)

        with pytest.raises(ProviderUnavailable) as raised:
            await receive()
    assert (raised.value.code, raised.value.retryable) == ("MISTRAL_FAILED", True)
    assert len(received) == 2
    assert len(mistral.requests) == 1


@pytest.mark.parametrize(
    "fault",
    [
        Truncated(after_events=0),
        Truncated(after_events=0, cleanly=True),
        Stalled(after_events=0),
        Silent(),
        ServerError(),
        RateLimited(),
    ],
    ids=["lost", "empty", "quiet", "silent", "failing", "limited"],
)
async def test_a_stream_of_which_nothing_came_is_asked_for_again(
    mistral: MistralEmulator, clock: ManualClock, fault: Fault
) -> None:
    mistral.faults.append(fault)
    async with client_of(mistral, clock, retry_policy=QUICK) as client:
        events = [event async for event in client.events("/chat/completions", CHAT, is_last=finished)]
    assert finished(events[-1])
    assert len(mistral.requests) == 2


@pytest.mark.parametrize(
    ("error", "code"),
    [
        ({"object": "error", "message": "slow down", "type": "rate_limited"}, "MISTRAL_RATE_LIMIT"),
        ({"error": {"message": "slow down", "code": "rate_limit_exceeded"}}, "MISTRAL_RATE_LIMIT"),
        ({"error": {"message": "out of memory", "type": "server_error"}}, "MISTRAL_FAILED"),
        ({"error": "out of memory"}, "MISTRAL_FAILED"),
    ],
)
async def test_an_error_inside_a_stream_is_an_error(
    mistral: MistralEmulator, clock: ManualClock, error: dict[str, Any], code: str
) -> None:
    mistral.faults.append(Unusable(change=lambda event: error))
    async with client_of(mistral, clock, retry_policy=RetryPolicy(max_attempts=1)) as client:
        with pytest.raises(ProviderError) as raised:
            async for _ in client.events("/chat/completions", CHAT, is_last=finished):
                pass
    assert (raised.value.code, raised.value.retryable) == (code, True)


async def test_a_stream_that_is_left_early_frees_its_connection(mistral: MistralEmulator, clock: ManualClock) -> None:
    mistral.faults.append(Stalled(after_events=1))
    async with client_of(mistral, clock, concurrency=1) as client:
        async with aclosing(client.events("/chat/completions", CHAT, is_last=finished)) as events:
            async for _ in events:
                break
        assert await anyio.to_thread.run_sync(mistral.left.wait, 5)
        await client.post("/embeddings", BODY, urgent=True)


async def test_a_stream_that_never_ends_is_not_read_for_ever(mistral: MistralEmulator, clock: ManualClock) -> None:
    async with client_of(mistral, clock, max_response_bytes=500) as client:
        with pytest.raises(ProviderFailed) as raised:
            async for _ in client.events("/chat/completions", CHAT, is_last=finished):
                pass
    assert not raised.value.retryable


async def test_a_line_separator_inside_an_event_does_not_split_it(mistral: MistralEmulator, clock: ManualClock) -> None:
    question = {"role": "user", "content": "[a.md:L1-L2] one\u0085two\N{LINE SEPARATOR}three"}
    mistral.faults.append(Unusable(change=lambda event: event | {"note": "one\u0085two\N{LINE SEPARATOR}three"}))
    async with client_of(mistral, clock) as client:
        body = {**CHAT, "messages": [question]}
        events = [event async for event in client.events("/chat/completions", body, is_last=finished)]
    assert {event["note"] for event in events} == {"one\u0085two\N{LINE SEPARATOR}three"}


async def test_a_server_that_cannot_stream_answers_in_one_event(mistral: MistralEmulator, clock: ManualClock) -> None:
    async with client_of(mistral, clock) as client:
        body = {**CHAT, "stream": False}
        events = [event async for event in client.events("/chat/completions", body, is_last=finished)]
    assert [event["object"] for event in events] == ["chat.completion"]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["error", "message", "detail", "type", "code", "object"]), inner, max_size=4)
    ),
    max_leaves=8,
)


@given(
    status=st.integers(300, 599), body=JSON.map(orjson.dumps) | st.binary(max_size=40), retry_after=st.text(max_size=9)
)
def test_any_refusal_becomes_an_error_of_the_vendor(status: int, body: bytes, retry_after: str) -> None:
    error = error_from_response(MISTRAL, status, {"retry-after": retry_after}, body, key="k", wall=WALL)
    assert error.code in ("MISTRAL_AUTH", "MISTRAL_RATE_LIMIT", "MISTRAL_FAILED")
    assert "k" not in error.private["said"].replace("[key]", "")


@given(st.dictionaries(st.sampled_from(["error", "object", "choices"]), JSON))
def test_any_event_of_a_stream_can_be_looked_at(event: dict[str, Any]) -> None:
    error = error_from_event(MISTRAL, event, key=None)
    assert (error is None) == (event.get("object") != "error" and not event.get("error"))


@pytest.mark.parametrize(
    ("configured", "used"),
    [
        ("http://localhost:11434", "http://localhost:11434/v1"),
        ("http://localhost:11434/", "http://localhost:11434/v1"),
        ("https://models.example.com/api/v3/", "https://models.example.com/api/v3"),
    ],
)
def test_a_base_url_without_a_path_gets_the_vendors_version(configured: str, used: str) -> None:
    assert OPENAI.base_url(configured) == used


@pytest.mark.parametrize(
    "url", ["", "localhost:11434", "ftp://example.com", "http://", "https://me:pw@example.com/v1", "http://e.com/?a=b"]
)
def test_a_base_url_that_cannot_be_asked_is_a_configuration_error(url: str) -> None:
    with pytest.raises(ConfigError) as raised:
        OPENAI.base_url(url)
    assert "pw" not in raised.value.message.split()


@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.2", "localhost", "LOCALHOST", "[::1]", "localhost."])
async def test_no_proxy_is_asked_for_a_model_on_this_machine(monkeypatch: pytest.MonkeyPatch, host: str) -> None:
    """With `network: off` too, such an address is permitted."""
    with socket.create_server(("127.0.0.1", 0)) as proxy, socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
        closed.close()
        proxy.settimeout(0)
        monkeypatch.setenv("HTTP_PROXY", f"http://127.0.0.1:{proxy.getsockname()[1]}")
        monkeypatch.setenv("NO_PROXY", "")
        client = ProviderClient(
            OPENAI, base_url=f"http://{host}:{port}/v1", retry_policy=RetryPolicy(max_attempts=1, attempt_timeout_s=2)
        )
        with pytest.raises(ProviderError):
            await client.post("/embeddings", BODY, deadline_s=2)
        await client.aclose()
        with pytest.raises(BlockingIOError):
            proxy.accept()


async def test_a_model_on_this_machine_is_reached_past_a_proxy(
    mistral: MistralEmulator, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    monkeypatch.setenv("NO_PROXY", "")
    async with httpx2.AsyncClient() as direct:
        with pytest.raises(httpx2.TransportError):
            await direct.post(f"{mistral.url}/embeddings", json=BODY)
    async with client_of(mistral, clock) as client:
        await client.post("/embeddings", BODY)
