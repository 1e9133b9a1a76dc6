"""Sends the parts of one answer as server-sent events while its call runs."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Sequence
from typing import Any, Final

import anyio
from starlette.types import Send

from armarium.foundation.errors import Cancelled, ResponseTooLarge
from armarium.foundation.schema import Json
from armarium.surfaces.http.responses import SEND_TIMEOUT_S
from armarium.surfaces.json.encoder import EncodedJson
from armarium.surfaces.json.text import dumps

_log = logging.getLogger(__name__)

HEADERS: Final = [(b"content-type", b"text/event-stream"), (b"x-accel-buffering", b"no")]
KEEP_ALIVE_S: Final = 15.0
_MAX_BYTES: Final = 16 * 1024 * 1024
"""Of all parts of one answer."""
_MAX_UNSENT_BYTES: Final = 1024 * 1024
"""Of parts that the client has not taken. It can ask again without a stream."""
_KEEP_ALIVE: Final = b": keep-alive\n\n"


class AnswerStream:
    """The events of one call. The response begins with the first of them."""

    def __init__(self, send: Send, *, keep_alive_s: float = KEEP_ALIVE_S) -> None:
        self._send = send
        self._keep_alive_s = keep_alive_s
        self._unsent: deque[Sequence[bytes]] = deque()
        self._unsent_bytes = 0
        self._bytes = 0
        self._changed = anyio.Event()
        self._ended = False
        self.has_begun = False
        """Whether there is an event, which a response with a status of its own cannot follow."""

    def emit(self, kind: str, content: Json) -> None:
        """Queue a part. Raises if the parts are too large, or the client does not take them."""
        event = _event(kind, [dumps(content)])
        size = sum(map(len, event))
        self._bytes += size
        if self._bytes > _MAX_BYTES:
            raise ResponseTooLarge(
                f"the parts of the answer have more than {_MAX_BYTES} bytes", hint="ask for a smaller part"
            )
        if self._unsent_bytes + size > _MAX_UNSENT_BYTES and self._unsent:
            raise Cancelled("the client does not read the stream", hint="ask for the answer without a stream")
        self._put(event, size)

    def end(self, kind: str, content: Any) -> None:
        """Queue the last event."""
        self._ended = True
        pieces = content.pieces if isinstance(content, EncodedJson) else [dumps(content)]
        self._put(_event(kind, pieces), 0)

    def _put(self, event: Sequence[bytes], size: int) -> None:
        self.has_begun = True
        self._unsent_bytes += size
        self._unsent.append(event)
        self._changed.set()

    async def forward(self) -> None:
        """Send the events as they come, until the last one. A client that stops reading is dropped."""
        await self._changed.wait()
        await self._send({"type": "http.response.start", "status": 200, "headers": HEADERS})
        while True:
            self._changed = anyio.Event()
            while self._unsent:
                event = self._unsent.popleft()
                for piece in event:
                    if not await self._sent(piece):
                        return
                self._unsent_bytes = max(0, self._unsent_bytes - sum(map(len, event)))
            if self._ended:
                await self._send({"type": "http.response.body", "body": b""})
                return
            with anyio.move_on_after(self._keep_alive_s) as quiet:
                await self._changed.wait()
            if quiet.cancelled_caught and not await self._sent(_KEEP_ALIVE):
                return

    async def _sent(self, piece: bytes) -> bool:
        with anyio.move_on_after(SEND_TIMEOUT_S) as timeout:
            await self._send({"type": "http.response.body", "body": piece, "more_body": True})
        if timeout.cancelled_caught:
            # The server closes a connection whose response is incomplete.
            _log.warning("a stream was aborted: the client stopped reading")
        return not timeout.cancelled_caught


def _event(kind: str, pieces: Sequence[bytes]) -> list[bytes]:
    """JSON has no line breaks outside of texts, where they are escaped, so the data is one line."""
    return [f"event: {kind}\ndata: ".encode(), *pieces, b"\n\n"]
