"""Metrics: every request to a server is counted, and the state of every server is exported."""

from __future__ import annotations

from pathlib import Path

import anyio
import pytest
from prometheus_client import CollectorRegistry

from armarium.capabilities.gateway.config.files import ServerSpec, StdioTransport
from armarium.capabilities.gateway.errors import GatewayError
from armarium.capabilities.gateway.metrics import GatewayMetrics
from armarium.capabilities.gateway.upstreams.types import UpstreamLimits
from armarium.capabilities.gateway.upstreams.upstream import UpstreamListeners
from armarium.capabilities.gateway.upstreams.upstream_set import UpstreamSet
from support.client import connected
from support.gateway_server import HOSTILE, headers_of, started
from support.upstreams import LIMITS, SLOW_S, TIMEOUT_S, hostile_process, with_limits
from support.waiting import eventually

ABSENT = ServerSpec("absent", "generic", StdioTransport("/nowhere/at-all"))


class Counted:
    """Servers whose requests are counted."""

    def __init__(self, limits: UpstreamLimits = LIMITS) -> None:
        self.registry = CollectorRegistry()
        metrics = GatewayMetrics(self.registry, lambda: self.upstreams.health())
        listeners = UpstreamListeners(on_request=metrics.record_request)
        self.upstreams = UpstreamSet(limits, listeners, drain_s=TIMEOUT_S)

    async def call(self, server: str, tool: str, timeout_s: float | None = None, **arguments: object) -> None:
        upstream = self.upstreams.get(server)
        assert upstream is not None
        await upstream.call(tool, arguments, timeout_s=timeout_s)

    def requests(self, server: str) -> dict[tuple[str, str], float]:
        """How many, by what was asked and how it ended."""
        return {
            (sample.labels["request"], sample.labels["outcome"]): sample.value
            for family in self.registry.collect()
            for sample in family.samples
            if sample.name == "armarium_gateway_requests_total" and sample.labels["server"] == server
        }

    def timed(self, server: str) -> float | None:
        return self.registry.get_sample_value("armarium_gateway_request_seconds_count", {"server": server})

    def state(self, server: str) -> list[str]:
        """The states it is said to be in."""
        return [
            sample.labels["state"]
            for family in self.registry.collect()
            for sample in family.samples
            if sample.name == "armarium_gateway_server_state" and sample.labels["server"] == server and sample.value
        ]


async def test_every_call_is_counted_by_how_it_ended() -> None:
    counted = Counted()
    async with counted.upstreams as upstreams:
        await upstreams.apply({"hostile": hostile_process()})
        upstream = upstreams.get("hostile")
        assert upstream is not None
        assert counted.state("hostile") == ["idle"]
        await upstream.tools()
        await counted.call("hostile", "echo")
        await counted.call("hostile", "fail")
        for tool in ("refuse", "lie", "never"):
            with pytest.raises(GatewayError):
                await counted.call("hostile", tool, timeout_s=SLOW_S, message="no")
        with anyio.CancelScope() as scope:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(counted.call, "hostile", "never")
                await eventually(lambda: upstream.health().in_flight == 1)
                scope.cancel()
        await counted.call("hostile", "echo")
        assert counted.requests("hostile") == {
            ("list", "success"): 1,
            ("call", "success"): 2,
            ("call", "error"): 1,
            ("call", "backend_refused"): 1,
            ("call", "backend_protocol_error"): 1,
            ("call", "backend_timeout"): 1,
            ("call", "cancelled"): 1,
        }
        assert counted.timed("hostile") == 8
        assert counted.state("hostile") == ["ready"]


async def test_a_server_that_cannot_be_reached_is_counted_whether_or_not_it_was_tried() -> None:
    counted = Counted(with_limits(breaker={"failures": 1, "open_s": TIMEOUT_S}))
    async with counted.upstreams as upstreams:
        await upstreams.apply({"absent": ABSENT})
        upstream = upstreams.get("absent")
        assert upstream is not None
        for _ in range(2):
            with pytest.raises(GatewayError):
                await upstream.tools()
        with pytest.raises(GatewayError, match="calls are rejected"):
            await counted.call("absent", "echo")
        assert counted.requests("absent") == {
            ("list", "backend_unavailable"): 2,
            ("call", "backend_unavailable"): 1,
        }
        assert upstream.health().connections == 1
        assert counted.state("absent") == ["open"]
        await upstreams.apply({})
        assert counted.state("absent") == [], "a server that is gone is in no state"


async def test_the_server_shows_the_numbers_of_generic_servers_too(tmp_path: Path) -> None:
    with started(tmp_path) as server:
        server.write("mcp.json", {"odd": HOSTILE})
        await server.tools_become("anna", lambda names: "odd.echo" in names)
        async with connected(server.process.url, key="key-of-anna") as client:
            await client.mcp.call_tool("odd.echo", {})
        with server.api("root") as api:
            shown = api.get(f"{server.process.url}/metrics", headers=headers_of("root")).text
    lines = shown.splitlines()
    assert 'armarium_gateway_requests_total{outcome="success",request="call",server="odd"} 1.0' in lines
    assert 'armarium_gateway_server_state{server="odd",state="ready"} 1.0' in lines
    assert 'armarium_gateway_server_state{server="odd",state="open"} 0.0' in lines
