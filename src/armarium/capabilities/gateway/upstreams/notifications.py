"""The stream of notifications from a server over HTTP, reopened for as long as the connection lives."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress

import anyio
import httpx2

from armarium.capabilities.gateway.upstreams.sse import EventStream, media_type

_EVENT_ID = re.compile(rb"^id: ?([^\r\n]+)", re.MULTILINE)
_MAX_PAUSE_S = 30.0
_STABLE_S = 5.0
"""A stream that was open for this long resets the back-off."""
_BAD_REQUEST = 400
_METHOD_NOT_ALLOWED = 405


class NotificationStream:
    """Opens the notification stream of a server, with exponential back-off.

    The client itself gives up after its second failure and would miss all later changes of the tool list.
    """

    def __init__(
        self,
        wire: httpx2.AsyncBaseTransport,
        max_event_bytes: int,
        *,
        first_pause_s: float = 1.0,
        sleep: Callable[[float], Awaitable[None]] = anyio.sleep,
    ) -> None:
        self._wire = wire
        self._max_event_bytes = max_event_bytes
        self._first_pause_s = first_pause_s
        self._sleep = sleep
        self._pause_s = 0.0
        self._opened_at: float | None = None
        self._last_id: str | None = None

    def matches(self, request: httpx2.Request) -> bool:
        """Whether a request is for this stream, and not for the rest of an interrupted response."""
        return request.headers.get("last-event-id") in (None, self._last_id)

    async def open(self, request: httpx2.Request) -> httpx2.Response:
        """The response with the stream, or the server's response that it has none."""
        if self._opened_at is not None and anyio.current_time() - self._opened_at >= _STABLE_S:
            self._pause_s = 0.0
        while True:
            await self._sleep(self._pause_s)
            self._pause_s = min(max(2 * self._pause_s, self._first_pause_s), _MAX_PAUSE_S)
            self._opened_at = anyio.current_time()
            try:
                response = await self._wire.handle_async_request(request)
            except httpx2.TransportError:
                continue
            if response.has_redirect_location or response.status_code == _METHOD_NOT_ALLOWED:
                # The client decides whether to follow a redirect.
                return response
            if response.status_code < _BAD_REQUEST and media_type(response) == "text/event-stream":
                events = EventStream(response, None, self._max_event_bytes, lambda: None)
                stream = _ResumableEvents(events, self._note_id)
                return httpx2.Response(response.status_code, headers=response.headers, stream=stream, request=request)
            await response.aclose()

    def _note_id(self, event_id: str) -> None:
        self._last_id = event_id


class _ResumableEvents(httpx2.AsyncByteStream):
    """Events that end normally when the connection breaks, so that the client opens the stream again."""

    def __init__(self, events: EventStream, on_id: Callable[[str], None]) -> None:
        self._events = events
        self._on_id = on_id

    async def __aiter__(self) -> AsyncIterator[bytes]:
        with suppress(httpx2.TransportError):
            async for complete_events in self._events:
                if ids := _EVENT_ID.findall(complete_events):
                    self._on_id(ids[-1].decode("utf-8", "replace"))
                yield complete_events

    async def aclose(self) -> None:
        await self._events.aclose()
