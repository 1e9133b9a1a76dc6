"""What does a small call cost over our MCP transports, compared with the SDK's own?

The same `McpServer`, dispatcher and echo tool run behind each transport. Over HTTP, our gate admits the requests and
uvicorn serves them, for both. The SDK's HTTP transport is measured in both of its modes: JSON, which cannot send
progress before the response, and event stream, which can. Ours starts with JSON and becomes a stream when needed.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any, Protocol

import anyio
import uvicorn
from mcp.server.stdio import stdio_server
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from starlette.applications import Starlette
from starlette.routing import Route
from starlette.types import Message, Receive, Scope, Send
from typing_extensions import TypedDict

from armarium.foundation.security.identity import Authenticator, Principal, key_hash
from armarium.foundation.settings.model import LimitSettings, SessionSettings
from armarium.foundation.sockets import listen
from armarium.foundation.telemetry import Metrics
from armarium.foundation.tools import Args, Call, local_tool
from armarium.surfaces.dispatch import Dispatcher
from armarium.surfaces.gate import Gate
from armarium.surfaces.mcp.app import McpApp
from armarium.surfaces.mcp.http_server import serve_http
from armarium.surfaces.mcp.server import CALLER, McpServer, ServerIdentity, mcp_server
from armarium.surfaces.mcp.sessions import Sessions
from armarium.surfaces.mcp.stdio import serve_stdio
from measure import Cost, compared
from stdio_client import StdioServer
from trial import report, scaled

CALLS = scaled(3000)
WARM_UP = scaled(400)
ROUNDS = 7
LEAST_GAIN = 1.3
"""Below this ratio the SDK's transport replaces ours (decision 0001)."""
TEXT = "x" * 1024
KEY = "benchmark"
PROTOCOL = "2025-11-25"
TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")


class EchoArgs(Args):
    """What to echo."""

    text: str


class Echo(TypedDict):
    """The echo."""

    text: str


async def echo(call: Call, args: EchoArgs) -> Echo:
    """Return the text."""
    return {"text": args.text}


class Contender(Protocol):
    """A server process with one client."""

    def call(self, tool: str, arguments: dict[str, Any]) -> object: ...

    def cpu_s(self) -> float: ...

    def close(self) -> None: ...


class HttpServer:
    """A server process, and one session with it over one connection."""

    def __init__(self, transport: str) -> None:
        self._process = subprocess.Popen(command(transport), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        assert self._process.stdout is not None
        self._connection = http.client.HTTPConnection("127.0.0.1", int(self._process.stdout.readline()))
        self._headers = {
            "accept": "application/json, text/event-stream",
            "content-type": "application/json",
            "authorization": f"Bearer {KEY}",
        }
        client = {"name": "benchmark", "version": "1"}
        params = {"protocolVersion": PROTOCOL, "capabilities": {}, "clientInfo": client}
        _, session = self._post({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params})
        assert session is not None
        self._headers |= {"mcp-session-id": session, "mcp-protocol-version": PROTOCOL}
        self._post({"jsonrpc": "2.0", "method": "notifications/initialized"})

    def call(self, tool: str, arguments: dict[str, Any]) -> bytes:
        params = {"name": tool, "arguments": arguments}
        return self._post({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params})[0]

    def cpu_s(self) -> float:
        with open(f"/proc/{self._process.pid}/stat") as file:
            fields = file.read().rpartition(") ")[2].split()
        return (int(fields[11]) + int(fields[12])) / TICKS_PER_SECOND

    def close(self) -> None:
        self._connection.close()
        self._process.terminate()
        self._process.wait(20)

    def _post(self, message: dict[str, Any]) -> tuple[bytes, str | None]:
        self._connection.request("POST", "/mcp", json.dumps(message), self._headers)
        response = self._connection.getresponse()
        body = response.read()
        assert response.status in (200, 202), body
        return body, response.headers.get("mcp-session-id")


def main() -> None:
    cases: list[tuple[str, str, str]] = [
        ("stdio", "stdio-ours", "stdio-sdk"),
        ("HTTP, the SDK in JSON mode", "http-ours", "http-sdk-json"),
        ("HTTP, the SDK in event-stream mode", "http-ours", "http-sdk-stream"),
    ]
    rows: list[dict[str, Any]] = []
    for case, ours, theirs in cases:
        costs = measured(ours, theirs)
        gain = costs[theirs].cpu_s / costs[ours].cpu_s
        rows.append(compared(case, costs[ours], costs[theirs], sdk_to_ours=round(gain, 2)))
    goal = f"the SDK's transport takes at least {LEAST_GAIN} times the CPU of ours per call of 1 KB"
    report("transport", rows, goal, all(row["sdk_to_ours"] >= LEAST_GAIN for row in rows))


def measured(*transports: str) -> dict[str, Cost]:
    """The least CPU and wall time per call; the contenders take turns."""
    contenders: dict[str, Contender] = {
        each: StdioServer(command(each)) if each.startswith("stdio") else HttpServer(each) for each in transports
    }
    costs: dict[str, list[Cost]] = {each: [] for each in transports}
    try:
        for contender in contenders.values():
            repeat(WARM_UP, contender)
        for _ in range(ROUNDS):
            for name, contender in contenders.items():
                cpu, wall = contender.cpu_s(), time.perf_counter()
                repeat(CALLS, contender)
                costs[name].append(Cost(contender.cpu_s() - cpu, time.perf_counter() - wall).per(CALLS))
    finally:
        for contender in contenders.values():
            contender.close()
    return {
        name: Cost(min(cost.cpu_s for cost in found), min(cost.wall_s for cost in found))
        for name, found in costs.items()
    }


def repeat(calls: int, contender: Contender) -> None:
    for _ in range(calls):
        contender.call("echo", {"text": TEXT})


def command(transport: str) -> list[str]:
    return [sys.executable, __file__, "--serve", transport]


def serve(transport: str) -> None:
    """Run one server until its client has left."""
    metrics = Metrics()
    tool = local_tool("echo", echo, read_only=True)
    dispatcher = Dispatcher([("benchmark", tool)], metrics=metrics, audit=None, default_deadline_s=60)
    server = mcp_server(ServerIdentity("benchmark", ""), dispatcher, [tool])
    sessions = Sessions(SessionSettings(max_sessions=10), metrics)
    gate = Gate(
        Authenticator((Principal("benchmark", (), key_hash(KEY)),)),
        loopback_only=True,
        max_body_bytes=1024 * 1024,
        metrics=metrics,
        limits=LimitSettings(requests_per_second=None),
        has_session=sessions.has,
    )
    servers: dict[str, Callable[[], Any]] = {
        "stdio-ours": lambda: serve_stdio(server, max_message_bytes=1024 * 1024),
        "stdio-sdk": lambda: serve_sdk_stdio(server),
        "http-ours": lambda: serve_our_http(McpApp({"/mcp": server}, gate, sessions, metrics)),
        "http-sdk-json": lambda: serve_sdk_http(server, gate, json_response=True),
        "http-sdk-stream": lambda: serve_sdk_http(server, gate, json_response=False),
    }
    anyio.run(servers[transport], backend_options={"use_uvloop": True})


async def serve_sdk_stdio(server: McpServer) -> None:
    async with stdio_server() as (incoming, outgoing):
        await server.run(incoming, outgoing, server.create_initialization_options())


async def serve_our_http(app: McpApp) -> None:
    listening = listen("127.0.0.1", 0)
    port = listening.getsockname()[1]
    await serve_http(app, listening, grace_s=1, on_ready=lambda: print(port, flush=True))


async def serve_sdk_http(server: McpServer, gate: Gate, *, json_response: bool) -> None:
    manager = StreamableHTTPSessionManager(server, json_response=json_response)
    listening = listen("127.0.0.1", 0)
    config = uvicorn.Config(
        Starlette(routes=[Route("/mcp", _Gated(manager, gate))]),
        http="httptools",
        ws="none",
        loop="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_keep_alive=75,
    )
    print(listening.getsockname()[1], flush=True)
    async with manager.run():
        await uvicorn.Server(config).serve(sockets=[listening])


class _Gated:
    """The SDK's transport behind our gate."""

    def __init__(self, manager: StreamableHTTPSessionManager, gate: Gate) -> None:
        self._manager = manager
        self._gate = gate

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        admitted = await self._gate.admit(scope, receive)
        scope[CALLER] = admitted.caller
        unread = [admitted.body]

        async def replay() -> Message:
            if unread:
                return {"type": "http.request", "body": unread.pop(), "more_body": False}
            return await receive()

        await self._manager.handle_request(scope, replay, send)


if __name__ == "__main__":
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--serve", help="serve this transport, for the benchmark itself")
    arguments.add_argument("--quick", action="store_true", help="a small run that writes no result")
    options = arguments.parse_args()
    if options.serve:
        serve(options.serve)
    else:
        main()
