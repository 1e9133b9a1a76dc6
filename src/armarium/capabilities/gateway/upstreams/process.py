"""The transport to a server that is a process of ours: bounded lines of JSON-RPC, and no process left behind."""

from __future__ import annotations

import logging
import os
import signal
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING

import anyio
from anyio.abc import Process
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream

from armarium.capabilities.gateway.config.files import StdioTransport
from armarium.capabilities.gateway.errors import TELL_THE_ADMINISTRATOR, UpstreamUnavailable
from armarium.capabilities.gateway.upstreams.errors import TOO_LARGE, Scrub, excerpt
from armarium.capabilities.gateway.upstreams.line_splitter import Lines, Oversized
from armarium.capabilities.gateway.upstreams.message_writer import Outgoing

if TYPE_CHECKING:
    from mcp.shared.message import SessionMessage

    Streams = tuple[MemoryObjectReceiveStream[SessionMessage | Exception], Outgoing]

_log = logging.getLogger(__name__)

_INHERITED = ("HOME", "LANG", "LC_ALL", "LOGNAME", "PATH", "SHELL", "TERM", "TMPDIR", "TZ", "USER")
"""What a server gets of our environment: never a key of ours, only what its file gives it."""
_GRACE_S = 1.0
"""How long a server may take to end after its input closed, and again after it was told to."""
_FLUSH_S = 0.2
_LONGEST_LOG_LINE = 2048
_POLL_S = 0.01
_GONE = (anyio.EndOfStream, anyio.ClosedResourceError, anyio.BrokenResourceError, OSError)


class ServerProcess:
    """One server process for one connection."""

    def __init__(self, server: str, transport: StdioTransport, max_answer_bytes: int, scrub: Scrub) -> None:
        self._server = server
        self._transport = transport
        self._max_answer_bytes = max_answer_bytes
        self._scrub = scrub
        self.pid: int | None = None
        self._fell_silent = False
        self.exit_status: int | None = None
        """How it ended, when it did so by itself."""
        self.noise = 0
        """Lines on its standard output that were not MCP."""

    @asynccontextmanager
    async def opened(self, on_end: Callable[[], None]) -> AsyncGenerator[Streams]:
        """Streams to and from a new process; `on_end` is called when it says no more."""

        # Starting takes a moment and is seen through: the event loop kills a process whose start is cut short, but
        # nobody waits for its end, nor ends what it started.
        process: Process | None = None
        with anyio.CancelScope(shield=True):
            process = await self._started()
        assert process is not None, "nobody cancels that scope"
        # No await from here to the task group: a cancellation in between would leave the process behind.
        self.pid = process.pid
        said, heard = anyio.create_memory_object_stream["SessionMessage | Exception"](0)
        outgoing, to_write = anyio.create_memory_object_stream[bytes](0)
        written = anyio.Event()

        async def send(message: SessionMessage, text: bytes) -> None:
            await outgoing.send(text)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._read, process, said, on_end)
            tasks.start_soon(self._write, process, to_write, written, on_end)
            tasks.start_soon(self._log_errors, process)
            try:
                yield heard, Outgoing(send, outgoing.aclose)
            finally:
                with anyio.CancelScope(shield=True):
                    heard.close()
                    outgoing.close()
                    with anyio.move_on_after(_FLUSH_S):
                        await written.wait()
                    had_ended = self._fell_silent
                    by_itself = await _stopped(process)
                    self.exit_status = process.returncode if had_ended and by_itself else None
                tasks.cancel_scope.cancel()

    async def _started(self) -> Process:
        inherited = {name: os.environ[name] for name in _INHERITED if name in os.environ}
        try:
            return await anyio.open_process(
                [self._transport.command, *self._transport.args],
                env={**inherited, **self._transport.env},
                cwd=self._transport.cwd,
                # A group of its own, so that Ctrl-C is ours to pass on and its children can be ended with it.
                start_new_session=True,
            )
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or "its command cannot be run"
            raise UpstreamUnavailable(
                f"`{self._server}` cannot be started",
                hint=TELL_THE_ADMINISTRATOR,
                private={"for_operators": f"{reason}: check `command` and `cwd` of its entry"},
                server=self._server,
            ) from error

    async def _read(
        self, process: Process, said: MemoryObjectSendStream[SessionMessage | Exception], on_end: Callable[[], None]
    ) -> None:
        assert process.stdout is not None
        lines = Lines(self._max_answer_bytes)
        try:
            with said:
                while True:
                    for line in lines.cut(await process.stdout.receive()):
                        message = self._message_in(line)
                        if message is not None:
                            await said.send(message)
        except _GONE:
            self._fell_silent = True
            on_end()

    def _message_in(self, line: bytes | Oversized) -> SessionMessage | None:
        from mcp.shared.message import SessionMessage
        from mcp_types import ErrorData, JSONRPCError, jsonrpc_message_adapter

        if isinstance(line, Oversized):
            request_id = line.request_id()
            if request_id is None:
                self.noise += 1
                return None
            refusal = ErrorData(code=TOO_LARGE, message="the answer is too large")
            return SessionMessage(JSONRPCError(jsonrpc="2.0", id=request_id, error=refusal))
        if not line.strip():
            return None
        try:
            return SessionMessage(jsonrpc_message_adapter.validate_json(line, by_name=False))
        except ValueError:
            # Many servers print to their standard output; that is no reason to lose the connection.
            self.noise += 1
            _log.debug("a server wrote something that is not MCP", extra={"server": self._server})
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
        except _GONE:
            on_end()
        finally:
            written.set()

    async def _log_errors(self, process: Process) -> None:
        assert process.stderr is not None
        lines = Lines(_LONGEST_LOG_LINE)
        with suppress(*_GONE):
            while True:
                for line in lines.cut(await process.stderr.receive()):
                    # Reading on is what matters: a full pipe would stop the server.
                    if _log.isEnabledFor(logging.DEBUG):
                        text = line.head if isinstance(line, Oversized) else line
                        said = excerpt(text.decode("utf-8", "replace"), self._scrub)
                        _log.debug("a server logged", extra={"server": self._server, "said": said})


async def _stopped(process: Process) -> bool:
    """End the process and what it started: by closing its input, by asking, by force; whether the first was enough.

    Takes bounded time.
    """
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stderr is not None
    with suppress(*_GONE):
        await process.stdin.aclose()
    by_itself = await _ended(process)
    if not by_itself:
        _signal_group(process.pid, signal.SIGTERM)
        await _ended(process)
    # Also when it ended by itself: its children are in the group still.
    _signal_group(process.pid, signal.SIGKILL)
    await _ended(process)
    for stream in (process.stdout, process.stderr):
        with suppress(*_GONE):
            await stream.aclose()
    _close_transport(process)
    return by_itself


async def _ended(process: Process) -> bool:
    """Whether it ends within the grace. Waiting for it by `wait` would wait for everybody who holds its pipes."""
    with anyio.move_on_after(_GRACE_S):
        while process.returncode is None:  # noqa: ASYNC110 there is no event for the end of the process alone
            await anyio.sleep(_POLL_S)
    return process.returncode is not None


def _signal_group(pid: int, number: int) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, number)


def _close_transport(process: Process) -> None:
    """Release what asyncio holds of the process, which it otherwise does when the last holder of a pipe is gone."""
    inner = getattr(getattr(process, "_process", None), "_transport", None)
    close = getattr(inner, "close", None)
    if callable(close):
        close()
