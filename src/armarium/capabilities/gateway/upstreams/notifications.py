"""What a server at an address says unasked, heard for as long as the connection lives."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Callable
from contextlib import suppress

import anyio
import httpx2

from armarium.capabilities.gateway.upstreams.sse import Events, kind_of

_EVENT_ID = re.compile(rb"^id: ?([^\r\n]+)", re.MULTILINE)
_FIRST_PAUSE_S = 1.0
_LONGEST_PAUSE_S = 30.0
"""How long to wait before a stream that failed, or ended at once, is asked for again."""
_STEADY_S = 5.0
"""A stream that stayed open so long did not end at once."""
_FIRST_REFUSAL = 400
_WRONG_METHOD = 405


class News:
    """The stream of one server's news, asked for until there is one.

    The client gives up for good after its second failure, and would never hear again that tools have changed.
    """

    def __init__(self, wire: httpx2.AsyncBaseTransport, max_event_bytes: int) -> None:
        self._wire = wire
        self._max_event_bytes = max_event_bytes
        self._pause_s = 0.0
        self._asked_at: float | None = None
        self._last_id: str | None = None

    def are_asked_for_by(self, request: httpx2.Request) -> bool:
        """Whether this is what a request wants, and not the rest of an answer that broke off."""
        return request.headers.get("last-event-id") in (None, self._last_id)

    async def opened(self, request: httpx2.Request) -> httpx2.Response:
        """The stream, or the word of a server that it has none."""
        if self._asked_at is not None and anyio.current_time() - self._asked_at >= _STEADY_S:
            self._pause_s = 0.0
        while True:
            await anyio.sleep(self._pause_s)
            self._pause_s = min(max(2 * self._pause_s, _FIRST_PAUSE_S), _LONGEST_PAUSE_S)
            self._asked_at = anyio.current_time()
            try:
                response = await self._wire.handle_async_request(request)
            except httpx2.TransportError:
                continue
            if response.has_redirect_location or response.status_code == _WRONG_METHOD:
                # Where it may lead is for the client to decide.
                return response
            if response.status_code < _FIRST_REFUSAL and kind_of(response) == "text/event-stream":
                events = Events(response, None, self._max_event_bytes, lambda: None)
                stream = _Ending(events, self._note_id)
                return httpx2.Response(response.status_code, headers=response.headers, stream=stream, request=request)
            await response.aclose()

    def _note_id(self, event_id: str) -> None:
        self._last_id = event_id


class _Ending(httpx2.AsyncByteStream):
    """Events whose stream, however it breaks off, has ended and not failed: it can be asked for again."""

    def __init__(self, events: Events, on_id: Callable[[str], None]) -> None:
        self._events = events
        self._on_id = on_id

    async def __aiter__(self) -> AsyncIterator[bytes]:
        with suppress(httpx2.TransportError):
            async for whole_ones in self._events:
                if ids := _EVENT_ID.findall(whole_ones):
                    self._on_id(ids[-1].decode("utf-8", "replace"))
                yield whole_ones

    async def aclose(self) -> None:
        await self._events.aclose()
