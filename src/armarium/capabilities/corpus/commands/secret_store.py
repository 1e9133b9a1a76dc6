"""Where keys come from: the environment, the keychain, a file of secrets, the person at the terminal; in that order."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from armarium.foundation.errors import ConfigError
from armarium.foundation.files.state_files import make_private_directory, replace_file

Source = Literal["env", "keychain", "file", "session"]
Provider = Literal["auto", "keychain", "file", "env", "session"]

_OTHERS = 0o077


@dataclass(frozen=True, slots=True)
class Secret:
    """A key, and where it was found."""

    name: str
    value: str = field(repr=False)
    source: Source
    place: str
    """The variable, the keychain entry or the file; for what a person typed, `terminal`."""


@dataclass(frozen=True, slots=True)
class KeychainEntry:
    """Under what name the operating system keeps our keys."""

    service: str = "dir2mcp"
    account: str = "default"

    def user(self, name: str) -> str:
        """The keychain's user name for one key."""
        return f"{self.account}:{name}"


class SecretSources:
    """The places a key may be in, asked in the order of the contract."""

    def __init__(
        self, environ: Mapping[str, str], file: Path, *, provider: Provider = "auto", entry: KeychainEntry | None = None
    ) -> None:
        self._environ = environ
        self._file = file
        self._provider = provider
        self._entry = entry or KeychainEntry()
        self._session: dict[str, str] = {}

    def find(self, name: str, *, ask_keychain: bool = False) -> Secret | None:
        """The key of that name. The keychain, which may want to be unlocked, is asked where the settings name it, or
        where the key cannot be done without."""
        if value := self._environ.get(name):
            return Secret(name, value, "env", name)
        if self._provider == "keychain" or (self._provider == "auto" and ask_keychain):
            value = _from_keychain(self._entry.service, self._entry.user(name))
            if value:
                return Secret(name, value, "keychain", self._entry.service)
        if self._provider in ("auto", "file") and (value := read_secret_file(self._file).get(name)):
            return Secret(name, value, "file", str(self._file))
        if value := self._session.get(name):
            return Secret(name, value, "session", "terminal")
        return None

    def keep(self, name: str, value: str, where: Source) -> Secret:
        """Put the key where the next start finds it; `env` and `session` last as long as this process."""
        if where == "keychain":
            _into_keychain(self._entry.service, self._entry.user(name), value)
            return Secret(name, value, "keychain", self._entry.service)
        if where == "file":
            write_secret_file(self._file, name, value)
            return Secret(name, value, "file", str(self._file))
        self._session[name] = value
        return Secret(name, value, "session", "terminal")


def keychain_available() -> bool:
    """Whether this machine has a keychain that we can use."""
    try:
        import keyring
        from keyring.backends import fail, null
    except ImportError:
        return False
    return not isinstance(keyring.get_keyring(), fail.Keyring | null.Keyring)


def _from_keychain(service: str, user: str) -> str | None:
    return _with_keychain(lambda keychain: keychain.get_password(service, user))


def _into_keychain(service: str, user: str, value: str) -> None:
    if not keychain_available():
        raise ConfigError(
            "there is no keychain here that can be used",
            hint="pip install 'armarium[keychain]', or keep keys in a file",
        )
    stored = _with_keychain(lambda keychain: (keychain.set_password(service, user, value), "stored")[1])
    if stored is None:
        raise ConfigError("the keychain refuses to keep the key", hint="unlock it, or keep keys in a file")


def _with_keychain(use: Callable[[Any], str | None]) -> str | None:
    """What the keychain says; nothing where there is none, or where it is locked."""
    try:
        import keyring
        from keyring.errors import KeyringError
    except ImportError:
        return None
    with suppress(KeyringError):
        return use(keyring)
    return None


def read_secret_file(file: Path) -> dict[str, str]:
    """The `NAME=value` lines of a file of secrets; none if there is no file. One that others can read is refused."""
    try:
        with file.open(encoding="utf-8") as lines:
            if os.fstat(lines.fileno()).st_mode & _OTHERS:
                raise ConfigError(f"{file} can be read by others", hint=f"chmod 600 {file}")
            return dict(pair for line in lines if (pair := _assignment(line)))
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except OSError as error:
        raise ConfigError(f"cannot read {file}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{file} is not text", hint="write lines such as MISTRAL_API_KEY=… into it") from error


def write_secret_file(file: Path, name: str, value: str) -> None:
    """Put one key into a file that its owner alone can read; what else is there stays."""
    try:
        kept = [line for line in _lines_of(file) if (_assignment(line) or ("",))[0] != name]
        make_private_directory(file.parent)
        replace_file(file, "".join(f"{line}\n" for line in [*kept, f"{name}={value}"]).encode())
    except OSError as error:
        raise ConfigError(f"cannot write {file}: {error.strerror}") from error


def _lines_of(file: Path) -> list[str]:
    try:
        return file.read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        return []


def _assignment(line: str) -> tuple[str, str] | None:
    name, equals, value = line.strip().removeprefix("export ").partition("=")
    if not equals or name.startswith("#"):
        return None
    bare = value.strip()
    if len(bare) >= 2 and bare[0] == bare[-1] and bare[0] in "\"'":
        bare = bare[1:-1]
    return name.strip(), bare
