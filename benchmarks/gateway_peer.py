"""Runs within the peer's own environment: calls a server directly and through a fastmcp proxy, and prints the cost.

Standard input is one JSON object: `command` of the server, how many `calls`, how many `runs`. Standard output is the
CPU seconds of one call, direct and proxied, the least of the runs.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from typing import Any

from fastmcp import Client  # type: ignore[import-not-found]
from fastmcp.client.transports import StdioTransport  # type: ignore[import-not-found]
from fastmcp.server import create_proxy  # type: ignore[import-not-found]


async def measured(job: dict[str, Any]) -> dict[str, float]:
    program, *arguments = job["command"]
    transport = StdioTransport(command=program, args=arguments)
    costs: dict[str, list[float]] = {"direct_cpu_s": [], "proxied_cpu_s": []}
    async with Client(transport) as direct, Client(create_proxy(direct)) as proxied:
        for _ in range(job["runs"]):
            for name, client in (("direct_cpu_s", direct), ("proxied_cpu_s", proxied)):
                started = time.process_time()
                for _ in range(job["calls"]):
                    await client.call_tool("echo", {"text": "word " * 20})
                costs[name].append((time.process_time() - started) / job["calls"])
    return {name: min(found) for name, found in costs.items()}


if __name__ == "__main__":
    json.dump(asyncio.run(measured(json.load(sys.stdin))), sys.stdout)
