"""The command `up`: checks the settings, starts the server, and indexes in the background."""

from __future__ import annotations

import os
import signal
import ssl
import sys
from collections.abc import Mapping
from typing import Any

from armarium.capabilities.corpus.commands import VERSION
from armarium.capabilities.corpus.commands.connection import (
    ConnectionInfo,
    TokenSource,
    choose_token_source,
    create_authenticator,
    readable_by_others,
)
from armarium.capabilities.corpus.commands.exit_codes import indexing_error
from armarium.capabilities.corpus.commands.options import CommonOptions
from armarium.capabilities.corpus.commands.progress.reports import EventFeed, choose_report
from armarium.capabilities.corpus.commands.settings_loader import LoadedSettings, check_payments, load, prepare_state
from armarium.capabilities.corpus.commands.snapshot import write_snapshot
from armarium.capabilities.corpus.commands.wizard import supply_missing_keys
from armarium.capability import Endpoint, ServerIdentity
from armarium.command_line.host import HttpOptions
from armarium.command_line.output import say
from armarium.foundation.errors import TlsConfigInvalid
from armarium.foundation.events import Events
from armarium.foundation.sockets import listen, tls_context

IDENTITY = ServerIdentity(
    name="dir2mcp",
    title="dir2mcp: Directory RAG MCP Server",
    version=VERSION,
    instructions="Use tools/list then tools/call. Results include citations.",
)


def up(common: CommonOptions, flags: Mapping[str, Any]) -> None:
    """Serve until a signal; raises an error if indexing fails."""
    loaded = load(common.location, flags=flags)
    check_payments(loaded.settings)
    supply_missing_keys(loaded, interactive=common.interactive)
    tls = _tls(loaded)
    token_source = choose_token_source(loaded, os.environ, chosen_by_flag=flags.get("security.auth.mode") is not None)
    prepare_state(loaded)
    authenticator = create_authenticator(token_source)
    if readable_by_others(token_source):
        say(f"warning: {token_source.place} is readable by other users; run: chmod 600 {token_source.place}")
    listening = listen(*loaded.listen_address())
    loaded.report_destinations(quiet=common.quiet)
    write_snapshot(loaded, token_source)
    report = choose_report(as_json=common.as_json, quiet=common.quiet)
    events = Events()
    # If indexing fails, the server shuts down as with Ctrl-C: calls finish, and the state is saved.
    feed = EventFeed(events, report, paused=True, on_failure=lambda: signal.raise_signal(signal.SIGINT))
    path = loaded.settings.server.mcp_path

    def announce(address: str) -> None:
        connection = ConnectionInfo.to(address, path, token_source)
        connection.write(loaded.state_dir)
        report.connected(connection, _server_details(loaded, token_source, listening.getsockname()))
        feed.begin()
        if not common.as_json and not common.quiet and sys.stderr.isatty():
            say("Stop with Ctrl-C; the next start resumes indexing.")

    # A terminal shows only warnings.
    log_level = "warning" if common.quiet or sys.stderr.isatty() else None
    settings = loaded.core_settings(common.host.settings_type, token_source.auth_setting, log_level=log_level)
    try:
        common.host.serve_http(
            settings, announce, HttpOptions(authenticator, listening, Endpoint(IDENTITY, path), tls, events)
        )
    finally:
        report.close()
        listening.close()
    if feed.failure is not None:
        raise indexing_error(feed.failure)


def _tls(loaded: LoadedSettings) -> ssl.SSLContext | None:
    tls = loaded.settings.server.tls
    if not tls.enabled and not tls.cert_file and not tls.key_file:
        return None
    if not tls.cert_file or not tls.key_file:
        raise TlsConfigInvalid(
            "a certificate requires a key, and a key a certificate",
            hint="set both --tls-cert and --tls-key, or neither",
        )
    if not tls.enabled:
        return None
    return tls_context(loaded.resolve_path(tls.cert_file), loaded.resolve_path(tls.key_file))


def _server_details(loaded: LoadedSettings, token_source: TokenSource, bound: tuple[Any, ...]) -> dict[str, Any]:
    server = loaded.settings.server
    return {
        "host": bound[0],
        "port": bound[1],
        "mcp_path": server.mcp_path,
        "protocol_version": server.protocol_version,
        "tls": server.tls.enabled,
        "public": server.public,
        "auth": token_source.kind,
        "root": str(loaded.root),
        "state_dir": str(loaded.state_dir),
    }
