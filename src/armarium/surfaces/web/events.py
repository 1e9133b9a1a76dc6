"""Streams public events to clients, as server-sent events or over a WebSocket."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

import anyio
import orjson
from starlette.routing import BaseRoute, WebSocketRoute
from starlette.routing import Route as HttpRoute
from starlette.types import Receive, Scope, Send

from armarium.foundation.audit import CallRecord
from armarium.foundation.errors import TooManyCalls
from armarium.foundation.events import Events, PublicEvent
from armarium.foundation.security.identity import ANYONE, Principal
from armarium.surfaces.caller import Caller
from armarium.surfaces.gate import Gate, GatedApp
from armarium.surfaces.http.responses import HttpError, cancel_after, cancel_on_disconnect
from armarium.surfaces.web.endpoint import ApiEndpoint, json_error, method_not_allowed

_log = logging.getLogger(__name__)

_CLOSE_TIMEOUT_S = 1.0
_MAX_QUEUED = 64
_PROTOCOL = "armarium.events"
_HEADERS = [(b"content-type", b"text/event-stream"), (b"x-accel-buffering", b"no")]
_GOING_AWAY, _TRY_AGAIN_LATER = 1001, 1013

EncodedEvent = tuple[str, str]
"""The name of an event, and its data as JSON."""
SendEvent = Callable[[EncodedEvent | None], Awaitable[None]]
"""Sends an event to a subscriber; None is a keep-alive."""


@dataclass(frozen=True, slots=True)
class StreamLimits:
    """How many streams may be open, and how often an idle stream sends a keep-alive."""

    max_streams: int = 1000
    max_streams_per_caller: int = 100
    keep_alive_s: float = 15.0


class EventStreams:
    """All open event streams. A subscriber that reads too slowly is dropped."""

    def __init__(
        self,
        path: str,
        events: Events,
        gate: Gate,
        limits: StreamLimits | None = None,
        *,
        may_read: Callable[[Principal, str], bool] = lambda principal, capability: True,
        sees_calls_of: Callable[[Principal, str], bool] = lambda principal, apikey_hash: False,
    ) -> None:
        """`may_read` tells whether a caller may receive the events about a capability, and `sees_calls_of` those about
        the calls of a caller."""
        self._events = events
        self._may_read = may_read
        self._sees_calls_of = sees_calls_of
        self._gate = gate
        self._limits = limits or StreamLimits()
        self._subscribers = set[_Subscriber]()
        self._closing = anyio.Event()
        self.routes: Sequence[BaseRoute] = [
            HttpRoute(path, ApiEndpoint(gate, self._serve_events)),
            WebSocketRoute(f"{path}/ws", GatedApp(gate, self._serve_socket, json_error)),
        ]

    def close(self) -> None:
        """End all streams, so that a shutdown need not wait for them."""
        self._closing.set()

    def offer_call(self, record: CallRecord) -> None:
        """Send the event `call` to those who may see this call."""
        for subscriber in self._subscribers:
            if self._sees_calls_of(subscriber.principal, record.apikey_hash):
                subscriber.offer_call(record)

    @contextmanager
    def _subscription(self, principal: Principal) -> Generator[_Subscriber]:
        """Queue the events for the caller inside the block. Raises `HttpError` if there are too many streams."""
        if len(self._subscribers) >= self._limits.max_streams or self._closing.is_set():
            raise HttpError(503, "too many listeners; try again later", {"retry-after": "30"})
        # Without keys, all clients are the same caller.
        of_caller = sum(each.principal == principal for each in self._subscribers)
        if principal is not ANYONE and of_caller >= self._limits.max_streams_per_caller:
            message = "too many of your connections listen already; close one"
            raise HttpError(429, message, {"retry-after": "30"}, reason=TooManyCalls.code, retryable=True)
        subscriber = _Subscriber(principal, self._limits.keep_alive_s)

        async def offer(event: PublicEvent) -> None:
            if event.capability is None or self._may_read(principal, event.capability):
                await subscriber.offer(event)

        unsubscribe = self._events.subscribe(PublicEvent, offer)
        self._subscribers.add(subscriber)
        try:
            yield subscriber
        finally:
            self._subscribers.discard(subscriber)
            unsubscribe()

    async def _forward(self, caller: Caller, subscriber: _Subscriber, receive: Receive, send_event: SendEvent) -> None:
        """Send events until the subscriber disconnects or is dropped, its key or session ends, or the server stops."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(cancel_on_disconnect, receive, tasks.cancel_scope)
            for end in (self._closing.wait, subscriber.dropped.wait, partial(self._gate.wait_until_ended, caller)):
                tasks.start_soon(cancel_after, end, tasks.cancel_scope)
            while True:
                event = await subscriber.next()
                if not self._gate.knows(caller):
                    tasks.cancel_scope.cancel()
                    break
                await send_event(event)

    async def _serve_events(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Events as `text/event-stream`, for `EventSource` and `curl`."""
        caller = await self._gate.admit_reader(scope)
        if scope["method"] != "GET":
            raise method_not_allowed(("GET",))

        async def send_event(event: EncodedEvent | None) -> None:
            body = b": keep-alive\n\n" if event is None else "event: {}\ndata: {}\n\n".format(*event).encode()
            await send({"type": "http.response.body", "body": body, "more_body": True})

        with self._subscription(caller.principal) as subscriber:
            await send({"type": "http.response.start", "status": 200, "headers": _HEADERS})
            await send_event(None)
            await self._forward(caller, subscriber, receive, send_event)
        # A client that does not read cannot receive the end either; the server then closes the connection.
        with anyio.move_on_after(_CLOSE_TIMEOUT_S):
            await send({"type": "http.response.body", "body": b""})

    async def _serve_socket(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Events over a WebSocket, one JSON text per event. Messages of the client are ignored."""
        await receive()  # websocket.connect
        caller = await self._gate.admit_socket(scope)

        async def send_event(event: EncodedEvent | None) -> None:
            if event is not None:  # WebSockets have keep-alives of their own
                name, data = event
                await send({"type": "websocket.send", "text": f'{{"event":"{name}","data":{data}}}'})

        # A browser disconnects if it offered subprotocols and none is accepted.
        offered: Sequence[str] = scope["subprotocols"]
        accepted = _PROTOCOL if _PROTOCOL in offered else next(iter(offered), None)
        with self._subscription(caller.principal) as subscriber:
            await send({"type": "websocket.accept", "subprotocol": accepted})
            await self._forward(caller, subscriber, receive, send_event)
        code = _TRY_AGAIN_LATER if subscriber.dropped.is_set() else _GOING_AWAY
        with anyio.move_on_after(_CLOSE_TIMEOUT_S):
            await send({"type": "websocket.close", "code": code})


class _Subscriber:
    def __init__(self, principal: Principal, keep_alive_s: float) -> None:
        self.principal = principal
        self._keep_alive_s = keep_alive_s
        self._queue = asyncio.Queue[EncodedEvent](_MAX_QUEUED)
        self._skipped_calls = 0
        self.dropped = anyio.Event()
        """Set when the queue was full."""

    async def offer(self, event: PublicEvent) -> None:
        """Queue an event, if the subscriber may see it."""
        if not event.is_for(self.principal) or self.dropped.is_set():
            return
        try:
            # Encoded here, where an error reaches the publisher and does not end the stream.
            self._queue.put_nowait((event.name, orjson.dumps(event.data).decode()))
        except asyncio.QueueFull:
            _log.warning("a slow event subscriber was dropped", extra={"principal": self.principal.username})
            self.dropped.set()

    def offer_call(self, record: CallRecord) -> None:
        """Queue the event of a call. Calls can come faster than anybody reads: then some are skipped, and the next
        event tells their number. The audit log has all of them."""
        if self._queue.qsize() >= _MAX_QUEUED // 2:
            self._skipped_calls += 1
            return
        data = record.public_fields() | {"skipped": self._skipped_calls}
        self._skipped_calls = 0
        self._queue.put_nowait(("call", orjson.dumps(data).decode()))

    async def next(self) -> EncodedEvent | None:
        """The next event; None when a keep-alive is due."""
        with anyio.move_on_after(self._keep_alive_s):
            return await self._queue.get()
        return None
