"""`armarium up` and `armarium stdio` with a directory, as an agent meets them."""

from __future__ import annotations

import json
import os
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from subprocess import DEVNULL, PIPE, Popen

import mcp
from mcp.client.stdio import StdioServerParameters, stdio_client

from support.client import CONTRACT_PROTOCOL, ToolClient
from support.command_line import Command
from support.server import installed_command


def environment(home: Path) -> dict[str, str]:
    """The environment of a user with this home and without settings."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("ARMARIUM_", "DIR2MCP_"))}
    return kept | {"HOME": str(home), "XDG_STATE_HOME": str(home / "state")}


@contextmanager
def served(directory: Path, home: Path, *options: str) -> Generator[str]:
    """`armarium up --write`, and its address. Everyone may call."""
    command = [installed_command("armarium"), "up", str(directory), "--write", "--auth", "none", "--port", "0"]
    process = Popen(
        [*command, "--json", *options], stdin=DEVNULL, stdout=PIPE, stderr=PIPE, text=True, env=environment(home)
    )
    with Command(process) as running:
        yield json.loads(running.stdout.next())["url"].removesuffix("/mcp")
        running.interrupt()


@asynccontextmanager
async def over_stdio(directory: Path, home: Path, *options: str) -> AsyncGenerator[ToolClient]:
    """A client of `armarium stdio --write`."""
    parameters = StdioServerParameters(
        command=installed_command("armarium"),
        args=["stdio", str(directory), "--write", *options],
        env=environment(home),
    )
    async with mcp.Client(stdio_client(parameters), mode=CONTRACT_PROTOCOL) as client:
        yield ToolClient(client, ())
