"""A server that hangs costs its deadline once and nothing afterwards; a slow one stays in use."""

from __future__ import annotations

import os
import signal
from collections.abc import Awaitable, Callable
from contextlib import closing

import anyio
import pytest

from armarium.capabilities.gateway.errors import GatewayError, UpstreamTimeout, UpstreamUnavailable
from armarium.capabilities.gateway.upstreams.types import UpstreamHealth, UpstreamLimits
from armarium.capabilities.gateway.upstreams.upstream import Upstream
from armarium.capabilities.gateway.upstreams.watchdog import Watchdog
from support.upstreams import (
    SHORT_S,
    SLOW_S,
    TIMEOUT_S,
    facts,
    freeze,
    hostile,
    hostile_address,
    hostile_process,
    is_running,
    run_out_of_time_to_start,
    served,
    with_limits,
    works,
)
from support.waiting import eventually

TRANSPORTS = ["stdio", "http", "events"]
LONG_BREAK = with_limits(breaker={"open_s": 10 * TIMEOUT_S})
SHORT_BREAK = with_limits(breaker={"open_s": SHORT_S})


def every_ping_counts(limits: UpstreamLimits) -> UpstreamLimits:
    """However late a busy machine sends it; `test_liveness.py` is about pings that are sent late."""
    return with_limits(limits, ping_required_share=0.0)


async def frozen_pid(upstream: Upstream) -> int:
    """The server's process, which from now on hangs."""
    pid = (await facts(upstream))["pid"]
    await freeze(pid)
    return pid


@pytest.mark.parametrize("transport", TRANSPORTS)
async def test_a_server_that_hangs_costs_its_deadline_once_and_then_nothing(transport: str) -> None:
    async with hostile(transport) as spec, served(spec, every_ping_counts(LONG_BREAK)) as upstream:
        pid = await frozen_pid(upstream)
        try:
            with pytest.raises(UpstreamTimeout):
                await upstream.call("echo", {}, timeout_s=SHORT_S)
            assert upstream.health().state == "open"
            for call in (works(upstream), upstream.tools()):
                with pytest.raises(UpstreamUnavailable, match="calls are rejected"):
                    await call
            assert upstream.health().connections == 1
        finally:
            if transport != "stdio":
                os.kill(pid, signal.SIGCONT)


@pytest.mark.parametrize("transport", TRANSPORTS)
async def test_slow_calls_cost_their_own_callers_alone(transport: str) -> None:
    limits = with_limits(LONG_BREAK, breaker={"failures": 1})
    async with hostile(transport) as spec, served(spec, limits) as upstream:
        await works(upstream)
        async with anyio.create_task_group() as callers:
            for _ in range(4):
                callers.start_soon(timed_out, lambda: upstream.call("never", {}, timeout_s=SLOW_S))
        assert upstream.health().state == "failing"
        await works(upstream)
        assert (upstream.health().state, upstream.health().connections) == ("ready", 1)


async def test_a_process_that_hung_is_replaced_after_the_break_and_no_caller_waits_for_that() -> None:
    states: list[str] = []

    async def note(health: UpstreamHealth) -> None:
        states.append(health.state)

    async with served(hostile_process(), every_ping_counts(SHORT_BREAK), on_health=note) as upstream:
        frozen = await frozen_pid(upstream)
        await timed_out(lambda: upstream.call("echo", {}, timeout_s=SHORT_S))
        calls = upstream.health().calls
        await eventually(lambda: upstream.health().state == "ready")
        assert upstream.health().calls == calls, "it was repaired without any call"
        await works(upstream)
        assert (await facts(upstream))["pid"] != frozen
        await eventually(lambda: not is_running(frozen))
        await eventually(lambda: states == ["connecting", "ready", "open", "ready"])


async def test_an_address_that_hung_is_used_again_when_it_is_back() -> None:
    async with hostile_address() as spec, served(spec, every_ping_counts(SHORT_BREAK)) as upstream:
        pid = await frozen_pid(upstream)
        try:
            await timed_out(lambda: upstream.call("echo", {}, timeout_s=SHORT_S))
            await eventually(lambda: upstream.health().connections == 2)
            await run_out_of_time_to_start(upstream)
            await eventually(lambda: upstream.health().connections == 3)
            assert upstream.health().state == "open"
            with pytest.raises(UpstreamUnavailable, match="calls are rejected"):
                await works(upstream)
        finally:
            os.kill(pid, signal.SIGCONT)
        await eventually(lambda: upstream.health().state == "ready")
        await works(upstream)


async def test_those_who_waited_for_their_turn_when_it_fell_silent_do_not_try_it_again() -> None:
    async with served(
        hostile_process(), every_ping_counts(with_limits(LONG_BREAK, concurrency_per_server=1))
    ) as upstream:
        await frozen_pid(upstream)
        failures: list[str] = []

        async def caller() -> None:
            with pytest.raises(GatewayError) as caught:
                await works(upstream)
            failures.append(caught.value.code)

        async with anyio.create_task_group() as callers:
            callers.start_soon(timed_out, lambda: upstream.call("echo", {}, timeout_s=SLOW_S))
            await eventually(lambda: upstream.health().in_flight == 1)
            for _ in range(3):
                callers.start_soon(caller)
        assert failures == ["backend_unavailable"] * 3
        assert upstream.health().connections == 1


async def test_a_server_that_says_nothing_from_the_start_is_left_alone_even_when_nobody_waited_so_long() -> None:
    async with served(hostile_process("--silent"), LONG_BREAK) as upstream:
        await timed_out(lambda: upstream.call("echo", {}, timeout_s=SHORT_S))
        assert upstream.health().state == "connecting"
        await run_out_of_time_to_start(upstream)
        await eventually(lambda: upstream.health().state == "open")
        assert (upstream.health().retry_in_s or 0.0) > TIMEOUT_S


async def test_a_server_that_is_no_longer_wanted_is_not_waited_for_until_its_break_ends() -> None:
    with anyio.fail_after(TIMEOUT_S), closing(Watchdog()) as watchdog:
        async with anyio.create_task_group() as tasks:
            upstream = Upstream(hostile_process(), every_ping_counts(LONG_BREAK), tasks, watchdog)
            await frozen_pid(upstream)
            await timed_out(lambda: upstream.call("echo", {}, timeout_s=SHORT_S))
            await upstream.close()
            assert upstream.health().connections == 1


async def test_a_server_that_keeps_dying_is_left_alone_and_works_again_after_the_break() -> None:
    async with served(hostile_process(), with_limits(SHORT_BREAK, breaker={"failures": 2})) as upstream:
        await works(upstream)
        for _ in range(2):
            with pytest.raises(UpstreamUnavailable):
                await upstream.call("die", {})
        assert upstream.health().state == "open"
        await eventually(lambda: upstream.health().state == "ready")
        await works(upstream)


async def timed_out(call: Callable[[], Awaitable[object]]) -> None:
    with pytest.raises(UpstreamTimeout):
        await call()
