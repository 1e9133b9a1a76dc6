"""How a client reaches the server: the block a person reads, the event a program reads, and `connection.json`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import orjson

from armarium.capabilities.corpus.commands.server_token import Access
from armarium.capabilities.corpus.settings import PROTOCOL_VERSION
from armarium.command_line.addresses import local_address, remote_address
from armarium.foundation.files.state_files import replace_file

_TRANSPORT = "mcp_streamable_http"
_SESSION_HEADER = "MCP-Session-Id"


@dataclass(frozen=True, slots=True)
class Connection:
    """Address and token of a running server."""

    url: str
    access: Access
    local_url: str | None = None
    """How this machine reaches it, where `url` is for others."""

    @classmethod
    def to(cls, address: str, path: str, access: Access) -> Self:
        """To the server that listens on this address."""
        here, elsewhere = local_address(address), remote_address(address)
        return cls(f"{elsewhere}{path}", access, f"{here}{path}" if here != elsewhere else None)

    def event(self) -> dict[str, Any]:
        """`connection.data` of the NDJSON output. The token itself is never in it."""
        described = self._addresses() | {
            "headers": self._headers("<token>"),
            "token_source": self.access.source,
        }
        if self.access.token_file is not None:
            described["token_file"] = str(self.access.token_file)
        if self.access.source == "env":
            described["token_source_details"] = {"variable": self.access.place}
        return described

    def write(self, state_dir: Path) -> None:
        """Leave `connection.json` for programs that come later."""
        described = self._addresses() | {
            "headers": self._headers(self.access.placeholder),
            "session": {"uses_mcp_session_id": True, "header_name": _SESSION_HEADER, "assigned_on_initialize": True},
        }
        replace_file(state_dir / "connection.json", orjson.dumps(described, option=orjson.OPT_INDENT_2) + b"\n")

    def lines(self) -> Iterator[str]:
        """The block for a person."""
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
        match self.access.source:
            case "none":
                return "none (anyone on this machine may call)"
            case "file":
                return f"Bearer (source=file, from {self.access.file_chosen_by})"
            case source:
                return f"Bearer (source={source}, from {self.access.place})"

    def _addresses(self) -> dict[str, Any]:
        known = {"transport": _TRANSPORT, "url": self.url}
        return known if self.local_url is None else known | {"local_url": self.local_url}

    def _headers(self, token: str) -> dict[str, str]:
        headers = {"MCP-Protocol-Version": PROTOCOL_VERSION}
        if self.access.source != "none":
            headers["Authorization"] = f"Bearer {token}"
        return headers
