"""What in directories their user has confirmed: settings that send, spend, listen or execute, and state of others.

A directory may come from anywhere, so its files alone must not decide where text, keys and money go. Confirmations are
kept outside all directories, by path and by a digest of exactly the sensitive values: a change asks again.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Callable, Collection, Generator, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from armarium.foundation.errors import ConfigError
from armarium.foundation.files.state_files import (
    exclusive_lock,
    make_private_directory,
    open_regular,
    replace_file,
    user_state_directory,
)
from armarium.foundation.security.ownership import is_private_file

_MAX_VALUES = 20_000
_REFERENCE = re.compile(r"\$\{\w+\}")


class DirectoryNotTrusted(ConfigError, code="DIRECTORY_NOT_TRUSTED"):
    """A file in the directory has settings that its user has not confirmed."""


@dataclass(frozen=True, slots=True)
class Confirmable:
    """A file in a directory, with the values that apply only after its user has confirmed them."""

    path: Path
    values: Mapping[str, Any]
    directory: Path
    """The directory to confirm."""
    accept: Callable[[], None] = lambda: None
    """Takes the file over, if it is state that somebody else wrote."""

    @property
    def has_references(self) -> bool:
        """Whether a value refers to a variable."""
        return any(_refers(value) for value in self.values.values())


def sensitive_settings(
    values: Mapping[str, Any], defaults: Mapping[str, Any], harmless: Collection[str]
) -> dict[str, Any]:
    """The settings of a file that must be confirmed, by dotted name: every `${NAME}`, and all text and switches that
    neither have their default nor are harmless. `harmless` has names of settings and sections, and `name=value`."""
    by_default = dict(_leaves(defaults))
    try:
        # Aliases in YAML can stand for any number of values, or for themselves.
        leaves = list(islice(_leaves(values), _MAX_VALUES + 1))
    except RecursionError as error:
        raise ConfigError("the settings are nested too deeply", hint="correct the file") from error
    if len(leaves) > _MAX_VALUES:
        raise ConfigError(f"the settings have more than {_MAX_VALUES} values", hint="shorten the file")
    return {
        name: value
        for name, value in leaves
        if _refers(value)
        or not (
            value in (None, "")
            or (name in by_default and by_default[name] == value)
            or (value == {} and any(each.startswith(f"{name}.") for each in by_default))
            or _is_quantity(value, by_default.get(name))
            or _is_harmless(name, value, harmless)
        )
    }


def _refers(value: Any) -> bool:
    return isinstance(value, str) and _REFERENCE.search(value) is not None


def _is_quantity(value: Any, default: Any) -> bool:
    """Whether the value is a number that cannot stand for a switch: 1 means true where the default is a boolean."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return value not in (0, 1) if default is None else not isinstance(default, bool)


def _is_harmless(name: str, value: Any, harmless: Collection[str]) -> bool:
    steps = name.split(".")
    if isinstance(value, str) and value.lstrip().startswith("!"):
        # In a list of what is left out, it shows something again.
        return False
    return f"{name}={value}" in harmless or any(".".join(steps[:end]) in harmless for end in range(1, len(steps) + 1))


def _leaves(value: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    inner: list[tuple[Any, Any]] = []
    match value:
        case Mapping():
            inner = list(value.items())  # pyright: ignore[reportUnknownArgumentType] any YAML
        case list() | tuple():
            inner = list(enumerate(value))  # pyright: ignore[reportUnknownArgumentType] any YAML
        case _:
            pass
    if not inner and name:
        # An empty section counts: it may enable a capability.
        yield name, value
    for step, each in inner:
        yield from _leaves(each, f"{name}.{step}" if name else str(step))


class _Entry(BaseModel):
    model_config = ConfigDict(extra="forbid")

    sha256: str
    settings: list[str]
    confirmed_at: str


class _Contents(BaseModel):
    model_config = ConfigDict(extra="forbid")

    version: Literal[1] = 1
    files: dict[str, _Entry] = {}


class Confirmations:
    """The confirmed files, in a private file of the user. Changes replace it atomically, one at a time."""

    def __init__(self) -> None:
        self._path = user_state_directory() / "trust.json"

    def includes(self, file: Path, values: Mapping[str, Any]) -> bool:
        """Whether exactly these values of the file are confirmed."""
        entry = self._read().files.get(_name_of(file))
        return entry is not None and entry.sha256 == _digest(values)

    def add(self, file: Path, values: Mapping[str, Any]) -> None:
        """Confirm these values of the file, instead of others."""
        now = datetime.now(UTC).isoformat(timespec="seconds")
        with self._changing() as files:
            files[_name_of(file)] = _Entry(sha256=_digest(values), settings=sorted(values), confirmed_at=now)

    def revoke(self, path: Path) -> list[str]:
        """Forget the confirmations of a file, or of all files below a directory. Returns their paths."""
        within = os.path.realpath(path)
        with self._changing() as files:
            revoked = [name for name in files if name in (within, _name_of(path)) or name.startswith(f"{within}/")]
            for name in revoked:
                del files[name]
        return revoked

    def all(self) -> list[dict[str, Any]]:
        """The confirmed files with the names of their settings, by path."""
        return [
            {"file": name, "settings": entry.settings, "confirmed_at": entry.confirmed_at}
            for name, entry in sorted(self._read().files.items())
        ]

    def _read(self) -> _Contents:
        if not self._path.exists():
            return _Contents()
        if not is_private_file(self._path):
            raise ConfigError(f"{self._path} is accessible to other users", hint=f"delete it: rm {self._path}")
        try:
            with open_regular(self._path) as file:
                return _Contents.model_validate_json(file.read())
        except (OSError, ValidationError) as error:
            raise ConfigError(
                f"the confirmations in {self._path} cannot be read", hint="delete it, and confirm directories again"
            ) from error

    @contextmanager
    def _changing(self) -> Generator[dict[str, _Entry]]:
        try:
            make_private_directory(self._path.parent)
            with exclusive_lock(self._path.parent):
                contents = self._read()
                yield contents.files
                replace_file(self._path, contents.model_dump_json(indent=2).encode() + b"\n")
        except OSError as error:
            raise ConfigError(
                f"cannot store confirmations in {self._path.parent}: {error.strerror}",
                hint="set XDG_STATE_HOME to a directory that this user can write",
            ) from error


def _name_of(file: Path) -> str:
    """The path of the file itself: links in its directories are resolved, a link in its place is not."""
    return os.path.join(os.path.realpath(file.parent), file.name)


def _digest(values: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(values, sort_keys=True, default=str).encode()).hexdigest()
