"""Streams of server-sent events: complete events of bounded size, and a JSON-RPC error if a response is aborted."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from http import HTTPStatus

import anyio
import httpx2
import orjson

from armarium.capabilities.gateway.upstreams.errors import TOO_LARGE, UNREACHABLE
from armarium.foundation.surrogates import repair_json_text

_EVENT_END = re.compile(rb"\r\n\r\n|\n\n|\r\r")
_EVENT_END_BYTES = 4
_EVENT_ID = re.compile(rb"^id: ?([^\r\n]+)", re.MULTILINE)
_MAX_PAUSE_S = 30.0
_STABLE_S = 5.0
"""A stream that was open for this long resets the back-off."""


@dataclass(eq=False, slots=True)
class EventStream(httpx2.AsyncByteStream):
    """Passes on complete events only. Ends with a JSON-RPC error if an event is too large or the request is aborted."""

    response: httpx2.Response
    request_id: object
    limit_bytes: int
    on_close: Callable[[], object]
    _read_scope: anyio.CancelScope | None = field(default=None, init=False)
    _aborted: bool = field(default=False, init=False)

    def abort(self) -> None:
        """End the stream; the caller no longer waits."""
        self._aborted = True
        if self._read_scope is not None:
            self._read_scope.cancel()

    async def __aiter__(self) -> AsyncIterator[bytes]:
        body = aiter(body_stream(self.response))
        pending = bytearray()
        while (received := await self._next(body)) is not None:
            searched = max(0, len(pending) - _EVENT_END_BYTES)
            pending += received
            ends = [found.end() for found in _EVENT_END.finditer(pending, searched)]
            if ends:
                yield repair_json_text(bytes(pending[: ends[-1]]))
                del pending[: ends[-1]]
            if len(pending) > self.limit_bytes:
                if self.request_id is None:
                    raise httpx2.ReadError("an event is too large")
                yield _error_event(self.request_id, TOO_LARGE, "the response is too large")
                return
        if self._aborted:
            yield _error_event(self.request_id, UNREACHABLE, "aborted")
        elif pending:
            yield repair_json_text(bytes(pending))

    async def _next(self, body: AsyncIterator[bytes]) -> bytes | None:
        if self._aborted:
            return None
        # One scope per read: a scope held across a `yield` would not be exited in the order of entry.
        with anyio.CancelScope() as self._read_scope:
            return await anext(body, None)
        return None

    async def aclose(self) -> None:
        self.on_close()
        await self.response.aclose()


def media_type(response: httpx2.Response) -> str:
    return response.headers.get("content-type", "").partition(";")[0].strip().lower()


def body_stream(response: httpx2.Response) -> httpx2.AsyncByteStream:
    assert isinstance(response.stream, httpx2.AsyncByteStream), "it came from an async transport"
    return response.stream


def rpc_error_json(request_id: object, code: int, message: str) -> bytes:
    return orjson.dumps({"jsonrpc": "2.0", "id": request_id, "error": {"code": code, "message": message}})


def _error_event(request_id: object, code: int, message: str) -> bytes:
    return b"event: message\ndata: " + rpc_error_json(request_id, code, message) + b"\n\n"


@dataclass(slots=True)
class NotificationStream:
    """Opens the notification stream of a server, with exponential back-off. The client itself gives up after its second
    failure and would miss all later changes of the tool list."""

    wire: httpx2.AsyncBaseTransport
    max_event_bytes: int
    first_pause_s: float = 1.0
    sleep: Callable[[float], Awaitable[None]] = anyio.sleep
    last_id: str | None = field(default=None, init=False)
    """The id of the last event."""
    _pause_s: float = field(default=0.0, init=False)
    _opened_at: float | None = field(default=None, init=False)

    def matches(self, request: httpx2.Request) -> bool:
        """Whether a request is for this stream, and not for the rest of an interrupted response."""
        return request.headers.get("last-event-id") in (None, self.last_id)

    async def open(self, request: httpx2.Request) -> httpx2.Response:
        """The response with the stream, or the server's response that it has none."""
        if self._opened_at is not None and anyio.current_time() - self._opened_at >= _STABLE_S:
            self._pause_s = 0.0
        while True:
            await self.sleep(self._pause_s)
            self._pause_s = min(max(2 * self._pause_s, self.first_pause_s), _MAX_PAUSE_S)
            self._opened_at = anyio.current_time()
            try:
                response = await self.wire.handle_async_request(request)
            except httpx2.TransportError:
                continue
            if response.status_code == HTTPStatus.METHOD_NOT_ALLOWED:
                return response
            if response.status_code < HTTPStatus.BAD_REQUEST and media_type(response) == "text/event-stream":
                events = EventStream(response, None, self.max_event_bytes, lambda: None)
                stream = _ResumableEvents(events, self)
                return httpx2.Response(response.status_code, headers=response.headers, stream=stream, request=request)
            await response.aclose()


@dataclass(eq=False, slots=True)
class _ResumableEvents(httpx2.AsyncByteStream):
    """Events that end normally when the connection breaks, so that the client opens the stream again."""

    events: EventStream
    notifications: NotificationStream

    async def __aiter__(self) -> AsyncIterator[bytes]:
        with suppress(httpx2.TransportError):
            async for complete_events in self.events:
                if ids := _EVENT_ID.findall(complete_events):
                    self.notifications.last_id = ids[-1].decode("utf-8", "replace")
                yield complete_events

    async def aclose(self) -> None:
        await self.events.aclose()
