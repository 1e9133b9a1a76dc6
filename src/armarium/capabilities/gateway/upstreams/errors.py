"""Converts errors of transports, the MCP client and JSON-RPC into errors of the gateway."""

from __future__ import annotations

import re
from collections.abc import Callable

from pydantic import ValidationError

from armarium.capabilities.gateway.errors import (
    CONTACT_ADMINISTRATOR,
    GatewayError,
    UpstreamBusy,
    UpstreamProtocol,
    UpstreamRefused,
    UpstreamTimeout,
    UpstreamTooLarge,
    UpstreamUnavailable,
)

# JSON-RPC reserves this range for implementations. Our transports respond with one of these when the server cannot.
# A server that sends one itself gains nothing by it.
TOO_LARGE = -32091
UNREACHABLE = -32092
SESSION_LOST = -32093
NOT_MCP = -32094
BUSY = -32095
UNWRITABLE = -32096

_CONNECTION_CLOSED = -32000
_PARSE_ERROR = -32700
_MAX_EXCERPT = 200
_CONTROL = re.compile(r"[\x00-\x20\x7f-\x9f\u2028\u2029]+")
# A long word with both letters and digits is probably a key or a path.
_KEY_LIKE = re.compile(r"(?=[^\s\"']*\d)(?=[^\s\"']*[A-Za-z])[A-Za-z0-9+/_=.~:-]{20,}")

Scrub = Callable[[str], str]


class SessionLost(UpstreamUnavailable):
    """The server rejected the request because its session is unknown. The request was not processed."""


def excerpt(text: str, scrub: Scrub = lambda text: text) -> str:
    """A text from a server for use in a message: one short line without anything that looks like a key."""
    # Bounded first: cleaning megabytes would be wasted work.
    line = _CONTROL.sub(" ", scrub(text[: 20 * _MAX_EXCERPT])).strip()
    line = _KEY_LIKE.sub("…", line)
    return line if len(line) <= _MAX_EXCERPT else line[: _MAX_EXCERPT - 1] + "…"


def from_rpc_error(server: str, code: int, message: str, scrub: Scrub) -> GatewayError:
    """The gateway's error for a JSON-RPC error response."""
    if code == TOO_LARGE:
        return UpstreamTooLarge(
            f"the response of `{server}` is larger than the gateway accepts",
            hint="request less",
            private={"for_operators": "raise `gateway.limits.max_answer_bytes` if such responses are expected"},
            server=server,
        )
    if code == BUSY:
        return UpstreamBusy(f"`{server}` is rate limited", hint="try again in a moment", server=server)
    if code in (NOT_MCP, _PARSE_ERROR):
        return UpstreamProtocol(f"`{server}` sent a response that is not MCP", server=server)
    if code == UNWRITABLE:
        return UpstreamRefused(
            f"these arguments cannot be sent to `{server}`", hint="they cannot be encoded as JSON", server=server
        )
    if code == SESSION_LOST:
        return SessionLost(f"`{server}` no longer knows the session", hint="try again", server=server)
    if code == UNREACHABLE:
        return connection_lost(server, excerpt(message, scrub))
    if code == _CONNECTION_CLOSED:
        return connection_lost(server)
    return UpstreamRefused(f"`{server}` refused the request: {excerpt(message, scrub)}", server=server)


def from_exception(server: str, error: Exception, scrub: Scrub) -> GatewayError:
    """The gateway's error for any exception of the client."""
    from mcp import MCPError

    if isinstance(error, GatewayError):
        return error
    if isinstance(error, MCPError):
        return from_rpc_error(server, error.error.code, error.error.message, scrub)
    if isinstance(error, ValidationError):
        return UpstreamProtocol(f"`{server}` sent a response that is not MCP", server=server)
    if isinstance(error, ExceptionGroup):
        causes: list[Exception] = list(error.exceptions)  # pyright: ignore[reportUnknownMemberType, reportUnknownArgumentType] a group of any kind
        return from_exception(server, causes[0], scrub)
    return connection_lost(server)


def connect_failed(server: str, failure: GatewayError | None, exit_status: int | None) -> GatewayError:
    """Why a connection could not be opened. A rejected handshake counts as unavailable."""
    if exit_status is not None:
        why = f"its process ended while starting (status {exit_status})"
    elif failure is None:
        return connection_lost(server)
    elif isinstance(failure, UpstreamUnavailable | UpstreamTimeout | UpstreamProtocol):
        return failure
    else:
        why = failure.message
    return UpstreamUnavailable(
        f"`{server}` cannot be reached: {why}",
        hint=CONTACT_ADMINISTRATOR,
        private={"for_operators": "its log output is in the gateway's log at level debug"},
        server=server,
    )


def timeout_error(server: str, what: str, *, hint: str, is_noisy: bool) -> UpstreamTimeout:
    """The error for a deadline that has passed. It mentions output that is not MCP, a likely cause."""
    private: dict[str, str] = {}
    if is_noisy:
        what += ", and wrote lines that are not MCP messages"
        hint = CONTACT_ADMINISTRATOR
        private["for_operators"] = "its standard output must carry MCP only; logs belong on standard error"
    return UpstreamTimeout(f"`{server}` {what}", hint=hint, private=private, server=server)


def connection_lost(server: str, why: str | None = None) -> UpstreamUnavailable:
    """The error for a connection that ended before the response."""
    what = "closed the connection before it responded" if why is None else f"cannot be reached: {why}"
    return UpstreamUnavailable(f"`{server}` {what}", hint="try again; the gateway reconnects", server=server)
