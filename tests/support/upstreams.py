"""Upstreams for tests: the hostile server over stdio and HTTP, and helpers to inspect its process."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio

from armarium.capabilities.gateway.config.entries import Timeouts
from armarium.capabilities.gateway.config.files import HttpTransport, ServerSpec, StdioTransport
from armarium.capabilities.gateway.upstreams.types import UpstreamLimits
from armarium.capabilities.gateway.upstreams.upstream import Upstream, UpstreamListeners
from armarium.capabilities.gateway.upstreams.upstream_set import UpstreamSet
from support.waiting import DEADLINE_S as TIMEOUT_S
from support.waiting import eventually

SHORT_S = 0.3
"""A deadline for calls that are never answered."""
SLOW_S = 4.0
"""A deadline for a slow call of a healthy server. Half of it is enough for a ping, even on a busy machine."""
HOSTILE = Path(__file__).with_name("hostile_upstream.py")

LIMITS = UpstreamLimits(connect_timeout_s=TIMEOUT_S, call_timeout_s=TIMEOUT_S, max_answer_bytes=1_000_000)


def with_limits(
    limits: UpstreamLimits = LIMITS, *, breaker: Mapping[str, Any] | None = None, **changed: Any
) -> UpstreamLimits:
    """The limits with some of them changed."""
    return limits.model_copy(update={**changed, "breaker": limits.breaker.model_copy(update=breaker)})


def hostile_process(*flags: str, name: str = "hostile", env: Mapping[str, str] | None = None) -> ServerSpec:
    """The hostile server as a process that the gateway starts."""
    return ServerSpec(name, "rag", StdioTransport(sys.executable, ("-I", str(HOSTILE), *flags), env or {}))


@asynccontextmanager
async def hostile_address(*flags: str, name: str = "hostile") -> AsyncGenerator[ServerSpec]:
    """The hostile server, already running, over HTTP."""
    async with await anyio.open_process([sys.executable, "-I", str(HOSTILE), "--http", *flags], stderr=None) as process:
        try:
            assert process.stdout is not None
            port = b""
            with anyio.fail_after(TIMEOUT_S):
                while not port.endswith(b"\n"):
                    port += await process.stdout.receive()
            yield ServerSpec(name, "rag", HttpTransport(f"http://127.0.0.1:{int(port)}/mcp"))
        finally:
            if process.returncode is None:
                process.kill()


@asynccontextmanager
async def hostile(transport: str) -> AsyncGenerator[ServerSpec]:
    """The hostile server over `stdio`, over `http`, or over HTTP with server-sent `events`."""
    if transport == "stdio":
        yield hostile_process()
    else:
        async with hostile_address(*(["--events"] if transport == "events" else [])) as spec:
            yield spec


@asynccontextmanager
async def served(spec: ServerSpec, limits: UpstreamLimits = LIMITS, **listeners: Any) -> AsyncGenerator[Upstream]:
    """The server as an upstream."""
    async with UpstreamSet(limits, UpstreamListeners(**listeners), drain_s=TIMEOUT_S) as upstreams:
        await upstreams.apply({spec.name: spec})
        upstream = upstreams.get(spec.name)
        assert upstream is not None
        yield upstream


async def works(upstream: Upstream) -> None:
    """Check that the server responds."""
    assert (await upstream.call("echo", {"still": "here"})).structured == {"still": "here"}


async def facts(upstream: Upstream) -> dict[str, Any]:
    """What the hostile server knows about itself and its calls."""
    result = await upstream.call("facts", {})
    assert result.structured is not None
    return result.structured


def with_timeouts(spec: ServerSpec, **timeouts: float) -> ServerSpec:
    """The same server with other timeouts in its entry."""
    return ServerSpec(spec.name, spec.kind, spec.transport, timeouts=Timeouts(**timeouts))


async def run_out_of_time_to_start(upstream: Upstream) -> None:
    """Let the deadline of the connection that is being opened pass now, so that a test needs no short timeout."""
    connection = upstream.connection
    assert connection is not None
    (await eventually(lambda: connection.opening)).deadline = anyio.current_time()


async def freeze(pid: int) -> None:
    """Stop a process, so that it hangs until it is continued.

    The signal is on its way when `kill` returns: on a busy machine a thread may answer a request before it stops.
    """
    os.kill(pid, signal.SIGSTOP)
    await eventually(lambda: all(_state(stat) == "T" for stat in Path(f"/proc/{pid}/task").glob("*/stat")))


def _state(stat: Path) -> str:
    try:
        return stat.read_text().rpartition(") ")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        # The thread has ended meanwhile.
        return "X"


def is_running(pid: int) -> bool:
    """Whether a process exists and is not a zombie."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(") ")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def open_descriptors() -> int:
    """The number of open descriptors of this process."""
    return len(os.listdir("/proc/self/fd"))
