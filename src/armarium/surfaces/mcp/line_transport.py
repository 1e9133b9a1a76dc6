"""Reads and writes messages as lines of JSON on a pair of file descriptors."""

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
from armarium.surfaces.json.bounds import decode_body
from armarium.surfaces.json.encoder import encode_message
from armarium.surfaces.json.text import NotJson
from armarium.surfaces.mcp.exchange import InvalidMessage, check_message

_log = logging.getLogger(__name__)

_PIPE_BYTES = 1024 * 1024


class LineTransport:
    """Reads and writes whole messages without blocking the event loop."""

    def __init__(self, lines: asyncio.StreamReader, descriptor: int) -> None:
        os.set_blocking(descriptor, False)
        with suppress(OSError):
            # A pipe holds 64 KB by default, which would split a large message into many writes.
            fcntl.fcntl(descriptor, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
        self._lines = lines
        self._descriptor = descriptor
        self._writing = anyio.Lock(fast_acquire=True)
        self._message = anyio.CancelScope()
        self._client_gone = self._abandoned = False
        self._unanswered: set[RequestId] = set()
        self._answered = anyio.Event()

    async def read(self) -> Json | None:
        """The next message; None when the client has closed its end. Invalid lines are answered with an error."""
        while line := await self._next_line():
            if line.isspace():
                continue
            try:
                message = check_message(await decode_body(line, None))
            except NotJson:
                await self._reject(PARSE_ERROR, "the line is not valid JSON")
            except InvalidMessage as error:
                await self._reject(INVALID_REQUEST, f"the line is not a message: {error}")
            else:
                if message.get("method") == "notifications/cancelled":
                    self._mark_answered(cancelled_request_id_from_params(message.get("params")))
                elif "method" in message and "id" in message:
                    self._unanswered.add(message["id"])
                return message
        return None

    async def send(self, item: Json, /) -> None:
        """Write a message as one complete line. Raises `BrokenResourceError` after the client has disconnected."""
        pieces = encode_message(item, newline=True)
        async with self._writing:
            rest = self._write_some(memoryview(pieces[0]))
            if rest or len(pieces) > 1:
                # A call that is cancelled while its response is written must not leave an incomplete line.
                with anyio.CancelScope(shield=not self._client_gone) as self._message:
                    await self._write_rest(rest)
                    for piece in pieces[1:]:
                        await self._write_rest(self._write_some(memoryview(piece)))
        if "method" not in item:
            self._mark_answered(item.get("id"))

    async def finish(self, grace_s: float) -> None:
        """The client has disconnected: wait briefly until every request is answered, then stop waiting for it."""
        with anyio.move_on_after(grace_s):
            while self._unanswered:
                self._answered = anyio.Event()
                await self._answered.wait()
        self._client_gone = True
        if self._writing.locked():
            self._abandoned = True
            self._message.cancel()

    async def _next_line(self) -> bytes:
        """The next line within the size limit; empty at the end. Longer lines are rejected."""
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
            await self._reject(INVALID_REQUEST, "the message is too long")
            skipping = False

    def _mark_answered(self, request_id: RequestId | None) -> None:
        if request_id is not None:
            self._unanswered.discard(request_id)
        self._answered.set()

    async def _reject(self, code: int, reason: str) -> None:
        """Respond to an invalid line. The id is null: it is unknown which request the line was."""
        _log.warning("an invalid line from the client was dropped", extra={"reason": reason})
        await self.send({"jsonrpc": "2.0", "id": None, "error": {"code": code, "message": reason}})

    async def _write_rest(self, rest: memoryview) -> None:
        while rest:
            await anyio.wait_writable(self._descriptor)
            if self._abandoned:
                raise anyio.BrokenResourceError
            rest = self._write_some(rest)

    def _write_some(self, data: memoryview) -> memoryview:
        """Write as much as the pipe accepts now; returns the remaining data."""
        try:
            return data[os.write(self._descriptor, data) :]
        except BlockingIOError:
            return data
        except OSError as error:
            raise anyio.BrokenResourceError from error
