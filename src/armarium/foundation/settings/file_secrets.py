"""Secrets that settings refer to by file, `${file:/run/secrets/dsn}`: read at the start, and again after a change."""

from __future__ import annotations

import logging
import os
import re
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

from pydantic import BaseModel, SecretStr

from armarium.foundation.errors import ConfigError
from armarium.foundation.files.state_files import file_version, open_regular

_log = logging.getLogger(__name__)

_REFERENCE = re.compile(r"\$\{file:(.*)\}")
_MAX_BYTES = 64 * 1024
_OTHERS_MAY_WRITE = stat.S_IWGRP | stat.S_IWOTH


class FileSecret(SecretStr):
    """The secret in a file. A changed file applies from the next use on. If it cannot be used, the problem is logged
    and the previous value stays."""

    min_length = 1
    previous: str | None = None
    """The value before the last change, for what was encrypted with it."""

    def __init__(self, setting: str, path: Path, read: Callable[[Path], str] | None = None) -> None:
        self._setting = setting
        self.path = path
        self._read = read or _read_secret
        # Noted before reading: if the file changes in between, the next use reads it again.
        self._read_at = file_version(self.path)
        try:
            super().__init__(self._read(path))
        except ConfigError as error:
            raise ConfigError(f"`{setting}`: {error.message}", hint=error.hint) from None

    def get_secret_value(self) -> str:
        if (state := file_version(self.path)) != self._read_at:
            self._read_at = state
            try:
                self._apply(self._read(self.path))
            except ConfigError as error:
                facts = {"setting": self._setting, "reason": error.message}
                _log.error("a changed secret cannot be used; the previous one stays", extra=facts)
        return self._secret_value

    def _apply(self, value: str) -> None:
        if len(value) < self.min_length:
            raise ConfigError(f"the secret is shorter than {self.min_length} characters")
        if value != self._secret_value:
            self.previous, self._secret_value = self._secret_value, value
            _log.info("a secret has changed; the new one applies", extra={"setting": self._setting})

    def _display(self) -> str:
        return f"${{file:{self.path}}}"


def read_references(section: Any, name: str = "", seen: set[int] | None = None) -> None:
    """Replace each `${file:PATH}` in the values of a settings file by the secret. Only secret settings accept one."""
    seen = set[int]() if seen is None else seen
    if id(section) in seen:
        # Aliases in YAML can stand for any number of values, or for themselves.
        return
    seen.add(id(section))
    inner: list[tuple[Any, Any]] = []
    if isinstance(section, dict):
        inner = list(cast(dict[Any, Any], section).items())
    elif isinstance(section, list):
        inner = list(enumerate(cast(list[Any], section)))
    for key, value in inner:
        setting = f"{name}.{key}" if name else str(key)
        if isinstance(value, dict | list):
            read_references(value, setting, seen)
        elif path := referenced_file(value):
            section[key] = FileSecret(setting, path)


def secret_files(settings: object) -> Iterator[Path]:
    """The files that the settings refer to. No capability may show them."""
    if isinstance(settings, FileSecret):
        yield settings.path
    elif isinstance(settings, BaseModel):
        for name in type(settings).model_fields:
            yield from secret_files(getattr(settings, name))
    elif isinstance(settings, dict):
        for value in cast(dict[Any, Any], settings).values():
            yield from secret_files(value)


def referenced_file(value: object) -> Path | None:
    """The file of `${file:PATH}`; None for any other value."""
    found = _REFERENCE.fullmatch(value.strip()) if isinstance(value, str) else None
    return Path(found[1]).expanduser() if found else None


def revealed(secret: SecretStr | str | None) -> str | None:
    """The text of a secret as it is now; None if it is empty. Called where the secret is used, never earlier."""
    return (secret.get_secret_value() if isinstance(secret, SecretStr) else secret) or None


def written(secret: SecretStr) -> str | None:
    """A secret in printed settings: its file; None if it was given as text."""
    return str(secret) if isinstance(secret, FileSecret) else None


def require_length(secret: SecretStr, length: int, hint: str) -> SecretStr:
    """Raise `ValueError` if the secret is too short, and refuse to change it to a shorter one."""
    if len(secret.get_secret_value()) < length:
        raise ValueError(f"needs at least {length} characters; {hint}")
    if isinstance(secret, FileSecret):
        secret.min_length = length
    return secret


def _read_secret(path: Path) -> str:
    if not path.is_absolute():
        raise ConfigError(f"the secret file {path} has no absolute path", hint="write ${file:/run/secrets/NAME}")
    try:
        with open_regular(path) as file:
            if os.fstat(file.fileno()).st_mode & _OTHERS_MAY_WRITE:
                raise ConfigError(f"other users can write the secret file {path}", hint=f"chmod go-w {path}")
            content = file.read(_MAX_BYTES + 1)
    except OSError as error:
        reason = error.strerror or "it is not a regular file"
        raise ConfigError(f"cannot read the secret file {path}: {reason}", hint="create it for this user") from None
    if len(content) > _MAX_BYTES:
        raise ConfigError(f"the secret file {path} is larger than {_MAX_BYTES} bytes")
    try:
        secret = content.decode().rstrip("\r\n")
    except UnicodeDecodeError:
        # The cause would quote the content.
        raise ConfigError(f"the secret file {path} is not UTF-8 text") from None
    if not secret:
        raise ConfigError(f"the secret file {path} is empty", hint="write the secret into it")
    return secret
