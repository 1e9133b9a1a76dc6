"""From flags, environment and file to a directory with its settings, and on to the server's and the corpus's."""

from __future__ import annotations

import ipaddress
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast
from urllib.parse import urlsplit

from armarium.capabilities.corpus.commands.exit_codes import IngestionFailed
from armarium.capabilities.corpus.commands.provider_keys import Keys, WrittenKey, substituted, take_keys
from armarium.capabilities.corpus.commands.secret_store import KeychainEntry, SecretSources
from armarium.capabilities.corpus.commands.settings import (
    AUTH_TOKEN_VARIABLE,
    CORPUS_SECTIONS,
    Dir2McpSettings,
    parse_listen,
)
from armarium.capabilities.corpus.errors import StoreCorrupt
from armarium.capabilities.corpus.index.state import prepare_directory, root_directory, state_directory
from armarium.capabilities.corpus.settings import CorpusSettings
from armarium.foundation.errors import ConfigError
from armarium.foundation.files.state_files import replace_file
from armarium.foundation.settings import CoreSettings
from armarium.foundation.settings_loader import checked, overridden, read_yaml

CONFIG_FILE = ".dir2mcp.yaml"
PREFIX = "DIR2MCP_"


@dataclass(frozen=True, slots=True)
class Where:
    """What the global flags say about places."""

    directory: Path = Path()
    config: Path | None = None
    state_dir: Path | None = None

    def config_file(self) -> Path | None:
        """The file of settings: the one named, the one here, the one in the directory, or none."""
        if self.config is not None:
            return self.config
        candidates = (Path(CONFIG_FILE), self.directory.expanduser() / CONFIG_FILE)
        # Not `Path.is_file`, which raises in a directory that may be listed and not entered.
        return next((file for file in candidates if os.path.isfile(file)), None)

    def places(self) -> tuple[Path, Path]:
        """The directory, which must be one that can be listed, and where its state is kept."""
        root = root_directory(str(self.directory))
        return root, state_directory(root, str(self.state_dir) if self.state_dir else None)

    def new_config_file(self) -> Path:
        """Where the settings are, or will be."""
        return self.config_file() or self.directory.expanduser() / CONFIG_FILE


@dataclass(frozen=True, slots=True)
class Loaded:
    """A directory with its settings."""

    settings: Dir2McpSettings
    root: Path
    state_dir: Path
    config_file: Path | None
    sources: SecretSources
    keys: Keys

    def below_root(self, path: str) -> Path:
        """A path of the file of settings, which is relative to the directory."""
        return self.root / Path(path).expanduser()

    def corpus_settings(self) -> CorpusSettings:
        """The corpus's section, keys included."""
        complete = self.keys.put_into(self.settings)
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

    def core_settings(
        self, settings_type: type[CoreSettings], auth: str, *, log_level: str | None = None
    ) -> CoreSettings:
        """The settings of the server; `log_level` is the default for this command."""
        server, security = self.settings.server, self.settings.security
        host, port = self.listen_address()
        telemetry = self.settings.telemetry
        if log_level is not None and "log_level" not in telemetry.model_fields_set:
            telemetry = telemetry.model_copy(update={"log_level": log_level})
        return settings_type.model_validate(
            {
                "state_dir": str(self.state_dir),
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

    def listen_address(self) -> tuple[str, int]:
        """Host and port; a public server listens on every address."""
        host, port = parse_listen(self.settings.server.listen)
        return ("0.0.0.0" if self.settings.server.public else host), port  # noqa: S104 what public means


def load(where: Where, environ: Mapping[str, str] | None = None, flags: Mapping[str, Any] | None = None) -> Loaded:
    """Read everything there is to read; a directory that cannot be listed, or a wrong setting, raises."""
    environ = os.environ if environ is None else environ
    root, state_dir = where.places()
    file = where.config_file()
    settings, written = _read_settings(file, environ, flags or {})
    sources = SecretSources(
        environ,
        root / Path(settings.secrets.file.path).expanduser(),
        provider=settings.secrets.provider,
        entry=KeychainEntry(settings.secrets.keychain.service, settings.secrets.keychain.account),
    )
    return Loaded(settings, root, state_dir, file, sources, Keys(settings, written, sources))


def check_settings(where: Where) -> None:
    """Raise what a wrong setting would raise at the next start; no key is looked for."""
    _read_settings(where.config_file(), os.environ, {})


def _read_settings(
    file: Path | None, environ: Mapping[str, str], flags: Mapping[str, Any]
) -> tuple[Dir2McpSettings, dict[str, WrittenKey]]:
    """The settings without keys, and what was said about those."""
    values = read_yaml(file) if file else {}
    not_settings = {AUTH_TOKEN_VARIABLE, _token_variable(values)}
    values = overridden(Dir2McpSettings, values, environ, flags, prefix=PREFIX, not_settings=not_settings)
    written = take_keys(values, environ)
    source = str(file) if file else "the settings"
    return checked(Dir2McpSettings, substituted(values, environ), source=source), written


def _token_variable(values: Mapping[str, Any]) -> str:
    """The variable that a file names for the token; it may begin like a setting's."""
    found: Any = values
    for step in ("security", "auth", "token_env"):
        found = cast(dict[str, Any], found).get(step) if isinstance(found, dict) else None
    return found if isinstance(found, str) else AUTH_TOKEN_VARIABLE


def prepare_state(loaded: Loaded) -> None:
    """Make sure that state can be written, before anything else is begun."""
    try:
        prepare_directory(loaded.state_dir)
        probe = loaded.state_dir / ".writable"
        replace_file(probe, b"")
        probe.unlink()
    except (OSError, StoreCorrupt) as error:
        reason = error.strerror if isinstance(error, OSError) else error.message
        raise IngestionFailed(
            f"cannot write the state in {loaded.state_dir}: {reason}", hint="choose another directory with --state-dir"
        ) from error


def check_payments(settings: Dir2McpSettings) -> None:
    """Payments can be described, and not yet switched on."""
    if settings.x402.enabled or settings.x402.mode != "off":
        raise ConfigError("payments (x402) are not available in this version", hint="leave --x402 off")


def _with_any_port(origin: str) -> str:
    """A page on this machine may come from any port, as the contract's defaults want; any other origin is itself."""
    try:
        parts = urlsplit(origin)
        if parts.port is None and parts.hostname is not None and is_loopback(parts.hostname):
            return f"{origin.rstrip('/')}:*"
    except ValueError:
        pass
    return origin


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach the address."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
