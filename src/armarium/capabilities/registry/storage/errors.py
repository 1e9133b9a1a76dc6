"""What SQLite's errors mean for the registry."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from armarium.capabilities.registry.errors import Busy, Damaged, RegistryError, Unwritable, ValidationError

_PRIMARY_CODE = 0xFF
_DAMAGED = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}
_UNWRITABLE = {sqlite3.SQLITE_FULL, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM,
               sqlite3.SQLITE_IOERR}  # fmt: skip
_LEAST_ROOM_BYTES = 64 * 1024
"""SQLite needs a page, its log and its index beside it; with less it fails in many ways, and means this one."""


@contextmanager
def told_by_meaning(directory: Path) -> Generator[None]:
    """Raise the registry's own errors; `directory` is where its file is."""
    try:
        yield
    except sqlite3.Error as error:
        meaning = _meaning(error, directory)
        if meaning is None:
            raise
        raise meaning from error
    except UnicodeEncodeError as error:
        raise ValidationError("an argument has half a character in it, which is no text") from error


def is_full(directory: Path) -> bool:
    """Whether there is no room left on the disk."""
    try:
        room = os.statvfs(directory)
    except OSError:
        return False
    return room.f_bavail * room.f_frsize < _LEAST_ROOM_BYTES


def _meaning(error: sqlite3.Error, directory: Path) -> RegistryError | None:
    """The error in our words; None for one that is nobody's fault but ours."""
    primary = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_OK) & _PRIMARY_CODE
    if primary == sqlite3.SQLITE_BUSY:
        return Busy("another process is writing", hint="try again in a moment")
    if primary in _DAMAGED:
        return Damaged("registry.sqlite cannot be read", hint="restore it, or move it away to begin again")
    if primary not in _UNWRITABLE:
        return None
    if primary == sqlite3.SQLITE_FULL or is_full(directory):
        return Unwritable("the registry cannot be written: the disk is full", hint="make room")
    return Unwritable("the registry cannot be written: the operating system refuses", hint="permit writing there")
