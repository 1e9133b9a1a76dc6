"""MCP over standard input and output: a client that started us as its child process."""

from __future__ import annotations

import asyncio
import os
import sys
from types import TracebackType

import anyio
import mcp_types as types
import orjson
from mcp.shared.message import SessionMessage

from armarium.surfaces.mcp.server import McpServer


async def serve_stdio(server: McpServer, *, max_message_bytes: int) -> None:
    """Serve until the client closes our standard input."""
    # Whatever prints by mistake must not end up in the protocol.
    wire_in, wire_out = os.dup(sys.stdin.fileno()), os.dup(sys.stdout.fileno())
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    loop = asyncio.get_running_loop()
    lines = asyncio.StreamReader(limit=max_message_bytes)
    with os.fdopen(wire_in, "rb") as source, os.fdopen(wire_out, "wb", buffering=0) as sink:
        transport, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), source)
        try:
            await server.run(_Incoming(lines), _Outgoing(sink.fileno()), server.create_initialization_options())
        finally:
            transport.close()


class _Incoming:
    """Messages, one JSON text a line. The SDK's own reader crosses a thread per line and is three times slower."""

    def __init__(self, lines: asyncio.StreamReader) -> None:
        self._lines = lines

    async def receive(self) -> SessionMessage | Exception:
        try:
            line = await self._lines.readline()
        except ValueError as error:
            return error
        if not line:
            raise anyio.EndOfStream
        try:
            message = types.jsonrpc_message_adapter.validate_python(orjson.loads(line), by_name=False)
        except ValueError as error:
            return error
        return SessionMessage(message)

    def __aiter__(self) -> _Incoming:
        return self

    async def __anext__(self) -> SessionMessage | Exception:
        try:
            return await self.receive()
        except anyio.EndOfStream:
            raise StopAsyncIteration from None

    async def aclose(self) -> None:
        return

    async def __aenter__(self) -> _Incoming:
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc_val: BaseException | None, exc_tb: TracebackType | None
    ) -> None:
        return


class _Outgoing:
    """Writes whole messages, one at a time; a client that reads slowly holds up nobody else."""

    def __init__(self, descriptor: int) -> None:
        os.set_blocking(descriptor, False)
        self._descriptor = descriptor
        self._writing = anyio.Lock()

    async def send(self, item: SessionMessage, /) -> None:
        line = orjson.dumps(item.message.model_dump(by_alias=True, exclude_unset=True)) + b"\n"
        async with self._writing:
            rest = memoryview(line)
            while rest:
                try:
                    rest = rest[os.write(self._descriptor, rest) :]
                except BlockingIOError:
                    await anyio.wait_writable(self._descriptor)

    async def aclose(self) -> None:
        return

    async def __aenter__(self) -> _Outgoing:
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc_val: BaseException | None, exc_tb: TracebackType | None
    ) -> None:
        return
