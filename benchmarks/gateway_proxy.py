"""What does a tool call through the gateway cost compared with a direct call, and can 200 clients call at once?

The official client calls a small server over HTTP: directly, as `echo.echo` through `armarium serve`, and through a
fastmcp proxy. fastmcp is installed into its own environment for the run, and skipped if that fails. The three routes
alternate. The cost of a route is the CPU time of the client and of the process in between, without the server's. Then
200 clients, each with its own session, call through the gateway at once. `--quick` makes a twentieth of the calls.
"""

from __future__ import annotations

import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncGenerator, Generator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import anyio
import mcp
import psutil

from gateway_server import TIMEOUT_S, connected, cpu_s_of, served
from trial import report, scaled

SERVER = Path(__file__).parents[1] / "tests" / "support" / "hostile_upstream.py"
ARGUMENTS = {"text": "word " * 20}
CALLS = 500
RUNS = 5
CLIENTS = 200
CALLS_EACH = 5
MOST_EXTRA_MS = 5.0
PEER = "fastmcp"
INSTALL_DEADLINE_S = 600


async def main() -> None:
    async with AsyncExitStack() as open_parts:
        directory = Path(open_parts.enter_context(tempfile.TemporaryDirectory()))
        url = open_parts.enter_context(echoing())
        gateway_url, gateway = open_parts.enter_context(
            served(directory / "gateway", "mcp.json", {"echo": {"url": url}}, {"call_timeout_s": TIMEOUT_S})
        )
        ways = {
            "direct": await open_parts.enter_async_context(way(url, "echo")),
            "armarium": await open_parts.enter_async_context(way(gateway_url, "echo.echo", gateway)),
        }
        if (peer := open_parts.enter_context(peer_of(directory / "peer", url))) is not None:
            ways[PEER] = await open_parts.enter_async_context(way(peer[0], "echo", peer[1]))
        rows = await costs(ways)
        failed, wall_s = await everybody_at_once(gateway_url)
    ours = next(row for row in rows if row["case"] == "armarium")
    rows.append(
        {"case": f"{CLIENTS} clients", "failed": failed, "calls_a_second": round(CLIENTS * CALLS_EACH / wall_s)}
    )
    goal = (
        f"a call through the gateway costs at most {MOST_EXTRA_MS:g} ms of CPU more than a direct one "
        f"({ours['extra_cpu_ms']} ms), and {CLIENTS} clients at once see no error ({failed} did)"
    )
    report("gateway_proxy", rows, goal, ours["extra_cpu_ms"] <= MOST_EXTRA_MS and not failed)


class Way:
    """One route to the tool: a client, the name of the tool, and the process in between, if any."""

    def __init__(self, client: mcp.Client, tool: str, between: psutil.Process | None) -> None:
        self._client = client
        self._tool = tool
        self._between = between

    async def call(self) -> None:
        answered = await self._client.call_tool(self._tool, ARGUMENTS)
        assert not answered.is_error, answered

    def cpu_s(self) -> float:
        return time.process_time() + (cpu_s_of(self._between) if self._between else 0.0)


@asynccontextmanager
async def way(url: str, tool: str, between: psutil.Process | None = None) -> AsyncGenerator[Way]:
    """A route that works. The tools of a server behind a gateway are listed shortly after its start."""
    async with connected(url) as client:
        with anyio.fail_after(TIMEOUT_S):
            while tool not in {each.name for each in (await client.list_tools()).tools}:  # noqa: ASYNC110 a client is not told
                await anyio.sleep(0.05)
        found = Way(client, tool, between)
        await found.call()
        yield found


async def costs(ways: dict[str, Way]) -> list[dict[str, Any]]:
    """The minimum CPU and wall time of a call on each route."""
    cpu_ms: dict[str, list[float]] = {name: [] for name in ways}
    wall_ms: dict[str, list[float]] = {name: [] for name in ways}
    calls = scaled(CALLS)
    for _ in range(RUNS):
        for name, each in ways.items():
            cpu, started = each.cpu_s(), time.perf_counter()
            for _ in range(calls):
                await each.call()
            wall_ms[name].append((time.perf_counter() - started) * 1000 / calls)
            cpu_ms[name].append((each.cpu_s() - cpu) * 1000 / calls)
    return [
        {
            "case": name,
            "cpu_ms": round(min(cpu_ms[name]), 3),
            "wall_ms": round(min(wall_ms[name]), 3),
            "extra_cpu_ms": round(min(cpu_ms[name]) - min(cpu_ms["direct"]), 3),
            "extra_wall_ms": round(min(wall_ms[name]) - min(wall_ms["direct"]), 3),
        }
        for name in ways
    ]


async def everybody_at_once(url: str) -> tuple[int, float]:
    """The number of clients with an error, and the durations of all calls."""
    failed = 0
    ready, go = anyio.Semaphore(0), anyio.Event()

    async def one(number: int) -> None:
        nonlocal failed
        try:
            async with connected(url) as client:
                ready.release()
                await go.wait()
                for turn in range(CALLS_EACH):
                    sent = {"client": number, "turn": turn}
                    if (await client.call_tool("echo.echo", sent)).structured_content != sent:
                        failed += 1
                        return
        except Exception as error:  # noqa: BLE001 any error counts as a failed client
            print(f"a client failed: {type(error).__name__}")
            failed += 1

    async with anyio.create_task_group() as clients:
        for number in range(CLIENTS):
            clients.start_soon(one, number)
        with anyio.fail_after(TIMEOUT_S):
            for _ in range(CLIENTS):
                await ready.acquire()
        started = time.perf_counter()
        go.set()
    return failed, time.perf_counter() - started


@contextmanager
def echoing() -> Generator[str]:
    """The URL of the server that is called."""
    with subprocess.Popen([sys.executable, "-I", str(SERVER), "--http"], stdout=subprocess.PIPE) as server:
        try:
            yield f"http://127.0.0.1:{_first_line(server)}/mcp"
        finally:
            server.kill()


@contextmanager
def peer_of(home: Path, url: str) -> Generator[tuple[str, psutil.Process] | None]:
    """A fastmcp proxy in front of the server, if it can be installed: its URL and its process."""
    python = str(home / "bin" / "python")
    commands = [[sys.executable, "-m", "venv", str(home)], [python, "-m", "pip", "install", "--quiet", PEER]]
    try:
        for command in commands:
            subprocess.run(command, check=True, capture_output=True, timeout=INSTALL_DEADLINE_S)
    except (OSError, subprocess.SubprocessError) as error:
        print(f"{PEER} could not be installed ({type(error).__name__}); left out")
        yield None
        return
    script = str(Path(__file__).with_name("gateway_peer.py"))
    with subprocess.Popen([python, script, url], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as proxy:
        try:
            port = _first_line(proxy)
            _wait_for(port)
            yield f"http://127.0.0.1:{port}/mcp", psutil.Process(proxy.pid)
        finally:
            proxy.kill()


def _wait_for(port: int) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while True:
        try:
            socket.create_connection(("127.0.0.1", port)).close()
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)
        else:
            return


def _first_line(process: subprocess.Popen[bytes]) -> int:
    assert process.stdout is not None
    return int(process.stdout.readline())


if __name__ == "__main__":
    anyio.run(main, backend_options={"use_uvloop": True})
