"""Runs the HTTP application until it is told to stop, and then stops politely."""

from __future__ import annotations

import contextlib
import signal
import socket
from collections.abc import Callable, Generator

import anyio
import uvicorn

from armarium.foundation.errors import ConfigError
from armarium.surfaces.mcp.app import McpApp


async def serve_http(
    app: McpApp, listening: socket.socket, *, grace_s: float, on_ready: Callable[[], None] = lambda: None
) -> None:
    """Serve until SIGINT or SIGTERM: then finish the calls in flight, for at most `grace_s` seconds, and return."""
    config = uvicorn.Config(
        app.asgi,
        http="httptools",
        loop="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=max(1, round(grace_s)),
    )
    server = _Server(config, on_ready)
    async with app.running(), anyio.create_task_group() as tasks:
        tasks.start_soon(_stop_on_signal, server, app)
        await server.serve(sockets=[listening])
        tasks.cancel_scope.cancel()


def listen(host: str, port: int) -> socket.socket:
    """A socket bound to the address, so that the port is known, and taken, before anything else starts."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((host, port))
    except OSError as error:
        listening.close()
        raise ConfigError(
            f"cannot listen on {host}:{port}: {error.strerror}", hint="choose another port with --port"
        ) from error
    listening.listen(2048)
    listening.setblocking(False)
    return listening


class _Server(uvicorn.Server):
    """Uvicorn, except that we handle the signals: its own way ends the process by the signal instead of with 0."""

    def __init__(self, config: uvicorn.Config, on_ready: Callable[[], None]) -> None:
        super().__init__(config)
        self._on_ready = on_ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._on_ready()

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None]:
        yield


async def _stop_on_signal(server: _Server, app: McpApp) -> None:
    with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
        async for _ in signals:
            # A second signal means that somebody is impatient.
            server.force_exit = server.should_exit
            server.should_exit = True
            app.close_streams()
