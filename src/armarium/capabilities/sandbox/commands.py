"""The `mcp-filesystem` program: serves the sandbox alone, with the settings file and behaviour of its contract."""

from __future__ import annotations

import argparse
import logging
import os
import sys
from pathlib import Path
from typing import NoReturn

from pydantic import Field

from armarium.capabilities.sandbox.settings import SandboxSettings
from armarium.command_line.host import CommandHost, HttpOptions
from armarium.command_line.output import FAILED, MISUSED, say
from armarium.command_line.run import ErrorReporter, run_to_end
from armarium.foundation.authentication import is_loopback, open_authenticator, token_path
from armarium.foundation.errors import ArmariumError, ConfigError, Internal
from armarium.foundation.files import landlock
from armarium.foundation.files.state_files import make_private_directory
from armarium.foundation.identity import Authenticator
from armarium.foundation.settings import (
    AuditSettings,
    CoreSettings,
    LimitSettings,
    SecuritySettings,
    SessionSettings,
    TelemetrySettings,
)
from armarium.foundation.settings_loader import checked, read_yaml
from armarium.foundation.sockets import listen

_log = logging.getLogger("armarium")


class FilesystemSettings(SandboxSettings):
    """The flat file of the contract; what it does not name is ours, with defaults that change nothing."""

    host: str = "0.0.0.0"  # noqa: S104 the contract's default
    """Address to listen on."""
    port: int = Field(default=8091, ge=0, le=65535)
    """Port to listen on."""
    security: SecuritySettings | None = None
    """Who may call; without it anyone who reaches the port may."""
    allowed_origins: tuple[str, ...] = ()
    """Browser origins that may call, besides the server's own loopback addresses."""
    state_dir: str | None = None
    """Where the token and the audit trail live, if there are any."""
    audit: AuditSettings = AuditSettings(enabled=False)
    """The audit trail; off unless asked for."""
    telemetry: TelemetrySettings = TelemetrySettings()
    """Logs and traces."""
    sessions: SessionSettings = SessionSettings()
    """How many sessions there may be, and how long they last."""
    limits: LimitSettings = LimitSettings()
    """What a call may cost, and what one caller may have in flight."""


def argument_parser() -> argparse.ArgumentParser:
    """The command line, also for the reference pages."""
    parser = argparse.ArgumentParser(
        prog="mcp-filesystem", description="Serve named directories to agents over MCP, and nothing outside them."
    )
    parser.add_argument("--config", required=True, type=Path, metavar="FILE", help="YAML file with host, port, roots")
    parser.add_argument("--port", type=int, metavar="N", help="listen here instead of on the file's port")
    return parser


def main(host: CommandHost) -> NoReturn:
    """Start the server, or print in one line why it cannot start."""
    options = argument_parser().parse_args()
    sys.exit(run_to_end(lambda: _serve(host, options.config, options.port), ErrorReporter(_report)))


def _report(error: ArmariumError) -> int:
    say(f"mcp-filesystem: {error.message}")
    if error.hint:
        say(f"hint: {error.hint}")
    return FAILED if isinstance(error, Internal) else MISUSED


def _serve(host: CommandHost, config: Path, port: int | None) -> None:
    given = read_yaml(config)
    if port is not None:
        given["port"] = port
    flat = checked(FilesystemSettings, given, source=str(config))
    settings = _as_core(host.settings_type, flat)
    callers = open_authenticator(settings) if flat.security else Authenticator((), open_to_anyone=True)
    # Bound before the process is confined: a host name is looked up in files outside the roots.
    listening = listen(flat.host, flat.port)

    def announce(address: str) -> None:
        names = [root.name for root in flat.roots]
        _log.info("listening", extra={"address": address, "roots": names, "config": str(config)})
        if flat.security is not None and (token_file := token_path(settings)):
            _log.info("callers need the token", extra={"token_file": str(token_file)})
        if flat.security is None and not is_loopback(flat.host):
            _log.warning(
                "anyone who reaches this address may call; set security.auth in the config to change that",
                extra={"address": address},
            )

    _confine_process(flat, settings)
    host.serve_http(settings, announce, HttpOptions(callers, listening))


def _confine_process(flat: FilesystemSettings, settings: CoreSettings) -> None:
    """This process serves the roots and nothing else, so the kernel may hold all of it to that."""
    if flat.landlock == "off" or not landlock.supported_abi():
        return
    writable = [os.path.expanduser(root.path) for root in flat.roots if not root.read_only]
    if flat.audit.enabled:
        try:
            make_private_directory(settings.audit_file().parent)
        except OSError as error:
            raise ConfigError(f"cannot create the directory of the audit trail: {error.strerror}") from error
        writable.append(str(settings.audit_file().parent))
    readable = [os.path.expanduser(root.path) for root in flat.roots if root.read_only]
    landlock.restrict_current_thread(writable, [*readable, *landlock.python_read_paths()])


def _as_core(settings_type: type[CoreSettings], flat: FilesystemSettings) -> CoreSettings:
    sandbox = {name: getattr(flat, name) for name in SandboxSettings.model_fields}
    return settings_type.model_validate(
        {
            "server": {"host": flat.host, "port": flat.port, "allowed_origins": flat.allowed_origins},
            "security": flat.security or SecuritySettings(),
            "audit": flat.audit,
            "telemetry": flat.telemetry,
            "sessions": flat.sessions,
            "limits": flat.limits,
            **({"state_dir": flat.state_dir} if flat.state_dir else {}),
            "sandbox": SandboxSettings.model_construct(**sandbox),
        }
    )
