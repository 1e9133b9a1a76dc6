"""`armarium rag-server DIR`: serves the three RAG tools over one directory, as an upstream of a gateway."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from armarium.capability import Capability, Endpoint, Facilities, OpenCapability, ServerIdentity
from armarium.command_line.host import CommandHost, HttpOptions
from armarium.command_line.output import show_json
from armarium.foundation.authentication import token_path
from armarium.foundation.errors import ConfigError
from armarium.foundation.identity import read_token
from armarium.foundation.settings import CoreSettings
from armarium.foundation.settings_loader import load_settings

_log = logging.getLogger("armarium")

_KEY = re.compile("[0-9a-f]{64}")


def serve_rag_server(
    host: CommandHost,
    directory: Path,
    flags: Mapping[str, Any],
    *,
    name: str | None,
    key_file: Path | None,
    index_dir: Path | None,
    over_http: bool,
    as_json: bool,
) -> None:
    """Serve until a signal, or over stdio until the client closes standard input.

    With a key file, callers need a capability token for the server `name`, signed with that key.
    """
    from armarium.capabilities.gateway.rag_server import INSTRUCTIONS

    settings = _settings(host, directory, index_dir, flags)
    name = name or os.path.basename(os.path.abspath(directory.expanduser()))
    open_tools = _rag_tools(name, None if key_file is None else _read_key(key_file, name))
    identity = ServerIdentity("armarium-rag-server", INSTRUCTIONS, title="Armarium RAG server")
    if not over_http:
        host.serve_stdio(settings, identity=identity, only=open_tools)
        return

    def announce(address: str) -> None:
        token_file = token_path(settings)
        connection = {"url": f"{address}/mcp", "token_file": str(token_file) if token_file else None}
        _log.info("listening", extra={"address": address, **connection})
        if as_json:
            show_json(connection)

    host.serve_http(settings, announce, HttpOptions(endpoint=Endpoint(identity)), only=open_tools)


def _settings(host: CommandHost, directory: Path, index_dir: Path | None, flags: Mapping[str, Any]) -> CoreSettings:
    path = os.path.abspath(directory.expanduser())
    if not os.path.isdir(path):
        raise ConfigError(f"{directory} is not a directory", hint="name the directory to search")
    values: dict[str, Any] = {**flags, "corpus.root": path, "audit.enabled": False}
    if index_dir is not None:
        values["corpus.state_dir"] = os.path.abspath(index_dir.expanduser())
    # Of the variables for a server on the same machine, only those of the corpus apply here.
    environ = {name: value for name, value in os.environ.items() if name.startswith("ARMARIUM_CORPUS__")}
    return load_settings(host.settings_type, environ=environ, flags=values)


def _rag_tools(name: str, key: str | None) -> OpenCapability:
    @asynccontextmanager
    async def open_tools(facilities: Facilities) -> AsyncGenerator[Capability]:
        from armarium.capabilities.gateway.rag_server import INSTRUCTIONS, rag_server_tools
        from armarium.capabilities.gateway.tokens.capability_tokens import CapabilityVerifier

        verifier = CapabilityVerifier(name, key) if key is not None else None
        yield Capability("rag-server", rag_server_tools(facilities.sources, verifier), INSTRUCTIONS)

    return open_tools


def _read_key(file: Path, name: str) -> str:
    key = read_token(file)
    if not _KEY.fullmatch(key):
        raise ConfigError(
            f"{file} does not contain a server key",
            hint=f"on the gateway's machine: armarium gateway token-key {name} > {file}",
        )
    return key
