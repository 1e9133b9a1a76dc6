"""News for whoever listens: public events as a stream of server-sent events, or over a WebSocket."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Awaitable, Callable, Generator, Sequence
from contextlib import contextmanager

import anyio
import orjson
from starlette.routing import BaseRoute, WebSocketRoute
from starlette.routing import Route as Address
from starlette.types import Message, Receive, Scope, Send

from armarium.foundation.errors import TooManyCalls
from armarium.foundation.events import Events, PublicEvent
from armarium.foundation.identity import ANYONE, Principal
from armarium.surfaces.gate import Gate
from armarium.surfaces.http_errors import Refused
from armarium.surfaces.web.connection import cancel_when_gone
from armarium.surfaces.web.endpoint import Answering, in_plain_json, wrong_method

_log = logging.getLogger(__name__)

_KEEP_ALIVE_S = 15.0
_FAREWELL_S = 1.0
_MOST_LISTENERS = 1000
_MOST_OF_ONE = 100
"""Connections of one caller that listen."""
_MOST_WAITING = 64
_PROTOCOL = "armarium.events"
_HEADERS = [(b"content-type", b"text/event-stream"), (b"x-accel-buffering", b"no")]
_GOING_AWAY, _TOO_SLOW = 1001, 1013

News = tuple[str, str]
"""An event on its way: its name, and its data as JSON."""
Say = Callable[[News | None], Awaitable[None]]
"""Sends a listener an event or, with none, a sign of life."""


class EventStreams:
    """Everybody who listens. One who is too slow is dropped, and never waited for."""

    def __init__(self, path: str, events: Events, gate: Gate) -> None:
        self._events = events
        self._listeners = set[_Listener]()
        self._closing = anyio.Event()
        self.routes: Sequence[BaseRoute] = [
            Address(path, _ServerSentEvents(gate, self)),
            WebSocketRoute(f"{path}/ws", _EventSocket(gate, self)),
        ]

    def close(self) -> None:
        """Ask everybody to go, so that a shutdown need not wait for them."""
        self._closing.set()

    def check_room(self, principal: Principal) -> None:
        """Raise `Refused` when there are too many already, of all callers or of this one."""
        if len(self._listeners) >= _MOST_LISTENERS or self._closing.is_set():
            raise Refused(503, "too many listeners; try again later", {"retry-after": "30"})
        # Without keys everybody is the same caller.
        if principal is not ANYONE and sum(each.principal == principal for each in self._listeners) >= _MOST_OF_ONE:
            message = "too many of your connections listen already; close one"
            raise Refused(429, message, {"retry-after": "30"}, reason=TooManyCalls.code, retryable=True)

    @contextmanager
    def heard_by(self, principal: Principal) -> Generator[_Listener]:
        """While inside, what is published for the caller waits for them."""
        listener = _Listener(principal)
        unsubscribe = self._events.subscribe(PublicEvent, listener.offer)
        self._listeners.add(listener)
        try:
            yield listener
        finally:
            self._listeners.discard(listener)
            unsubscribe()

    async def pass_on(self, listener: _Listener, receive: Receive, say: Say) -> None:
        """Say everything that comes, until the listener is gone or too slow, or the server stops."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(cancel_when_gone, receive, tasks.cancel_scope)
            tasks.start_soon(_cancel_after, self._closing, tasks.cancel_scope)
            tasks.start_soon(_cancel_after, listener.dropped, tasks.cancel_scope)
            while True:
                await say(await listener.next())


class _Listener:
    """What waits for one listener."""

    def __init__(self, principal: Principal) -> None:
        self.principal = principal
        self._waiting: deque[News] = deque()
        self._news = anyio.Event()
        self.dropped = anyio.Event()
        """Set when more waited than may."""

    async def offer(self, event: PublicEvent) -> None:
        """Put an event where the listener will find it, if it is for them."""
        if not event.is_for(self.principal) or self.dropped.is_set():
            return
        if len(self._waiting) >= _MOST_WAITING:
            _log.warning("a listener was too slow and is dropped", extra={"principal": self.principal.username})
            self._waiting.clear()
            self.dropped.set()
            return
        # Written here, where a failure is the publisher's: it must not end the stream.
        self._waiting.append((event.name, orjson.dumps(event.data).decode()))
        self._news.set()

    async def next(self) -> News | None:
        """The next event; None when it is time to show that we are still there."""
        if not self._waiting:
            self._news = anyio.Event()
            with anyio.move_on_after(_KEEP_ALIVE_S):
                await self._news.wait()
        return self._waiting.popleft() if self._waiting else None


class _ServerSentEvents(Answering):
    """Events over plain HTTP, as `EventSource` and `curl` read them."""

    def __init__(self, gate: Gate, streams: EventStreams) -> None:
        super().__init__(gate)
        self._streams = streams

    async def answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        caller = await self.gate.admit_reader(scope)
        if scope["method"] != "GET":
            raise wrong_method(("GET",))
        self._streams.check_room(caller.principal)

        async def say(news: News | None) -> None:
            await send({"type": "http.response.body", "body": _in_lines(news), "more_body": True})

        with self._streams.heard_by(caller.principal) as listener:
            await send({"type": "http.response.start", "status": 200, "headers": _HEADERS})
            await say(None)
            await self._streams.pass_on(listener, receive, say)
        # One who does not read cannot be told either; the server then closes the connection on its own.
        with anyio.move_on_after(_FAREWELL_S):
            await send({"type": "http.response.body", "body": b""})


class _EventSocket:
    """Events over a WebSocket, one JSON text for each. What the client says is not listened to."""

    def __init__(self, gate: Gate, streams: EventStreams) -> None:
        self._gate = gate
        self._streams = streams

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await receive()  # the wish to connect
        try:
            caller = await self._gate.admit_socket(scope)
            self._streams.check_room(caller.principal)
        except Refused as refusal:
            await self._gate.turn_away(refusal, scope, _instead_of_a_socket(send), in_plain_json)
            return

        async def say(news: News | None) -> None:
            if news is not None:  # the protocol has signs of life of its own
                name, data = news
                await send({"type": "websocket.send", "text": f'{{"event":"{name}","data":{data}}}'})

        with self._streams.heard_by(caller.principal) as listener:
            await send({"type": "websocket.accept", "subprotocol": _chosen(scope["subprotocols"])})
            await self._streams.pass_on(listener, receive, say)
        with anyio.move_on_after(_FAREWELL_S):
            await send({"type": "websocket.close", "code": _TOO_SLOW if listener.dropped.is_set() else _GOING_AWAY})


def _in_lines(news: News | None) -> bytes:
    if news is None:
        return b": keep-alive\n\n"
    name, data = news
    return f"event: {name}\ndata: {data}\n\n".encode()


def _chosen(offered: Sequence[str]) -> str | None:
    """What we say to speak: a browser that offered something hangs up when nothing of it is chosen."""
    return _PROTOCOL if _PROTOCOL in offered else next(iter(offered), None)


def _instead_of_a_socket(send: Send) -> Send:
    """An ordinary answer to the wish to connect."""

    async def say(message: Message) -> None:
        await send({**message, "type": f"websocket.{message['type']}"})

    return say


async def _cancel_after(moment: anyio.Event, work: anyio.CancelScope) -> None:
    await moment.wait()
    work.cancel()
