"""Loads the settings from flags, environment and file, and derives those of the server and the corpus."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from armarium.capabilities.corpus.commands.provider_keys import ProviderKeys, expand_variables, extract_keys, value_at
from armarium.capabilities.corpus.commands.secret_store import Secret, SecretStore
from armarium.capabilities.corpus.commands.settings import (
    AUTH_TOKEN_VARIABLE,
    CORPUS_SECTIONS,
    Dir2McpSettings,
    parse_listen,
)
from armarium.capabilities.corpus.commands.trusted_files import (
    CONFIG_FILE,
    is_within,
    keys_to_confirm,
    read_settings_file,
    settings_to_confirm,
)
from armarium.capabilities.corpus.errors import ForeignState, IngestionFailed, StoreCorrupt
from armarium.capabilities.corpus.index.ownership import prepare_directory
from armarium.capabilities.corpus.index.state import root_directory
from armarium.capabilities.corpus.settings import CorpusSettings, state_directory
from armarium.command_line.output import destinations_line, say
from armarium.command_line.trust import require_trust
from armarium.foundation.errors import ConfigError
from armarium.foundation.files.state_files import replace_file
from armarium.foundation.security.network import is_loopback, restrict_network
from armarium.foundation.security.trust import Confirmable
from armarium.foundation.settings.loader import checked, overridden
from armarium.foundation.settings.model import CoreSettings

PREFIX = "DIR2MCP_"


@dataclass(frozen=True, slots=True)
class Location:
    """The paths that the global flags select."""

    directory: Path = Path()
    config: Path | None = None
    state_dir: Path | None = None
    trust: bool = False
    """Whether the command line confirms the sensitive settings of the directory."""
    interactive: bool = False
    """Whether there is a terminal to ask at."""

    def require_trust(self, found: Confirmable) -> None:
        """Raise unless the user has confirmed the file."""
        require_trust(found, granted=self.trust, ask=self.interactive)

    def config_file(self) -> Path | None:
        """The settings file of the flag, of the working directory or of the served directory, if there is one."""
        if self.config is not None:
            return self.config
        candidates = (Path(CONFIG_FILE), self.directory.expanduser() / CONFIG_FILE)
        # `Path.is_file` raises in a directory that can be listed but not entered.
        return next((file for file in candidates if os.path.isfile(file)), None)

    def resolve(self) -> tuple[Path, Path]:
        """The directory, which must be listable, and its state directory."""
        root = root_directory(str(self.directory))
        return root, state_directory(root, str(self.state_dir) if self.state_dir else None)

    def config_file_to_write(self) -> Path:
        """The existing settings file, or the path for a new one."""
        return self.config_file() or self.directory.expanduser() / CONFIG_FILE


@dataclass(frozen=True, slots=True)
class LoadedSettings:
    """The settings of a directory, with its paths and keys."""

    settings: Dir2McpSettings
    root: Path
    state_dir: Path
    config_file: Path | None
    secrets: SecretStore
    keys: ProviderKeys

    def resolve_path(self, path: str) -> Path:
        """Resolve a path of the settings file, relative to the directory."""
        return self.root / Path(path).expanduser()

    def corpus_settings(self) -> CorpusSettings:
        """The settings of the corpus, including keys."""
        complete = self.keys.apply_to(self.settings)
        return CorpusSettings.model_validate(
            {name: getattr(complete, name) for name in CORPUS_SECTIONS}
            | {
                "root": str(self.root),
                "state_dir": str(self.state_dir),
                "when_locked": "fail",
                "path_excludes": complete.security.path_excludes,
                "secret_patterns": complete.security.secret_patterns,
            }
        )

    @property
    def own_files(self) -> list[Path]:
        """The files that configure the server, or hold its secrets. They may be anywhere in the directory."""
        tls, token_file = self.settings.server.tls, self.settings.security.auth.token_file
        named = [self.resolve_path(path) for path in (tls.cert_file, tls.key_file, token_file) if path]
        return [*named, self.secrets.file, *([self.config_file] if self.config_file else [])]

    def report_destinations(self, *, quiet: bool) -> None:
        """Name every address to which text is sent, in one line. If there is none, `quiet` omits the line."""
        from armarium.capabilities.corpus.lifespan import text_destinations

        endpoint = self.settings.telemetry.otlp_endpoint
        found = text_destinations(self.corpus_settings()) + ([(endpoint, "traces")] if endpoint else [])
        if found or not quiet:
            say(destinations_line(found))

    def core_settings(
        self, settings_type: type[CoreSettings], auth: str, *, log_level: str | None = None
    ) -> CoreSettings:
        """The settings of the server. `log_level` is the default of the command."""
        server, security = self.settings.server, self.settings.security
        host, port = self.listen_address()
        telemetry = self.settings.telemetry
        if log_level is not None and "log_level" not in telemetry.model_fields_set:
            telemetry = telemetry.model_copy(update={"log_level": log_level})
        settings = settings_type.model_validate(
            {
                "state_dir": str(self.state_dir),
                "network": self.settings.network,
                "server": {
                    "host": host,
                    "port": port,
                    "allowed_origins": tuple(_with_any_port(origin) for origin in security.allowed_origins),
                },
                "security": {"auth": auth},
                "sessions": {
                    "inactivity_timeout": server.session_inactivity_timeout,
                    "max_lifetime": server.session_max_lifetime,
                },
                "limits": self.settings.limits,
                "audit": self.settings.audit,
                "telemetry": telemetry,
                "corpus": self.corpus_settings(),
            }
        )
        return settings.read_from(*self.own_files)

    def listen_address(self) -> tuple[str, int]:
        """Host and port. A public server listens on all addresses."""
        host, port = parse_listen(self.settings.server.listen)
        return ("0.0.0.0" if self.settings.server.public else host), port  # noqa: S104 what public means


def load(
    location: Location, environ: Mapping[str, str] | None = None, flags: Mapping[str, Any] | None = None
) -> LoadedSettings:
    """Load the settings and find the keys; raises if the directory cannot be listed or a setting is invalid."""
    environ = os.environ if environ is None else environ
    root, state_dir = location.resolve()
    file = location.config_file()
    settings, configured_keys = _read_settings(location, file, environ, flags or {})
    restrict_network(settings.network)
    secrets = SecretStore(environ, root / Path(settings.secrets.file.path).expanduser(), settings.secrets)
    if settings.secrets.provider in ("auto", "file") and is_within(secrets.file, root):
        location.require_trust(keys_to_confirm(secrets.file, root))
    return LoadedSettings(settings, root, state_dir, file, secrets, ProviderKeys(settings, configured_keys, secrets))


def check_settings(location: Location) -> None:
    """Raise `ConfigError` if a setting is invalid, without searching for keys."""
    _read_settings(location, location.config_file(), os.environ, {})


def _read_settings(
    location: Location, file: Path | None, environ: Mapping[str, str], flags: Mapping[str, Any]
) -> tuple[Dir2McpSettings, dict[str, Secret | str]]:
    """The settings without keys, and the configured keys."""
    values = read_settings_file(file, named=location.config is not None) if file else {}
    found = settings_to_confirm(file, values) if file is not None and location.config is None else None
    # A mistake is reported first, unless the message about it could quote a variable.
    if found is not None and found.has_references:
        location.require_trust(found)
    # The variable of the token may start with the prefix of settings.
    token_variable = value_at(values, ("security", "auth", "token_env"))
    not_settings = {AUTH_TOKEN_VARIABLE, str(token_variable)}
    values = overridden(Dir2McpSettings, values, environ, flags, prefix=PREFIX, not_settings=not_settings)
    configured_keys = extract_keys(values, environ)
    source = str(file) if file else "the settings"
    settings = checked(Dir2McpSettings, expand_variables(values, environ), source=source)
    if found is not None:
        location.require_trust(found)
    return settings, configured_keys


def prepare_state(loaded: LoadedSettings) -> None:
    """Create the state directory; raises `IngestionFailed` if it is not writable."""
    try:
        prepare_directory(loaded.state_dir, loaded.root)
        probe = loaded.state_dir / ".writable"
        replace_file(probe, b"")
        probe.unlink()
    except ForeignState:
        raise
    except (OSError, StoreCorrupt) as error:
        reason = error.strerror if isinstance(error, OSError) else error.message
        raise IngestionFailed(
            f"cannot write the state in {loaded.state_dir}: {reason}", hint="choose another directory with --state-dir"
        ) from error


def check_payments(settings: Dir2McpSettings) -> None:
    """Raise `ConfigError` if payments are enabled, because they are not implemented."""
    if settings.x402.enabled or settings.x402.mode != "off":
        raise ConfigError("payments (x402) are not available in this version", hint="set --x402 off")


def _with_any_port(origin: str) -> str:
    """Allow all ports for a loopback origin without a port, as the contract's defaults expect."""
    try:
        parts = urlsplit(origin)
        if parts.port is None and parts.hostname is not None and is_loopback(parts.hostname):
            return f"{origin.rstrip('/')}:*"
    except ValueError:
        pass
    return origin
