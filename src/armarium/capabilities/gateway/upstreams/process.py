"""The transport to a server that runs as a child process: bounded lines of JSON-RPC, no orphaned processes."""

from __future__ import annotations

import logging
import os
import re
import signal
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import anyio
from anyio.abc import Process
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream

from armarium.capabilities.gateway.config.files import StdioTransport
from armarium.capabilities.gateway.errors import CONTACT_ADMINISTRATOR, UpstreamUnavailable
from armarium.capabilities.gateway.upstreams.errors import NOT_MCP, TOO_LARGE, Scrub, excerpt
from armarium.capabilities.gateway.upstreams.message_writer import MessageWriter
from armarium.capabilities.gateway.upstreams.watchdog import Watchdog
from armarium.foundation.surrogates import repair_json_text

if TYPE_CHECKING:
    from mcp.shared.message import SessionMessage

    Streams = tuple[MemoryObjectReceiveStream[SessionMessage | Exception], MessageWriter]

_log = logging.getLogger(__name__)

_INHERITED = ("HOME", "LANG", "LC_ALL", "LOGNAME", "PATH", "SHELL", "TERM", "TMPDIR", "TZ", "USER")
"""The environment variables that a server inherits. Everything else must be in its configuration."""
_GRACE_S = 1.0
"""How long a server may take to exit after its input is closed, and again after SIGTERM."""
_FLUSH_S = 0.2
_MAX_LOG_LINE = 2048
_POLL_S = 0.01
_CLOSED = (anyio.EndOfStream, anyio.ClosedResourceError, anyio.BrokenResourceError, OSError)
_KEPT_BYTES = 1024
# The id is only trusted before or after the whole content of a response; elsewhere it may be part of the content.
_ID_AT_THE_START = re.compile(rb'\s*\{\s*(?:"jsonrpc"\s*:\s*"2\.0"\s*,\s*)?"id"\s*:\s*(\d{1,18})\s*,')
_ID_AT_THE_END = re.compile(rb'"id"\s*:\s*(\d{1,18})\s*(?:,\s*"jsonrpc"\s*:\s*"2\.0"\s*)?\}\s*\Z')

# A request of the server has an id of its own.
_RESPONSE = re.compile(rb'\s*\{\s*(?:"(?:jsonrpc|id)"\s*:\s*(?:"2\.0"|\d{1,18})\s*,\s*){0,2}"(?:result|error)"\s*:')


@dataclass(frozen=True, slots=True)
class OversizedLine:
    """The beginning and the end of a line over the limit."""

    head: bytes
    tail: bytes

    def request_id(self) -> int | None:
        """The id of the request it responds to, if it was JSON-RPC."""
        found = _ID_AT_THE_START.match(self.head) or _ID_AT_THE_END.search(self.tail)
        return int(found[1]) if found else None


class LineSplitter:
    """Takes bytes and returns lines. A line over the limit is discarded while it is read, except for its ends."""

    def __init__(self, limit_bytes: int) -> None:
        self._limit = limit_bytes
        self._line = bytearray()
        self._head: bytes | None = None
        """The beginning of a line over the limit, of which `_line` then has the end only."""

    def split(self, received: bytes) -> list[bytes | OversizedLine]:
        """The lines that are complete with these bytes, without their line breaks."""
        *ended, rest = received.split(b"\n")
        lines: list[bytes | OversizedLine] = []
        for piece in ended:
            self._take(piece)
            line = bytes(self._line)
            lines.append(line if self._head is None else OversizedLine(self._head, line))
            self._line.clear()
            self._head = None
        self._take(rest)
        return lines

    def _take(self, piece: bytes) -> None:
        self._line += piece
        if self._head is None and len(self._line) > self._limit:
            self._head = bytes(self._line[:_KEPT_BYTES])
        if self._head is not None:
            del self._line[:-_KEPT_BYTES]


@dataclass(slots=True, eq=False)
class ServerProcess:
    server: str
    transport: StdioTransport
    max_answer_bytes: int
    scrub: Scrub
    watchdog: Watchdog
    pid: int | None = field(default=None, init=False)
    exit_status: int | None = field(default=None, init=False)
    """The exit status, if it exited by itself."""
    noise: int = field(default=0, init=False)
    """Number of lines on its standard output that were not MCP."""
    _output_ended: bool = field(default=False, init=False)

    @asynccontextmanager
    async def open(self, on_end: Callable[[], None]) -> AsyncGenerator[Streams]:
        """Streams to and from a new process. `on_end` is called when its output ends."""
        # Shielded: the event loop kills a process whose start is cancelled, but does not wait for its end or end its
        # children.
        process: Process | None = None
        with anyio.CancelScope(shield=True):
            process = await self._start()
        assert process is not None, "the scope is never cancelled"
        # No await from here to the task group: a cancellation in between would orphan the process.
        self.pid = process.pid
        sender, receiver = anyio.create_memory_object_stream["SessionMessage | Exception"](0)
        outgoing, to_write = anyio.create_memory_object_stream[bytes](0)
        written = anyio.Event()

        async def send(message: SessionMessage, text: bytes) -> None:
            await outgoing.send(text)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._read, process, sender, on_end)
            tasks.start_soon(self._write, process, to_write, written, on_end)
            tasks.start_soon(self._log_errors, process)
            try:
                yield receiver, MessageWriter(send, outgoing.aclose)
            finally:
                with anyio.CancelScope(shield=True):
                    receiver.close()
                    outgoing.close()
                    with anyio.move_on_after(_FLUSH_S):
                        await written.wait()
                    had_ended = self._output_ended
                    by_itself = await _stop(process)
                    self.exit_status = process.returncode if had_ended and by_itself else None
                tasks.cancel_scope.cancel()

    async def _start(self) -> Process:
        inherited = {name: os.environ[name] for name in _INHERITED if name in os.environ}
        try:
            return await anyio.open_process(
                [self.transport.command, *self.transport.args],
                env={**inherited, **self.transport.env, **self.watchdog.environment()},
                cwd=self.transport.cwd,
                # A process group of its own, so that Ctrl-C does not reach it and its children can be killed with it.
                start_new_session=True,
            )
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or "its command cannot be executed"
            raise UpstreamUnavailable(
                f"`{self.server}` cannot be started",
                hint=CONTACT_ADMINISTRATOR,
                private={"for_operators": f"{reason}: check `command` and `cwd` of its entry"},
                server=self.server,
            ) from error

    async def _read(
        self, process: Process, sender: MemoryObjectSendStream[SessionMessage | Exception], on_end: Callable[[], None]
    ) -> None:
        assert process.stdout is not None
        lines = LineSplitter(self.max_answer_bytes)
        try:
            with sender:
                while True:
                    for line in lines.split(await process.stdout.receive()):
                        message = self._parse(line)
                        if message is not None:
                            await sender.send(message)
        except _CLOSED:
            self._output_ended = True
            on_end()

    def _parse(self, line: bytes | OversizedLine) -> SessionMessage | None:
        from mcp.shared.message import SessionMessage
        from mcp_types import ErrorData, JSONRPCError, jsonrpc_message_adapter

        if isinstance(line, OversizedLine):
            request_id, error = line.request_id(), ErrorData(code=TOO_LARGE, message="the response is too large")
        elif not line.strip():
            return None
        else:
            for repaired in (bytes, repair_json_text):
                with suppress(ValueError):
                    return SessionMessage(jsonrpc_message_adapter.validate_json(repaired(line), by_name=False))
            # A response may have numbers and depths that no parser accepts. Other JSON with an id is somebody's log.
            ends = OversizedLine(line[:_KEPT_BYTES], line[-_KEPT_BYTES:])
            is_response = _RESPONSE.match(line) is not None and b'"jsonrpc"' in ends.head + ends.tail
            request_id = ends.request_id() if is_response else None
            error = ErrorData(code=NOT_MCP, message="the response is not valid")
        if request_id is not None:
            return SessionMessage(JSONRPCError(jsonrpc="2.0", id=request_id, error=error))
        # Many servers print to their standard output; the connection survives that.
        self.noise += 1
        _log.debug("a server wrote a line that is not MCP", extra={"server": self.server})
        return None

    async def _write(
        self,
        process: Process,
        to_write: MemoryObjectReceiveStream[bytes],
        written: anyio.Event,
        on_end: Callable[[], None],
    ) -> None:
        assert process.stdin is not None
        try:
            with to_write:
                async for text in to_write:
                    await process.stdin.send(text + b"\n")
        except _CLOSED:
            on_end()
        finally:
            written.set()

    async def _log_errors(self, process: Process) -> None:
        assert process.stderr is not None
        lines = LineSplitter(_MAX_LOG_LINE)
        with suppress(*_CLOSED):
            while True:
                for line in lines.split(await process.stderr.receive()):
                    # Read even if nothing is logged: a full pipe would block the server.
                    if _log.isEnabledFor(logging.DEBUG):
                        text = line.head if isinstance(line, OversizedLine) else line
                        line_text = excerpt(text.decode("utf-8", "replace"), self.scrub)
                        _log.debug("a server logged", extra={"server": self.server, "text": line_text})


async def _stop(process: Process) -> bool:
    """End the process and its children: close its input, then SIGTERM, then SIGKILL. Takes bounded time. Returns
    whether closing its input was enough."""
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stderr is not None
    with suppress(*_CLOSED):
        await process.stdin.aclose()
    by_itself = await _exited(process)
    if not by_itself:
        _signal_group(process.pid, signal.SIGTERM)
        await _exited(process)
    # Even if it exited by itself: its children may still be in the group.
    _signal_group(process.pid, signal.SIGKILL)
    await _exited(process)
    for stream in (process.stdout, process.stderr):
        with suppress(*_CLOSED):
            await stream.aclose()
    # asyncio's transport would otherwise stay open until the last holder of a pipe exits.
    inner = getattr(getattr(process, "_process", None), "_transport", None)
    if inner is not None:
        inner.close()
    return by_itself


async def _exited(process: Process) -> bool:
    """Whether it exits within the grace period. `process.wait()` would also wait for children that hold its pipes."""
    with anyio.move_on_after(_GRACE_S):
        while process.returncode is None:  # noqa: ASYNC110 no event exists for the exit of the process alone
            await anyio.sleep(_POLL_S)
    return process.returncode is not None


def _signal_group(pid: int, number: int) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, number)
