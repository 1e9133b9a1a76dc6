"""Do 50 clients at once all get their answers, and does memory stay flat?

Each client has its own session over streamable HTTP and reads, writes, lists and searches. The peer is the same server
with one client: what 50 cost per call compared with one.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import anyio
import httpx

from measure import report

CLIENTS = 50
CALLS_EACH = 60
ROUNDS = 4
HEADERS = {"accept": "application/json, text/event-stream", "content-type": "application/json"}


class Client:
    """One MCP session over plain HTTP."""

    def __init__(self, http: httpx.AsyncClient, number: int) -> None:
        self._http = http
        self._number = number
        self._headers = dict(HEADERS)
        self.errors = 0

    async def __aenter__(self) -> Client:
        info = {"name": f"client-{self._number}", "version": "1"}
        params = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": info}
        answer = await self._post({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params})
        self._headers |= {"mcp-session-id": answer.headers["mcp-session-id"], "mcp-protocol-version": "2025-11-25"}
        await self._post({"jsonrpc": "2.0", "method": "notifications/initialized"})
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._http.delete("/mcp", headers=self._headers)

    async def work(self, calls: int) -> None:
        for number in range(calls):
            tool, arguments = self._task(number)
            message = {"jsonrpc": "2.0", "id": number + 1, "method": "tools/call"}
            answer = await self._post({**message, "params": {"name": tool, "arguments": arguments}})
            result = answer.json().get("result")
            if result is None or result.get("isError"):
                self.errors += 1

    def _task(self, number: int) -> tuple[str, dict[str, Any]]:
        mine = f"notes/{self._number}.txt"
        tasks: list[tuple[str, dict[str, Any]]] = [
            ("write_file", {"path": mine, "content": f"note {number}\n"}),
            ("read_file", {"path": mine}),
            ("read_file", {"path": "shared.txt"}),
            ("list_folder", {"path": "."}),
            ("grep", {"pattern": "needle"}),
            ("stat_file", {"path": "shared.txt"}),
        ]
        tool, arguments = tasks[number % len(tasks)]
        return tool, {"root": "workspace", **arguments}

    async def _post(self, message: dict[str, Any]) -> httpx.Response:
        return await self._http.post("/mcp", json=message, headers=self._headers)


async def load(url: str, clients: int, calls: int) -> tuple[float, int]:
    """Wall time and errors of `clients` concurrent clients."""
    limits = httpx.Limits(max_connections=clients)
    async with httpx.AsyncClient(base_url=url, limits=limits, timeout=60) as http:
        working = [Client(http, number) for number in range(clients)]
        for client in working:
            await client.__aenter__()
        started = time.perf_counter()
        async with anyio.create_task_group() as tasks:
            for client in working:
                tasks.start_soon(client.work, calls)
        seconds = time.perf_counter() - started
        for client in working:
            await client.__aexit__()
    return seconds, sum(client.errors for client in working)


def main() -> None:
    with tempfile.TemporaryDirectory() as directory:
        root = Path(directory) / "root"
        (root / "notes").mkdir(parents=True)
        (root / "shared.txt").write_text("hay\n" * 200 + "needle\n")
        config = Path(directory) / "config.yaml"
        config.write_text(f"host: 127.0.0.1\nroots:\n- {{name: workspace, path: {root}, allowed_tools: ['*']}}\n")
        port = 20_000 + os.getpid() % 20_000
        command = [str(Path(sys.executable).parent / "mcp-filesystem"), "--config", str(config), "--port", str(port)]
        server = subprocess.Popen(command, stderr=subprocess.DEVNULL)
        url = f"http://127.0.0.1:{port}"
        try:
            wait_until_healthy(url)
            rows, met = measured(url, server.pid)
        finally:
            server.terminate()
            server.wait(10)
    goal = f"{CLIENTS} concurrent clients, no error, memory flat (under 10% growth after the first round)"
    report("concurrent_clients", rows, goal, met)


def measured(url: str, pid: int) -> tuple[list[dict[str, Any]], bool]:
    alone_s, _ = anyio.run(load, url, 1, CALLS_EACH * 4)
    rows: list[dict[str, Any]] = [
        {"case": "1 client", "ms_per_call": round(alone_s / (CALLS_EACH * 4) * 1000, 3), "rss_mb": rss_mb(pid)}
    ]
    total_errors = 0
    for number in range(ROUNDS):
        seconds, errors = anyio.run(load, url, CLIENTS, CALLS_EACH)
        total_errors += errors
        calls = CLIENTS * CALLS_EACH
        rows.append(
            {
                "case": f"{CLIENTS} clients, round {number + 1}",
                "ms_per_call": round(seconds / calls * 1000, 3),
                "calls_per_s": round(calls / seconds),
                "errors": errors,
                "rss_mb": rss_mb(pid),
            }
        )
    flat = rows[-1]["rss_mb"] <= rows[1]["rss_mb"] * 1.1
    return rows, total_errors == 0 and flat


def rss_mb(pid: int) -> float:
    with open(f"/proc/{pid}/status") as file:
        line = next(line for line in file if line.startswith("VmRSS"))
    return round(int(line.split()[1]) / 1024, 1)


def wait_until_healthy(url: str) -> None:
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        try:
            if httpx.get(f"{url}/health").text == "ok":
                return
        except httpx.TransportError:
            time.sleep(0.05)
    raise TimeoutError("the server did not start")


if __name__ == "__main__":
    main()
