"""The limits of one caller: calls, searches, requests and bytes in flight. Other callers are not affected."""

from __future__ import annotations

import threading
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Any

import anyio
import anyio.lowlevel
import httpx
import pytest

from armarium.foundation.errors import TooManyCalls
from armarium.foundation.security.identity import ANYONE, LOCAL, Authenticator
from armarium.foundation.settings.model import LimitSettings
from armarium.surfaces.caller import Caller
from armarium.surfaces.caller_limits import BytesInFlight, Reservation
from armarium.surfaces.json.threads import run_in_json_thread, set_json_caller
from support.mcp_messages import calling, http_client, open_session, serving
from support.mcp_test_server import ALICE, ALICE_KEY, BOB, BOB_KEY, Rig, build
from support.waiting import eventually

MIB = 1024 * 1024
AS_ALICE = Caller(ALICE, "http", "session-1", ALICE_KEY)
AS_BOB = Caller(BOB, "http", "session-2", BOB_KEY)


def error_of(result: dict[str, Any]) -> dict[str, Any]:
    assert result["isError"] is True
    return result["structuredContent"]["error"]


@asynccontextmanager
async def waiting(rig: Rig, caller: Caller, tool: str, moment: str) -> AsyncGenerator[None]:
    """While inside, a call of the caller is under way."""
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(rig.dispatcher.outcome, caller, tool, {"moment": moment})
        await rig.stage.happens(f"{moment} awaited")
        yield
        rig.stage[moment].set()


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        (Caller(ALICE, "http", "a"), Caller(ALICE, "api"), True),
        (Caller(ALICE, "http", "a"), Caller(BOB, "http", "a"), False),
        (Caller(ANYONE, "http", "a", address="::1"), Caller(ANYONE, "http", "b", address="::1"), False),
        (Caller(ANYONE, "http", "a", address="::1"), Caller(ANYONE, "http", "a", address="::1"), True),
        (Caller(ANYONE, "http", address="::1"), Caller(ANYONE, "api", address="::1"), True),
        (Caller(ANYONE, "http", address="::1"), Caller(ANYONE, "http", address="::2"), False),
        (Caller(LOCAL, "stdio", "a"), Caller(LOCAL, "stdio", "b"), True),
    ],
)
def test_a_caller_is_a_key_or_without_keys_a_session_or_an_address(one: Caller, other: Caller, same: bool) -> None:
    assert (one.id == other.id) is same


async def test_a_call_above_the_limit_is_refused_and_other_callers_are_not() -> None:
    rig = build(limits=LimitSettings(calls_in_flight=2))
    async with waiting(rig, AS_ALICE, "wait_for", "noon"), waiting(rig, AS_ALICE, "wait_for", "dusk"):
        error = error_of((await rig.dispatcher.outcome(AS_ALICE, "echo", {"text": "hi"})).result)
        assert (error["code"], error["retryable"]) == ("TOO_MANY_CALLS", True)
        assert error["hint"]
        assert error["details"]["limit"] == "calls_in_flight"
        answer = (await rig.dispatcher.outcome(AS_BOB, "echo", {"text": "hi"})).result
        assert answer["structuredContent"] == {"text": "hi"}
    answer = (await rig.dispatcher.outcome(AS_ALICE, "echo", {"text": "hi"})).result
    assert answer["structuredContent"] == {"text": "hi"}


async def test_by_default_a_caller_may_have_64_calls_in_flight() -> None:
    rig = build()
    async with anyio.create_task_group() as tasks:
        for number in range(64):
            tasks.start_soon(rig.dispatcher.outcome, AS_ALICE, "wait_for", {"moment": f"moment {number}"})
        for number in range(64):
            await rig.stage.happens(f"moment {number} awaited")
        answer = (await rig.dispatcher.outcome(AS_ALICE, "echo", {"text": "hi"})).result
        assert answer["structuredContent"] == {"text": "hi"}
        for number in range(64):
            rig.stage[f"moment {number}"].set()


async def test_calls_that_were_cancelled_or_failed_count_no_longer() -> None:
    rig = build(limits=LimitSettings(calls_in_flight=1))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(rig.dispatcher.outcome, AS_ALICE, "wait_for", {"moment": "never"})
        await rig.stage.happens("never awaited")
        tasks.cancel_scope.cancel()
    assert error_of((await rig.dispatcher.outcome(AS_ALICE, "crash", {})).result)["code"] == "INTERNAL"
    assert error_of((await rig.dispatcher.outcome(AS_ALICE, "echo", {})).result)["code"] == "INVALID_ARGUMENT"
    answer = (await rig.dispatcher.outcome(AS_ALICE, "echo", {"text": "hi"})).result
    assert answer["structuredContent"] == {"text": "hi"}


async def test_a_search_above_the_limit_waits_for_its_turn_and_no_other_call_does() -> None:
    rig = build(limits=LimitSettings(searches_in_flight=1))
    async with waiting(rig, AS_ALICE, "look_for", "noon"), anyio.create_task_group() as tasks:
        tasks.start_soon(rig.dispatcher.outcome, AS_ALICE, "look_for", {"moment": "dusk"})
        for _ in range(20):
            await anyio.lowlevel.checkpoint()
        assert not rig.stage["dusk awaited"].is_set()
        async with waiting(rig, AS_BOB, "look_for", "dawn"), waiting(rig, AS_ALICE, "wait_for", "midnight"):
            assert not rig.stage["dusk awaited"].is_set()
        rig.stage["noon"].set()
        await rig.stage.happens("dusk awaited")
        rig.stage["dusk"].set()


async def post(http: httpx.AsyncClient, session: dict[str, str]) -> httpx.Response:
    return await http.post("/mcp", json=calling("echo", text="hi"), headers=session)


async def test_a_caller_that_sends_too_fast_is_refused_with_429_and_others_are_not() -> None:
    # Alice may send five requests, two of which open her session; the next one would have to wait for minutes.
    rig = build(request_limits=LimitSettings(requests_per_second=0.001, request_burst=5))
    async with serving(rig.app) as url, http_client(url) as alice, http_client(url, BOB_KEY) as bob:
        session = await open_session(alice)
        assert [(await post(alice, session)).status_code for _ in range(4)] == [200, 200, 200, 429]
        refused = await post(alice, session)
        assert int(refused.headers["retry-after"]) > 1
        error = refused.json()["error"]
        assert (error["data"]["code"], error["data"]["retryable"]) == ("RATE_LIMITED", True)
        assert (await post(bob, await open_session(bob))).status_code == 200
        assert (await alice.get("/health")).text == "ok"


async def test_without_keys_every_session_has_its_own_rate() -> None:
    rig = build(
        authenticator=Authenticator((), open_to_anyone=True),
        request_limits=LimitSettings(requests_per_second=0.001, request_burst=5),
    )
    async with serving(rig.app) as url, http_client(url, None) as http:
        first, second = await open_session(http), await open_session(http)
        # Each has taken one request of its own; the two that opened them count for the address.
        assert [(await post(http, first)).status_code for _ in range(5)] == [200] * 4 + [429]
        assert (await post(http, second)).status_code == 200
        made_up = [await post(http, {"mcp-session-id": f"{number:032}"}) for number in range(5)]
        assert [each.status_code for each in made_up] == [404] * 3 + [429] * 2


async def test_a_caller_that_waits_for_each_answer_is_slowed_down_and_never_refused() -> None:
    rig = build(request_limits=LimitSettings(requests_per_second=100, request_burst=1))
    async with serving(rig.app) as url, http_client(url) as http:
        session = await open_session(http)
        assert {(await post(http, session)).status_code for _ in range(20)} == {200}


async def test_no_rate_limit_when_the_settings_say_so() -> None:
    rig = build(request_limits=LimitSettings(requests_per_second=None, request_burst=1))
    async with serving(rig.app) as url, http_client(url) as http:
        session = await open_session(http)
        assert {(await post(http, session)).status_code for _ in range(20)} == {200}


def budget(most_of_one: int = 100, most_of_all: int = 150, **more: Any) -> BytesInFlight:
    return BytesInFlight("bytes", most_of_one, most_of_all, **more)


class Acquiring:
    """Bytes on their way into a budget."""

    def __init__(self) -> None:
        self.held: list[Reservation] = []

    async def acquire(self, bytes_in_flight: BytesInFlight, caller: str, size: int) -> None:
        self.held.append(await bytes_in_flight.acquire(caller, size))

    async def count_after_scheduling(self) -> int:
        for _ in range(10):
            await anyio.lowlevel.checkpoint()
        return len(self.held)


async def test_bytes_that_do_not_fit_wait_until_others_of_their_caller_are_gone() -> None:
    bytes_in_flight, alice = budget(), Acquiring()
    async with anyio.create_task_group() as tasks:
        for size in (60, 60, 30):
            tasks.start_soon(alice.acquire, bytes_in_flight, "alice", size)
        assert await alice.count_after_scheduling() == 1, "the third would fit, and must not overtake the second"
        bob = await bytes_in_flight.acquire("bob", 80)
        alice.held[0].release()
        assert await alice.count_after_scheduling() == 2, (
            "the second fits now, and with bob's there is no room for the third"
        )
        bob.release()
        assert await alice.count_after_scheduling() == 3


async def test_what_is_larger_than_the_limit_fits_alone() -> None:
    bytes_in_flight = budget()
    held = await bytes_in_flight.acquire("alice", 1000)
    held.release()
    held.release()
    assert bytes_in_flight.total == 0


async def test_too_many_waiting_bytes_of_a_caller_are_refused() -> None:
    bytes_in_flight, alice = budget(max_waiting=(100, 1000)), Acquiring()
    async with anyio.create_task_group() as tasks:
        for size in (80, 80):
            tasks.start_soon(alice.acquire, bytes_in_flight, "alice", size)
        assert await alice.count_after_scheduling() == 1
        with pytest.raises(TooManyCalls) as refused:
            await bytes_in_flight.acquire("alice", 80)
        assert refused.value.details["limit"] == "bytes"
        tasks.cancel_scope.cancel()
    alice.held[0].release()
    assert bytes_in_flight.total == 0


async def test_a_cancelled_wait_leaves_nothing_behind() -> None:
    bytes_in_flight, alice = budget(), Acquiring()
    held = await bytes_in_flight.acquire("alice", 90)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(alice.acquire, bytes_in_flight, "alice", 20)
        assert await alice.count_after_scheduling() == 0
        tasks.cancel_scope.cancel()
    held.release()
    assert bytes_in_flight.total == 0


async def test_large_answers_of_one_caller_are_made_one_after_the_other_and_all_arrive() -> None:
    rig = build(limits=LimitSettings(response_bytes_in_flight=3 * MIB, max_response_bytes=8 * MIB))
    sizes: list[int] = []
    async with serving(rig.app) as url, http_client(url) as http:
        session = await open_session(http)

        async def fill(number: int) -> None:
            answer = await http.post("/mcp", json=calling("fill", size=MIB, id=number), headers=session)
            sizes.append(len(answer.json()["result"]["structuredContent"]["text"]))

        async with anyio.create_task_group() as tasks:
            for number in range(6):
                tasks.start_soon(fill, number)
    assert sizes == [MIB] * 6


async def test_bytes_of_an_answer_count_until_it_is_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = build()
    responses: BytesInFlight = rig.dispatcher.response_bytes
    result = (await rig.dispatcher.outcome(AS_ALICE, "fill", {"size": MIB}, form="encoded")).result
    assert responses.total >= 2 * MIB
    del result
    await eventually(lambda: responses.total == 0)


@pytest.mark.parametrize("length", ["declared", "unknown"])
async def test_a_large_body_waits_until_others_of_its_caller_are_gone(length: str) -> None:
    limits = LimitSettings(request_bytes_in_flight=300_000)
    rig = build(request_limits=limits, max_body_bytes=200_000)
    body = calling("keep", path="a", content="x" * 190_000)
    async with serving(rig.app) as url, http_client(url) as http, anyio.create_task_group() as tasks:
        session = await open_session(http)
        goes_on, answers = anyio.Event(), list[int]()

        async def slow() -> AsyncGenerator[bytes]:
            yield b" " * 100_000
            await goes_on.wait()
            yield b"{}"

        async def send(content: Callable[[], AsyncGenerator[bytes]]) -> None:
            answers.append((await http.post("/mcp", content=content(), headers=session)).status_code)

        async def keep() -> None:
            answers.append((await http.post("/mcp", json=body, headers=session)).status_code)

        tasks.start_soon(send, slow)
        bodies: BytesInFlight = rig.gate.request_bytes
        await eventually(lambda: bodies.total > 0)
        tasks.start_soon(keep if length == "declared" else lambda: send(_whole(body)))
        async with http_client(url, BOB_KEY) as bob:
            await post(bob, await open_session(bob))
        assert answers == []
        goes_on.set()
        await eventually(lambda: len(answers) == 2)
        assert sorted(answers) == [200, 400]
        await eventually(lambda: bodies.total == 0)


async def test_without_keys_a_body_that_one_session_never_finishes_holds_up_no_other_session() -> None:
    rig = build(
        authenticator=Authenticator((), open_to_anyone=True),
        request_limits=LimitSettings(request_bytes_in_flight=300_000),
        max_body_bytes=200_000,
    )
    body = calling("keep", path="a", content="x" * 190_000)
    async with serving(rig.app) as url, http_client(url, None) as http, anyio.create_task_group() as tasks:
        attacker, other = await open_session(http), await open_session(http)

        async def never_ending() -> AsyncGenerator[bytes]:
            yield b" "
            await anyio.sleep_forever()

        async def attack() -> None:
            await http.post("/mcp", content=never_ending(), headers=attacker)

        tasks.start_soon(attack)
        bodies: BytesInFlight = rig.gate.request_bytes
        await eventually(lambda: bodies.total > 0)
        assert (await http.post("/mcp", json=body, headers=other)).status_code == 200
        tasks.cancel_scope.cancel()


async def test_large_messages_of_one_caller_are_not_in_the_way_of_anothers() -> None:
    first_runs, goes_on, done = threading.Event(), threading.Event(), list[str]()

    def work(caller: str) -> None:
        first_runs.set()
        if caller == "alice":
            assert goes_on.wait(60)
        done.append(caller)

    async def one(caller: str) -> None:
        set_json_caller(caller)
        await run_in_json_thread(work, caller)

    async with anyio.create_task_group() as tasks:
        for _ in range(10):
            tasks.start_soon(one, "alice")
        await eventually(first_runs.is_set)
        await one("bob")
        assert done == ["bob"]
        goes_on.set()
    assert done == ["bob", *["alice"] * 10]


def _whole(message: dict[str, Any]) -> Callable[[], AsyncGenerator[bytes]]:
    import json

    async def content() -> AsyncGenerator[bytes]:
        yield json.dumps(message).encode()

    return content
