"""`dir2mcp up`: everything is checked first, then the server answers, then the index grows behind it."""

from __future__ import annotations

import os
import signal
import ssl
import sys
from collections.abc import Mapping
from typing import Any

from armarium.capabilities.corpus.commands import VERSION
from armarium.capabilities.corpus.commands.client_config import Connection
from armarium.capabilities.corpus.commands.exit_codes import cannot_index
from armarium.capabilities.corpus.commands.output_mode import Manner
from armarium.capabilities.corpus.commands.progress.event_feed import Feed
from armarium.capabilities.corpus.commands.reports import choose_report, tell_connection
from armarium.capabilities.corpus.commands.server_token import Access, choose_access, open_door, readable_by_others
from armarium.capabilities.corpus.commands.settings_loader import Loaded, Where, check_payments, load, prepare_state
from armarium.capabilities.corpus.commands.snapshot import write_snapshot
from armarium.capabilities.corpus.commands.wizard import supply_missing_keys
from armarium.command_line.host import CommandHost, Endpoint, HttpOptions, ServerIdentity
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


def up(host: CommandHost, where: Where, flags: Mapping[str, Any], manner: Manner) -> None:
    """Serve until a signal; raises `IngestionFailed` when indexing could not go on."""
    loaded = load(where, flags=flags)
    check_payments(loaded.settings)
    supply_missing_keys(loaded, interactive=manner.interactive)
    tls = _tls(loaded)
    access = choose_access(loaded, os.environ, chosen_by_flag=flags.get("security.auth.mode") is not None)
    prepare_state(loaded)
    authenticator = open_door(access, os.environ)
    if readable_by_others(access):
        say(f"warning: {access.place} can be read by others; chmod 600 it")
    listening = listen(*loaded.listen_address())
    write_snapshot(loaded, access, os.environ.get(access.place) if access.source == "env" else None)
    report = choose_report(manner)
    events = Events()
    feed = Feed(events, report, waits=True, on_failure=_interrupt_ourselves)
    path = loaded.settings.server.mcp_path

    def announce(address: str) -> None:
        connection = Connection.to(address, path, access)
        connection.write(loaded.state_dir)
        tell_connection(report, connection, _facts(loaded, access, listening.getsockname()))
        feed.open()
        if not manner.as_json and not manner.quiet and sys.stderr.isatty():
            say("Stop with Ctrl-C; the next start goes on where this one ended.")

    try:
        host.serve_http(
            loaded.core_settings(host.settings_type, access.auth_setting, log_level=manner.log_level),
            announce,
            HttpOptions(authenticator, listening, Endpoint(IDENTITY, path), tls, events),
        )
    finally:
        report.close()
        listening.close()
    if feed.failure is not None:
        raise cannot_index(feed.failure)


def _interrupt_ourselves() -> None:
    """End as if somebody had pressed Ctrl-C: calls finish, state is saved."""
    signal.raise_signal(signal.SIGINT)


def _tls(loaded: Loaded) -> ssl.SSLContext | None:
    tls = loaded.settings.server.tls
    if not tls.enabled and not tls.cert_file and not tls.key_file:
        return None
    if not tls.cert_file or not tls.key_file:
        raise TlsConfigInvalid(
            "a certificate and its key belong together", hint="give both --tls-cert and --tls-key, or neither"
        )
    if not tls.enabled:
        return None
    return tls_context(loaded.below_root(tls.cert_file), loaded.below_root(tls.key_file))


def _facts(loaded: Loaded, access: Access, bound: tuple[Any, ...]) -> dict[str, Any]:
    server = loaded.settings.server
    return {
        "host": bound[0],
        "port": bound[1],
        "mcp_path": server.mcp_path,
        "protocol_version": server.protocol_version,
        "tls": server.tls.enabled,
        "public": server.public,
        "auth": access.source,
        "root": str(loaded.root),
        "state_dir": str(loaded.state_dir),
    }
