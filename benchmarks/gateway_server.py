"""`armarium serve` with servers behind it, for benchmarks: its URL, its process, and a client."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import AsyncGenerator, Generator, Mapping
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import httpx2
import mcp
import psutil
import yaml
from mcp.client.streamable_http import streamable_http_client

TIMEOUT_S = 60.0


@contextmanager
def served(
    directory: Path, file: str, servers: Mapping[str, Any], limits: Mapping[str, Any]
) -> Generator[tuple[str, psutil.Process]]:
    """A gateway over the servers of one file: its MCP URL and its process."""
    (directory / "config/overrides").mkdir(parents=True)
    (directory / "config/overrides" / file).write_text(json.dumps(servers))
    settings = {
        "state_dir": str(directory / "state"),
        "server": {"host": "127.0.0.1", "port": 0},
        "security": {"auth": "none"},
        "gateway": {"config_dir": str(directory / "config"), "limits": limits},
    }
    config = directory / "armarium.yaml"
    config.write_text(yaml.safe_dump(settings))
    log = directory / "log"
    command = [str(Path(sys.executable).with_name("armarium")), "serve", "--config", str(config)]
    with log.open("wb") as said, subprocess.Popen(command, stderr=said, stdin=subprocess.DEVNULL) as server:
        try:
            yield f"{address_in(log, server)}/mcp", psutil.Process(server.pid)
        finally:
            server.terminate()


def cpu_s_of(process: psutil.Process) -> float:
    """The CPU time of a process."""
    times = process.cpu_times()
    return times.user + times.system


@asynccontextmanager
async def connected(url: str) -> AsyncGenerator[mcp.Client]:
    """The official client over HTTP."""
    async with (
        httpx2.AsyncClient(verify=False, timeout=TIMEOUT_S) as http,
        mcp.Client(streamable_http_client(url, http_client=http), mode="legacy") as client,
    ):
        yield client


def address_in(log: Path, server: subprocess.Popen[bytes]) -> str:
    """The URL that the server reports in its log."""
    deadline = time.monotonic() + TIMEOUT_S
    while time.monotonic() < deadline and server.poll() is None:
        for line in log.read_text().splitlines(keepends=True):
            if line.startswith("{") and line.endswith("\n") and "address" in (told := json.loads(line)):
                return told["address"]
        time.sleep(0.05)
    raise RuntimeError(f"the server did not start; its last words: {log.read_text()[-500:]}")
