"""Sends whole ASGI responses, and errors that end a request early; cancels work when the client disconnects."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import KW_ONLY, dataclass, field

import anyio
from mcp_types import INVALID_REQUEST
from starlette.types import Receive, Send

from armarium.foundation.schema import Json

_log = logging.getLogger(__name__)

SEND_TIMEOUT_S = 60.0
"""How long a client may read nothing of a large response."""

_DISCONNECTS = frozenset({"http.disconnect", "websocket.disconnect"})


@dataclass(eq=False)
class HttpError(Exception):
    """The request is rejected with this status, before it becomes a call."""

    status: int
    message: str
    headers: dict[str, str] = field(default_factory=dict[str, str])
    _: KW_ONLY
    code: int = INVALID_REQUEST
    """The JSON-RPC error code. One code stands for most kinds of invalid requests."""
    reason: str | None = None
    """A stable code for programs."""
    details: Json = field(default_factory=Json)
    """Further facts for programs. They are sent only with a reason."""
    retryable: bool = False
    """Whether the same request can succeed later."""


def json_rpc_error(error: HttpError) -> Json:
    """The error as a JSON-RPC response. Its id is null: the request was not read."""
    body: Json = {"code": error.code, "message": error.message}
    if error.reason is not None:
        body["data"] = {"code": error.reason, "retryable": error.retryable, **error.details}
    return {"jsonrpc": "2.0", "id": None, "error": body}


async def respond(send: Send, status: int, body: bytes = b"", headers: dict[str, str] | None = None) -> None:
    """Send a whole response. The body is JSON unless the headers name another type."""
    await respond_in_pieces(send, status, [body], headers)


async def respond_in_pieces(
    send: Send, status: int, pieces: Sequence[bytes], headers: dict[str, str] | None = None
) -> None:
    """Send a whole response whose body is in pieces, without joining them in memory."""
    body_bytes = sum(map(len, pieces))
    lines = {"content-length": str(body_bytes)}
    if body_bytes:
        lines["content-type"] = "application/json"
    lines |= headers or {}
    encoded = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in lines.items()]
    await send({"type": "http.response.start", "status": status, "headers": encoded})
    await send_pieces(send, pieces)


async def send_pieces(send: Send, pieces: Sequence[bytes]) -> None:
    """Send the rest of a body. If the client stops reading, the response is aborted and its memory freed."""
    if len(pieces) == 1:
        await send({"type": "http.response.body", "body": pieces[0]})
        return
    for piece in pieces:
        with anyio.move_on_after(SEND_TIMEOUT_S) as timeout:
            await send({"type": "http.response.body", "body": piece, "more_body": True})
        if timeout.cancelled_caught:
            # The server closes a connection whose response is incomplete.
            _log.warning("a response was aborted: the client stopped reading")
            return
    await send({"type": "http.response.body", "body": b""})


async def cancel_on_disconnect(receive: Receive, scope: anyio.CancelScope) -> None:
    """Cancel the scope when the client disconnects. What the client sends until then is ignored."""
    while (await receive())["type"] not in _DISCONNECTS:
        pass
    scope.cancel()


async def cancel_after(wait: Callable[[], Awaitable[None]], scope: anyio.CancelScope) -> None:
    """Cancel the scope when the wait is over."""
    await wait()
    scope.cancel()
