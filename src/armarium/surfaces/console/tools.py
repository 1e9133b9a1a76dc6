"""The calls of a session: who is logged in, log out, and links that log in another browser. Only routes offer them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final, Literal, NotRequired

from typing_extensions import TypedDict

from armarium import __version__
from armarium.foundation.errors import NotPermitted
from armarium.foundation.routes import declare_route
from armarium.foundation.security.access import ADMINISTER, READ, Access
from armarium.foundation.security.identity import ANYONE, Principal
from armarium.foundation.telemetry import timestamp
from armarium.foundation.tools import Args, Call, NoArgs, ToolSpec, declare_tool
from armarium.surfaces.console.links import KeyLinks, link
from armarium.surfaces.console.sessions import ConsoleSessions

LOG_IN: Final = "console_log_in"


class LogInArgs(Args):
    method: Literal["key", "link"]
    """Whether the caller showed a key or the code of a link."""


class SessionPrincipal(TypedDict):
    name: str
    groups: list[str]
    is_owner: bool
    read_only: bool
    capabilities: list[str]
    """Those of which the caller may read something, and is offered a tool."""
    tools: list[str]
    """The tools of these capabilities that the caller is offered."""
    administers: list[str]
    """What the caller administers: capabilities, and the operations of the server."""


class SessionDescription(TypedDict):
    principal: SessionPrincipal
    authentication: bool
    """Whether the server requires a key."""
    version: str
    expires_at: NotRequired[str]


class LoggedOut(TypedDict):
    sessions: int


class CreatedLink(TypedDict):
    path: str
    """The link, relative to the address of the server."""
    expires_at: str


@dataclass(frozen=True, slots=True)
class Offer:
    """The tools of an open capability, and who may use them."""

    access: Access
    tools: Sequence[ToolSpec]

    def to(self, principal: Principal) -> list[str]:
        """The names of those that this caller may use."""
        return [tool.name for tool in self.tools if self.access.permits(principal, tool)]


@dataclass(frozen=True, slots=True)
class SessionTools:
    """What a caller can do with sessions."""

    sessions: ConsoleSessions
    links: KeyLinks
    offers: Sequence[Offer]
    """What the open capabilities offer."""
    administered: Sequence[Access] = ()
    """Who administers them, and the server itself."""

    async def log_in(self, call: Call, args: LogInArgs) -> SessionDescription:
        """Log a browser in to the console."""
        return self._describe(call)

    async def show(self, call: Call, args: NoArgs) -> SessionDescription:
        """Show as whom the caller is logged in, with the capabilities that they may read, and when the session ends
        unless it is used again."""
        return self._describe(call)

    async def log_out(self, call: Call, args: NoArgs) -> LoggedOut:
        """End the session of this browser."""
        known = self.sessions.expires_at(call.session) is not None
        self.sessions.close(call.session)
        return {"sessions": int(known)}

    async def log_out_everywhere(self, call: Call, args: NoArgs) -> LoggedOut:
        """End all sessions of the caller, in every browser."""
        return {"sessions": self.sessions.close_all(call.principal)}

    async def create_link(self, call: Call, args: NoArgs) -> CreatedLink:
        """Create a link that logs in one browser as this caller, who must show their key. It is valid once, for five
        minutes."""
        if call.credential is None or self.sessions.expires_at(call.session) is not None:
            raise NotPermitted("only a key creates links", hint="send the request with `Authorization: Bearer KEY`")
        code, expires_at = self.links.create(call.principal, call.credential)
        return {"path": link("", code), "expires_at": _time(expires_at)}

    def _describe(self, call: Call) -> SessionDescription:
        principal = call.principal
        offered = {
            each.access.capability: tools
            for each in self.offers
            if each.access.admits(principal, READ) and (tools := each.to(principal))
        }
        described: SessionDescription = {
            "principal": {
                "name": principal.username,
                "groups": list(principal.groups),
                "is_owner": principal.is_owner,
                "read_only": principal.read_only,
                "capabilities": [*offered],
                "tools": [tool for tools in offered.values() for tool in tools],
                # Without groups there are no administrators, and no tools for them.
                "administers": [
                    each.capability
                    for each in self.administered
                    if each.rule.narrower.get(ADMINISTER) and each.admits(principal, ADMINISTER)
                ],
            },
            "authentication": principal is not ANYONE,
            "version": __version__,
        }
        if (ends_at := self.sessions.expires_at(call.session)) is not None:
            described["expires_at"] = _time(ends_at)
        return described


_OWN: Final[dict[str, Any]] = {"for_every_caller": True}
TOOLS: Final = (
    declare_tool(LOG_IN, SessionTools.log_in, title="Log in", **_OWN),
    declare_tool("console_session", SessionTools.show, title="Session", read_only=True, idempotent=True, **_OWN),
    declare_tool("console_log_out", SessionTools.log_out, title="Log out", idempotent=True, **_OWN),
    declare_tool("console_log_out_everywhere", SessionTools.log_out_everywhere, title="Log out everywhere", **_OWN),
    declare_tool("console_create_link", SessionTools.create_link, title="Create a link", **_OWN),
)
ROUTES: Final = (
    declare_route("GET", "/session", "console_session", "Show the session", at_root=True),
    declare_route("DELETE", "/session", "console_log_out", "Log out", at_root=True),
    declare_route("DELETE", "/sessions", "console_log_out_everywhere", "Log out everywhere", at_root=True),
    declare_route("POST", "/session/links", "console_create_link", "Create a log-in link", success=201, at_root=True),
)
"""The log-in has an endpoint of its own, because it sets a cookie."""


def _time(seconds: float) -> str:
    return timestamp(datetime.fromtimestamp(seconds, UTC))
