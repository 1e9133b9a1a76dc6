"""`armarium rag-server DIR`: serves the three RAG tools over one directory, as an upstream of a gateway."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from armarium.capabilities.gateway.rag_server import INSTRUCTIONS, rag_server_tools
from armarium.capabilities.gateway.tokens.capability_tokens import CapabilityVerifier
from armarium.capability import Capability, Endpoint, Facilities, ServerIdentity
from armarium.command_line.host import CommandHost, HttpOptions
from armarium.command_line.output import show_json
from armarium.foundation.errors import ConfigError
from armarium.foundation.security.authentication import token_path
from armarium.foundation.security.identity import read_token
from armarium.foundation.settings.loader import load_settings

_log = logging.getLogger("armarium")


def serve_rag_server(
    host: CommandHost,
    directory: Path,
    flags: Mapping[str, Any],
    *,
    name: str | None,
    key_file: Path | None,
    as_json: bool,
) -> None:
    """Serve until a signal, or over stdio until the client closes standard input. With a key file, callers need a
    capability token for the server `name`, signed with that key."""
    path = os.path.abspath(directory.expanduser())
    if not os.path.isdir(path):
        raise ConfigError(f"{directory} is not a directory", hint="name the directory to search")
    # Of the variables for a server on the same machine, only those of the corpus apply here.
    environ = {variable: value for variable, value in os.environ.items() if variable.startswith("ARMARIUM_CORPUS__")}
    values = {**flags, "corpus.root": path, "audit.enabled": False}
    settings = load_settings(host.settings_type, environ=environ, flags=values).read_from(key_file)
    name = name or os.path.basename(path)
    verifier = None if key_file is None else CapabilityVerifier(name, _read_key(key_file, name))

    @asynccontextmanager
    async def open_tools(facilities: Facilities) -> AsyncGenerator[Capability]:
        yield Capability("rag-server", rag_server_tools(facilities.sources, verifier), INSTRUCTIONS)

    identity = ServerIdentity("armarium-rag-server", INSTRUCTIONS, title="Armarium RAG server")
    if flags["server.port"] is None:
        host.serve_stdio(settings, identity=identity, only=open_tools)
        return

    def announce(address: str) -> None:
        token_file = token_path(settings)
        connection = {"url": f"{address}/mcp", "token_file": str(token_file) if token_file else None}
        _log.info("listening", extra={"address": address, **connection})
        if as_json:
            show_json(connection)

    host.serve_http(settings, announce, HttpOptions(endpoint=Endpoint(identity)), only=open_tools)


def _read_key(file: Path, name: str) -> str:
    key = read_token(file)
    if not re.fullmatch("[0-9a-f]{64}", key):
        raise ConfigError(
            f"{file} does not contain a server key",
            hint=f"on the gateway's machine: armarium gateway token-key {name} > {file}",
        )
    return key
