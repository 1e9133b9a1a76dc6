"""How a request is answered over HTTP: with JSON, or with an event stream as soon as there is more to say."""

from __future__ import annotations

import anyio
from starlette.types import Message, Send

from armarium.foundation.schema import Json
from armarium.surfaces.http_errors import respond_in_pieces, send_pieces
from armarium.surfaces.json_text import encoded
from armarium.surfaces.response_encoder import pieces_of

_STREAM_HEADERS = {
    "content-type": "text/event-stream",
    "cache-control": "no-cache, no-transform",
    "x-accel-buffering": "no",
}
_EVENT_HEAD = b"event: message\ndata: "
_EVENT_END = b"\n\n"


class HttpAnswer:
    """The response to one POST."""

    def __init__(self, send: Send, session_id: str) -> None:
        self._send = send
        self._session_id = session_id
        self._streaming = False
        self._sending = anyio.Lock()

    async def say(self, message: Json) -> None:
        """Say something before the answer: from now on the response is an event stream."""
        async with self._sending:
            if not self._streaming:
                await start_stream(self._send, self._session_id)
                self._streaming = True
            await self._send(event(message))

    async def finish(self, reply: Json, *, name_session: bool) -> None:
        """Send the answer itself."""
        pieces = pieces_of(reply)
        if self._streaming:
            await send_pieces(self._send, [_EVENT_HEAD, *pieces, _EVENT_END])
        else:
            headers = {"mcp-session-id": self._session_id} if name_session else None
            await respond_in_pieces(self._send, 200, pieces, headers)


async def start_stream(send: Send, session_id: str) -> None:
    """Begin an event stream instead of a single answer."""
    headers = _STREAM_HEADERS | {"mcp-session-id": session_id}
    encoded = [(name.encode(), value.encode()) for name, value in headers.items()]
    await send({"type": "http.response.start", "status": 200, "headers": encoded})


def event(message: Json) -> Message:
    """One message on an event stream."""
    body = _EVENT_HEAD + encoded(message) + _EVENT_END
    return {"type": "http.response.body", "body": body, "more_body": True}
