"""Servers are closed and replaced: calls in flight finish, and unchanged servers are not disturbed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import pytest

from armarium.capabilities.gateway.config.entries import UiHints
from armarium.capabilities.gateway.errors import (
    GatewayError,
    UpstreamUnavailable,
)
from armarium.capabilities.gateway.upstreams.types import UpstreamHealth
from armarium.capabilities.gateway.upstreams.upstream import Upstream
from armarium.capabilities.gateway.upstreams.upstream_set import UpstreamSet
from support.upstreams import (
    LIMITS,
    SHORT_S,
    TIMEOUT_S,
    facts,
    hostile_process,
    is_running,
    served,
    works,
)
from support.waiting import eventually


@pytest.mark.contract("G8-2")
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


@pytest.mark.contract("G8-1")
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
        assert staying.spec.ui.display_name == "Another name"
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


@pytest.mark.contract("G8-2")
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
