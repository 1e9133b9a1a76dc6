"""Responds to a POST with JSON, or with an event stream if messages precede the response."""

from __future__ import annotations

import anyio
from starlette.types import Message, Send

from armarium.foundation.schema import Json
from armarium.surfaces.http_responses import respond_in_pieces, send_pieces
from armarium.surfaces.json_text import encode
from armarium.surfaces.response_encoder import encode_message

_STREAM_HEADERS = {
    "content-type": "text/event-stream",
    "cache-control": "no-cache, no-transform",
    "x-accel-buffering": "no",
}
_EVENT_HEAD = b"event: message\ndata: "
_EVENT_END = b"\n\n"


class PostResponse:
    """The HTTP response to one POST."""

    def __init__(self, send: Send, session_id: str) -> None:
        self._send = send
        self._session_id = session_id
        self._streaming = False
        self._sending = anyio.Lock()

    async def send_message(self, message: Json) -> None:
        """Send a message before the response. It turns the HTTP response into an event stream."""
        async with self._sending:
            if not self._streaming:
                await start_stream(self._send, self._session_id)
                self._streaming = True
            await self._send(event(message))

    async def finish(self, reply: Json, *, with_session: bool) -> None:
        """Send the JSON-RPC response."""
        pieces = encode_message(reply)
        if self._streaming:
            await send_pieces(self._send, [_EVENT_HEAD, *pieces, _EVENT_END])
        else:
            headers = {"mcp-session-id": self._session_id} if with_session else None
            await respond_in_pieces(self._send, 200, pieces, headers)


async def start_stream(send: Send, session_id: str) -> None:
    """Send the head of an event stream."""
    headers = _STREAM_HEADERS | {"mcp-session-id": session_id}
    lines = [(name.encode(), value.encode()) for name, value in headers.items()]
    await send({"type": "http.response.start", "status": 200, "headers": lines})


def event(message: Json) -> Message:
    """One message as a server-sent event."""
    body = _EVENT_HEAD + encode(message) + _EVENT_END
    return {"type": "http.response.body", "body": body, "more_body": True}
