"""Responds to a POST with JSON, or with an event stream if messages precede the response; also beside the SDK."""

from __future__ import annotations

import anyio
import orjson
from starlette.types import Message, Send

from armarium.foundation.schema import Json
from armarium.surfaces.http.responses import respond_in_pieces, send_pieces
from armarium.surfaces.json.encoder import EncodedJson, encode_message
from armarium.surfaces.json.text import encode

DEFERRED_PARTS = "armarium.deferred_parts"
"""The key of the `DeferredParts` of a request in its ASGI scope."""

_PLACEHOLDERS: Json = {"content": [], "structuredContent": {}}

_STREAM_HEADERS = {
    "content-type": "text/event-stream",
    "cache-control": "no-cache, no-transform",
    "x-accel-buffering": "no",
}
_EVENT_HEAD = b"event: message\ndata: "
_EVENT_END = b"\n\n"


class PostResponse:
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


class DeferredParts:
    """Keeps the encoded parts of the result of one request out of the SDK, which would encode them on the event loop,
    and restores them in its response."""

    def __init__(self) -> None:
        self._parts: Json = {}

    def take_from(self, result: Json) -> Json:
        """Store the encoded parts of a result; returns it with placeholders for them."""
        self._parts = {name: part for name, part in result.items() if isinstance(part, EncodedJson)}
        return result | {name: _PLACEHOLDERS[name] for name in self._parts}

    def restore(self, send: Send) -> Send:
        """A `send` function that puts the stored parts back into the response."""
        heads: list[Message] = []

        async def complete(message: Message) -> None:
            if not self._parts:
                await send(message)
            elif message["type"] == "http.response.start":
                heads.append(message)  # its length is not known yet
            elif message.get("more_body"):
                await send(message)  # a comment on an event stream
            else:
                await self._finish(send, heads, message.get("body", b""))

        return complete

    async def _finish(self, send: Send, heads: list[Message], body: bytes) -> None:
        # The body is a JSON message, or an event with the message as its data.
        begin, end = body.index(b"{"), body.rindex(b"}") + 1
        response: Json = orjson.loads(body[begin:end])
        if isinstance(response.get("result"), dict):
            response["result"] |= self._parts
        self._parts = {}
        pieces = [body[:begin], *encode_message(response), body[end:]]
        length = str(sum(map(len, pieces))).encode()
        for head in heads:
            lines = [(name, length if name == b"content-length" else value) for name, value in head["headers"]]
            await send({**head, "headers": lines})
        await send_pieces(send, pieces)
