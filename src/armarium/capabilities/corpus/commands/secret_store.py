"""Finds keys in the environment, the keychain, a secret file and the session, and stores new ones."""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from io import TextIOWrapper
from pathlib import Path
from typing import Literal

from armarium.capabilities.corpus.commands.settings import SecretSettings
from armarium.foundation.errors import ConfigError
from armarium.foundation.files.state_files import make_private_directory, open_regular, replace_file

SecretSource = Literal["env", "keychain", "file", "session"]

_KEYCHAIN_HINT = "unlock it, pip install 'armarium[keychain]', or set secrets.provider to auto, file, env or session"


@dataclass(frozen=True, slots=True)
class Secret:
    """A key and its source."""

    name: str
    value: str = field(repr=False)
    source: SecretSource
    place: str
    """The variable, the keychain service or the file; `terminal` for a key entered by the user."""


@dataclass(frozen=True, slots=True, repr=False)
class SecretStore:
    """Finds keys in the order that the contract defines: environment, keychain, file, session."""

    environ: Mapping[str, str]
    file: Path
    settings: SecretSettings
    _session: dict[str, str] = field(default_factory=dict[str, str])

    def find(self, name: str, *, ask_keychain: bool = False) -> Secret | None:
        """The key with the name. The keychain may prompt, so it is only used if configured or for a required key.
        Raises `ConfigError` if a required key can only be in a keychain, and there is none."""
        if value := self.environ.get(name):
            return Secret(name, value, "env", name)
        provider, keychain = self.settings.provider, self.settings.keychain
        if provider == "keychain" or (provider == "auto" and ask_keychain):
            required = provider == "keychain" and ask_keychain
            if value := _read_keychain(keychain.service, f"{keychain.account}:{name}", required=required):
                return Secret(name, value, "keychain", keychain.service)
        if provider in ("auto", "file") and (value := read_secret_file(self.file, self._mode).get(name)):
            return Secret(name, value, "file", str(self.file))
        if value := self._session.get(name):
            return Secret(name, value, "session", "terminal")
        return None

    def store(self, name: str, value: str, source: SecretSource) -> Secret:
        """Store the key for the next start. With `env` and `session` it is kept only for this process."""
        if source == "keychain":
            keychain = self.settings.keychain
            _write_keychain(keychain.service, f"{keychain.account}:{name}", value)
            return Secret(name, value, "keychain", keychain.service)
        if source == "file":
            write_secret_file(self.file, name, value, self._mode)
            return Secret(name, value, "file", str(self.file))
        self._session[name] = value
        return Secret(name, value, "session", "terminal")

    @property
    def _mode(self) -> int:
        return int(self.settings.file.mode, 8)


def keychain_available() -> bool:
    try:
        import keyring
        from keyring.backends import fail, null
    except ImportError:
        return False
    return not isinstance(keyring.get_keyring(), fail.Keyring | null.Keyring)


def _require_keychain() -> None:
    if not keychain_available():
        raise ConfigError("no usable keychain was found", hint=_KEYCHAIN_HINT)


def _read_keychain(service: str, user: str, *, required: bool) -> str | None:
    """The key; None if there is no keychain, or it is locked, unless it is required."""
    if required:
        _require_keychain()
    with suppress(ImportError):
        import keyring
        from keyring.errors import KeyringError

        try:
            return keyring.get_password(service, user)
        except KeyringError as error:
            if required:
                raise ConfigError("the keychain cannot be read", hint=_KEYCHAIN_HINT) from error
    return None


def _write_keychain(service: str, user: str, value: str) -> None:
    _require_keychain()
    import keyring
    from keyring.errors import KeyringError

    try:
        keyring.set_password(service, user, value)
    except KeyringError as error:
        raise ConfigError("the keychain did not store the key", hint=_KEYCHAIN_HINT) from error


def read_secret_file(file: Path, mode: int = 0o600) -> dict[str, str]:
    """The `NAME=value` lines of a secret file; empty if it does not exist. Raises if it is more open than the mode."""
    try:
        with TextIOWrapper(open_regular(file), encoding="utf-8") as lines:
            found = stat.S_IMODE(os.fstat(lines.fileno()).st_mode)
            if found & ~mode:
                raise ConfigError(
                    f"{file} has the permissions {found:04o}, but secrets.file.mode is {mode:04o}",
                    hint=f"chmod {mode:o} {file}",
                )
            return dict(pair for line in lines if (pair := _parse_assignment(line)))
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except OSError as error:
        raise ConfigError(f"cannot read {file}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(
            f"{file} is not a text file", hint="it must contain lines such as MISTRAL_API_KEY=…"
        ) from error


def write_secret_file(file: Path, name: str, value: str, mode: int = 0o600) -> None:
    """Set a key in a file with this mode, and preserve the other lines."""
    try:
        lines = file.read_text(encoding="utf-8").splitlines() if file.exists() else []
        kept = [line for line in lines if (_parse_assignment(line) or ("",))[0] != name]
        make_private_directory(file.parent)
        replace_file(file, "".join(f"{line}\n" for line in [*kept, f"{name}={value}"]).encode(), mode=mode)
    except OSError as error:
        raise ConfigError(f"cannot write {file}: {error.strerror}") from error


def _parse_assignment(line: str) -> tuple[str, str] | None:
    name, equals, value = line.strip().removeprefix("export ").partition("=")
    if not equals or name.startswith("#"):
        return None
    bare = value.strip()
    if len(bare) >= 2 and bare[0] == bare[-1] and bare[0] in "\"'":
        bare = bare[1:-1]
    return name.strip(), bare
