"""Keeps large answers away from the SDK, which would encode them on the event loop: they come back as it sends."""

from __future__ import annotations

from typing import Any, cast

import orjson
from starlette.types import Message, Send

from armarium.foundation.schema import Json
from armarium.surfaces.http_errors import send_pieces
from armarium.surfaces.response_encoder import Packed, pieces_of

SET_ASIDE = "armarium.set_aside"
"""The key of an ASGI scope under which the `SetAside` of its request stands."""

_STAND_INS: Json = {"content": [], "structuredContent": {}}


class SetAside:
    """The packed parts of the answer to one request."""

    def __init__(self) -> None:
        self._parts: Json = {}

    def small(self, result: Json) -> Json:
        """The result without its packed parts, which are kept."""
        self._parts = {name: part for name, part in result.items() if isinstance(part, Packed)}
        return result | {name: _STAND_INS[name] for name in self._parts}

    def completing(self, send: Send) -> Send:
        """`send` for a response in which the parts are put back."""
        held: list[Message] = []

        async def complete(message: Message) -> None:
            if not self._parts:
                await send(message)
            elif message["type"] == "http.response.start":
                held.append(message)  # its length is not known yet
            elif message.get("more_body"):
                await send(message)  # a comment on an event stream
            else:
                await self._finish(send, held, message.get("body", b""))

        return complete

    async def _finish(self, send: Send, held: list[Message], body: bytes) -> None:
        # Alone, or as the data of an event.
        begin, end = body.index(b"{"), body.rindex(b"}") + 1
        answer: Json = orjson.loads(body[begin:end])
        if isinstance(answer.get("result"), dict):
            answer["result"] |= self._parts
        self._parts = {}
        pieces = [body[:begin], *pieces_of(answer), body[end:]]
        for start in held:
            await send({**start, "headers": _with_length(start["headers"], sum(map(len, pieces)))})
        await send_pieces(send, pieces)


def _with_length(headers: Any, length: int) -> list[tuple[bytes, bytes]]:
    lines = cast(list[tuple[bytes, bytes]], list(headers))
    return [(name, str(length).encode() if name == b"content-length" else value) for name, value in lines]
