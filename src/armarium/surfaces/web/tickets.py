"""Tickets: addresses of single files for elements of the console's page, which cannot send its headers."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final
from urllib.parse import quote, urlencode

from pydantic import Field
from typing_extensions import TypedDict

from armarium.foundation.errors import InvalidArgument, NotPermitted
from armarium.foundation.refs import FileRef
from armarium.foundation.routes import Route
from armarium.foundation.security.identity import ANYONE, Principal
from armarium.foundation.security.issued_secrets import IssuedSecrets
from armarium.foundation.telemetry import timestamp
from armarium.foundation.tools import Args, Call, ToolSpec, local_tool

_TTL_S: Final = 600.0
_MAX_TICKETS: Final = 10_000
_MAX_TICKETS_OF_CALLER: Final = 1_000
_SECRET_BYTES: Final = 24


class TicketArgs(Args):
    ref: str = Field(max_length=20_000)
    """Reference to the file: `root://ROOT/PATH`, or `store://PROJECT/PATH`."""
    version: int | None = Field(default=None, ge=1)
    """For a file of the store: an earlier version."""


class CreatedTicket(TypedDict):
    path: str
    """Address of the file, relative to that of the server."""
    expires_at: str


@dataclass(frozen=True, slots=True)
class Ticket:
    """What an address gives access to, as its caller may read it then."""

    principal: Principal
    session: str | None
    query: bytes
    """The query of `/api/raw`."""


class Tickets:
    """The tickets, in memory like the sessions that they belong to."""

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._tickets = IssuedSecrets[Ticket](
            _TTL_S, most=_MAX_TICKETS, most_of_caller=_MAX_TICKETS_OF_CALLER, clock=clock, length=_SECRET_BYTES
        )
        self.tool: ToolSpec = local_tool(
            "raw_ticket",
            self._create,
            title="Create a ticket",
            read_only=True,
            # Whoever uses it is checked by the tool that reads the file.
            for_every_caller=True,
            subject=("", "ref"),
        )
        self.route = Route("POST", "/raw/tickets", self.tool, "Create a ticket for a file", 201, at_root=True)

    async def _create(self, call: Call, args: TicketArgs) -> CreatedTicket:
        """Create an address for one file, for elements of a page such as images, sound and documents. It is valid for
        ten minutes, and only with the cookie of the session that created it."""
        if call.session is None and call.principal is not ANYONE:
            raise NotPermitted("only sessions of the console have tickets", hint="send the key with GET /api/raw")
        ref = FileRef.parse(args.ref)
        if ref is None:
            raise InvalidArgument("`ref` must be a reference to a file, like root://work/a.png", field="ref")
        fields = {"ref": args.ref} | ({} if args.version is None else {"version": str(args.version)})
        ticket = Ticket(call.principal, call.session, urlencode(fields).encode())
        secret, expires_at = self._tickets.issue(call.principal, ticket)
        name = quote(ref.name or "file", safe="", errors="replace")
        return {
            "path": f"/api/raw/{secret}/{name}",
            "expires_at": timestamp(datetime.fromtimestamp(expires_at, UTC)),
        }

    def find(self, secret: str) -> Ticket | None:
        """The ticket, if it is valid."""
        return self._tickets.find(secret)
