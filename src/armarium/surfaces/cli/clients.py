"""The MCP clients that `armarium install` supports: the file and the format of their configuration."""

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
class RunningServer:
    """A server that already runs, over HTTP."""

    url: str
    token: str | None = None
    token_file: Path | None = None


@dataclass(frozen=True, slots=True)
class Client:
    title: str
    user_file: Callable[[], Path]
    activation: str
    """What the user does so that the client reads its configuration again."""
    project_file: str | None = None
    """Relative to the project; None if the client has no configuration for a project."""
    default_scope: Scope = "user"
    section: str = "mcpServers"
    has_type: bool = False
    """Whether an entry contains `type: stdio` or `type: http`."""
    url_key: str | None = "url"
    """None: the client supports only servers that it starts."""
    token_variable: str = ""
    """The reference to the token in a shared file, which must not contain the token itself."""
    token_input: Entry | None = None
    """The definition in the file's `inputs` that `token_variable` refers to."""

    def entry(self, transport: Literal["stdio", "http"], connection: Entry) -> Entry:
        return {"type": transport} | connection if self.has_type else connection

    def http_entry(self, server: RunningServer, token: str | None) -> Entry:
        """The entry of a running server; `token` is the token itself, or a reference to it."""
        assert self.url_key is not None
        headers = {} if token is None else {"headers": {"Authorization": f"Bearer {token}"}}
        return self.entry("http", {self.url_key: server.url} | headers)


TRANSPORT_KEYS = frozenset({"type", "command", "args", "url", "serverUrl", "headers"})
"""The keys of an entry that Armarium writes. All other keys belong to the user."""

TOKEN_INPUT_ID = "armarium-token"  # noqa: S105 the name of an input, not a secret


def _application_data(*below: str) -> Path:
    """The directory of desktop applications' settings on this system."""
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
        has_type=True,
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
        has_type=True,
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
