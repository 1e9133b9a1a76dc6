"""Servers behind the gateway for tests: the hostile one, over stdio and HTTP, and ways to see what is left of it."""

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
from armarium.capabilities.gateway.upstreams.upstream import Upstream
from armarium.capabilities.gateway.upstreams.upstream_set import UpstreamSet
from support.waiting import DEADLINE_S as TIMEOUT_S
from support.waiting import eventually

SHORT_S = 0.3
"""A deadline for what never answers."""
SLOW_S = 4.0
"""A deadline for a call that is not answered by a server that is well: half of it is left for a ping's answer, which
has to come also when the machine is busy."""
HOSTILE = Path(__file__).with_name("hostile_upstream.py")

LIMITS = UpstreamLimits(connect_timeout_s=TIMEOUT_S, call_timeout_s=TIMEOUT_S, max_answer_bytes=1_000_000)


def hostile_process(*flags: str, name: str = "hostile", env: Mapping[str, str] | None = None) -> ServerSpec:
    """The hostile server as a process that the gateway starts."""
    return ServerSpec(name, "rag", StdioTransport(sys.executable, ("-I", str(HOSTILE), *flags), env or {}))


@asynccontextmanager
async def hostile_address(*flags: str, name: str = "hostile") -> AsyncGenerator[ServerSpec]:
    """The hostile server as somebody else runs it, over HTTP."""
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
    """The hostile server over `stdio`, over `http`, or over HTTP that answers in `events`."""
    if transport == "stdio":
        yield hostile_process()
    else:
        async with hostile_address(*(["--events"] if transport == "events" else [])) as spec:
            yield spec


@asynccontextmanager
async def served(spec: ServerSpec, limits: UpstreamLimits = LIMITS, **listeners: Any) -> AsyncGenerator[Upstream]:
    """The server behind a gateway of its own."""
    async with UpstreamSet(limits, drain_s=TIMEOUT_S, **listeners) as upstreams:
        await upstreams.apply({spec.name: spec})
        upstream = upstreams.get(spec.name)
        assert upstream is not None
        yield upstream


def with_timeouts(spec: ServerSpec, **timeouts: float) -> ServerSpec:
    """The same server, which gives itself other limits."""
    return ServerSpec(spec.name, spec.kind, spec.transport, timeouts=Timeouts(**timeouts))


async def run_out_of_time_to_start(upstream: Upstream) -> None:
    """Let the time pass that the connection, which is being opened, has left; a test then needs no short limit."""
    connection = upstream.connection
    assert connection is not None
    (await eventually(lambda: connection.opening)).deadline = anyio.current_time()


async def freeze(pid: int) -> None:
    """Stop a whole process, as one that hangs for good; it can be continued.

    The signal is on its way when `kill` returns: on a busy machine a thread may answer a request before it stops.
    """
    os.kill(pid, signal.SIGSTOP)
    await eventually(lambda: all(_state(stat) == "T" for stat in Path(f"/proc/{pid}/task").glob("*/stat")))


def _state(stat: Path) -> str:
    try:
        return stat.read_text().rpartition(") ")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        # A thread that ended meanwhile; the next look is without it.
        return "X"


def is_running(pid: int) -> bool:
    """Whether a process is there and not merely waiting to be collected by its parent."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(") ")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def open_descriptors() -> int:
    """How many descriptors this process has."""
    return len(os.listdir("/proc/self/fd"))
