"""`registry.sqlite` itself: its connections, its transactions, and the version it is in."""

from __future__ import annotations

import fcntl
import os
import sqlite3
import threading
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from importlib.resources import files
from pathlib import Path
from typing import Any

from armarium.capabilities.registry.errors import (
    Busy,
    Damaged,
    RegistryError,
    RegistryUnusable,
    Unwritable,
    ValidationError,
)
from armarium.capabilities.registry.storage.columns import with_columns
from armarium.foundation.sql import queries

SCHEMA_VERSION = 1
"""`PRAGMA user_version` of the files this program reads."""
SQL = "armarium.capabilities.registry.storage.sql"
"""The package with the statements, which are run by their names."""

_BUSY_S = 30.0
_WRITING_CACHE_KIB = 128 * 1024
"""A large import goes back and forth in every index; pages that do not fit are written and read again and again."""
_LARGEST = 2**63 - 1
_PRIMARY_CODE = 0xFF
_UNWRITABLE = {sqlite3.SQLITE_FULL, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM,
               sqlite3.SQLITE_IOERR}  # fmt: skip

Row = tuple[Any, ...]


def statements() -> dict[str, str]:
    """Every statement by its name; what differs from call to call stands in braces."""
    return {name: with_columns(text) for name, text in queries(SQL).items()}


_sql = statements()


class Reader:
    """Asks; all that one reader is told is from the same moment."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def rows(self, name: str, parameters: Any = (), **parts: str) -> list[Row]:
        """What a statement answers; `parts` fill its braces."""
        statement = _sql[name]
        for part, text in parts.items():
            statement = statement.replace(f"{{{part}}}", text)
        return self._connection.execute(statement, parameters).fetchall()

    def row(self, name: str, parameters: Any = ()) -> Row | None:
        """The only row, if there is one."""
        rows = self.rows(name, parameters)
        return rows[0] if rows else None


class Writer(Reader):
    """Asks and changes, within one transaction, which has one time."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        super().__init__(connection)
        last = self.row("last_event_at")
        # Clocks are set back at times; what comes later must not look earlier.
        self.now = max(utc_now(), last[0]) if last else utc_now()

    def many(self, name: str, rows: Iterable[Row]) -> None:
        """Run a statement for each row."""
        self._connection.executemany(_sql[name], rows)


class Database:
    """Any number of readers, one writer at a time, in this process and in others; each change whole or not at all."""

    def __init__(self, path: Path) -> None:
        self._address = path.absolute().as_uri()
        self._writing = threading.Lock()
        self._idle: list[sqlite3.Connection] = []
        self._closed = False
        with _opened_alone(path.parent), _told_by_meaning():
            # What was found in a project is nobody else's business, nor is the log that SQLite makes beside it.
            path.touch(mode=0o600)
            self._writer = self._connected()
            try:
                self._writer.execute("PRAGMA journal_mode = WAL")
                self._writer.execute("PRAGMA synchronous = FULL")
                self._writer.execute(f"PRAGMA cache_size = -{_WRITING_CACHE_KIB}")
                self._prepare_schema()
            except BaseException:
                self._writer.close()
                raise

    def _prepare_schema(self) -> None:
        version = schema_version(self._writer)
        if version == 0 and not self._writer.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
            script = (files(SQL) / "schema.sql").read_text(encoding="utf-8")
            self._writer.executescript(f"BEGIN IMMEDIATE; {script}; PRAGMA user_version = {SCHEMA_VERSION}; COMMIT;")
            return
        if version != SCHEMA_VERSION:
            raise RegistryUnusable(
                f"the registry has version {version}, this program reads {SCHEMA_VERSION}",
                hint="use the Armarium that made it, or move .armarium/registry.sqlite away to begin again",
            )

    def close(self) -> None:
        """Close every connection; readers at work end when they are done."""
        self._closed = True
        while self._idle:
            self._idle.pop().close()
        with self._writing, suppress(sqlite3.Error):
            self._writer.close()

    @contextmanager
    def reading(self) -> Generator[Reader]:
        """Everything asked within is answered as of one moment, without waiting for whoever writes."""
        with _told_by_meaning():
            connection = self._idle_or_new()
            try:
                connection.execute("BEGIN")
                yield Reader(connection)
            finally:
                connection.rollback()
                if self._closed:
                    connection.close()
                else:
                    self._idle.append(connection)

    @contextmanager
    def writing(self) -> Generator[Writer]:
        """Changes made within become true together, or not at all."""
        with self._writing, _told_by_meaning():
            self._writer.execute("BEGIN IMMEDIATE")
            try:
                yield Writer(self._writer)
                self._writer.commit()
            except BaseException:
                # Some errors, a full disk among them, have rolled back already.
                with suppress(sqlite3.Error):
                    self._writer.rollback()
                raise

    def _idle_or_new(self) -> sqlite3.Connection:
        try:
            return self._idle.pop()
        except IndexError:
            return self._connected()

    def _connected(self) -> sqlite3.Connection:
        connection = sqlite3.connect(
            self._address, timeout=_BUSY_S, isolation_level=None, check_same_thread=False, uri=True
        )
        connection.execute("PRAGMA foreign_keys = ON")
        return connection


def utc_now() -> str:
    """The time as the registry writes it, which sorts as text."""
    return datetime.now(UTC).isoformat(timespec="microseconds")


def within_sqlite(number: int) -> int:
    """The number, or the largest that SQLite takes: nothing has a place or a count beyond."""
    return min(number, _LARGEST)


def schema_version(connection: sqlite3.Connection) -> int:
    """Which version a file is in; 0 is one without tables."""
    return connection.execute("PRAGMA user_version").fetchone()[0]


@contextmanager
def _opened_alone(directory: Path) -> Generator[None]:
    """Two processes that make the same file at once would find it locked, whatever the busy timeout."""
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        yield
    finally:
        os.close(fd)


@contextmanager
def _told_by_meaning() -> Generator[None]:
    try:
        yield
    except sqlite3.Error as error:
        meaning = _meaning(error)
        if meaning is None:
            raise
        raise meaning from error
    except UnicodeEncodeError as error:
        raise ValidationError("an argument has half a character in it, which is no text") from error


def _meaning(error: sqlite3.Error) -> RegistryError | None:
    """What SQLite's error means for the registry; None for one that is nobody's fault but ours."""
    primary = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_OK) & _PRIMARY_CODE
    told: dict[int, Callable[[], RegistryError]] = {
        sqlite3.SQLITE_BUSY: lambda: Busy("another process is writing", hint="try again in a moment"),
        sqlite3.SQLITE_CORRUPT: _damaged,
        sqlite3.SQLITE_NOTADB: _damaged,
    }
    if primary in _UNWRITABLE:
        reason = "the disk is full" if primary == sqlite3.SQLITE_FULL else "the operating system refuses"
        return Unwritable(f"the registry cannot be written: {reason}", hint="make room, or permit writing")
    return told[primary]() if primary in told else None


def _damaged() -> Damaged:
    return Damaged("registry.sqlite cannot be read", hint="restore it, or move it away to begin again")
