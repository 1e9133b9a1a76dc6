"""MCP messages and clients for tests: plain HTTP requests, and the official client."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import httpx
import httpx2
import mcp
from mcp.client.streamable_http import streamable_http_client

from armarium.foundation.sockets import listen
from armarium.surfaces.mcp.app import McpApp
from armarium.surfaces.mcp.http_server import serve_http
from support.mcp_test_server import ALICE_KEY

_TESTS = Path(__file__).parents[1]
DEADLINE_S = 20.0
BOTH_FORMS = "application/json, text/event-stream"


@asynccontextmanager
async def serving(app: McpApp, **options: Any) -> AsyncGenerator[str]:
    """Serve the application as the product does, on a free port; yields its address."""
    listening = listen("127.0.0.1", 0)
    address = f"http://127.0.0.1:{listening.getsockname()[1]}"
    ready = anyio.Event()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(partial(serve_http, app, listening, grace_s=1, on_ready=ready.set, **options))
        with anyio.fail_after(DEADLINE_S):
            await ready.wait()
        yield address
        tasks.cancel_scope.cancel()


@asynccontextmanager
async def http_client(address: str, key: str | None = ALICE_KEY, **headers: str) -> AsyncGenerator[httpx.AsyncClient]:
    """Plain HTTP with the headers every well-behaved client sends."""
    usual = {"accept": BOTH_FORMS, "content-type": "application/json"} | headers
    if key is not None:
        usual["authorization"] = f"Bearer {key}"
    async with httpx.AsyncClient(base_url=address, headers=usual, timeout=DEADLINE_S) as client:
        yield client


def request(method: str, params: dict[str, Any] | None = None, *, id: int | str = 1) -> dict[str, Any]:
    """A JSON-RPC request."""
    return {"jsonrpc": "2.0", "id": id, "method": method, "params": params or {}}


def opening(version: str = "2025-11-25", **capabilities: Any) -> dict[str, Any]:
    """The request that opens a session."""
    identity = {"name": "by-hand", "version": "0"}
    params = {"protocolVersion": version, "capabilities": capabilities, "clientInfo": identity}
    return request("initialize", params, id="opening")


def calling(tool: str, *, id: int | str = 1, token: str | int | None = None, **arguments: Any) -> dict[str, Any]:
    """The request that calls a tool; with a token it asks for progress."""
    meta = {"_meta": {"progressToken": token}} if token is not None else {}
    return request("tools/call", {"name": tool, "arguments": arguments} | meta, id=id)


async def open_session(client: httpx.AsyncClient, path: str = "/mcp", **capabilities: Any) -> dict[str, str]:
    """Go through the handshake; returns the header that names the session from then on."""
    answer = await client.post(path, json=opening(**capabilities))
    assert answer.status_code == 200, answer.text
    session = {"mcp-session-id": answer.headers["mcp-session-id"]}
    done = await client.post(path, json={"jsonrpc": "2.0", "method": "notifications/initialized"}, headers=session)
    assert done.status_code == 202
    return session


@asynccontextmanager
async def official_client(
    url: str, *, key: str | None = ALICE_KEY, mode: str = "legacy", **options: Any
) -> AsyncGenerator[mcp.Client]:
    """The official Python client."""
    headers = {"authorization": f"Bearer {key}"} if key else {}
    async with httpx2.AsyncClient(headers=headers, timeout=DEADLINE_S) as http:
        transport = streamable_http_client(url, http_client=http)
        async with mcp.Client(transport, mode=mode, read_timeout_seconds=DEADLINE_S, **options) as client:
            yield client


def server_command(surface: str, *options: str) -> list[str]:
    """How the fixture server is started as a process of its own."""
    return program_command("support.mcp_test_server", surface, *options)


def program_command(module: str, *options: str) -> list[str]:
    """How a module of the tests is started as a program."""
    path = os.pathsep.join(filter(None, [str(_TESTS), os.environ.get("PYTHONPATH")]))
    return ["env", f"PYTHONPATH={path}", sys.executable, "-m", module, *options]


async def events(answer: httpx.Response) -> AsyncIterator[dict[str, Any]]:
    """The messages of an event stream, as they arrive."""
    async for line in answer.aiter_lines():
        if line.startswith("data: "):
            yield json.loads(line.removeprefix("data: "))


def gauge(exposition: str, name: str) -> float:
    """The value of a metric without labels."""
    (line,) = [line for line in exposition.splitlines() if line.startswith(f"{name} ")]
    return float(line.split()[1])
