"""Translates SQLite's errors into those of the registry."""

from __future__ import annotations

import sqlite3
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from armarium.capabilities.registry.errors import Busy, Damaged, RegistryError, Unwritable, ValidationError
from armarium.foundation.sqlite import Fault, fault_of, is_disk_full, translated_errors


@contextmanager
def registry_errors(directory: Path) -> Generator[None]:
    """Raise the registry's own errors; `directory` contains its file."""
    try:
        with translated_errors(lambda error: _translated(error, directory)):
            yield
    except UnicodeEncodeError as error:
        raise ValidationError("an argument contains an unpaired surrogate, which is not valid text") from error


def _translated(error: sqlite3.Error, directory: Path) -> RegistryError | None:
    match fault_of(error):
        case None | Fault.NOT_TEXT:
            return None
        case Fault.BUSY:
            return Busy("another process is writing", hint="try again in a moment")
        case Fault.DAMAGED:
            return Damaged("registry.sqlite cannot be read", hint="restore it, or move it away to begin again")
        case fault if fault is Fault.FULL or is_disk_full(directory):
            return Unwritable("the registry cannot be written: the disk is full", hint="make room")
        case _:
            return Unwritable(
                "the registry cannot be written: the operating system refuses", hint="permit writing there"
            )
