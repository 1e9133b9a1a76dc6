"""Events over HTTP: who may subscribe, what each subscriber gets, and how slow ones are dropped."""

from __future__ import annotations

import json
import socket
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import anyio
import anyio.abc
import httpx
import pytest
from wsproto import ConnectionType, WSConnection
from wsproto.events import (
    AcceptConnection,
    CloseConnection,
    Event,
    Message,
    Ping,
    RejectConnection,
    RejectData,
    Request,
    TextMessage,
)

from armarium.foundation.events import PublicEvent
from armarium.foundation.security.identity import Authenticator
from armarium.surfaces.web.events import StreamLimits
from support.notes_api import BASE, CAROL, KEY, STAFF_KEY, Demo, caller_of, demo, served
from support.waiting import eventually

DEADLINE_S = 10.0
CHANGE = PublicEvent("notes_changed", {"count": 1, "text": "line\nbreak ü"})
FOR_STAFF = PublicEvent("key_changed", {"by": "carol"}, frozenset({"staff"}))


@pytest.fixture
def server() -> Demo:
    """A server with the usual settings."""
    return demo()


@pytest.fixture
async def address(server: Demo) -> AsyncGenerator[str]:
    """That server, serving."""
    async with served(server.app) as url:
        yield url


def heard_by(server: Demo) -> bool:
    """Whether anybody listens."""
    return server.events.is_heard(PublicEvent)


class Stream:
    """An event stream as a browser reads it."""

    def __init__(self, answer: httpx.Response) -> None:
        self.answer = answer
        self._lines = answer.aiter_lines()

    async def next(self) -> tuple[str, Any]:
        """The name and the data of the next event."""
        name = ""
        with anyio.fail_after(DEADLINE_S):
            async for line in self._lines:
                if line.startswith("event: "):
                    name = line.removeprefix("event: ")
                elif line.startswith("data: "):
                    return name, json.loads(line.removeprefix("data: "))
        raise AssertionError("the stream has ended")

    async def comment(self) -> str:
        """The next comment."""
        with anyio.fail_after(DEADLINE_S):
            async for line in self._lines:
                if line.startswith(":"):
                    return line
        raise AssertionError("the stream has ended")

    async def rest(self) -> list[str]:
        """What is left until its end."""
        with anyio.fail_after(DEADLINE_S):
            return [line async for line in self._lines]


@asynccontextmanager
async def listening(address: str, key: str = KEY) -> AsyncGenerator[Stream]:
    """A caller who listens to server-sent events."""
    headers = {"authorization": f"Bearer {key}", "accept": "text/event-stream"}
    async with (
        httpx.AsyncClient(base_url=address, headers=headers, timeout=DEADLINE_S) as client,
        client.stream("GET", "/api/events") as answer,
    ):
        assert answer.status_code == 200
        yield Stream(answer)


class Socket:
    """A WebSocket, spoken by hand."""

    def __init__(self, stream: anyio.abc.ByteStream) -> None:
        self._stream = stream
        self._protocol = WSConnection(ConnectionType.CLIENT)
        self._events = self._incoming()

    async def _incoming(self) -> AsyncIterator[Event]:
        async for data in self._stream:
            self._protocol.receive_data(data)
            for event in self._protocol.events():
                if isinstance(event, Ping):
                    await self.send(event.response())
                else:
                    yield event

    async def send(self, event: Event) -> None:
        """Say something."""
        await self._stream.send(self._protocol.send(event))

    async def next(self) -> Event:
        """What the server says next."""
        with anyio.fail_after(DEADLINE_S):
            return await anext(self._events)

    async def event(self) -> Any:
        """The next event."""
        event = await self.next()
        assert isinstance(event, TextMessage)
        return json.loads(event.data)


@asynccontextmanager
async def socket_to(address: str, *subprotocols: str, **headers: str) -> AsyncGenerator[Socket]:
    """A connection that has asked to become a WebSocket."""
    host = address.removeprefix("http://")
    async with await anyio.connect_tcp(host.partition(":")[0], int(host.partition(":")[2])) as stream:
        client = Socket(stream)
        lines = [(name.encode(), value.encode()) for name, value in headers.items()]
        await client.send(Request(host, "/api/events/ws", subprotocols=list(subprotocols), extra_headers=lines))
        yield client


BEARER = {"authorization": f"Bearer {KEY}"}


async def test_events_come_as_they_happen(server: Demo, address: str) -> None:
    async with listening(address) as stream:
        assert stream.answer.headers["content-type"] == "text/event-stream"
        assert stream.answer.headers["cache-control"] == "no-store"
        await stream.comment()
        for _ in range(2):
            await server.events.publish(CHANGE)
            assert await stream.next() == (CHANGE.name, CHANGE.data)
    await eventually(lambda: not heard_by(server))


@pytest.mark.contract("G8-3")
async def test_events_for_a_group_reach_its_members_alone(server: Demo, address: str) -> None:
    async with (
        listening(address) as carol,
        listening(address, STAFF_KEY) as staff,
        socket_to(address, **BEARER) as carols_socket,
    ):
        assert isinstance(await carols_socket.next(), AcceptConnection)
        await server.events.publish(FOR_STAFF)
        await server.events.publish(CHANGE)
        assert await staff.next() == (FOR_STAFF.name, FOR_STAFF.data)
        assert await staff.next() == (CHANGE.name, CHANGE.data)
        assert await carol.next() == (CHANGE.name, CHANGE.data)
        assert await carols_socket.event() == {"event": CHANGE.name, "data": CHANGE.data}


@pytest.mark.parametrize("keep_alive_s", [15.0, 0.01], ids=["at the next event", "while nothing happens"])
@pytest.mark.parametrize("way", ["a stream", "a socket"])
async def test_a_stream_ends_when_its_key_is_revoked(way: str, keep_alive_s: float) -> None:
    keys = [(CAROL.apikey_hash, CAROL)]
    authenticator = Authenticator((), further=lambda: keys)
    server = demo(authenticator=authenticator, stream_limits=StreamLimits(keep_alive_s=keep_alive_s))
    opened = listening if way == "a stream" else partial(socket_to, **BEARER)
    async with served(server.app) as address, opened(address) as client:
        await eventually(lambda: heard_by(server))
        if isinstance(client, Stream):
            await client.comment()
        else:
            assert isinstance(await client.next(), AcceptConnection)
        keys.clear()
        if keep_alive_s > 1:
            await server.events.publish(CHANGE)
        if isinstance(client, Stream):
            assert not any(line.startswith("data") for line in await client.rest())
        else:
            assert isinstance(await client.next(), CloseConnection)
    assert not heard_by(server)


async def test_a_stream_shows_now_and_then_that_it_is_alive() -> None:
    server = demo(stream_limits=StreamLimits(keep_alive_s=0.01))
    async with served(server.app) as address, listening(address) as stream:
        assert [await stream.comment() for _ in range(3)] == [": keep-alive"] * 3


async def test_an_event_that_is_no_json_is_the_publishers_trouble(server: Demo, address: str) -> None:
    async with listening(address) as stream:
        await server.events.publish(PublicEvent("odd", {"what": object()}))
        await server.events.publish(CHANGE)
        assert await stream.next() == (CHANGE.name, CHANGE.data)


@pytest.mark.parametrize("method", ["POST", "HEAD", "DELETE"])
async def test_events_are_only_listened_to(server: Demo, method: str) -> None:
    async with caller_of(server.app) as client:
        answer = await client.request(method, "/api/events")
    assert (answer.status_code, answer.headers["allow"]) == (405, "GET")


@pytest.mark.parametrize("key", [None, "wrong"])
async def test_without_a_key_nobody_listens(server: Demo, address: str, key: str | None) -> None:
    async with caller_of(server.app, key) as client:
        answer = await client.get("/api/events")
    assert (answer.status_code, answer.json()["code"]) == (401, "UNAUTHORIZED")
    offered = (f"bearer.{key}",) if key else ()
    async with socket_to(address, *offered) as client:
        refusal, body = await client.next(), await client.next()
        assert isinstance(refusal, RejectConnection)
        assert isinstance(body, RejectData)
    assert (refusal.status_code, json.loads(body.data)["code"]) == (401, "UNAUTHORIZED")
    assert not heard_by(server)


async def test_a_page_of_another_origin_may_not_listen(server: Demo, address: str) -> None:
    async with caller_of(server.app) as client:
        answer = await client.get("/api/events", headers={"origin": "https://evil.example"})
    assert answer.status_code == 403
    async with socket_to(address, f"bearer.{KEY}", origin="https://evil.example") as client:
        refusal = await client.next()
    assert isinstance(refusal, RejectConnection)
    assert refusal.status_code == 403


@pytest.mark.parametrize(
    ("offered", "chosen"),
    [((f"bearer.{KEY}",), f"bearer.{KEY}"), (("armarium.events", f"bearer.{KEY}"), "armarium.events")],
)
async def test_a_page_brings_its_key_as_a_subprotocol(
    server: Demo, address: str, offered: tuple[str, ...], chosen: str
) -> None:
    async with socket_to(address, *offered, origin=address) as client:
        accepted = await client.next()
        assert isinstance(accepted, AcceptConnection)
        assert accepted.subprotocol == chosen
        await server.events.publish(CHANGE)
        assert await client.event() == {"event": CHANGE.name, "data": CHANGE.data}


async def test_a_socket_with_two_keys_is_refused(server: Demo, address: str) -> None:
    async with socket_to(address, f"bearer.{KEY}", "bearer.another", origin=address) as client:
        refusal = await client.next()
    assert isinstance(refusal, RejectConnection)
    assert refusal.status_code == 400


async def test_a_socket_hears_events_whatever_it_says(server: Demo, address: str) -> None:
    async with socket_to(address, **BEARER) as client:
        assert isinstance(await client.next(), AcceptConnection)
        await client.send(Message("hello?"))
        await client.send(Message(b"\0\xff"))
        await server.events.publish(CHANGE)
        assert await client.event() == {"event": CHANGE.name, "data": CHANGE.data}
        await client.send(CloseConnection(1000))
        await eventually(lambda: not heard_by(server))


async def test_a_socket_that_says_too_much_is_closed(server: Demo, address: str) -> None:
    async with socket_to(address, **BEARER) as client:
        assert isinstance(await client.next(), AcceptConnection)
        await client.send(Message("x" * 100_000))
        closed = await client.next()
        assert isinstance(closed, CloseConnection)
        assert closed.code == 1009
    await eventually(lambda: not heard_by(server))


async def test_there_are_no_more_listeners_than_may_be() -> None:
    server = demo(stream_limits=StreamLimits(max_streams=1))
    async with served(server.app) as address, listening(address), socket_to(address, **BEARER) as client:
        refusal = await client.next()
        assert isinstance(refusal, RejectConnection)
        assert refusal.status_code == 503
        async with caller_of(server.app) as other:
            answer = await other.get("/api/events")
        assert (answer.status_code, answer.json()["code"], answer.headers["retry-after"]) == (503, "UNAVAILABLE", "30")


async def test_one_caller_does_not_take_the_places_of_the_others() -> None:
    server = demo(stream_limits=StreamLimits(max_streams_per_caller=1))
    async with (
        served(server.app) as address,
        listening(address),
        listening(address, STAFF_KEY),
        caller_of(server.app) as client,
    ):
        answer = await client.get("/api/events")
    assert (answer.status_code, answer.json()["code"]) == (429, "TOO_MANY_CALLS")


@pytest.mark.parametrize("way", ["a stream", "a socket"])
async def test_who_does_not_keep_up_is_dropped_and_nobody_waits_for_them(
    server: Demo, address: str, way: str, caplog: pytest.LogCaptureFixture
) -> None:
    host, port = address.removeprefix("http://").split(":")
    wish = f"GET /api/events HTTP/1.1\r\nhost: {host}\r\nauthorization: Bearer {KEY}\r\n\r\n"
    if way == "a socket":
        wish = (
            f"GET /api/events/ws HTTP/1.1\r\nhost: {host}\r\nauthorization: Bearer {KEY}\r\nconnection: upgrade\r\n"
            "upgrade: websocket\r\nsec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
        )
    lazy = socket.socket()
    lazy.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    large = PublicEvent("large", {"text": "x" * 100_000})
    with lazy:
        await anyio.to_thread.run_sync(lazy.connect, (host, int(port)))
        await anyio.to_thread.run_sync(lazy.sendall, wish.encode())
        await eventually(lambda: heard_by(server))
        async with listening(address) as brisk:
            with anyio.fail_after(DEADLINE_S):
                while "slow event subscriber" not in caplog.text:
                    await server.events.publish(large)
                    assert (await brisk.next())[0] == "large"
            await server.events.publish(CHANGE)
            assert await brisk.next() == (CHANGE.name, CHANGE.data)
        await eventually(lambda: not heard_by(server))


@pytest.mark.parametrize("way", ["a stream", "a socket"])
async def test_a_server_that_stops_ends_streams_in_good_order(server: Demo, address: str, way: str) -> None:
    if way == "a stream":
        async with listening(address) as stream:
            await stream.comment()
            server.app.close_streams()
            assert [line for line in await stream.rest() if line] == []
    else:
        async with socket_to(address, **BEARER) as client:
            assert isinstance(await client.next(), AcceptConnection)
            server.app.close_streams()
            closed = await client.next()
            assert isinstance(closed, CloseConnection)
            assert closed.code == 1001
    assert not heard_by(server)
    async with caller_of(server.app) as late:
        assert (await late.get("/api/events")).status_code == 503


async def test_nothing_else_is_reached_by_a_socket(address: str) -> None:
    host = address.removeprefix("http://")
    async with await anyio.connect_tcp(host.partition(":")[0], int(host.partition(":")[2])) as stream:
        client = Socket(stream)
        await client.send(Request(host, "/mcp", extra_headers=[(b"authorization", f"Bearer {KEY}".encode())]))
        refusal = await client.next()
    assert isinstance(refusal, RejectConnection)
    assert refusal.status_code in (403, 404)


async def test_the_address_of_the_socket_is_nothing_over_plain_http(server: Demo) -> None:
    async with caller_of(server.app) as client:
        assert (await client.get(f"{BASE}/api/events/ws")).status_code == 404
