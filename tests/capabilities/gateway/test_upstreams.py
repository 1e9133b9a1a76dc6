"""Calls of one server behind the gateway: every failure is a clear error of one call, and then over."""

from __future__ import annotations

import os
import signal
import tracemalloc
from collections.abc import AsyncGenerator
from dataclasses import replace
from typing import Any

import anyio
import pytest

from armarium.capabilities.gateway.errors import (
    UpstreamBusy,
    UpstreamProtocol,
    UpstreamRefused,
    UpstreamTimeout,
    UpstreamTooLarge,
)
from armarium.capabilities.gateway.upstreams.upstream import Upstream
from support.upstreams import (
    LIMITS,
    SHORT_S,
    SLOW_S,
    TIMEOUT_S,
    facts,
    freeze,
    hostile,
    hostile_address,
    hostile_process,
    run_out_of_time_to_start,
    served,
    with_limits,
    works,
)
from support.waiting import eventually

CANARY = "canary-9f31c7aa-not-for-anyone"


@pytest.fixture(params=["stdio", "http", "events"])
async def upstream(request: pytest.FixtureRequest) -> AsyncGenerator[Upstream]:
    async with hostile(request.param) as spec, served(spec) as upstream:
        yield upstream


async def until_told_to_stop(upstream: Upstream) -> None:
    """Wait until the server has heard that nobody waits any more for one call; it hears of everything side by side."""

    async def cancelled() -> list[Any]:
        return (await facts(upstream))["cancelled"]

    assert len(await eventually(cancelled)) == 1


async def test_a_call_is_answered_with_what_the_server_said(upstream: Upstream) -> None:
    sent = {"text": "häuser", "nothing": None, "nested": {"list": [1, None, {"deep": None}]}}
    result = await upstream.call("echo", sent)
    assert result.structured == sent
    assert result.content[0]["type"] == "text"
    assert not result.is_error


async def test_nothing_is_started_before_the_first_call_and_one_connection_serves_all(upstream: Upstream) -> None:
    assert upstream.health().state == "idle"
    assert upstream.health().connections == 0
    async with anyio.create_task_group() as callers:
        for _ in range(20):
            callers.start_soon(works, upstream)
    health = upstream.health()
    assert (health.state, health.connections, health.calls, health.failures) == ("ready", 1, 20, 0)
    assert (health.server_name, health.server_version) == ("hostile", "1")


async def test_the_tools_are_those_the_server_lists(upstream: Upstream) -> None:
    tools = {tool.name: tool for tool in await upstream.tools()}
    assert "echo" in tools
    assert tools["echo"].input_schema == {"type": "object", "properties": {}}
    assert upstream.health().tools == len(tools)


async def test_a_server_that_never_answers_costs_the_deadline_and_is_told_to_stop(upstream: Upstream) -> None:
    await works(upstream)
    with pytest.raises(UpstreamTimeout) as caught:
        await upstream.call("never", {}, timeout_s=SLOW_S)
    assert caught.value.retryable
    await until_told_to_stop(upstream)
    assert upstream.health().connections == 1


async def test_a_caller_who_leaves_cancels_the_request_at_the_server(upstream: Upstream) -> None:
    await works(upstream)
    async with anyio.create_task_group() as callers:
        callers.start_soon(upstream.call, "never", {})

        async def unanswered() -> list[Any]:
            return (await facts(upstream))["unanswered"]

        await eventually(unanswered)
        assert (await facts(upstream))["cancelled"] == []
        callers.cancel_scope.cancel()
    assert upstream.health().in_flight == 0
    await until_told_to_stop(upstream)


async def test_a_call_that_hangs_holds_up_no_other(upstream: Upstream) -> None:
    async with anyio.create_task_group() as callers:
        callers.start_soon(upstream.call, "never", {})
        await eventually(lambda: upstream.health().in_flight == 1)
        await works(upstream)
        callers.cancel_scope.cancel()


@pytest.mark.parametrize("id_first", [True, False])
async def test_an_answer_that_is_too_large_is_an_error_of_that_call_alone(upstream: Upstream, id_first: bool) -> None:
    async with anyio.create_task_group() as callers:
        callers.start_soon(works, upstream)
        with pytest.raises(UpstreamTooLarge):
            await upstream.call("huge", {"bytes": 3_000_000, "id_first": id_first})
    await works(upstream)
    assert upstream.health().connections == 1


async def test_an_answer_of_a_hundred_megabytes_is_never_held(upstream: Upstream) -> None:
    await works(upstream)
    tracemalloc.start()
    try:
        with pytest.raises(UpstreamTooLarge):
            await upstream.call("huge", {"bytes": 100_000_000})
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak_bytes < 10 * LIMITS.max_answer_bytes
    await works(upstream)


async def test_an_unpaired_surrogate_in_an_answer_is_replaced(upstream: Upstream) -> None:
    assert (await upstream.call("half", {})).structured == {"text": "half \ufffd of it"}


async def test_an_answer_that_is_not_utf8_is_repaired() -> None:
    async with served(hostile_process()) as upstream:
        assert (await upstream.call("bytes", {})).content[0]["text"] == "\ufffd\ufffd\ufffd \ufffd"
        assert upstream.health().noise == 0


@pytest.mark.contract("G3-2", "G5.4-3")
async def test_what_a_tools_error_says_is_in_health_and_log_without_secrets(
    upstream: Upstream, caplog: pytest.LogCaptureFixture
) -> None:
    await upstream.call("fail", {"bearer": CANARY, "note": "the index is missing\n" + "x" * 10_000})
    health = upstream.health()
    assert (health.tool_errors, health.failures) == (1, 0)
    assert health.last_tool_error is not None
    assert health.last_tool_error.startswith("fail: ")
    assert "the index is missing" in health.last_tool_error
    assert len(health.last_tool_error) < 500
    assert health.last_tool_error in [getattr(record, "reason", None) for record in caplog.records]
    assert CANARY not in health.last_tool_error


async def test_a_server_that_redirects_to_where_it_is_mounted_can_be_used() -> None:
    async with hostile_address("--mounted") as spec, served(spec) as upstream:
        await works(upstream)
        assert upstream.health().connections == 1


async def test_garbage_in_the_place_of_an_answer_fails_that_call_alone(upstream: Upstream) -> None:
    with pytest.raises((UpstreamProtocol, UpstreamTimeout)):
        await upstream.call("garbage", {}, timeout_s=SLOW_S)
    await works(upstream)
    assert upstream.health().connections == 1


@pytest.mark.parametrize("flags", [(), ("--babble",)])
async def test_a_server_that_says_something_else_than_mcp_is_told_from_a_silent_one(flags: tuple[str, ...]) -> None:
    async with served(hostile_process(*flags)) as upstream, anyio.create_task_group() as tasks:

        async def be_late_once_it_babbles() -> None:
            await eventually(lambda: upstream.health().noise > 0)
            await run_out_of_time_to_start(upstream)

        if flags:
            tasks.start_soon(be_late_once_it_babbles)
        else:
            await works(upstream)
        with pytest.raises(UpstreamTimeout, match="wrote lines that are not MCP messages") as caught:
            await upstream.call("garbage", {}, timeout_s=None if flags else SLOW_S)
        assert "standard error" in (caught.value.for_operators or "")
        assert "standard error" not in (caught.value.hint or "")
        if not flags:
            with pytest.raises(UpstreamTimeout, match=f"did not respond within {SLOW_S:g} s$"):
                await upstream.call("never", {}, timeout_s=SLOW_S)


async def test_arguments_that_cannot_be_written_fail_their_own_call_alone(upstream: Upstream) -> None:
    await works(upstream)
    slept: list[Any] = []

    async def slow() -> None:
        slept.append((await upstream.call("slow", {"seconds": SHORT_S})).structured)

    async with anyio.create_task_group() as callers:
        callers.start_soon(slow)
        await eventually(lambda: upstream.health().in_flight == 1)
        for _ in range(LIMITS.breaker.failures):
            with pytest.raises(UpstreamRefused) as caught:
                await upstream.call("echo", {"text": f"{CANARY} \ud800"})
            assert CANARY not in str(caught.value)
        await works(upstream)
    assert slept == [{"slept": SHORT_S}]
    assert (upstream.health().state, upstream.health().connections) == ("ready", 1)


async def test_a_rag_server_that_repeats_the_callers_secret_in_a_result_is_scrubbed(upstream: Upstream) -> None:
    result = await upstream.call("echo", {"bearer": CANARY, "note": f"with {CANARY}", "n": 2})
    assert result.structured == {"bearer": "[removed]", "note": "with [removed]", "n": 2}
    assert CANARY not in str(result)


async def test_a_result_of_a_generic_server_has_no_secret_that_was_sent_to_it() -> None:
    spec = replace(hostile_process(env={"SERVICE_TOKEN": f"{CANARY}-key", "LEVEL": "verbose-level"}), kind="generic")
    async with served(spec) as upstream:
        said = await upstream.call("echo", {"bearer": f"Bearer {CANARY}", "note": f"{CANARY} verbose-level"})
        assert said.structured == {"bearer": "Bearer [removed]", "note": "[removed] verbose-level"}
        assert CANARY not in str(await upstream.call("facts", {}))


async def test_short_words_stay_in_a_result_of_a_generic_server() -> None:
    async with served(replace(hostile_process(), kind="generic")) as upstream:
        sent = {"bearer": "abcd", "image": "iVBORw0KGgoabcdAAANSU"}
        assert (await upstream.call("echo", sent)).structured == sent


async def test_progress_does_not_repeat_a_secret() -> None:
    heard: list[str | None] = []

    async def note(done: float, total: float | None, message: str | None) -> None:
        heard.append(message)

    async with served(replace(hostile_process(), kind="generic")) as upstream:
        await upstream.call("progress", {"bearer": CANARY, "message": f"as {CANARY}"}, on_progress=note)
        await eventually(lambda: len(heard) == 2)
    assert heard == ["step 1 as [removed]", "step 2 as [removed]"]


@pytest.mark.contract("G3-2", "G5.4-3")
async def test_what_a_failed_tool_says_is_told_without_the_callers_secrets(upstream: Upstream) -> None:
    result = await upstream.call("fail", {"bearer": f"Bearer {CANARY}", "note": f"with {CANARY}", CANARY: 1, "n": 2})
    assert result.is_error
    assert result.structured is not None
    assert result.structured["wrong"]["n"] == 2
    assert result.structured["wrong"]["note"] == "with [removed]"
    assert CANARY not in str(result)


async def test_notifications_arrive_from_a_server_that_refused_the_stream_at_first() -> None:
    limits = with_limits(notification_retry_s=0.01)
    changed = anyio.Event()

    def note(server: str) -> None:
        changed.set()

    async with (
        hostile_address("--notifications-refused", "4") as spec,
        served(spec, limits, on_tools_changed=note) as upstream,
    ):
        await upstream.call("grow", {})
        with anyio.fail_after(TIMEOUT_S):
            await changed.wait()


async def test_an_answer_of_the_wrong_types_is_not_mcp(upstream: Upstream) -> None:
    with pytest.raises(UpstreamProtocol):
        await upstream.call("lie", {})
    await works(upstream)
    assert upstream.health().connections == 1


async def test_what_the_server_refuses_is_told_in_short_and_without_its_keys(upstream: Upstream) -> None:
    said = f"first line\n\x1b[31msecond {CANARY} sk-0123456789abcdef0123456789 " + "on and on " * 1000
    with pytest.raises(UpstreamRefused) as caught:
        await upstream.call("refuse", {"message": said, "api_key": CANARY})
    assert caught.value.message.startswith("`hostile` refused the request: first line")
    assert CANARY not in caught.value.message
    assert "0123456789abcdef" not in caught.value.message
    assert "\x1b" not in caught.value.message
    assert "\n" not in caught.value.message
    assert len(caught.value.message) < 300
    assert upstream.health().state == "ready"


async def test_progress_is_passed_on(upstream: Upstream) -> None:
    steps: list[tuple[float, float | None, str | None]] = []

    async def note(progress: float, total: float | None, message: str | None) -> None:
        steps.append((progress, total, message))

    wanted = [(1.0, 2.0, "step 1"), (2.0, 2.0, "step 2")]
    with anyio.fail_after(TIMEOUT_S):
        # Over HTTP they come on a stream of their own, which is opened behind the first call and may not be there yet.
        while steps != wanted:
            steps.clear()
            await upstream.call("progress", {}, on_progress=note)
            with anyio.move_on_after(SHORT_S):
                await eventually(lambda: steps == wanted)


@pytest.mark.parametrize("transport", ["stdio", "http", "events"])
async def test_new_tools_are_noticed(transport: str) -> None:
    changed: list[str] = []

    def note(server: str) -> None:
        changed.append(server)

    async with hostile(transport) as spec, served(spec, on_tools_changed=note) as upstream:
        before = await upstream.tools()
        await upstream.call("grow", {})
        await eventually(lambda: changed == ["hostile"])
        assert len(await upstream.tools()) == len(before) + 1


async def test_no_more_calls_run_at_a_time_than_allowed_and_the_rest_wait_their_turn() -> None:
    async with served(hostile_process(), with_limits(concurrency_per_server=2)) as upstream:
        await works(upstream)
        async with anyio.create_task_group() as callers:
            for _ in range(2):
                callers.start_soon(upstream.call, "never", {})
            await eventually(lambda: upstream.health().in_flight == 2)
            with pytest.raises(UpstreamBusy):
                await upstream.call("echo", {}, timeout_s=SHORT_S)
            callers.cancel_scope.cancel()
        assert (await facts(upstream))["calls"] == 4, "the one that waited in vain was never sent"


async def test_a_call_that_never_had_its_turn_opens_no_breaker() -> None:
    async with served(hostile_process(), with_limits(concurrency_per_server=1)) as upstream:
        await works(upstream)
        pid = upstream.health().pid
        assert pid is not None
        async with anyio.create_task_group() as callers:
            callers.start_soon(upstream.call, "never", {})
            await eventually(lambda: upstream.health().in_flight == 1)
            await freeze(pid)  # no ping is answered
            with pytest.raises(UpstreamBusy):
                await upstream.call("echo", {}, timeout_s=SHORT_S)
            os.kill(pid, signal.SIGCONT)
            callers.cancel_scope.cancel()
        await works(upstream)
        assert upstream.health().connections == 1


async def test_more_callers_than_may_wait_are_turned_away_at_once() -> None:
    async with served(hostile_process(), with_limits(concurrency_per_server=1, waiting=0)) as upstream:
        await works(upstream)
        async with anyio.create_task_group() as callers:
            callers.start_soon(upstream.call, "never", {})
            await eventually(lambda: upstream.health().in_flight == 1)
            with pytest.raises(UpstreamBusy):
                await works(upstream)
            callers.cancel_scope.cancel()


async def test_two_hundred_callers_at_once_are_all_answered(upstream: Upstream) -> None:
    async with anyio.create_task_group() as callers:
        for _ in range(200):
            callers.start_soon(works, upstream)
    assert upstream.health().failures == 0
