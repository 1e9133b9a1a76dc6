"""Servers as child processes: their environment, their output, and no process that outlives the gateway."""

from __future__ import annotations

import json
import logging
import os
import signal
import sys
from pathlib import Path
from typing import Any

import anyio
import pytest
from anyio.abc import Process

from armarium.capabilities.gateway.errors import (
    UpstreamProtocol,
    UpstreamTimeout,
    UpstreamUnavailable,
)
from armarium.capabilities.gateway.upstreams import watchdog_process
from armarium.capabilities.gateway.upstreams.upstream_set import UpstreamSet
from support.upstreams import (
    LIMITS,
    TIMEOUT_S,
    facts,
    hostile_process,
    is_running,
    run_out_of_time_to_start,
    served,
    works,
)
from support.waiting import eventually

CANARY = "canary-9f31c7aa-not-for-anyone"


async def test_noise_on_standard_output_is_counted_and_passed_over() -> None:
    async with served(hostile_process()) as upstream:
        result = await upstream.call("noise", {})
        assert result.structured == {"noisy": True}
        assert upstream.health().noise >= 6
        assert upstream.health().connections == 1


@pytest.mark.parametrize(
    "response",
    ['{"a": ' + "[" * 300 + "]" * 300 + "}", '{"a": ' + "9" * 100_000 + "}", "oops"],
    ids=["too deep", "a long number", "not JSON"],
)
async def test_a_response_that_cannot_be_parsed_fails_its_call_without_waiting(response: str) -> None:
    async with served(hostile_process()) as upstream:
        with pytest.raises(UpstreamProtocol, match="not MCP"):
            await upstream.call("unreadable", {"json": response})
        await works(upstream)
        assert (upstream.health().noise, upstream.health().connections) == (0, 1)


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


GATEWAY = """
import json, sys
import anyio
from support.upstreams import facts, hostile_process, served

async def main() -> None:
    async with served(hostile_process("--stubborn")) as upstream:
        pids = [(await facts(upstream))["pid"]]
        for own_session in (False, True):
            pids.append((await upstream.call("spawn", {"own_session": own_session})).structured["pid"])
        print(json.dumps(pids), flush=True)
        await upstream.call("never", {})

anyio.run(main)
"""


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGABRT])
async def test_a_killed_gateway_leaves_no_server_behind_that_ignores_its_end(how: signal.Signals) -> None:
    path = os.pathsep.join(each for each in sys.path if each)
    command = [sys.executable, "-c", GATEWAY]
    async with await anyio.open_process(command, env={**os.environ, "PYTHONPATH": path}, stderr=None) as gateway:
        assert gateway.stdout is not None
        line = b""
        while not line.endswith(b"\n"):
            line += await gateway.stdout.receive()
        pids = json.loads(line)
        assert len(pids) == 3
        assert all(map(is_running, pids))
        gateway.send_signal(how)
        await eventually(lambda: not any(map(is_running, pids)))


async def test_the_watchdog_ends_with_the_gateway_and_leaves_others_alone() -> None:
    async with served(hostile_process()) as others, served(hostile_process()) as upstream:
        await works(others)
        await works(upstream)
        before = watchdogs()
        await upstream.close()
    assert len(before) == 2
    assert not any(map(is_running, before))


async def test_a_watchdog_that_was_killed_is_started_again_with_the_next_server() -> None:
    async with served(hostile_process()) as upstream:
        await works(upstream)
        (first,) = watchdogs()
        os.kill(first, signal.SIGKILL)
        await eventually(lambda: not is_running(first))
        with pytest.raises(UpstreamUnavailable):
            await upstream.call("die", {})
        await eventually(lambda: upstream.connection is None)
        await works(upstream)
        assert len(watchdogs()) == 1


def watchdogs() -> list[int]:
    """The running watchdogs of this process."""
    children = Path(f"/proc/{os.getpid()}/task/{os.getpid()}/children").read_text().split()
    programs = {int(pid): Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0") for pid in children}
    return [
        pid for pid, command in programs.items() if is_running(pid) and watchdog_process.__file__.encode() in command
    ]
