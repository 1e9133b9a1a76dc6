"""MCP over standard input and output: a client that started us as its child process."""

from __future__ import annotations

import asyncio
import os
import signal
import stat
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import BinaryIO, cast

import anyio
import anyio.abc
import mcp_types as types
from anyio.streams.memory import MemoryObjectReceiveStream
from mcp.shared.message import SessionMessage

from armarium.foundation.identity import LOCAL
from armarium.foundation.schema import Json
from armarium.surfaces.caller import Caller
from armarium.surfaces.mcp.exchange import Exchange, take_notification
from armarium.surfaces.mcp.line_transport import Wire
from armarium.surfaces.mcp.server import McpServer
from armarium.surfaces.mcp.sessions import Session

_FINISH_S = 1.5
"""How long calls may go on after the client closed its end; clients that wait for us to exit wait a little longer."""

_CALLER = Caller(LOCAL, "stdio")


async def serve_stdio(server: McpServer, *, max_message_bytes: int) -> None:
    """Serve until the client closes our standard input, or a signal asks us to end."""
    # Whatever prints by mistake must not end up in the protocol.
    wire_in, wire_out = os.dup(sys.stdin.fileno()), os.dup(sys.stdout.fileno())
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    loop = asyncio.get_running_loop()
    lines = asyncio.StreamReader(limit=max_message_bytes)
    with os.fdopen(wire_in, "rb") as source, os.fdopen(wire_out, "wb", buffering=0) as sink:
        hang_up = await _connect(source, lines)
        for number in (signal.SIGINT, signal.SIGTERM):
            # As if the client had left.
            loop.add_signal_handler(number, hang_up)
        wire = Wire(lines, sink.fileno())
        try:
            await _converse(server, wire)
        finally:
            hang_up()
            os.set_blocking(sink.fileno(), True)  # whoever shares the terminal with us expects that


async def _connect(source: BinaryIO, lines: asyncio.StreamReader) -> Callable[[], None]:
    """Let what arrives reach `lines`; returns the function that ends that."""
    kind = os.fstat(source.fileno()).st_mode
    if stat.S_ISFIFO(kind) or stat.S_ISSOCK(kind) or source.isatty():
        protocol = asyncio.StreamReaderProtocol(lines)
        transport, _ = await asyncio.get_running_loop().connect_read_pipe(lambda: protocol, source)
        return transport.close
    # A file, or the null device: the event loop cannot wait for those, and need not.
    lines.feed_data(source.read())
    lines.feed_eof()
    return lambda: None


async def _converse(server: McpServer, wire: Wire) -> None:
    """The client's first request decides the era of the protocol."""
    early: list[Json] = []
    while (message := await wire.read()) is not None:
        early.append(message)
        if "id" in message and "method" in message:
            break
    if early and _is_sessionless(early[-1]):
        # Not our usual clients: the SDK serves them, and its queues may cost what they cost.
        streams = _SdkStreams(wire, early, server.changes.close)
        await server.run(streams, streams, server.create_initialization_options())
    else:
        await _SessionConversation(server, wire).run(early)


def _is_sessionless(message: Json) -> bool:
    """Whether the request is of a protocol from 2026-07-28 on, whose requests all say so themselves."""
    params = cast(Json, message.get("params") or {})
    meta = cast(object, params.get("_meta"))
    return message.get("method") != "initialize" and isinstance(meta, dict) and types.PROTOCOL_VERSION_META_KEY in meta


class _SessionConversation:
    """A client of a protocol with a handshake: one session, many requests at once."""

    def __init__(self, server: McpServer, wire: Wire) -> None:
        self._wire = wire
        self._session = Session(server, LOCAL, lifespan_state={})
        self._session.stream = wire

    async def run(self, early: list[Json]) -> None:
        """Take messages until the client has left and, for a moment, until it has its answers."""
        try:
            with self._session.server.changes.heard_by(LOCAL) as changes:
                await self._take_messages(early, changes)
        finally:
            await self._session.close()

    async def _take_messages(self, early: list[Json], changes: MemoryObjectReceiveStream[None]) -> None:
        async with anyio.create_task_group() as requests:
            requests.start_soon(self._session.pass_on, changes)
            for message in early:
                await self._take(message, requests)
            while (message := await self._wire.read()) is not None:
                await self._take(message, requests)
            with anyio.move_on_after(_FINISH_S):
                await self._wire.settled()
            self._wire.give_up()
            requests.cancel_scope.cancel()

    async def _take(self, message: Json, requests: anyio.abc.TaskGroup) -> None:
        if "method" not in message:
            self._session.take_answer(message)
        elif "id" not in message:
            await take_notification(self._session, message, _CALLER)
        elif message["method"] == "initialize":
            # What the client sends right behind it must find the session established.
            await self._answer(message)
        else:
            requests.start_soon(self._answer, message)

    async def _answer(self, message: Json) -> None:
        exchange = Exchange(self._session, message, _CALLER, self._wire.send)
        reply = await exchange.reply()
        if not exchange.cancelled:
            with suppress(anyio.BrokenResourceError):  # the client has left; the call is on record
                await self._wire.send(reply)


class _SdkStreams:
    """The wire in the form the SDK reads and writes."""

    def __init__(self, wire: Wire, early: list[Json], end_subscriptions: Callable[[], None]) -> None:
        self._wire = wire
        self._early = early
        self._end_subscriptions = end_subscriptions

    async def receive(self) -> SessionMessage | Exception:
        message = self._early.pop(0) if self._early else await self._wire.read()
        if message is None:
            self._end_subscriptions()  # the only requests that would never have their answer
            with anyio.move_on_after(_FINISH_S):
                await self._wire.settled()
            self._wire.give_up()
            raise anyio.EndOfStream
        try:
            return SessionMessage(types.jsonrpc_message_adapter.validate_python(message, by_name=False))
        except ValueError as error:  # an answer without a result, say; the SDK drops it
            return error

    async def send(self, item: SessionMessage, /) -> None:
        await self._wire.send(item.message.model_dump(by_alias=True, exclude_unset=True))

    def __aiter__(self) -> _SdkStreams:
        return self

    async def __anext__(self) -> SessionMessage | Exception:
        try:
            return await self.receive()
        except anyio.EndOfStream:
            raise StopAsyncIteration from None

    async def aclose(self) -> None:
        return

    async def __aenter__(self) -> _SdkStreams:
        return self

    async def __aexit__(self, exc_type: object, exc_val: object, exc_tb: object) -> None:
        return
