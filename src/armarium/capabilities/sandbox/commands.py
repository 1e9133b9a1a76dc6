"""The `mcp-filesystem` program: serves only the sandbox, with the settings file and behaviour of its contract."""

from __future__ import annotations

import argparse
import logging
import os
import sys
from pathlib import Path
from typing import NoReturn

from pydantic import Field

from armarium.capabilities.sandbox.settings import RootSettings, SandboxSettings
from armarium.command_line.host import CommandHost, HttpOptions
from armarium.command_line.output import FAILED, MISUSED, say
from armarium.command_line.run import ErrorReporter, run_to_end
from armarium.foundation.errors import ArmariumError, ConfigError, Internal
from armarium.foundation.files import landlock
from armarium.foundation.files.state_files import make_private_directory
from armarium.foundation.security.authentication import open_authenticator, token_path
from armarium.foundation.security.identity import Authenticator
from armarium.foundation.security.network import is_loopback
from armarium.foundation.settings.loader import checked, read_yaml
from armarium.foundation.settings.model import (
    AuditSettings,
    CoreSettings,
    LimitSettings,
    SecuritySettings,
    SessionSettings,
    TelemetrySettings,
)
from armarium.foundation.sockets import listen

_log = logging.getLogger("armarium")


class FilesystemRoot(RootSettings):
    """A directory that agents can use, restricted only as its settings say."""

    deny_write: bool | tuple[str, ...] = False
    """Whether to deny agents to write what programs execute or what configures them. `true` or a list of further
    patterns does."""


class FilesystemSettings(SandboxSettings):
    """The flat settings file of the contract. The defaults of additional settings keep the contract's behaviour."""

    roots: tuple[FilesystemRoot, ...]  # pyright: ignore[reportIncompatibleVariableOverride] frozen: never assigned
    """The directories that agents can use. At least one is required."""
    hide_credentials: bool | tuple[str, ...] = False
    """Whether to hide the content of files whose name says that they hold credentials. `true` or a list of further
    patterns does."""

    host: str = "0.0.0.0"  # noqa: S104 the contract's default
    """Address to listen on."""
    port: int = Field(default=8091, ge=0, le=65535)
    """Port to listen on."""
    security: SecuritySettings | None = None
    """Authentication of callers; without it, anyone who can reach the port may call."""
    allowed_origins: tuple[str, ...] = ()
    """Browser origins that may call, besides the server's own loopback addresses."""
    state_dir: str | None = None
    """The directory of the token and the audit log."""
    audit: AuditSettings = AuditSettings(enabled=False)
    """The audit log; disabled by default."""
    telemetry: TelemetrySettings = TelemetrySettings()
    """Logs and traces."""
    sessions: SessionSettings = SessionSettings()
    """The number and the duration of sessions."""
    limits: LimitSettings = LimitSettings()
    """Limits of a call, and of the concurrent calls of one caller."""


def argument_parser() -> argparse.ArgumentParser:
    """The command line, also for the reference pages."""
    parser = argparse.ArgumentParser(
        prog="mcp-filesystem", description="Serve named directories, and nothing outside them, to agents over MCP."
    )
    parser.add_argument("--config", required=True, type=Path, metavar="FILE", help="YAML file with host, port, roots")
    parser.add_argument("--port", type=int, metavar="N", help="port to listen on, instead of the file's")
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
    settings = _as_core(host.settings_type, flat).read_from(config)
    callers = open_authenticator(settings) if flat.security else Authenticator((), open_to_anyone=True)
    # Listen before the process is confined: resolving a host name reads files outside the roots.
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
    """Confine the whole process to the roots, because it serves nothing else."""
    if flat.landlock == "off" or not landlock.supported_abi():
        return
    writable = [os.path.expanduser(root.path) for root in flat.roots if not root.read_only]
    if flat.audit.enabled:
        try:
            make_private_directory(settings.audit_file().parent)
        except OSError as error:
            raise ConfigError(f"cannot create the directory of the audit log: {error.strerror}") from error
        writable.append(str(settings.audit_file().parent))
    readable = [os.path.expanduser(root.path) for root in flat.roots if root.read_only]
    landlock.restrict_current_thread(writable, [*readable, *landlock.python_read_paths()])


def _as_core(settings_type: type[CoreSettings], flat: FilesystemSettings) -> CoreSettings:
    security = flat.security or SecuritySettings()
    if "hide_credentials" not in security.model_fields_set:
        security = security.model_copy(update={"hide_credentials": flat.hide_credentials})
    sandbox = {name: getattr(flat, name) for name in SandboxSettings.model_fields}
    sections = {name: getattr(flat, name) for name in ("audit", "telemetry", "sessions", "limits")}
    return settings_type.model_validate(
        {
            "server": {"host": flat.host, "port": flat.port, "allowed_origins": flat.allowed_origins},
            "security": security,
            **sections,
            **({"state_dir": flat.state_dir} if flat.state_dir else {}),
            "sandbox": SandboxSettings.model_construct(**sandbox),
            # The contract names all tools of this program.
            "pipe": {"enabled": False},
        }
    )
