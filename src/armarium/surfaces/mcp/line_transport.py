"""Messages as lines of JSON over a pair of descriptors, and which answers are still owed on them."""

from __future__ import annotations

import asyncio
import fcntl
import logging
import os
from contextlib import suppress

import anyio
from mcp.shared.jsonrpc_dispatcher import cancelled_request_id_from_params
from mcp_types import INVALID_REQUEST, PARSE_ERROR, RequestId

from armarium.foundation.schema import Json
from armarium.surfaces.argument_bounds import decoded_line
from armarium.surfaces.json_text import NotJson
from armarium.surfaces.mcp.exchange import NotAMessage, checked_message
from armarium.surfaces.response_encoder import pieces_of

_log = logging.getLogger(__name__)

_PIPE_BYTES = 1024 * 1024


class Wire:
    """Reads and writes whole messages. A client that reads slowly holds up nobody but itself."""

    def __init__(self, lines: asyncio.StreamReader, descriptor: int) -> None:
        os.set_blocking(descriptor, False)
        with suppress(OSError):
            # A pipe holds 64 KB by default; a large answer would go in many turns with the reader.
            fcntl.fcntl(descriptor, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
        self._lines = lines
        self._descriptor = descriptor
        self._writing = anyio.Lock(fast_acquire=True)
        self._message = anyio.CancelScope()
        self._client_left = self._given_up = False
        self._owed: set[RequestId] = set()
        self._paid = anyio.Event()

    async def read(self) -> Json | None:
        """The next message; None when the client has closed its end. What is no message is answered with an error."""
        while line := await self._next_line():
            if line.isspace():
                continue
            try:
                message = checked_message(await decoded_line(line))
            except NotJson:
                await self._complain(PARSE_ERROR, "the line is not valid JSON")
            except NotAMessage as error:
                await self._complain(INVALID_REQUEST, f"the line is not a message: {error}")
            else:
                self._expect(message)
                return message
        return None

    async def send(self, item: Json, /) -> None:
        """Write a message, the whole line or, once the client is given up, none of it."""
        pieces = pieces_of(item, newline=True)
        async with self._writing:
            rest = self._written(memoryview(pieces[0]))
            if rest or len(pieces) > 1:
                # A call cancelled while its answer is on the way must not leave half a line behind.
                with anyio.CancelScope(shield=not self._client_left) as self._message:
                    await self._write(rest)
                    for piece in pieces[1:]:
                        await self._write(self._written(memoryview(piece)))
        if "method" not in item:
            self._settle(item.get("id"))

    async def settled(self) -> None:
        """Wait until every request has its answer."""
        while self._owed:
            self._paid = anyio.Event()
            await self._paid.wait()

    def give_up(self) -> None:
        """The client has left: no longer wait for it to read."""
        self._client_left = True
        if self._writing.locked():
            self._given_up = True
            self._message.cancel()

    async def _next_line(self) -> bytes:
        """The next line that is not too long; nothing at the end."""
        skipping = False
        while True:
            try:
                line = await self._lines.readuntil(b"\n")
            except asyncio.IncompleteReadError as end:
                return b"" if skipping else end.partial
            except asyncio.LimitOverrunError as overrun:
                await self._lines.readexactly(overrun.consumed)
                skipping = True
                continue
            if not skipping:
                return line
            await self._complain(INVALID_REQUEST, "the message is too long")
            skipping = False

    def _expect(self, message: Json) -> None:
        if message.get("method") == "notifications/cancelled":
            self._settle(cancelled_request_id_from_params(message.get("params")))
        elif "method" in message and "id" in message:
            self._owed.add(message["id"])

    def _settle(self, request_id: RequestId | None) -> None:
        if request_id is not None:
            self._owed.discard(request_id)
        self._paid.set()

    async def _complain(self, code: int, reason: str) -> None:
        """Tell the client of a line that was no message; nobody knows which request it might have been."""
        _log.warning("a line from the client was dropped", extra={"reason": reason})
        await self.send({"jsonrpc": "2.0", "id": None, "error": {"code": code, "message": reason}})

    async def _write(self, rest: memoryview) -> None:
        while rest:
            await anyio.wait_writable(self._descriptor)
            if self._given_up:
                raise anyio.BrokenResourceError
            rest = self._written(rest)

    def _written(self, data: memoryview) -> memoryview:
        """Write what the pipe takes now; the rest of the data."""
        try:
            return data[os.write(self._descriptor, data) :]
        except BlockingIOError:
            return data
        except OSError as error:
            raise anyio.BrokenResourceError from error
