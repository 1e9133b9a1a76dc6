"""Connections that fail: a server is started again, not tried by every call, and used again when it is back."""

from __future__ import annotations

from pathlib import Path

import anyio
import pytest

from armarium.capabilities.gateway.config.files import HttpTransport, ServerSpec, StdioTransport
from armarium.capabilities.gateway.errors import (
    GatewayError,
    UpstreamTimeout,
    UpstreamUnavailable,
)
from support.upstreams import (
    SHORT_S,
    TIMEOUT_S,
    facts,
    hostile_address,
    hostile_process,
    served,
    with_limits,
    with_timeouts,
    works,
)
from support.waiting import eventually


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


async def test_a_session_the_server_forgot_is_opened_anew_within_the_call() -> None:
    async with hostile_address() as spec, served(spec) as upstream:
        await upstream.call("forget", {})
        await works(upstream)
        assert upstream.health().connections == 2


async def test_an_address_that_dies_fails_fast_and_works_again_when_it_is_back() -> None:
    async with hostile_address() as spec:
        assert isinstance(spec.transport, HttpTransport)
        port = spec.transport.url.rpartition(":")[2].removesuffix("/mcp")
        async with served(spec, with_limits(breaker={"failures": 10})) as upstream:
            await works(upstream)
            with pytest.raises(UpstreamUnavailable):
                await upstream.call("die", {})
            with pytest.raises(UpstreamUnavailable):
                await works(upstream)
            async with hostile_address("--port", port):
                await eventually(lambda: upstream.health().retry_in_s is None)
                await works(upstream)


LONG_PAUSES = with_limits(first_pause_s=TIMEOUT_S)
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
    async with served(spec, with_limits(LONG_PAUSES, concurrency_per_server=1)) as upstream:

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
