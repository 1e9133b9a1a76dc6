"""SQLite files: connections, one writer at a time, transactions, schema versions, and what SQLite's errors mean."""

from __future__ import annotations

import os
import sqlite3
import threading
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from enum import Enum, auto
from pathlib import Path
from typing import Literal

from armarium.foundation.errors import ArmariumError
from armarium.foundation.files.state_files import make_private_directory

Mode = Literal["rw", "rwc", "ro", "immutable"]
Identity = tuple[int, int]

BUSY_TIMEOUT_S = 30.0
"""How long a statement waits for another process that writes."""

_PRIMARY_CODE = 0xFF
_MIN_FREE_BYTES = 64 * 1024
"""SQLite needs a page, its log and the index of that log. With less room it fails with various codes."""


class Fault(Enum):
    """Why SQLite could not read or write a file."""

    BUSY = auto()
    """Another connection holds the lock."""
    FULL = auto()
    """The disk is full."""
    REFUSED = auto()
    """The operating system does not permit it, or the file is read-only."""
    WRITE_FAILED = auto()
    """An I/O error other than of a read."""
    READ_FAILED = auto()
    """An I/O error of a read."""
    DAMAGED = auto()
    """The file is not a SQLite database, or its structure is damaged."""
    NOT_TEXT = auto()
    """A stored text is not UTF-8."""


_READ_ERRORS = {sqlite3.SQLITE_IOERR_READ, sqlite3.SQLITE_IOERR_SHORT_READ, sqlite3.SQLITE_IOERR_CORRUPTFS}
_FAULTS = {
    sqlite3.SQLITE_BUSY: Fault.BUSY,
    sqlite3.SQLITE_FULL: Fault.FULL,
    sqlite3.SQLITE_READONLY: Fault.REFUSED,
    sqlite3.SQLITE_CANTOPEN: Fault.REFUSED,
    sqlite3.SQLITE_PERM: Fault.REFUSED,
    sqlite3.SQLITE_IOERR: Fault.WRITE_FAILED,
    sqlite3.SQLITE_CORRUPT: Fault.DAMAGED,
    sqlite3.SQLITE_NOTADB: Fault.DAMAGED,
}


def fault_of(error: sqlite3.Error) -> Fault | None:
    """The fault behind an error; None for a mistake in our own use of SQLite."""
    # Errors that Python's own module raises have no code.
    code: int = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_OK)
    if code == sqlite3.SQLITE_OK:
        return Fault.NOT_TEXT if "decode" in str(error) else None
    return Fault.READ_FAILED if code in _READ_ERRORS else _FAULTS.get(code & _PRIMARY_CODE)


@contextmanager
def translated_errors(translate: Callable[[sqlite3.Error], Exception | None]) -> Generator[None]:
    """Raise what `translate` returns for an SQLite error. If it returns None, the error itself is raised."""
    try:
        yield
    except sqlite3.Error as error:
        translation = translate(error)
        if translation is None:
            raise
        raise translation from error


def is_disk_full(directory: Path) -> bool:
    """Whether the disk has too little room for SQLite to write."""
    try:
        found = os.statvfs(directory)
    except OSError:
        return False
    return found.f_bavail * found.f_frsize < _MIN_FREE_BYTES


def connect(
    file: Path, mode: Mode = "rw", *, busy_timeout_s: float = BUSY_TIMEOUT_S, cache_kib: int | None = None
) -> sqlite3.Connection:
    """Open a file in autocommit mode, for use by one thread at a time. Only `rwc` creates it. `immutable` also works
    where SQLite may write nothing beside the file. Nothing may change the file meanwhile."""
    query = "mode=ro&immutable=1" if mode == "immutable" else f"mode={mode}"
    connection = sqlite3.connect(
        f"{file.absolute().as_uri()}?{query}",
        timeout=busy_timeout_s,
        isolation_level=None,
        check_same_thread=False,
        uri=True,
    )
    # The file may come from elsewhere: its schema must not call functions with side effects.
    connection.execute("PRAGMA trusted_schema = OFF")
    if cache_kib is not None:
        connection.execute(f"PRAGMA cache_size = -{cache_kib}")
    return connection


def create_file(file: Path) -> None:
    """Create an empty file for this user alone, if there is none. SQLite gives its log the same permissions."""
    file.touch(mode=0o600)


def connect_private(file: Path, *, busy_timeout_s: float) -> sqlite3.Connection:
    """Open a file for this user alone, in a directory for this user alone. Both are created if there is none."""
    make_private_directory(file.parent)
    create_file(file)
    return connect(file, busy_timeout_s=busy_timeout_s)


@contextmanager
def unavailable(error: type[ArmariumError], message: str, *, hint: str) -> Generator[None]:
    """Raise this error if the block cannot read or write its file."""
    try:
        yield
    except (sqlite3.Error, OSError) as failure:
        raise error(message, hint=hint, private={"reason": str(failure)}) from failure


def use_write_ahead_log(connection: sqlite3.Connection, *, synchronous: Literal["NORMAL", "FULL"]) -> None:
    """Let readers work while the writer does. With `FULL`, a commit survives a power failure."""
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute(f"PRAGMA synchronous = {synchronous}")


def schema_version(connection: sqlite3.Connection) -> int:
    """The version that a program recorded in the file; 0 if none did."""
    return connection.execute("PRAGMA user_version").fetchone()[0]


def is_empty(connection: sqlite3.Connection) -> bool:
    """Whether the file has no tables yet."""
    return not connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]


def is_intact(connection: sqlite3.Connection) -> bool:
    """Whether SQLite finds its own structures in order. Takes about a second per gigabyte."""
    return connection.execute("PRAGMA quick_check(1)").fetchone()[0] == "ok"


def file_identity(file: Path, *, follow_symlinks: bool = True) -> Identity:
    """Identifies the file at a path, whatever its name."""
    found = os.stat(file, follow_symlinks=follow_symlinks)
    return found.st_dev, found.st_ino


@contextmanager
def transaction(
    connection: sqlite3.Connection, errors: Callable[[], AbstractContextManager[None]] = nullcontext
) -> Generator[None]:
    """Commit the changes of the block atomically, or roll them back if it raises. `errors` translates the errors of
    beginning and committing, not those of the block."""
    with errors():
        connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        with errors():
            connection.commit()
    except BaseException:
        # Some errors, such as a full disk, have already rolled back.
        with suppress(sqlite3.Error):
            connection.rollback()
        raise


class Connections:
    """The connections to one SQLite file: a writer, and readers that are reused. Closing or reopening does not disturb
    a reader in use: it is closed when it is returned."""

    def __init__(
        self,
        open_reader: Callable[[], sqlite3.Connection],
        open_writer: Callable[[], sqlite3.Connection] | None,
    ) -> None:
        """Without `open_writer`, the file is only read."""
        self.write_lock = threading.RLock()
        """Held while this process writes, opens or closes."""
        self._open_reader, self._open_writer = open_reader, open_writer
        self._writer: sqlite3.Connection | None = None
        self._idle: list[tuple[int, sqlite3.Connection]] = []
        self._closed = True
        self.generation = 0
        """How often the file was opened."""

    @property
    def writer(self) -> sqlite3.Connection:
        """The only connection that writes. Hold `write_lock` while using it."""
        assert self._writer is not None, "the database is open for reading only"
        return self._writer

    def open(self) -> None:
        """Open the file, or open it again because it was replaced."""
        with self.write_lock:
            self.close()
            self.generation += 1
            self._closed = False
            if self._open_writer is None:
                self._idle.append((self.generation, self._open_reader()))
            else:
                self._writer = self._open_writer()

    def close(self) -> None:
        """Close every connection that is not in use."""
        self._closed = True
        while self._idle:
            self._idle.pop()[1].close()
        with self.write_lock, suppress(sqlite3.Error):
            if self._writer is not None:
                self._writer.close()

    @contextmanager
    def reader(self) -> Generator[sqlite3.Connection]:
        """A connection to read with, which no one else uses during the block."""
        try:
            generation, connection = self._idle.pop()
        except IndexError:
            generation, connection = self.generation, self._open_reader()
        try:
            yield connection
        finally:
            if connection.in_transaction:
                with suppress(sqlite3.Error):
                    connection.rollback()
            if self._closed or generation != self.generation:
                connection.close()
            else:
                self._idle.append((generation, connection))
