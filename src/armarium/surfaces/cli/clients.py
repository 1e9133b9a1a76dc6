"""The MCP clients we can configure: where each keeps its configuration, and how an entry must look there."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

Scope = Literal["user", "project"]
Entry = dict[str, Any]


@dataclass(frozen=True, slots=True)
class StartedServer:
    """The client starts the server as its own child, over stdio."""

    command: str
    arguments: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RunningServer:
    """The client connects to a server that runs already."""

    url: str
    token: str | None = None
    token_file: Path | None = None


@dataclass(frozen=True, slots=True)
class Client:
    """One client's habits."""

    title: str
    user_file: Callable[[], Path]
    afterwards: str
    """What makes the client notice."""
    project_file: str | None = None
    """Relative to the project; None where the client has no such thing."""
    default_scope: Scope = "user"
    section: str = "mcpServers"
    names_type: bool = False
    """Whether an entry says `type: stdio` or `type: http`."""
    url_key: str | None = "url"
    """None: the client only starts servers itself."""
    token_variable: str = ""
    """How an entry in a shared file refers to the token, which must not be in it."""
    token_input: Entry | None = None
    """A definition that `token_variable` needs in the file's `inputs`."""

    def stdio_entry(self, server: StartedServer) -> Entry:
        """The entry for a server the client starts."""
        entry: Entry = {"command": server.command, "args": list(server.arguments)}
        return {"type": "stdio"} | entry if self.names_type else entry

    def http_entry(self, server: RunningServer, token: str | None) -> Entry:
        """The entry for a server that runs; `token` is the token itself, or what stands for it."""
        assert self.url_key is not None
        entry: Entry = {self.url_key: server.url}
        if token is not None:
            entry["headers"] = {"Authorization": f"Bearer {token}"}
        return {"type": "http"} | entry if self.names_type else entry


TRANSPORT_KEYS = frozenset({"type", "command", "args", "url", "serverUrl", "headers"})
"""What an entry says about how to reach the server; everything else in it is the user's own."""

TOKEN_INPUT_ID = "armarium-token"  # noqa: S105 the name of an input, not a secret


def _application_data(*below: str) -> Path:
    """Where desktop applications keep their settings on this system."""
    if sys.platform == "darwin":
        return Path.home().joinpath("Library", "Application Support", *below)
    if sys.platform == "win32":
        return Path(os.environ.get("APPDATA") or Path.home() / "AppData" / "Roaming").joinpath(*below)
    return Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config").joinpath(*below)


def _home(*below: str) -> Callable[[], Path]:
    return lambda: Path.home().joinpath(*below)


CLIENTS = {
    "claude-desktop": Client(
        "Claude Desktop",
        lambda: _application_data("Claude", "claude_desktop_config.json"),
        "quit Claude Desktop and start it again",
        url_key=None,
    ),
    "claude-code": Client(
        "Claude Code",
        _home(".claude.json"),
        "start Claude Code again; /mcp lists its servers",
        project_file=".mcp.json",
        default_scope="project",
        names_type=True,
        token_variable="${ARMARIUM_TOKEN}",  # noqa: S106 the name of a variable, not a secret
    ),
    "cursor": Client(
        "Cursor",
        _home(".cursor", "mcp.json"),
        "restart Cursor, and switch the server on in its settings under MCP",
        project_file=".cursor/mcp.json",
        token_variable="${env:ARMARIUM_TOKEN}",  # noqa: S106 the name of a variable, not a secret
    ),
    "vscode": Client(
        "VS Code",
        lambda: _application_data("Code", "User", "mcp.json"),
        "run `MCP: List Servers` in VS Code, and start the server there",
        project_file=".vscode/mcp.json",
        default_scope="project",
        section="servers",
        names_type=True,
        token_variable=f"${{input:{TOKEN_INPUT_ID}}}",
        token_input={
            "type": "promptString",
            "id": TOKEN_INPUT_ID,
            "description": "Token of the Armarium server",
            "password": True,
        },
    ),
    "windsurf": Client(
        "Windsurf",
        _home(".codeium", "windsurf", "mcp_config.json"),
        "press refresh in Windsurf's MCP panel",
        url_key="serverUrl",
    ),
}
