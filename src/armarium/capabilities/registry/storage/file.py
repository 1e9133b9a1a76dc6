"""Where a registry's file is: the directory around it, who else is opening it, and whether it is still the same."""

from __future__ import annotations

import fcntl
import os
import sqlite3
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from armarium.capabilities.registry.errors import RegistryUnusable

_BUSY_S = 30.0
"""How long one waits for another process that writes; the largest import we know of takes a third of it."""
_CACHE_KIB = 64 * 1024
"""At most. A listing's index of 200,000 files is 40 MB and is read whole to count them: what does not fit is fetched
again for every page."""

Identity = tuple[int, int]


def make_place(file: Path) -> None:
    """The directory of the registry, and its empty file, if they are not there."""
    directory = file.parent
    for place in (directory, file):
        # A project may come from anywhere; it does not choose where on this machine is written.
        if place.is_symlink():
            raise RegistryUnusable(f"{place} is a link", hint="remove it; the registry makes its own files")
    directory.mkdir(mode=0o700, exist_ok=True)
    marker = directory / ".gitignore"
    if not marker.exists():
        marker.write_text("*\n", encoding="utf-8")
    # What was found in a project is nobody else's business, nor is the log that SQLite makes beside it.
    file.touch(mode=0o600)


def identity(file: Path) -> Identity | None:
    """Which file is there now; None for none."""
    try:
        found = os.stat(file, follow_symlinks=False)
    except OSError:
        return None
    return found.st_dev, found.st_ino


def is_writable(file: Path) -> bool:
    """Whether a registry can be kept there, or changed if it is there already."""
    directory = file.parent
    if not directory.is_dir():
        return os.access(directory.parent, os.W_OK | os.X_OK)
    return os.access(directory, os.W_OK | os.X_OK) and (not file.exists() or os.access(file, os.W_OK))


@contextmanager
def opened_alone(directory: Path) -> Generator[None]:
    """Two processes that make the same file at once would find it locked, whatever the busy timeout."""
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        yield
    finally:
        os.close(fd)


def connected(file: Path) -> sqlite3.Connection:
    """A connection that may write, to a file that is there: one that is gone is not made again behind our back."""
    connection = _connect(file, "mode=rw")
    connection.execute("PRAGMA foreign_keys = ON")
    return connection


def connected_to_read(file: Path) -> sqlite3.Connection:
    """A connection that changes nothing, not even beside the file where that cannot be done."""
    connection = _connect(file, "mode=ro")
    try:
        connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    except sqlite3.OperationalError:
        # Readers of a file in WAL mode write as well, into an index beside it; without room or permission for that,
        # the file is taken as it is.
        connection.close()
        return _connect(file, "immutable=1")
    except BaseException:
        connection.close()
        raise
    return connection


def _connect(file: Path, how: str) -> sqlite3.Connection:
    address = f"{file.absolute().as_uri()}?{how}"
    connection = sqlite3.connect(address, timeout=_BUSY_S, isolation_level=None, check_same_thread=False, uri=True)
    connection.execute(f"PRAGMA cache_size = -{_CACHE_KIB}")
    return connection
