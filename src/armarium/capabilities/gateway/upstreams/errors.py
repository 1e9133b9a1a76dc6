"""What goes wrong on the way to a server, from the transport's own words to the gateway's errors."""

from __future__ import annotations

import re
from collections.abc import Callable

from pydantic import ValidationError

from armarium.capabilities.gateway.errors import (
    TELL_THE_ADMINISTRATOR,
    GatewayError,
    UpstreamBusy,
    UpstreamProtocol,
    UpstreamRefused,
    UpstreamTimeout,
    UpstreamTooLarge,
    UpstreamUnavailable,
)

# JSON-RPC leaves this range to implementations. Our transports answer a request with one of these in the place of a
# server that cannot; a server that sends them itself says nothing worse of itself than it could otherwise.
TOO_LARGE = -32091
UNREACHABLE = -32092
SESSION_LOST = -32093
NOT_MCP = -32094
BUSY = -32095
UNWRITABLE = -32096

_CONNECTION_CLOSED = -32000
_PARSE_ERROR = -32700
_LONGEST_EXCERPT = 200
_CONTROL = re.compile(r"[\x00-\x20\x7f-\x9f\u2028\u2029]+")
# A word that is long and has both letters and digits is more likely a key or a path than something to read.
_KEY_LIKE = re.compile(r"(?=[^\s\"']*\d)(?=[^\s\"']*[A-Za-z])[A-Za-z0-9+/_=.~:-]{20,}")

Scrub = Callable[[str], str]


class SessionLost(UpstreamUnavailable):
    """The server turned the request away because it knows the session no more; nothing of it was done."""


def excerpt(text: str, scrub: Scrub = lambda said: said) -> str:
    """What a server said, fit for a message: one short line without anything that looks like a key."""
    # What is looked at is bounded before anything else: cleaning megabytes would be work for nobody.
    said = _CONTROL.sub(" ", scrub(text[: 20 * _LONGEST_EXCERPT])).strip()
    said = _KEY_LIKE.sub("…", said)
    return said if len(said) <= _LONGEST_EXCERPT else said[: _LONGEST_EXCERPT - 1] + "…"


def from_rpc_error(server: str, code: int, message: str, scrub: Scrub) -> GatewayError:
    """The gateway's error for a JSON-RPC error that answered a request."""
    if code == TOO_LARGE:
        return UpstreamTooLarge(
            f"the answer of `{server}` is larger than the gateway takes",
            hint="ask for less",
            private={"for_operators": "raise `gateway.limits.max_answer_bytes` if such answers are wanted"},
            server=server,
        )
    if code == BUSY:
        return UpstreamBusy(f"`{server}` asks to be called less often", hint="try again in a moment", server=server)
    if code in (NOT_MCP, _PARSE_ERROR):
        return UpstreamProtocol(f"`{server}` answered with something that is not MCP", server=server)
    if code == UNWRITABLE:
        return UpstreamRefused(
            f"`{server}` cannot be sent these arguments", hint="they are no text that JSON can carry", server=server
        )
    if code == SESSION_LOST:
        return SessionLost(f"`{server}` has forgotten the session", hint="try again", server=server)
    if code == UNREACHABLE:
        return gone(server, excerpt(message, scrub))
    if code == _CONNECTION_CLOSED:
        return gone(server)
    return UpstreamRefused(f"`{server}` refused the request: {excerpt(message, scrub)}", server=server)


def from_exception(server: str, error: Exception, scrub: Scrub) -> GatewayError:
    """The gateway's error for whatever the client raised."""
    from mcp import MCPError

    if isinstance(error, GatewayError):
        return error
    if isinstance(error, MCPError):
        return from_rpc_error(server, error.error.code, error.error.message, scrub)
    if isinstance(error, ValidationError):
        return UpstreamProtocol(f"`{server}` answered with something that is not MCP", server=server)
    if isinstance(error, ExceptionGroup):
        causes: list[Exception] = list(error.exceptions)  # pyright: ignore[reportUnknownMemberType, reportUnknownArgumentType] a group of any kind
        return from_exception(server, causes[0], scrub)
    return gone(server)


def not_connected(server: str, failure: GatewayError | None, exit_status: int | None) -> GatewayError:
    """Why a connection could not be opened; a server that refuses the handshake is as good as none."""
    if exit_status is not None:
        why = f"its process ended while starting (status {exit_status})"
    elif failure is None:
        return gone(server)
    elif isinstance(failure, UpstreamUnavailable | UpstreamTimeout | UpstreamProtocol):
        return failure
    else:
        why = failure.message
    return UpstreamUnavailable(
        f"`{server}` cannot be connected: {why}",
        hint=TELL_THE_ADMINISTRATOR,
        private={"for_operators": "what it logs is in our log at level debug"},
        server=server,
    )


def out_of_time(server: str, what: str, hint: str, *, is_noisy: bool) -> UpstreamTimeout:
    """A deadline has passed. A server that said something meanwhile, only not in MCP, is not merely slow."""
    private: dict[str, str] = {}
    if is_noisy:
        what += ", and wrote lines that are not MCP messages"
        hint = TELL_THE_ADMINISTRATOR
        private["for_operators"] = "its standard output is for MCP alone; what it logs belongs on standard error"
    return UpstreamTimeout(f"`{server}` {what}", hint=hint, private=private, server=server)


def gone(server: str, why: str | None = None) -> UpstreamUnavailable:
    """The connection ended before the answer came."""
    return UpstreamUnavailable(
        f"`{server}` went away before it answered" if why is None else f"`{server}` cannot be reached: {why}",
        hint="try again; the connection is made anew",
        server=server,
    )
