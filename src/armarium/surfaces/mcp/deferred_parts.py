"""Keeps large results out of the SDK, which would encode them on the event loop, and restores them in its response."""

from __future__ import annotations

import orjson
from starlette.types import Message, Send

from armarium.foundation.schema import Json
from armarium.surfaces.http_responses import send_pieces
from armarium.surfaces.response_encoder import EncodedJson, encode_message

DEFERRED_PARTS = "armarium.deferred_parts"
"""The key of the `DeferredParts` of a request in its ASGI scope."""

_PLACEHOLDERS: Json = {"content": [], "structuredContent": {}}


class DeferredParts:
    """The encoded parts of the result of one request."""

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
