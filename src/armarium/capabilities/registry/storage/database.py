"""The database `registry.sqlite`: its transactions, its statements and its schema version."""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Generator, Iterable, Mapping
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from importlib.resources import files
from pathlib import Path
from typing import Any

from armarium.capabilities.registry.errors import Busy, RegistryUnusable, Unwritable
from armarium.capabilities.registry.storage.columns import Row, with_columns
from armarium.capabilities.registry.storage.file import (
    connect_to_read,
    connect_to_write,
    create_registry_file,
    registry_errors,
)
from armarium.foundation import sqlite
from armarium.foundation.files.state_files import exclusive_lock
from armarium.foundation.sql import queries

_log = logging.getLogger(__name__)

SCHEMA_VERSION = 5
"""`PRAGMA user_version` of the files this program writes."""
KNOWN_VERSIONS = (1, 2, 3, 4, SCHEMA_VERSION)
"""The versions that this program reads. Opening for writing migrates an older one. Until then it lacks columns,
which only writers may use."""
SQL = "armarium.capabilities.registry.storage.sql"
"""The package with the statements, which are run by name."""

_WRITING_CACHE_KIB = 128 * 1024
"""A large import accesses every index at random. With a small cache, the same pages are written and read repeatedly."""

_FIRST_WITH_CONTEXTS = 4
_FIRST_WITH_JUDGEMENTS = 5

_SCRIPTS = {
    0: ("schema.sql", "listing_indexes.sql", "finding_places.sql", "judgements.sql"),
    1: ("listing_indexes.sql", "suppressed_findings.sql", "finding_places.sql", "judgements.sql"),
    2: ("suppressed_findings.sql", "finding_places.sql", "judgements.sql"),
    3: ("finding_places.sql", "judgements.sql"),
    4: ("judgements.sql",),
}
"""The scripts that migrate each version to the newest; 0 is a new file."""


STATEMENTS = {name: with_columns(text) for name, text in queries(SQL).items()}
"""All statements by name. Braces mark the parts that differ between calls."""


class Reader:
    """Runs queries on one snapshot of the database."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def rows(self, name: str, parameters: Any = (), **parts: str) -> list[Row]:
        """The rows of a statement; `parts` fill its braces."""
        statement = STATEMENTS[name]
        for part, text in parts.items():
            statement = statement.replace(f"{{{part}}}", text)
        return self._connection.execute(statement, parameters).fetchall()

    @property
    def has_contexts(self) -> bool:
        """Whether the findings have the columns of version 4: a file that is only read is not migrated."""
        return sqlite.schema_version(self._connection) >= _FIRST_WITH_CONTEXTS

    @property
    def has_judgements(self) -> bool:
        """The same for the tables of version 5."""
        return sqlite.schema_version(self._connection) >= _FIRST_WITH_JUDGEMENTS

    def row(self, name: str, parameters: Any = ()) -> Row | None:
        rows = self.rows(name, parameters)
        return rows[0] if rows else None


class Writer(Reader):
    """Runs queries and changes in one transaction, which has one timestamp."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        super().__init__(connection)
        last = self.row("last_event_at")
        # A clock may be set back. A later event must not have an earlier timestamp.
        self.now = max(utc_now(), last[0]) if last else utc_now()

    def many(self, name: str, rows: Iterable[Row]) -> None:
        self._connection.executemany(STATEMENTS[name], rows)


class RegistryDatabase:
    """Any number of concurrent readers and one writer at a time, in this process and in others.

    If the file is deleted while the server runs, a new one is created. Changes to a deleted file would be lost
    silently.
    """

    def __init__(
        self,
        path: Path,
        *,
        read_only: bool = False,
        initial_facts: Mapping[str, str] | None = None,
        busy_timeout_s: float = sqlite.BUSY_TIMEOUT_S,
    ) -> None:
        """`initial_facts` are stored in a new registry."""
        self._path = path.absolute()
        self.read_only = read_only
        self._busy_timeout_s = busy_timeout_s
        self.initial_facts = dict(initial_facts or {})
        self._closed = False
        self._connections = sqlite.Connections(self._open_reader, None if read_only else self._open_writer)
        self._identity: sqlite.Identity | None = None
        self._open()

    def close(self) -> None:
        """Close every connection. Readers in use are closed when they are done."""
        self._closed = True
        self._connections.close()

    @contextmanager
    def reading(self) -> Generator[Reader]:
        """Read one snapshot of the database, without waiting for a writer."""
        if self._is_replaced() and not self.read_only:
            self._reopen_if_replaced()
        with registry_errors(self._path.parent), self._connections.reader() as connection:
            connection.execute("BEGIN")
            yield Reader(connection)

    def last_change(self) -> object:
        """Differs when the registry was written, by this process or another: SQLite appends to a file beside it."""
        states: list[tuple[int, int]] = []
        for file in (self._path, self._path.with_name(f"{self._path.name}-wal")):
            with suppress(OSError):
                status = file.stat()
                states.append((status.st_mtime_ns, status.st_size))
        return states

    @contextmanager
    def writing(self) -> Generator[Writer]:
        if self.read_only:
            raise Unwritable("the registry is open for reading only", hint="permit writing there, and start again")
        with self._connections.write_lock:
            self._reopen_if_replaced()
            writer = self._connections.writer
            with registry_errors(self._path.parent), sqlite.transaction(writer):
                yield Writer(writer)
                if self._is_replaced():
                    raise Busy("the registry was deleted during the change", hint="try again: a new one is created")

    def _open(self) -> None:
        with registry_errors(self._path.parent):
            self._connections.open()
        self._identity = self._current_identity()

    def _open_reader(self) -> sqlite3.Connection:
        if not self.read_only:
            return connect_to_write(self._path, self._busy_timeout_s)
        connection = connect_to_read(self._path, self._busy_timeout_s)
        try:
            check_version(sqlite.schema_version(connection))
        except BaseException:
            connection.close()
            raise
        return connection

    def _open_writer(self) -> sqlite3.Connection:
        create_registry_file(self._path)
        with exclusive_lock(self._path.parent):
            writer = connect_to_write(self._path, self._busy_timeout_s)
            try:
                sqlite.use_write_ahead_log(writer, synchronous="FULL")
                writer.execute(f"PRAGMA cache_size = -{_WRITING_CACHE_KIB}")
                self._prepare_schema(writer)
            except BaseException:
                writer.close()
                raise
            return writer

    def _prepare_schema(self, writer: sqlite3.Connection) -> None:
        version = sqlite.schema_version(writer)
        is_new = version == 0 and sqlite.is_empty(writer)
        if not is_new:
            check_version(version)
        if version == SCHEMA_VERSION:
            return
        text = "; ".join((files(SQL) / script).read_text(encoding="utf-8") for script in _SCRIPTS[version])
        writer.executescript(f"BEGIN IMMEDIATE; {text}; PRAGMA user_version = {SCHEMA_VERSION};")
        if is_new:
            writer.executemany(STATEMENTS["put_fact"], self.initial_facts.items())
        writer.execute("COMMIT")

    def _current_identity(self) -> sqlite.Identity | None:
        try:
            return sqlite.file_identity(self._path, follow_symlinks=False)
        except OSError:
            return None

    def _is_replaced(self) -> bool:
        """Whether the open file is no longer the one at its path."""
        return self._current_identity() != self._identity

    def _reopen_if_replaced(self) -> None:
        with self._connections.write_lock:
            if not self._is_replaced() or self._closed:
                return
            _log.warning("the registry was deleted or replaced; opening the file at its path, or a new one")
            try:
                self._open()
            except OSError as error:
                raise Unwritable(
                    "the registry was deleted, and no new one can be created", hint="is the project still there?"
                ) from error


def utc_now() -> str:
    """The current time as stored: ISO 8601, which sorts as text."""
    return datetime.now(UTC).isoformat(timespec="microseconds")


def check_version(version: int) -> None:
    """Refuse a file of another program, or of a newer version of this one."""
    if version not in KNOWN_VERSIONS:
        raise RegistryUnusable(
            f"the registry has version {version}, this program reads {SCHEMA_VERSION}",
            hint="use the Armarium that made it, or move .armarium/registry.sqlite away to begin again",
        )
