"""`dir2mcp up`: everything is checked first, then the server answers, then the index grows behind it."""

from __future__ import annotations

import os
import signal
import ssl
import sys
from collections.abc import Mapping
from typing import Any

from armarium.assembly import OneEndpoint
from armarium.foundation.errors import TlsConfigInvalid
from armarium.foundation.events import Events
from armarium.surfaces.cli.dir2mcp import VERSION
from armarium.surfaces.cli.dir2mcp.access import Access, choose_access, open_door, readable_by_others
from armarium.surfaces.cli.dir2mcp.connection import Connection
from armarium.surfaces.cli.dir2mcp.ending import cannot_index
from armarium.surfaces.cli.dir2mcp.loading import Loaded, Where, check_payments, load, prepare_state
from armarium.surfaces.cli.dir2mcp.manner import Manner
from armarium.surfaces.cli.dir2mcp.reports import choose_report, tell_connection
from armarium.surfaces.cli.dir2mcp.snapshot import write_snapshot
from armarium.surfaces.cli.dir2mcp.wizard import supply_missing_keys
from armarium.surfaces.cli.indexing_progress.feed import Feed
from armarium.surfaces.cli.output import say
from armarium.surfaces.cli.running import run_http
from armarium.surfaces.mcp.http_server import listen, tls_context
from armarium.surfaces.mcp.server import ServerIdentity

IDENTITY = ServerIdentity(
    name="dir2mcp",
    title="dir2mcp: Directory RAG MCP Server",
    version=VERSION,
    instructions="Use tools/list then tools/call. Results include citations.",
)


def up(where: Where, flags: Mapping[str, Any], manner: Manner) -> None:
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
        run_http(
            loaded.core_settings(access.auth_setting, log_level=manner.log_level),
            announce,
            authenticator=authenticator,
            listening=listening,
            only=OneEndpoint(IDENTITY, path),
            tls=tls,
            events=events,
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
