"""Runs a server from its settings: over HTTP until a signal, or over stdio until the client leaves."""

from __future__ import annotations

import logging
import resource
import socket
import ssl
from collections.abc import Callable
from contextlib import suppress

import anyio

from armarium.assembly import OneEndpoint, open_armarium, open_authenticator
from armarium.foundation.events import Events
from armarium.foundation.identity import Authenticator
from armarium.foundation.processes.memory import share_one_heap
from armarium.foundation.settings import CoreSettings
from armarium.foundation.telemetry import log_as_json
from armarium.surfaces.mcp.serving import listen, serve_http
from armarium.surfaces.mcp.stdio import serve_stdio

_log = logging.getLogger("armarium")

Announce = Callable[[str], None]
"""Told the server's base address once it answers."""


def run_http(
    settings: CoreSettings,
    announce: Announce,
    *,
    authenticator: Authenticator | None = None,
    listening: socket.socket | None = None,
    only: OneEndpoint | None = None,
    tls: ssl.SSLContext | None = None,
    events: Events | None = None,
) -> None:
    """Serve over HTTP until SIGINT or SIGTERM, on the socket given or else where the settings say."""
    log_as_json(settings.telemetry.log_level)
    prepare_process()
    callers = authenticator or open_authenticator(settings)

    async def main() -> None:
        bound = listening or listen(settings.server.host, settings.server.port)
        host, port = bound.getsockname()[:2]
        scheme = "https" if tls else "http"
        address = f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"
        async with open_armarium(settings, events=events) as armarium:
            await serve_http(
                armarium.http(callers, only=only),
                bound,
                grace_s=settings.server.shutdown_grace or 1,
                on_ready=lambda: announce(address),
                tls=tls,
            )
        _log.info("stopped")

    anyio.run(main, backend_options={"use_uvloop": True})


def run_stdio(settings: CoreSettings) -> None:
    """Serve the process that started us, until it closes our standard input."""
    log_as_json(settings.telemetry.log_level)
    prepare_process()

    async def main() -> None:
        async with open_armarium(settings) as armarium:
            await serve_stdio(armarium.mcp_server(), max_message_bytes=settings.server.max_body_bytes)

    anyio.run(main, backend_options={"use_uvloop": True})


def prepare_process() -> None:
    """What a server wants of the system it runs on."""
    share_one_heap()
    # Deep trees and many clients need descriptors; the usual soft limit of 1024 is a relic.
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 65_536), hard))
