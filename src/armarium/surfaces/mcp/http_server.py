"""Runs the HTTP application with uvicorn, with bounded request heads and a graceful shutdown."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
import ssl
from collections.abc import Callable, Generator

import anyio
import uvicorn
from anyio.abc import TaskStatus
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from armarium.surfaces.mcp.app import McpApp

_MAX_HEAD_BYTES = 512 * 1024
_MAX_WEBSOCKET_BYTES = 64 * 1024
_KEEP_ALIVE_S = 75
_CANCEL_TIMEOUT_S = 0.5


async def serve_http(
    app: McpApp,
    listening: socket.socket,
    *,
    grace_s: float,
    on_ready: Callable[[], None] = lambda: None,
    tls: ssl.SSLContext | None = None,
    head_timeout_s: float = 30.0,
) -> None:
    """Serve until SIGINT or SIGTERM. Calls in flight may then take up to `grace_s` seconds to finish."""
    config = uvicorn.Config(
        app.asgi,
        http=type("_Protocol", (_BoundedHeadProtocol,), {"head_timeout_s": head_timeout_s}),
        ws="wsproto" if app.takes_sockets else "none",
        ws_max_size=_MAX_WEBSOCKET_BYTES,
        ws_per_message_deflate=False,
        loop="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        # `ForwardedRequests` applies the headers of proxies. Uvicorn would believe every process on this machine.
        proxy_headers=False,
        # Longer than clients keep idle connections, so that none is closed while a request is being sent.
        timeout_keep_alive=_KEEP_ALIVE_S,
        timeout_graceful_shutdown=max(1, round(grace_s)),
    )
    if tls is not None:
        config.load()
        config.ssl = tls
    server = _Server(config, on_ready)
    async with app.running(), anyio.create_task_group() as tasks:
        # Before `on_ready`: its receiver may ask the server to stop at once.
        await tasks.start(_stop_on_signal, server, app, grace_s)
        try:
            await server.serve(sockets=[listening])
        except anyio.get_cancelled_exc_class():
            app.close_streams()
            with anyio.CancelScope(shield=True):
                await server.shutdown(sockets=[listening])
            raise
        tasks.cancel_scope.cancel()


class _Server(uvicorn.Server):
    """Uvicorn without its signal handling, which ends the process by the signal instead of with exit code 0."""

    def __init__(self, config: uvicorn.Config, on_ready: Callable[[], None]) -> None:
        super().__init__(config)
        self._on_ready = on_ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._on_ready()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        if self.started:
            await super().shutdown(sockets)
        # Uvicorn does not wait for requests that it abandons, and their calls must still be recorded.
        cancelled = set(self.server_state.tasks)
        for task in cancelled:
            task.cancel()
        if cancelled:
            await asyncio.wait(cancelled, timeout=_CANCEL_TIMEOUT_S)

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None]:
        yield


class _BoundedHeadProtocol(HttpToolsProtocol):
    """Uvicorn's HTTP protocol with a limit on the size and the time of a request head (decision 0053)."""

    head_timeout_s = 30.0
    _head_timer: asyncio.TimerHandle | None = None
    _head_bytes = 0

    def connection_made(self, transport: asyncio.Transport) -> None:
        super().connection_made(transport)
        self._await_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self._head_received()
        super().connection_lost(exc)

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._await_head()

    def on_headers_complete(self) -> None:
        self._head_received()
        super().on_headers_complete()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self._head_timer is not None:
            self._head_bytes += len(data)
            if self._head_bytes > _MAX_HEAD_BYTES:
                self._reject_head()

    def _head_received(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _await_head(self) -> None:
        if self._head_timer is None:
            self._head_bytes = 0
            self._head_timer = self.loop.call_later(self.head_timeout_s, self._reject_head)

    def _reject_head(self) -> None:
        self._head_received()
        if not self.transport.is_closing():
            self.send_400_response("The head of the request is too long, or took too long.")


async def _stop_on_signal(
    server: _Server, app: McpApp, grace_s: float, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED
) -> None:
    with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
        task_status.started()
        async with anyio.create_task_group() as tasks:
            async for _ in signals:
                # A second signal ends the grace period.
                server.force_exit = server.should_exit
                if not server.should_exit:
                    server.should_exit = True
                    app.close_streams()
                    tasks.start_soon(_end_calls_after, grace_s * 0.9, app)


async def _end_calls_after(seconds: float, app: McpApp) -> None:
    """Cancel the remaining calls shortly before the grace period ends, so that their callers get an error."""
    await anyio.sleep(seconds)
    await app.end_calls()
