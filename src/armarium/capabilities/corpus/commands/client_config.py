"""How clients connect to the server, as text, as an event, and as `connection.json`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import orjson

from armarium.capabilities.corpus.commands.server_token import TokenSource
from armarium.capabilities.corpus.settings import PROTOCOL_VERSION
from armarium.command_line.addresses import local_address, remote_address
from armarium.foundation.files.state_files import replace_file

_TRANSPORT = "mcp_streamable_http"
_SESSION_HEADER = "MCP-Session-Id"


@dataclass(frozen=True, slots=True)
class ConnectionInfo:
    """The URL of a running server, and the source of its token."""

    url: str
    token_source: TokenSource
    local_url: str | None = None
    """The URL on this machine, if `url` is for other machines."""

    @classmethod
    def to(cls, address: str, path: str, token_source: TokenSource) -> Self:
        """The connection to the server that listens on the address."""
        here, elsewhere = local_address(address), remote_address(address)
        return cls(f"{elsewhere}{path}", token_source, f"{here}{path}" if here != elsewhere else None)

    def event(self) -> dict[str, Any]:
        """The `data` of the `connection` event. It never contains the token."""
        kind, place = self.token_source.kind, self.token_source.place
        described = self._addresses() | {"headers": self._headers("<token>"), "token_source": kind}
        if kind in ("secret.token", "file"):
            described["token_file"] = place
        if kind == "env":
            described["token_source_details"] = {"variable": place}
        return described

    def write(self, state_dir: Path) -> None:
        """Write `connection.json`, for other programs."""
        kind, place = self.token_source.kind, self.token_source.place
        described = self._addresses() | {
            "headers": self._headers(f"<token-from-env:{place}>" if kind == "env" else f"<token-from-{kind}>"),
            "session": {"uses_mcp_session_id": True, "header_name": _SESSION_HEADER, "assigned_on_initialize": True},
        }
        replace_file(state_dir / "connection.json", orjson.dumps(described, option=orjson.OPT_INDENT_2) + b"\n")

    def lines(self) -> Iterator[str]:
        """The connection as lines of text."""
        yield "MCP endpoint:"
        yield f"  URL:    {self.url}"
        if self.local_url is not None:
            yield f"  Local:  {self.local_url}"
        yield f"  Auth:   {self._auth()}"
        yield "  Headers:"
        for name, value in self._headers("<token>").items():
            yield f"    {name}: {value}"
        yield f"    {_SESSION_HEADER}: (assigned after initialize response)"

    def _auth(self) -> str:
        kind, place = self.token_source.kind, self.token_source.place
        if kind == "none":
            return "none (any user of this machine can connect)"
        if kind == "file":
            place = f"--auth file:{place}" if self.token_source.by_flag else f"security.auth.token_file: {place}"
        return f"Bearer (source={kind}, from {place})"

    def _addresses(self) -> dict[str, Any]:
        known = {"transport": _TRANSPORT, "url": self.url}
        return known if self.local_url is None else known | {"local_url": self.local_url}

    def _headers(self, token: str) -> dict[str, str]:
        headers = {"MCP-Protocol-Version": PROTOCOL_VERSION}
        if self.token_source.kind != "none":
            headers["Authorization"] = f"Bearer {token}"
        return headers
