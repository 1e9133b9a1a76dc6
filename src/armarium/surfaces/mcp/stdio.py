"""MCP over standard input and output, for a client that started the server as a child process."""

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
from mcp.shared.message import SessionMessage

from armarium.foundation.schema import Json
from armarium.foundation.security.identity import LOCAL
from armarium.surfaces.caller import Caller
from armarium.surfaces.mcp.exchange import Exchange, receive_notification
from armarium.surfaces.mcp.line_transport import LineTransport
from armarium.surfaces.mcp.server import McpServer
from armarium.surfaces.mcp.session import Session

_GRACE_S = 1.5
"""How long calls may continue after the client closed its end. Clients wait a little longer for us to exit."""


async def serve_stdio(server: McpServer, *, max_message_bytes: int) -> None:
    """Serve until the client closes standard input, or until SIGINT or SIGTERM."""
    # Print statements of libraries must not end up in the protocol.
    protocol_in, protocol_out = os.dup(sys.stdin.fileno()), os.dup(sys.stdout.fileno())
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    loop = asyncio.get_running_loop()
    lines = asyncio.StreamReader(limit=max_message_bytes)
    with os.fdopen(protocol_in, "rb") as source, os.fdopen(protocol_out, "wb", buffering=0) as sink:
        disconnect = await _connect(source, lines)
        for number in (signal.SIGINT, signal.SIGTERM):
            # As if the client had disconnected.
            loop.add_signal_handler(number, disconnect)
        transport = LineTransport(lines, sink.fileno())
        try:
            await _serve_client(server, transport)
        finally:
            disconnect()
            os.set_blocking(sink.fileno(), True)  # other users of the same terminal expect that


async def _connect(source: BinaryIO, lines: asyncio.StreamReader) -> Callable[[], None]:
    """Feed `lines` from the source; returns the function that stops it."""
    kind = os.fstat(source.fileno()).st_mode
    if stat.S_ISFIFO(kind) or stat.S_ISSOCK(kind) or source.isatty():
        protocol = asyncio.StreamReaderProtocol(lines)
        transport, _ = await asyncio.get_running_loop().connect_read_pipe(lambda: protocol, source)
        return transport.close
    # A file or the null device: the event loop cannot wait for them, and need not.
    lines.feed_data(source.read())
    lines.feed_eof()
    return lambda: None


async def _serve_client(server: McpServer, transport: LineTransport) -> None:
    """Serve one client. Its first request decides whether the protocol has sessions."""
    unhandled: list[Json] = []
    while (message := await transport.read()) is not None:
        unhandled.append(message)
        if "id" in message and "method" in message:
            break
    if unhandled and _is_sessionless(unhandled[-1]):
        # The SDK serves these clients.
        streams = _SdkStreams(transport, unhandled, server.changes.close)
        await server.run(streams, streams, server.create_initialization_options())
    else:
        await _StdioSession(server, transport).run(unhandled)


def _is_sessionless(message: Json) -> bool:
    """Whether the request uses a protocol from 2026-07-28 on: each of its requests names the version."""
    params = cast(Json, message.get("params") or {})
    meta = cast(object, params.get("_meta"))
    return message.get("method") != "initialize" and isinstance(meta, dict) and types.PROTOCOL_VERSION_META_KEY in meta


class _StdioSession:
    """The session of a client with a handshake. Requests run concurrently."""

    def __init__(self, server: McpServer, transport: LineTransport) -> None:
        self._transport = transport
        self._session = Session(server, LOCAL)
        self._session.send = transport.send
        self._caller = Caller(LOCAL, "stdio", session=self._session.id)

    async def run(self, unhandled: list[Json]) -> None:
        """Handle messages until the client disconnects, then wait briefly for outstanding responses."""
        try:
            with self._session.server.changes.subscription(LOCAL) as changes:
                async with anyio.create_task_group() as requests:
                    requests.start_soon(self._session.forward_tool_changes, changes)
                    for message in unhandled:
                        await self._receive(message, requests)
                    while (message := await self._transport.read()) is not None:
                        await self._receive(message, requests)
                    await self._transport.finish(_GRACE_S)
                    requests.cancel_scope.cancel()
        finally:
            await self._session.close()

    async def _receive(self, message: Json, requests: anyio.abc.TaskGroup) -> None:
        if "method" not in message:
            self._session.receive_response(message)
        elif "id" not in message:
            await receive_notification(self._session, message, self._caller)
        elif message["method"] == "initialize":
            # The next message must find the session established.
            await self._respond(message)
        else:
            requests.start_soon(self._respond, message)

    async def _respond(self, message: Json) -> None:
        exchange = Exchange(self._session, message, self._caller, self._transport.send)
        reply = await exchange.reply()
        if not exchange.cancelled:
            with suppress(anyio.BrokenResourceError):  # the client has disconnected; the call is recorded
                await self._transport.send(reply)


class _SdkStreams(
    anyio.abc.UnreliableObjectReceiveStream[SessionMessage | Exception],
    anyio.abc.UnreliableObjectSendStream[SessionMessage],
):
    """The transport as the streams that the SDK reads and writes."""

    def __init__(self, transport: LineTransport, unhandled: list[Json], end_subscriptions: Callable[[], None]) -> None:
        self._transport = transport
        self._unhandled = unhandled
        self._end_subscriptions = end_subscriptions

    async def receive(self) -> SessionMessage | Exception:
        message = self._unhandled.pop(0) if self._unhandled else await self._transport.read()
        if message is None:
            self._end_subscriptions()  # these requests would never end by themselves
            await self._transport.finish(_GRACE_S)
            raise anyio.EndOfStream
        try:
            return SessionMessage(types.jsonrpc_message_adapter.validate_python(message, by_name=False))
        except ValueError as error:  # for example a response without a result; the SDK drops it
            return error

    async def send(self, item: SessionMessage) -> None:
        await self._transport.send(item.message.model_dump(by_alias=True, exclude_unset=True))

    async def aclose(self) -> None:
        return
