"""`armarium serve` with a gateway, and its configuration files."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from armarium.foundation.security.identity import key_hash
from support import hostile_upstream, rag_upstream
from support.client import connected
from support.server import ServerProcess, installed_command, write_config
from support.waiting import DEADLINE_S as TIMEOUT_S
from support.waiting import eventually

Json = dict[str, Any]
USERS = {"anna": ["users"], "guest": [], "root": ["admin"]}
ALLOWED: Json = {"admin_commands": [sys.executable, "x"], "variables": ["HOME"]}
"""The programs and variables that entries sent through the API may use."""
HOSTILE: Json = {"command": sys.executable, "args": ["-I", str(Path(hostile_upstream.__file__))]}


def rag_entry(*sources: str, **more: Any) -> Json:
    """The entry of a RAG server with these sources."""
    return {"command": sys.executable, "args": ["-I", str(Path(rag_upstream.__file__)), *sources], **more}


@dataclass(frozen=True)
class GatewayServer:
    """A running gateway and its configuration directory."""

    process: ServerProcess
    config: Path

    def api(self, user: str) -> httpx.Client:
        """An HTTP client of one of the users."""
        return httpx.Client(base_url=f"{self.process.url}/api", headers=headers_of(user), timeout=TIMEOUT_S)

    def write(self, kind: str, content: Json | str) -> None:
        """Write a configuration file."""
        file = self.config / "overrides" / kind
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(content if isinstance(content, str) else json.dumps(content))

    async def tools(self, user: str) -> set[str]:
        """The names of the tools that a user sees."""
        async with connected(self.process.url, key=f"key-of-{user}") as client:
            return {tool.name for tool in (await client.mcp.list_tools()).tools}

    async def tools_become(self, user: str, wanted: Callable[[set[str]], bool]) -> set[str]:
        """Wait until the tools that a user sees are as wanted."""

        async def as_wanted() -> set[str] | None:
            names = await self.tools(user)
            return names if wanted(names) else None

        names = await eventually(as_wanted, what=f"the tools of {user}")
        assert names is not None
        return names


def headers_of(user: str) -> dict[str, str]:
    """The headers of a user's requests."""
    return {"authorization": f"Bearer key-of-{user}"}


@contextmanager
def started(base: Path, **gateway: Any) -> Generator[GatewayServer]:
    """A server with only a gateway, with these settings."""
    keys = [
        {"username": user, "groups": groups, "key_sha256": key_hash(f"key-of-{user}")} for user, groups in USERS.items()
    ]
    settings = {
        "state_dir": str(base / "state"),
        "server": {"port": 0},
        "console": {"enabled": False},
        "security": {"auth": "keys", "keys": keys},
        "gateway": {"config_dir": str(base / "config"), **ALLOWED, **gateway},
    }
    command = [installed_command("armarium"), "serve", "--config", str(write_config(base, settings))]
    with ServerProcess(command) as process:
        yield GatewayServer(process, base / "config")
