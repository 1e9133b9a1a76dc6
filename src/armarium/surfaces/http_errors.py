"""Requests that go no further, and whole responses."""

from __future__ import annotations

import logging
from collections.abc import Sequence

import anyio
from mcp_types import INVALID_REQUEST
from starlette.types import Message, Send

from armarium.foundation.schema import Json

_log = logging.getLogger(__name__)

_TAKING_S = 60.0


class Refused(Exception):
    """The request goes no further."""

    def __init__(
        self,
        status: int,
        message: str,
        headers: dict[str, str] | None = None,
        *,
        code: int = INVALID_REQUEST,
        reason: str | None = None,
        details: Json | None = None,
        retryable: bool = False,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.headers = headers or {}
        self.code = code
        self.reason = reason
        """Stable, for programs: JSON-RPC has one number for everything that is wrong with a request."""
        self.details = details or {}
        """What else programs may want to know; goes with a reason."""
        self.retryable = retryable
        """Whether the same request can succeed later."""


def in_json_rpc(refusal: Refused) -> Json:
    """A refusal in the form JSON-RPC has for a message that was never looked at."""
    error: Json = {"code": refusal.code, "message": refusal.message}
    if refusal.reason is not None:
        error["data"] = {"code": refusal.reason, "retryable": refusal.retryable, **refusal.details}
    return {"jsonrpc": "2.0", "id": None, "error": error}


async def respond(send: Send, status: int, body: bytes = b"", headers: dict[str, str] | None = None) -> None:
    """Send a whole response; a body is JSON unless the headers say otherwise."""
    await _start(send, status, len(body), headers)
    await send({"type": "http.response.body", "body": body})


async def respond_in_pieces(
    send: Send, status: int, pieces: Sequence[bytes], headers: dict[str, str] | None = None
) -> None:
    """The same for a body that is in pieces, and would be too much to put together."""
    await _start(send, status, sum(map(len, pieces)), headers)
    await send_pieces(send, pieces)


async def send_pieces(send: Send, pieces: Sequence[bytes]) -> None:
    """Send the rest of a body. A client that takes nothing for a long time is given up, and the memory with it."""
    if len(pieces) == 1:
        await send({"type": "http.response.body", "body": pieces[0]})
        return
    for piece in pieces:
        if not await _taken(send, {"type": "http.response.body", "body": piece, "more_body": True}):
            return
    await send({"type": "http.response.body", "body": b""})


async def _taken(send: Send, message: Message) -> bool:
    """Send a piece of a body; False if the client takes nothing for a long time."""
    with anyio.move_on_after(_TAKING_S) as patience:
        await send(message)
    if patience.cancelled_caught:
        # A response that is not whole makes the server close the connection.
        _log.warning("a client takes no more of its answer and is given up")
    return not patience.cancelled_caught


async def _start(send: Send, status: int, body_bytes: int, headers: dict[str, str] | None) -> None:
    lines = {"content-length": str(body_bytes)}
    if body_bytes:
        lines["content-type"] = "application/json"
    lines |= headers or {}
    encoded = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in lines.items()]
    await send({"type": "http.response.start", "status": status, "headers": encoded})
