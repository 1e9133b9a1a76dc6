"""Servers as child processes: their environment, their output, and no process that outlives the gateway."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import anyio
import pytest
from anyio.abc import Process

from armarium.capabilities.gateway.errors import (
    UpstreamTimeout,
    UpstreamUnavailable,
)
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
        assert upstream.health().noise >= 4
        assert upstream.health().connections == 1


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
