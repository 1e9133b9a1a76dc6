"""Third-party servers behind the gateway: the protocol's own examples over stdio and HTTP."""

from __future__ import annotations

import socket
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest

from armarium.capabilities.gateway.config.files import HttpTransport, ServerSpec, StdioTransport
from armarium.capabilities.gateway.errors import UpstreamRefused, UpstreamTimeout
from support.upstreams import SHORT_S, is_running, served
from support.waiting import eventually

NODE = str(Path(sys.executable).with_name("node"))
PROGRAMS = Path(__file__).parents[2] / "node" / "node_modules" / "@modelcontextprotocol"
EVERYTHING = str(PROGRAMS / "server-everything" / "dist" / "index.js")
FILESYSTEM = str(PROGRAMS / "server-filesystem" / "dist" / "index.js")


@asynccontextmanager
async def everything(transport: str) -> AsyncGenerator[ServerSpec]:
    """The example server that has a tool for everything in the protocol."""
    if transport == "stdio":
        yield ServerSpec("everything", "generic", StdioTransport(NODE, (EVERYTHING, "stdio")))
        return
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [NODE, EVERYTHING, "streamableHttp"]
    async with await anyio.open_process(command, env={"PORT": str(port)}, stdout=None, stderr=None) as process:
        try:
            await eventually(lambda: _accepts(port))
            yield ServerSpec("everything", "generic", HttpTransport(f"http://127.0.0.1:{port}/mcp"))
        finally:
            process.kill()


async def _accepts(port: int) -> bool:
    try:
        await (await anyio.connect_tcp("127.0.0.1", port)).aclose()
    except OSError:
        return False
    return True


@pytest.mark.parametrize("transport", ["stdio", "http"])
async def test_the_example_of_everything_works_behind_the_gateway(transport: str) -> None:
    steps: list[float] = []

    async def note(progress: float, total: float | None, message: str | None) -> None:
        steps.append(progress)

    async with everything(transport) as spec, served(spec) as upstream:
        tools = {tool.name: tool for tool in await upstream.tools()}
        echo = await upstream.call("echo", {"message": "through the gateway"})
        assert "through the gateway" in echo.content[0]["text"]
        assert tools["echo"].input_schema["properties"]["message"]["type"] == "string"
        structured = await upstream.call("get-structured-content", {"location": "Chicago"})
        assert structured.structured is not None
        assert tools["get-structured-content"].output_schema is not None
        assert set(tools["get-structured-content"].output_schema["properties"]) == set(structured.structured)
        await upstream.call("trigger-long-running-operation", {"duration": 0.2, "steps": 2}, on_progress=note)
        await eventually(lambda: steps == [1.0, 2.0])
        assert (await upstream.call("get-tiny-image", {})).content[1]["type"] == "image"
        assert upstream.health().connections == 1


@pytest.mark.parametrize("transport", ["stdio", "http"])
async def test_what_the_example_refuses_or_is_slow_with_is_an_error_of_that_call(transport: str) -> None:
    async with everything(transport) as spec, served(spec) as upstream:
        await upstream.tools()
        with pytest.raises(UpstreamTimeout):
            await upstream.call("trigger-long-running-operation", {"duration": 30, "steps": 1}, timeout_s=SHORT_S)
        try:
            refused = (await upstream.call("no-such-tool", {})).is_error
        except UpstreamRefused:
            refused = True
        assert refused
        assert not (await upstream.call("echo", {"message": "after"})).is_error
        assert upstream.health().connections == 1


async def test_the_filesystem_server_reads_behind_the_gateway_and_ends_with_it(tmp_path: Path) -> None:
    (tmp_path / "note.txt").write_text("what it says\n")
    spec = ServerSpec("files", "generic", StdioTransport(NODE, (FILESYSTEM, str(tmp_path))))
    async with served(spec) as upstream:
        read = await upstream.call("read_text_file", {"path": str(tmp_path / "note.txt")})
        assert read.content == [{"type": "text", "text": "what it says\n"}]
        outside = await upstream.call("read_text_file", {"path": "/etc/hostname"})
        assert outside.is_error
        pid = upstream.health().pid
        assert pid is not None
        assert is_running(pid)
    await eventually(lambda: not is_running(pid))
