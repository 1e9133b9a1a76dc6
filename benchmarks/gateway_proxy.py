"""What does a tool call through the whole gateway cost over a direct call, and do 200 clients at once get through?

The official client calls a small server over HTTP: directly, as `echo.echo` through `armarium serve`, and through a
proxy of fastmcp, which is installed into an environment of its own for the run, or left out where it cannot be. They
take turns. What a way costs is the CPU of the client and of the process between; the server's own is in none of them.
Then 200 clients, each with a session of its own, call through the gateway all at once. `--quick` makes a twentieth of
the calls.
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

from gateway_server import PATIENCE_S, connected, cpu_s_of, served
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
            served(directory / "gateway", "mcp.json", {"echo": {"url": url}}, {"call_timeout_s": PATIENCE_S})
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
    """One way to the tool: a client, the tool's name there, and the process between, if there is one."""

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
    """A way that works: the tools of a server behind a gateway are there a moment after it starts."""
    async with connected(url) as client:
        with anyio.fail_after(PATIENCE_S):
            while tool not in {each.name for each in (await client.list_tools()).tools}:  # noqa: ASYNC110 a client is not told
                await anyio.sleep(0.05)
        found = Way(client, tool, between)
        await found.call()
        yield found


async def costs(ways: dict[str, Way]) -> list[dict[str, Any]]:
    """The least CPU and wall time of a call by each way."""
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
    """How many clients saw an error, and how long the calls of all of them took."""
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
        except Exception as error:  # noqa: BLE001 whatever it is, a client saw it
            print(f"a client failed: {type(error).__name__}")
            failed += 1

    async with anyio.create_task_group() as clients:
        for number in range(CLIENTS):
            clients.start_soon(one, number)
        with anyio.fail_after(PATIENCE_S):
            for _ in range(CLIENTS):
                await ready.acquire()
        started = time.perf_counter()
        go.set()
    return failed, time.perf_counter() - started


@contextmanager
def echoing() -> Generator[str]:
    """The server that is called; where it is."""
    with subprocess.Popen([sys.executable, "-I", str(SERVER), "--http"], stdout=subprocess.PIPE) as server:
        try:
            yield f"http://127.0.0.1:{_first_line(server)}/mcp"
        finally:
            server.kill()


@contextmanager
def peer_of(home: Path, url: str) -> Generator[tuple[str, psutil.Process] | None]:
    """A proxy of fastmcp in front of the server, if it can be installed: its address and its process."""
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
    deadline = time.monotonic() + PATIENCE_S
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
