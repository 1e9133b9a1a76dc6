"""`armarium rag-server DIR`: a server of the three RAG tools over one directory, to put behind a gateway."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import anyio

from armarium.assembly import OneEndpoint, Settings, open_authenticator, open_rag_server, token_path
from armarium.foundation.errors import ConfigError
from armarium.foundation.identity import read_token
from armarium.foundation.settings import CoreSettings
from armarium.foundation.settings_loader import load_settings
from armarium.foundation.telemetry import log_as_json
from armarium.surfaces.cli.output import show_json
from armarium.surfaces.cli.running import prepare_process
from armarium.surfaces.mcp.server import ServerIdentity
from armarium.surfaces.mcp.serving import listen, serve_http
from armarium.surfaces.mcp.stdio import serve_stdio

_log = logging.getLogger("armarium")

_KEY = re.compile("[0-9a-f]{64}")


def rag_settings(directory: Path, index_dir: Path | None, flags: Mapping[str, Any]) -> CoreSettings:
    """The settings behind the command: one directory, indexed, and nothing else of the platform."""
    path = os.path.abspath(directory.expanduser())
    if not os.path.isdir(path):
        raise ConfigError(f"{directory} is not a directory", hint="name the directory whose files are to be found")
    given: dict[str, Any] = {**flags, "corpus.root": path}
    if index_dir is not None:
        given["corpus.state_dir"] = os.path.abspath(index_dir.expanduser())
    # Variables that are meant for a platform on the same machine do not speak here, except those of the corpus.
    environ = {name: value for name, value in os.environ.items() if name.startswith("ARMARIUM_CORPUS__")}
    return load_settings(Settings, environ=environ, flags=given)


def name_at_gateway(directory: Path, name: str | None) -> str:
    """What the gateway calls this server: as the directory, unless said otherwise."""
    return name or os.path.basename(os.path.abspath(directory.expanduser()))


def capability_key(file: Path | None, name: str) -> str | None:
    """The key that the gateway signs this server's capability tokens with; None when none are wanted."""
    if file is None:
        return None
    key = read_token(file)
    if not _KEY.fullmatch(key):
        raise ConfigError(
            f"{file} holds no key of a server", hint=f"where the gateway is: armarium gateway token-key {name} > {file}"
        )
    return key


def serve_over_stdio(settings: CoreSettings, name: str, key: str | None) -> None:
    """Serve the process that started us, until it closes our standard input."""
    log_as_json(settings.telemetry.log_level)
    prepare_process()

    async def main() -> None:
        async with open_rag_server(settings, name, key) as armarium:
            server = armarium.mcp_server(identity=_identity(armarium.capabilities[0].instructions))
            await serve_stdio(server, max_message_bytes=settings.server.max_body_bytes)

    anyio.run(main, backend_options={"use_uvloop": True})


def serve_over_http(settings: CoreSettings, name: str, key: str | None, *, as_json: bool) -> None:
    """Serve over HTTP until a signal."""
    log_as_json(settings.telemetry.log_level)
    prepare_process()
    callers = open_authenticator(settings)

    async def main() -> None:
        bound = listen(settings.server.host, settings.server.port)
        host, port = bound.getsockname()[:2]
        address = f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"

        def announce() -> None:
            token_file = token_path(settings)
            known = {"url": f"{address}/mcp", "token_file": str(token_file) if token_file else None}
            _log.info("listening", extra={"address": address, **known})
            if as_json:
                show_json(known)

        async with open_rag_server(settings, name, key) as armarium:
            only = OneEndpoint(_identity(armarium.capabilities[0].instructions))
            grace_s = settings.server.shutdown_grace or 1
            await serve_http(armarium.http(callers, only=only), bound, grace_s=grace_s, on_ready=announce)
        _log.info("stopped")

    anyio.run(main, backend_options={"use_uvloop": True})


def _identity(instructions: str) -> ServerIdentity:
    return ServerIdentity("armarium-rag-server", instructions, title="Armarium RAG server")
