"""`registry.sqlite` itself: its connections, its transactions, and the version it is in."""

from __future__ import annotations

import logging
import sqlite3
import threading
from collections.abc import Generator, Iterable, Mapping
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from importlib.resources import files
from pathlib import Path
from typing import Any

from armarium.capabilities.registry.errors import Busy, RegistryUnusable, Unwritable
from armarium.capabilities.registry.storage import file as database_file
from armarium.capabilities.registry.storage.columns import with_columns
from armarium.capabilities.registry.storage.errors import told_by_meaning
from armarium.foundation.sql import queries

_log = logging.getLogger(__name__)

SCHEMA_VERSION = 3
"""`PRAGMA user_version` of the files this program writes."""
KNOWN_VERSIONS = (1, 2, SCHEMA_VERSION)
"""Those it reads; what is older becomes the newest when it is opened for writing. Until then it lacks columns, which
only those who write may ask for."""
SQL = "armarium.capabilities.registry.storage.sql"
"""The package with the statements, which are run by their names."""

_WRITING_CACHE_KIB = 128 * 1024
"""A large import goes back and forth in every index; pages that do not fit are written and read again and again."""

_SCRIPTS = {
    0: ("schema.sql", "listing_indexes.sql"),
    1: ("listing_indexes.sql", "suppressed_findings.sql"),
    2: ("suppressed_findings.sql",),
}
"""What makes the newest version of each; 0 is a new file."""

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
    """Any number of readers, one writer at a time, in this process and in others; each change whole or not at all.

    Somebody may delete the file under a running server. A new one then begins: what is written into a file without a
    name would be lost, and nobody would be told.
    """

    def __init__(self, path: Path, *, read_only: bool = False, begin_with: Mapping[str, str] | None = None) -> None:
        """`begin_with` are the facts of a registry that is new."""
        self._path = path.absolute()
        self._read_only = read_only
        self.begin_with = dict(begin_with or {})
        self._writing = threading.Lock()
        self._idle: list[tuple[int, sqlite3.Connection]] = []
        self._generation = 0
        """How many files there have been; connections to an earlier one are not used again."""
        self._closed = False
        self._writer: sqlite3.Connection | None = None
        self._identity: database_file.Identity | None = None
        self._open()

    @property
    def read_only(self) -> bool:
        """Whether it can only be asked."""
        return self._read_only

    def _open(self) -> None:
        if self._read_only:
            with told_by_meaning(self._path.parent):
                connection = database_file.connected_to_read(self._path)
                try:
                    check_version(schema_version(connection))
                except BaseException:
                    connection.close()
                    raise
                self._idle.append((self._generation, connection))
            self._identity = database_file.identity(self._path)
            return
        database_file.make_place(self._path)
        with database_file.opened_alone(self._path.parent), told_by_meaning(self._path.parent):
            writer = database_file.connected(self._path)
            try:
                writer.execute("PRAGMA journal_mode = WAL")
                writer.execute("PRAGMA synchronous = FULL")
                writer.execute(f"PRAGMA cache_size = -{_WRITING_CACHE_KIB}")
                self._prepare_schema(writer)
            except BaseException:
                writer.close()
                raise
            self._writer, self._identity = writer, database_file.identity(self._path)

    def _prepare_schema(self, writer: sqlite3.Connection) -> None:
        version = schema_version(writer)
        is_new = version == 0 and not writer.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
        if not is_new:
            check_version(version)
        if version == SCHEMA_VERSION:
            return
        text = "; ".join((files(SQL) / script).read_text(encoding="utf-8") for script in _SCRIPTS[version])
        writer.executescript(f"BEGIN IMMEDIATE; {text}; PRAGMA user_version = {SCHEMA_VERSION};")
        if is_new:
            writer.executemany(_sql["put_fact"], self.begin_with.items())
        writer.execute("COMMIT")

    def close(self) -> None:
        """Close every connection; readers at work end when they are done."""
        self._closed = True
        while self._idle:
            self._idle.pop()[1].close()
        with self._writing, suppress(sqlite3.Error):
            if self._writer is not None:
                self._writer.close()

    @contextmanager
    def reading(self) -> Generator[Reader]:
        """Everything asked within is answered as of one moment, without waiting for whoever writes."""
        if self._is_gone() and not self._read_only:
            with self._writing:
                self._begin_again_if_gone()
        with told_by_meaning(self._path.parent):
            generation, connection = self._idle_or_new()
            try:
                connection.execute("BEGIN")
                yield Reader(connection)
            finally:
                connection.rollback()
                if self._closed or generation != self._generation:
                    connection.close()
                else:
                    self._idle.append((generation, connection))

    @contextmanager
    def writing(self) -> Generator[Writer]:
        """Changes made within become true together, or not at all."""
        if self._read_only:
            raise Unwritable("the registry is open for reading only", hint="permit writing there, and start again")
        with self._writing:
            self._begin_again_if_gone()
            assert self._writer is not None, "only what is read has no writer"
            with told_by_meaning(self._path.parent):
                self._writer.execute("BEGIN IMMEDIATE")
                try:
                    yield Writer(self._writer)
                    if self._is_gone():
                        raise Busy("the registry was deleted in this moment", hint="try again: a new one begins")
                    self._writer.commit()
                except BaseException:
                    # Some errors, a full disk among them, have rolled back already.
                    with suppress(sqlite3.Error):
                        self._writer.rollback()
                    raise

    def _is_gone(self) -> bool:
        return database_file.identity(self._path) != self._identity

    def _begin_again_if_gone(self) -> None:
        if not self._is_gone() or self._closed:
            return
        _log.warning("the registry was deleted or replaced; going on with what is in its place, or with a new one")
        self._generation += 1
        while self._idle:
            self._idle.pop()[1].close()
        if self._writer is not None:
            with suppress(sqlite3.Error):
                self._writer.close()
        try:
            self._open()
        except OSError as error:
            raise Unwritable(
                "the registry was deleted, and none can begin in its place", hint="is the project still there?"
            ) from error

    def _idle_or_new(self) -> tuple[int, sqlite3.Connection]:
        try:
            return self._idle.pop()
        except IndexError:
            connect = database_file.connected_to_read if self._read_only else database_file.connected
            return self._generation, connect(self._path)


def utc_now() -> str:
    """The time as the registry writes it, which sorts as text."""
    return datetime.now(UTC).isoformat(timespec="microseconds")


def schema_version(connection: sqlite3.Connection) -> int:
    """Which version a file is in; 0 is one without tables."""
    return connection.execute("PRAGMA user_version").fetchone()[0]


def check_version(version: int) -> None:
    """Refuse a file that another program made, or a later one of ours."""
    if version not in KNOWN_VERSIONS:
        raise RegistryUnusable(
            f"the registry has version {version}, this program reads {SCHEMA_VERSION}",
            hint="use the Armarium that made it, or move .armarium/registry.sqlite away to begin again",
        )
