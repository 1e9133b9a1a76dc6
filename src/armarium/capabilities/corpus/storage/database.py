"""`meta.sqlite` itself: its connections, its transactions, and the format it is in."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Generator, Iterable
from contextlib import contextmanager, suppress
from importlib.resources import files
from pathlib import Path
from typing import Any

from armarium.capabilities.corpus.errors import IndexVersionMismatch
from armarium.capabilities.corpus.settings import PROTOCOL_VERSION
from armarium.capabilities.corpus.troubles import corrupt, of_sqlite
from armarium.foundation.sql import queries

FORMAT_VERSION = "1"
"""Of everything in the state directory. Another number means: build it again."""
SQL = "armarium.capabilities.corpus.storage.sql"
"""The package with the statements, which are run by their names."""

_BUSY_S = 30.0

_sql = queries(SQL)


class Database:
    """Any number of readers, one writer at a time, each change whole or not at all."""

    def __init__(self, path: Path, *, read_only: bool = False) -> None:
        """`read_only` leaves file and directory as they are, and can do so where nothing may be written."""
        self._address = _read_only_address(path) if read_only else path.absolute().as_uri()
        self._writing = threading.RLock()
        self._readers = threading.local()
        self._open_readers: list[sqlite3.Connection] = []
        # The text of every document is in it, and in the log that SQLite makes with the same permissions.
        if not read_only:
            path.touch(mode=0o600)
        with _corrupt_if_unreadable():
            self._writer = self._connected()
        try:
            with _corrupt_if_unreadable():
                if not read_only:
                    self._writer.execute("PRAGMA journal_mode = WAL")
                    # FULL: a passage that is in the words index must be here too, whatever happens to the machine.
                    self._writer.execute("PRAGMA synchronous = FULL")
                    # What policy comes to exclude must not stay behind in pages that are free.
                    self._writer.execute("PRAGMA secure_delete = ON")
                self._prepare_schema()
        except BaseException:
            self._writer.close()
            raise

    def _prepare_schema(self) -> None:
        tables = self._writer.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
        if not tables:
            with self.transaction():
                for statement in _statements((files(SQL) / "schema.sql").read_text()):
                    self._writer.execute(statement)
                self.write("put_setting", ("index_format_version", FORMAT_VERSION))
                self.write("put_setting", ("protocol_version", PROTOCOL_VERSION))
        rows = self.read_latest("get_setting", ("index_format_version",))
        found = rows[0][0] if rows else None
        if found != FORMAT_VERSION:
            raise IndexVersionMismatch(
                f"the index has format {found}, this version reads {FORMAT_VERSION}", hint="run: dir2mcp reindex"
            )

    def close(self) -> None:
        """Close every connection."""
        for reader in self._open_readers:
            reader.close()
        self._open_readers.clear()
        with self._writing, suppress(sqlite3.Error):
            self._writer.close()

    @contextmanager
    def transaction(self) -> Generator[None]:
        """Changes made inside become true together. Nested, they belong to the outer one."""
        with self._writing:
            if self._writer.in_transaction:
                yield
                return
            with _told_by_meaning():
                self._writer.execute("BEGIN IMMEDIATE")
            try:
                yield
                with _told_by_meaning():
                    self._writer.commit()
            except BaseException:
                # Some errors, a full disk among them, have rolled back already.
                with suppress(sqlite3.Error):
                    self._writer.rollback()
                raise

    def read(self, name: str, parameters: Any = ()) -> list[Any]:
        """Rows as they were last committed, without waiting for whoever writes."""
        reader: sqlite3.Connection | None = getattr(self._readers, "connection", None)
        if reader is None:
            reader = self._readers.connection = self._connected()
            reader.execute("PRAGMA query_only = ON")
            self._open_readers.append(reader)
        with _corrupt_if_unreadable():
            return reader.execute(_sql[name], parameters).fetchall()

    def read_latest(self, name: str, parameters: Any = ()) -> list[Any]:
        """Rows as they are now, with what the transaction under way has changed in them."""
        with self._writing:
            return self._writer.execute(_sql[name], parameters).fetchall()

    def write(self, name: str, parameters: Any = ()) -> list[Any]:
        """Change something within a transaction; the rows that the statement returns."""
        with _told_by_meaning():
            return self._writer.execute(_sql[name], parameters).fetchall()

    def write_many(self, name: str, rows: Iterable[Any]) -> int:
        """Run a statement for each row, within a transaction; how many rows of the table it changed."""
        with _told_by_meaning():
            return max(0, self._writer.executemany(_sql[name], rows).rowcount)

    def leave_no_trace(self) -> bool:
        """Let nothing be left on disk of what is deleted; False when somebody still reads from before.

        Pages that were split or merged may keep copies of rows that went elsewhere, so the file is written anew.
        """
        with self._writing, _told_by_meaning():
            self._writer.execute("VACUUM")
            busy, _, _ = self._writer.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
            return not busy

    def version(self) -> int:
        """A number that changes whenever another process changed something."""
        with self._writing:
            return self._writer.execute("PRAGMA data_version").fetchone()[0]

    def _connected(self) -> sqlite3.Connection:
        connection = sqlite3.connect(
            self._address, timeout=_BUSY_S, isolation_level=None, check_same_thread=False, uri=True
        )
        connection.execute("PRAGMA foreign_keys = OFF")
        return connection


def _read_only_address(path: Path) -> str:
    # Without a log beside it nobody has it open, and SQLite need not make the files it would share with them.
    unchanging = "" if path.with_name(f"{path.name}-wal").exists() else "&immutable=1"
    return f"{path.absolute().as_uri()}?mode=ro{unchanging}"


@contextmanager
def _told_by_meaning() -> Generator[None]:
    try:
        yield
    except sqlite3.Error as error:
        meaning = of_sqlite(error)
        if meaning is None:
            raise
        raise meaning from error


@contextmanager
def _corrupt_if_unreadable() -> Generator[None]:
    try:
        yield
    except sqlite3.DatabaseError as error:
        raise of_sqlite(error) or corrupt() from error


def _statements(script: str) -> list[str]:
    lines = [line.split("--")[0].rstrip() for line in script.splitlines()]
    return [statement for part in "\n".join(lines).split(";") if (statement := part.strip())]
