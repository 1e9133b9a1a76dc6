"""One server behind the gateway, well or not: every mishap is a clear error of that call alone, and then over."""

from __future__ import annotations

import logging
import os
import signal
import tracemalloc
from collections.abc import AsyncGenerator
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import pytest
from anyio.abc import Process

from armarium.capabilities.gateway.config.entries import UiHints
from armarium.capabilities.gateway.config.files import HttpTransport, ServerSpec, StdioTransport
from armarium.capabilities.gateway.errors import (
    GatewayError,
    UpstreamBusy,
    UpstreamProtocol,
    UpstreamRefused,
    UpstreamTimeout,
    UpstreamTooLarge,
    UpstreamUnavailable,
)
from armarium.capabilities.gateway.upstreams.types import UpstreamHealth
from armarium.capabilities.gateway.upstreams.upstream import Upstream
from armarium.capabilities.gateway.upstreams.upstream_set import UpstreamSet
from support.upstreams import (
    LIMITS,
    SHORT_S,
    SLOW_S,
    TIMEOUT_S,
    freeze,
    hostile,
    hostile_address,
    hostile_process,
    is_running,
    run_out_of_time_to_start,
    served,
    with_timeouts,
)
from support.waiting import eventually

CANARY = "canary-9f31c7aa-not-for-anyone"


@pytest.fixture(params=["stdio", "http", "events"])
async def upstream(request: pytest.FixtureRequest) -> AsyncGenerator[Upstream]:
    async with hostile(request.param) as spec, served(spec) as upstream:
        yield upstream


async def works(upstream: Upstream) -> None:
    """The server answers, over the connection it has."""
    result = await upstream.call("echo", {"still": "here"})
    assert result.structured == {"still": "here"}


async def facts(upstream: Upstream) -> dict[str, Any]:
    result = await upstream.call("facts", {})
    assert result.structured is not None
    return result.structured


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
        for _ in range(LIMITS.breaker_failures):
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


async def test_a_result_of_a_generic_server_is_relayed_unchanged() -> None:
    async with served(replace(hostile_process(), kind="generic")) as upstream:
        result = await upstream.call("echo", {"bearer": CANARY})
        assert result.structured == {"bearer": CANARY}


async def test_what_a_failed_tool_says_is_told_without_the_callers_secrets(upstream: Upstream) -> None:
    result = await upstream.call("fail", {"bearer": f"Bearer {CANARY}", "note": f"with {CANARY}", CANARY: 1, "n": 2})
    assert result.is_error
    assert result.structured is not None
    assert result.structured["wrong"]["n"] == 2
    assert result.structured["wrong"]["note"] == "with [removed]"
    assert CANARY not in str(result)


async def test_notifications_arrive_from_a_server_that_refused_the_stream_at_first() -> None:
    limits = replace(LIMITS, notification_retry_s=0.01)
    changed = anyio.Event()

    async def note(server: str) -> None:
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

    async def note(server: str) -> None:
        changed.append(server)

    async with hostile(transport) as spec, served(spec, on_tools_changed=note) as upstream:
        before = await upstream.tools()
        await upstream.call("grow", {})
        await eventually(lambda: changed == ["hostile"])
        assert len(await upstream.tools()) == len(before) + 1


async def test_a_server_that_dies_in_a_call_is_started_again_by_the_next() -> None:
    async with served(hostile_process()) as upstream:
        first = (await facts(upstream))["pid"]
        with pytest.raises(UpstreamUnavailable) as caught:
            await upstream.call("die", {})
        assert caught.value.retryable
        assert upstream.health().state == "failing"
        assert (await facts(upstream))["pid"] != first
        assert upstream.health().state == "ready"
        assert upstream.health().connections == 2


async def test_a_server_that_is_killed_while_idle_is_started_again_without_an_error() -> None:
    async with served(hostile_process()) as upstream:
        pid = (await facts(upstream))["pid"]
        process = await anyio.run_process(["kill", "-9", str(pid)])
        assert process.returncode == 0
        await eventually(lambda: upstream.health().state == "idle")
        await works(upstream)


async def test_noise_on_standard_output_is_counted_and_passed_over() -> None:
    async with served(hostile_process()) as upstream:
        result = await upstream.call("noise", {})
        assert result.structured == {"noisy": True}
        assert upstream.health().noise >= 4
        assert upstream.health().connections == 1


async def test_a_session_the_server_forgot_is_opened_anew_within_the_call() -> None:
    async with hostile_address() as spec, served(spec) as upstream:
        await upstream.call("forget", {})
        await works(upstream)
        assert upstream.health().connections == 2


async def test_an_address_that_dies_fails_fast_and_works_again_when_it_is_back() -> None:
    async with hostile_address() as spec:
        assert isinstance(spec.transport, HttpTransport)
        port = spec.transport.url.rpartition(":")[2].removesuffix("/mcp")
        async with served(spec, replace(LIMITS, breaker_failures=10)) as upstream:
            await works(upstream)
            with pytest.raises(UpstreamUnavailable):
                await upstream.call("die", {})
            with pytest.raises(UpstreamUnavailable):
                await works(upstream)
            async with hostile_address("--port", port):
                await eventually(lambda: upstream.health().retry_in_s is None)
                await works(upstream)


LONG_PAUSES = replace(LIMITS, first_pause_s=TIMEOUT_S)
"""However slow the machine, the next call comes within the pause."""


async def test_a_server_that_ends_at_once_says_so_and_is_not_tried_by_every_call() -> None:
    async with served(hostile_process("--exit-at-start"), LONG_PAUSES) as upstream:
        with pytest.raises(UpstreamUnavailable) as caught:
            await works(upstream)
        assert "status 7" in caught.value.message
        assert upstream.health().connections == 1
        assert upstream.health().retry_in_s is not None
        with pytest.raises(UpstreamUnavailable, match="calls are rejected"):
            await works(upstream)
        assert upstream.health().connections == 1


async def test_a_command_that_does_not_exist_is_named_without_its_path() -> None:
    spec = ServerSpec("absent", "rag", StdioTransport("/nowhere/secret-place/server"))
    async with served(spec) as upstream:
        with pytest.raises(UpstreamUnavailable) as caught:
            await works(upstream)
        assert "check `command` and `cwd`" in (upstream.health().last_error_hint or "")
    assert "`absent` cannot be started" in caught.value.message
    assert "secret-place" not in str(caught.value.__dict__ | {"private": None})
    assert "command" not in f"{caught.value.message} {caught.value.hint}", "callers can do nothing about it"


async def test_a_server_that_says_nothing_costs_the_time_to_connect_once() -> None:
    spec = with_timeouts(hostile_process("--silent"), connect_s=SHORT_S)
    async with served(spec, LONG_PAUSES) as upstream:
        with pytest.raises(UpstreamTimeout, match="did not start"):
            await works(upstream)
        with pytest.raises(UpstreamUnavailable, match="calls are rejected"):
            await works(upstream)
        assert upstream.health().connections == 1


async def test_those_who_waited_for_their_turn_while_an_attempt_failed_make_no_other() -> None:
    spec = with_timeouts(hostile_process("--silent"), connect_s=SHORT_S)
    failures: list[str] = []
    async with served(spec, replace(LONG_PAUSES, concurrency=1)) as upstream:

        async def caller() -> None:
            with pytest.raises(GatewayError) as caught:
                await works(upstream)
            failures.append(caught.value.code)

        async with anyio.create_task_group() as callers:
            for _ in range(3):
                callers.start_soon(caller)
        assert sorted(failures) == ["backend_timeout", "backend_unavailable", "backend_unavailable"]
        assert upstream.health().connections == 1


async def test_a_slow_start_costs_one_caller_their_time_and_serves_those_who_come_when_it_is_done(
    tmp_path: Path,
) -> None:
    signal = tmp_path / "go"
    async with served(hostile_process("--start-after", str(signal))) as upstream:
        with pytest.raises(UpstreamTimeout):
            await upstream.call("echo", {}, timeout_s=SHORT_S)
        assert upstream.health().state == "connecting"
        with pytest.raises(UpstreamUnavailable, match="still starting"):
            await works(upstream)
        signal.touch()
        await eventually(lambda: upstream.health().state != "connecting")
        await works(upstream)
        assert upstream.health().connections == 1


async def test_no_more_calls_run_at_a_time_than_allowed_and_the_rest_wait_their_turn() -> None:
    async with served(hostile_process(), replace(LIMITS, concurrency=2)) as upstream:
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
    async with served(hostile_process(), replace(LIMITS, concurrency=1)) as upstream:
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
    async with served(hostile_process(), replace(LIMITS, concurrency=1, waiting=0)) as upstream:
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


async def test_a_server_gets_the_variables_of_its_file_and_no_key_of_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ARMARIUM_SECRET_OF_OURS", CANARY)
    async with served(hostile_process(env={"ITS_OWN": "value"})) as upstream:
        env = (await facts(upstream))["env"]
    assert env["ITS_OWN"] == "value"
    assert CANARY not in env.values()


async def test_what_a_server_logs_is_in_our_log_without_keys(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    async with served(hostile_process(env={"UPSTREAM_KEY": "hunter-two"})) as upstream:
        await upstream.call("facts", {"note": f"hunter-two and {CANARY}", "bearer": CANARY})
        await eventually(lambda: any(record.message == "a server logged" for record in caplog.records))
    logged = " ".join(str(record.__dict__) for record in caplog.records)
    assert "asked for facts" in logged
    assert "hunter-two" not in logged
    assert CANARY not in logged


@pytest.mark.parametrize("flags", [(), ("--stubborn",)])
async def test_closing_ends_the_process_and_its_children(flags: tuple[str, ...]) -> None:
    async with served(hostile_process(*flags)) as upstream:
        server = (await facts(upstream))["pid"]
        child = (await upstream.call("spawn", {})).structured
        assert child is not None
        assert is_running(child["pid"])
    await eventually(lambda: not is_running(server) and not is_running(child["pid"]))


async def test_a_cancelled_gateway_leaves_no_process_behind() -> None:
    pids: list[int] = []
    async with anyio.create_task_group() as tasks:

        async def gateway() -> None:
            async with served(hostile_process()) as upstream:
                pids.append((await facts(upstream))["pid"])
                await upstream.call("never", {})

        tasks.start_soon(gateway)
        await eventually(lambda: len(pids) == 1)
        tasks.cancel_scope.cancel()
    await eventually(lambda: not is_running(pids[0]))


async def test_a_process_whose_time_runs_out_while_it_is_being_started_is_ended_and_collected(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    started: list[Process] = []
    open_process = anyio.open_process

    async with served(hostile_process("--silent")) as upstream:

        async def opened_late(*command: Any, **options: Any) -> Process:
            await run_out_of_time_to_start(upstream)
            started.append(await open_process(*command, **options))
            return started[0]

        monkeypatch.setattr(anyio, "open_process", opened_late)
        with pytest.raises(UpstreamTimeout, match="did not start"):
            await works(upstream)
        await eventually(lambda: upstream.health().pid is None)
        assert [process.returncode is not None for process in started] == [True]


async def test_closing_does_not_wait_for_a_server_that_is_still_starting(tmp_path: Path) -> None:
    async with anyio.create_task_group() as tasks, UpstreamSet(LIMITS, drain_s=0.0) as upstreams:
        await upstreams.apply({"hostile": hostile_process("--silent")})
        upstream = upstreams.get("hostile")
        assert upstream is not None

        async def wait_in_vain() -> None:
            with pytest.raises(UpstreamUnavailable):
                await works(upstream)

        tasks.start_soon(wait_in_vain)
        await eventually(lambda: upstream.health().pid is not None)
        pid = upstream.health().pid
        assert pid is not None
        with anyio.fail_after(TIMEOUT_S / 2):
            await upstream.close()
        assert not is_running(pid)


async def test_calls_in_flight_finish_within_the_drain_and_later_ones_are_refused(tmp_path: Path) -> None:
    results: list[Any] = []
    async with served(hostile_process()) as upstream:
        await works(upstream)

        async def slow() -> None:
            results.append((await upstream.call("slow", {"seconds": 2 * SHORT_S})).structured)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(slow)
            await eventually(lambda: upstream.health().in_flight == 1)
            tasks.start_soon(upstream.close, TIMEOUT_S)
            await eventually(lambda: _refuses(upstream))
            with pytest.raises(UpstreamUnavailable, match="no longer served"):
                await works(upstream)
    assert results == [{"slept": 2 * SHORT_S}]


def _refuses(upstream: Upstream) -> bool:
    return upstream.is_closing


async def test_closing_twice_ends_both_as_soon_as_the_last_call_does() -> None:
    async with served(hostile_process()) as upstream:
        await works(upstream)
        with anyio.fail_after(TIMEOUT_S / 2):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(upstream.call, "slow", {"seconds": SHORT_S})
                await eventually(lambda: upstream.health().in_flight == 1)
                tasks.start_soon(upstream.close, TIMEOUT_S)
                tasks.start_soon(upstream.close, TIMEOUT_S)


async def test_what_is_still_in_flight_after_the_drain_fails_cleanly() -> None:
    async with served(hostile_process()) as upstream:
        await works(upstream)
        failures: list[GatewayError] = []

        async def hang() -> None:
            try:
                await upstream.call("never", {})
            except GatewayError as error:
                failures.append(error)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(hang)
            await eventually(lambda: upstream.health().in_flight == 1)
            await upstream.close(drain_s=0.0)
        assert [failure.code for failure in failures] == ["backend_unavailable"]


async def test_a_new_set_of_servers_leaves_those_that_stay_alone() -> None:
    stays, leaves = hostile_process(name="stays"), hostile_process(name="leaves")
    async with UpstreamSet(LIMITS, drain_s=TIMEOUT_S) as upstreams:
        changes = await upstreams.apply({"stays": stays, "leaves": leaves})
        assert changes.added == ("leaves", "stays")
        staying, leaving = upstreams.get("stays"), upstreams.get("leaves")
        assert staying is not None
        assert leaving is not None
        pids = [(await facts(each))["pid"] for each in (staying, leaving)]

        shown_otherwise = replace(stays, ui=UiHints(display_name="Another name"), groups=("staff",))
        comes = hostile_process(name="comes")
        asleep = replace(hostile_process(name="asleep"), enabled=False)
        changes = await upstreams.apply({"stays": shown_otherwise, "comes": comes, "asleep": asleep})
        assert (changes.added, changes.removed, changes.changed) == (("comes",), ("leaves",), ("stays",))
        assert upstreams.get("stays") is staying
        assert staying.spec.display_name == "Another name"
        assert (await facts(staying))["pid"] == pids[0]
        assert upstreams.get("leaves") is None
        assert upstreams.get("asleep") is None
        await eventually(lambda: not is_running(pids[1]))

        restarted = replace(stays, transport=hostile_process("--port", "1").transport)
        changes = await upstreams.apply({"stays": restarted})
        assert (changes.changed, changes.removed) == (("stays",), ("comes",))
        again = upstreams.get("stays")
        assert again is not None
        assert (await facts(again))["pid"] != pids[0]
        await eventually(lambda: not is_running(pids[0]))


async def test_a_call_on_a_server_that_is_removed_finishes() -> None:
    results: list[Any] = []
    spec = hostile_process()
    async with UpstreamSet(LIMITS, drain_s=TIMEOUT_S) as upstreams:
        await upstreams.apply({spec.name: spec})
        upstream = upstreams.get(spec.name)
        assert upstream is not None
        await works(upstream)

        async def slow() -> None:
            results.append((await upstream.call("slow", {"seconds": SHORT_S})).structured)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(slow)
            await eventually(lambda: upstream.health().in_flight == 1)
            changes = await upstreams.apply({})
        assert changes.removed == (spec.name,)
    assert results == [{"slept": SHORT_S}]


async def test_a_listener_that_fails_takes_nothing_down(caplog: pytest.LogCaptureFixture) -> None:
    async def broken(health: UpstreamHealth) -> None:
        raise RuntimeError("listener")

    async with served(hostile_process(), on_health=broken) as upstream:
        await works(upstream)
        await works(upstream)
    assert "a listener failed" in caplog.text
