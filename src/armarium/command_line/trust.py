"""Asks the user of a directory to confirm its sensitive settings, once."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from armarium.command_line.output import printable, say, without_credentials
from armarium.foundation.errors import ConfigError
from armarium.foundation.security.trust import Confirmable, Confirmations, DirectoryNotTrusted

_SECRET_NAME = re.compile(r"(?i)(key|token|secret|password|passphrase|dsn|redis_url|sha256)\w*$")
_REFERENCES_ONLY = re.compile(r"(\$\{\w+\})+")
_LONGEST_VALUE = 200
_MOST_NAMES = 10


def require_trust(found: Confirmable, *, granted: bool = False, ask: bool = False) -> None:
    """Return if the user has confirmed the values of the file, or does so now; raise `DirectoryNotTrusted` otherwise.

    `granted`: the command line confirms them. `ask`: there is a terminal to ask at.
    """
    if not found.values:
        return
    confirmations = Confirmations()
    if confirmations.includes(found.path, found.values):
        return
    if not granted:
        if not ask:
            raise _not_trusted(found)
        say("\n".join([f"{printable(str(found.path))} wants to set:", *described(found.values)]))
        say("These settings decide where text and keys are sent, what is paid, who may connect, or what is run.")
        if not _agrees():
            raise _not_trusted(found)
    confirmations.add(found.path, found.values)


def require_regular(file: Path) -> None:
    """Raise `ConfigError` for a settings file that nobody named, if it is a pipe, or a link to another directory."""
    if not file.is_file() and not file.is_dir():
        raise ConfigError(f"{file} is not a file", hint="remove it, or name a settings file with --config")
    if not Path(os.path.realpath(file)).is_relative_to(os.path.realpath(file.parent)):
        raise ConfigError(f"{file} is a link to another directory", hint=f"to use it, name it: --config {file}")


def described(values: Mapping[str, Any]) -> list[str]:
    """Each sensitive setting on a line, with secrets masked."""
    return [f"  {printable(name)}: {_shown(name, value)}" for name, value in values.items()]


def _shown(name: str, value: Any) -> str:
    text = str(value)
    if _SECRET_NAME.search(name) and not _REFERENCES_ONLY.fullmatch(text):
        return "***"
    text = printable(without_credentials(text))
    return text if len(text) <= _LONGEST_VALUE else f"{text[:_LONGEST_VALUE]}… ({len(text)} characters)"


def _agrees() -> bool:
    try:
        return input("Trust this file? [y/N]: ").strip().lower() in ("y", "yes")
    except EOFError:
        return False


def _not_trusted(found: Confirmable) -> DirectoryNotTrusted:
    names = list(map(printable, found.values))
    more = f" and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else ""
    directory = os.path.realpath(found.directory)
    return DirectoryNotTrusted(
        f"{found.path} sets {', '.join(names[:_MOST_NAMES])}{more}; you have not confirmed that",
        hint=f"look at the file; if you trust it, run: armarium trust add {shlex.quote(directory)}",
    )
