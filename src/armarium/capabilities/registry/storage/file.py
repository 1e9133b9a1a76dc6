"""The registry's file in a project: creating it, connecting to it, and the errors of using it."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from armarium.capabilities.registry import errors
from armarium.foundation import sqlite

_CACHE_KIB = 64 * 1024
"""At most. The index of a listing of 200,000 files is 40 MB and is read completely to count them. A smaller cache would
read it again for every page."""


def create_registry_file(file: Path) -> None:
    """Create the registry's directory and its empty file, unless they exist."""
    directory = file.parent
    directory.mkdir(mode=0o700, exist_ok=True)
    marker = directory / ".gitignore"
    if not marker.exists():
        marker.write_text("*\n", encoding="utf-8")
    sqlite.create_file(file)


def is_writable(file: Path) -> bool:
    """Whether the registry's file can be changed, or created if it does not exist."""
    directory = file.parent
    if not directory.is_dir():
        return os.access(directory.parent, os.W_OK | os.X_OK)
    return os.access(directory, os.W_OK | os.X_OK) and (not file.exists() or os.access(file, os.W_OK))


def connect_to_write(file: Path, busy_timeout_s: float = sqlite.BUSY_TIMEOUT_S) -> sqlite3.Connection:
    """Connect to an existing file. A deleted one is not created again silently."""
    connection = _connect(file, "rw", busy_timeout_s)
    connection.execute("PRAGMA foreign_keys = ON")
    return connection


def connect_to_read(file: Path, busy_timeout_s: float = sqlite.BUSY_TIMEOUT_S) -> sqlite3.Connection:
    """Connect without changing anything, if possible not even beside the file."""
    connection = _connect(file, "ro", busy_timeout_s)
    try:
        connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    except sqlite3.OperationalError:
        # Readers of a file in WAL mode also write, to an index beside it. Without room or permission for that, the file
        # is read as it is.
        connection.close()
        return _connect(file, "immutable", busy_timeout_s)
    except BaseException:
        connection.close()
        raise
    return connection


def _connect(file: Path, mode: sqlite.Mode, busy_timeout_s: float) -> sqlite3.Connection:
    return sqlite.connect(file, mode, busy_timeout_s=busy_timeout_s, cache_kib=_CACHE_KIB)


@contextmanager
def registry_errors(directory: Path) -> Generator[None]:
    """Raise the registry's own errors; `directory` contains its file."""
    try:
        with sqlite.translated_errors(lambda error: _translated(error, directory)):
            yield
    except UnicodeEncodeError as error:
        raise errors.ValidationError("an argument contains an unpaired surrogate, which is not valid text") from error


def _translated(error: sqlite3.Error, directory: Path) -> errors.RegistryError | None:
    match sqlite.fault_of(error):
        case None | sqlite.Fault.NOT_TEXT:
            return None
        case sqlite.Fault.BUSY:
            return errors.Busy("another process is writing", hint="try again in a moment")
        case sqlite.Fault.DAMAGED:
            return errors.Damaged("registry.sqlite cannot be read", hint="restore it, or move it away to begin again")
        case fault if fault is sqlite.Fault.FULL or sqlite.is_disk_full(directory):
            return errors.Unwritable("the registry cannot be written: the disk is full", hint="make room")
        case _:
            return errors.Unwritable(
                "the registry cannot be written: the operating system refuses", hint="permit writing there"
            )
