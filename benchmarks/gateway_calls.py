"""What does a call through the gateway's connection cost over the same call of a bare client, and do 200 callers fit?

One small server of the standard library, over stdio and over HTTP: called with the official client, then through
`Upstream.call` with its deadline, turn, breaker and bounds. A fastmcp proxy in its own environment, installed for the
run, is measured the same way: proxied less direct; what it adds includes a server's side in memory, which ours has
elsewhere. A peer that cannot be installed is left out.
`--quick` makes a twentieth of the calls.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import httpx2
import mcp
from mcp.client.streamable_http import streamable_http_client

from armarium.capabilities.gateway.errors import GatewayError
from armarium.capabilities.gateway.server_files import HttpTransport, ServerSpec, StdioTransport
from armarium.capabilities.gateway.upstreams.answers import UpstreamLimits
from armarium.capabilities.gateway.upstreams.pool import Upstreams
from armarium.capabilities.gateway.upstreams.upstream import Upstream
from trial import report, scaled

SERVER = Path(__file__).parents[1] / "tests" / "support" / "hostile_upstream.py"
ARGUMENTS = {"text": "word " * 20}
CALLS = 1000
RUNS = 3
CALLERS = 200
CALLS_EACH = 10
MOST_EXTRA_S = 0.005
PEER = "fastmcp"
INSTALL_DEADLINE_S = 600
PEER_DEADLINE_S = 600
LIMITS = UpstreamLimits(call_timeout_s=120.0, connect_timeout_s=60.0)


def main() -> None:
    rows = [anyio.run(measured, transport, backend_options={"use_uvloop": True}) for transport in ("stdio", "http")]
    rows.append(peer_row())
    ours = [row for row in rows if "extra_cpu_ms" in row and row["case"] != PEER]
    most_s = max(row["extra_cpu_ms"] for row in ours) / 1000
    failed = sum(row["callers_failed"] for row in ours)
    goal = (
        f"a call through the gateway costs at most {MOST_EXTRA_S * 1000:g} ms of CPU more than a direct one "
        f"({most_s * 1000:.3f} ms), and {CALLERS} callers at once see no error ({failed} did)"
    )
    report("gateway_calls", rows, goal, most_s <= MOST_EXTRA_S and not failed)


async def measured(transport: str) -> dict[str, Any]:
    """Direct and through the gateway, taking turns; then everybody at once."""
    async with server(transport) as spec, direct_client(spec) as client, Upstreams(LIMITS) as upstreams:
        await upstreams.apply({spec.name: spec})
        upstream = upstreams.get(spec.name)
        assert upstream is not None
        contenders: dict[str, Callable[[], Awaitable[Any]]] = {
            "direct": lambda: client.call_tool("echo", ARGUMENTS),
            "gateway": lambda: upstream.call("echo", ARGUMENTS),
        }
        costs: dict[str, list[float]] = {name: [] for name in contenders}
        for call in contenders.values():
            await call()
        for _ in range(RUNS):
            for name, call in contenders.items():
                costs[name].append(await cpu_of_one(call, scaled(CALLS)))
        direct_s, gateway_s = (min(costs[name]) for name in contenders)
        failed, wall_s = await everybody_at_once(upstream)
    print(f"{transport}: direct {direct_s * 1e3:.3f} ms, gateway {gateway_s * 1e3:.3f} ms of CPU a call")
    return {
        "case": transport,
        "direct_cpu_ms": round(direct_s * 1e3, 4),
        "gateway_cpu_ms": round(gateway_s * 1e3, 4),
        "extra_cpu_ms": round((gateway_s - direct_s) * 1e3, 4),
        "callers": CALLERS,
        "callers_failed": failed,
        "calls_a_second": round(CALLERS * CALLS_EACH / wall_s),
    }


async def cpu_of_one(call: Callable[[], Awaitable[Any]], calls: int) -> float:
    started = time.process_time()
    for _ in range(calls):
        await call()
    return (time.process_time() - started) / calls


async def everybody_at_once(upstream: Upstream) -> tuple[int, float]:
    """How many callers saw an error, and how long all of them took."""
    failed = 0

    async def caller(number: int) -> None:
        nonlocal failed
        try:
            for turn in range(CALLS_EACH):
                sent = {"caller": number, "turn": turn}
                if (await upstream.call("echo", sent)).structured != sent:
                    failed += 1
                    return
        except GatewayError:
            failed += 1

    started = time.perf_counter()
    async with anyio.create_task_group() as callers:
        for number in range(CALLERS):
            callers.start_soon(caller, number)
    return failed, time.perf_counter() - started


@asynccontextmanager
async def server(transport: str) -> AsyncGenerator[ServerSpec]:
    command = [sys.executable, "-I", str(SERVER)]
    if transport == "stdio":
        yield ServerSpec("echo", "rag", StdioTransport(command[0], tuple(command[1:])))
        return
    async with await anyio.open_process([*command, "--http"], stderr=None) as process:
        try:
            assert process.stdout is not None
            port = int(await process.stdout.receive())
            yield ServerSpec("echo", "rag", HttpTransport(f"http://127.0.0.1:{port}/mcp"))
        finally:
            process.kill()


@asynccontextmanager
async def direct_client(spec: ServerSpec) -> AsyncGenerator[mcp.Client]:
    """The official client as its manual shows it, with the same handshake."""
    match spec.transport:
        case StdioTransport(command=command, args=args):
            parameters = mcp.StdioServerParameters(command=command, args=list(args))
            async with mcp.Client(parameters, mode="legacy") as client:
                yield client
        case HttpTransport(url=url):
            async with (
                httpx2.AsyncClient(verify=False, timeout=60) as http,
                mcp.Client(streamable_http_client(url, http_client=http), mode="legacy") as client,
            ):
                yield client
        case None:
            raise ValueError("there is no way to the server")


def peer_row() -> dict[str, Any]:
    """What a fastmcp proxy adds to a call of its own client."""
    job = {"command": [sys.executable, "-I", str(SERVER)], "calls": scaled(CALLS), "runs": RUNS}
    with tempfile.TemporaryDirectory() as directory:
        python = str(Path(directory) / "bin" / "python")
        try:
            for command in (
                [sys.executable, "-m", "venv", directory],
                [python, "-m", "pip", "install", "--quiet", PEER],
            ):
                subprocess.run(command, check=True, env=os.environ, capture_output=True, timeout=INSTALL_DEADLINE_S)
        except (OSError, subprocess.SubprocessError) as error:
            print(f"{PEER} could not be installed ({type(error).__name__})")
            return {"case": PEER, "left_out": "could not be installed"}
        script = str(Path(__file__).with_name("gateway_peer.py"))
        run = subprocess.run(
            [python, script], input=json.dumps(job), capture_output=True, text=True, check=True, timeout=PEER_DEADLINE_S
        )
    found = json.loads(run.stdout)
    print(f"{PEER}: direct {found['direct_cpu_s'] * 1e3:.3f} ms, proxy {found['proxied_cpu_s'] * 1e3:.3f} ms")
    return {
        "case": PEER,
        "direct_cpu_ms": round(found["direct_cpu_s"] * 1e3, 4),
        "proxied_cpu_ms": round(found["proxied_cpu_s"] * 1e3, 4),
        "extra_cpu_ms": round((found["proxied_cpu_s"] - found["direct_cpu_s"]) * 1e3, 4),
    }


if __name__ == "__main__":
    main()
