"""The database `meta.sqlite`: its connections, its transactions and its format version."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Collection, Generator, Iterable
from contextlib import AbstractContextManager, closing, contextmanager, suppress
from importlib.resources import files
from pathlib import Path
from typing import Any

from armarium.capabilities.corpus.errors import CorpusError, IndexVersionMismatch, StoreCorrupt
from armarium.capabilities.corpus.settings import PROTOCOL_VERSION
from armarium.capabilities.corpus.storage.checks import (
    CHUNKS_TALLY,
    DOCUMENTS_TALLY,
    chunk_mark,
    document_mark,
    setting_check,
    span_check,
    tally,
)
from armarium.capabilities.corpus.storage.errors import corrupt_error, damaged_error, from_sqlite
from armarium.foundation.sql import queries
from armarium.foundation.sqlite import (
    Connections,
    Identity,
    connect,
    create_file,
    file_identity,
    is_empty,
    is_intact,
    transaction,
    translated_errors,
    use_write_ahead_log,
)

FORMAT_VERSION = "2"
"""The format of everything in the state directory. An older one is migrated, a newer one cannot be read."""
SQL = "armarium.capabilities.corpus.storage.sql"
"""The package with the statements, which are run by their names."""

_FORMAT_KEY = "index_format_version"
_WITHOUT_CHECKS = "1"
_CHECK_OF = "#"
_ROWS_AT_ONCE = 5000

_sql = queries(SQL)


class Database:
    """Any number of readers and one writer at a time. Changes are atomic."""

    def __init__(self, path: Path, *, read_only: bool) -> None:
        """With `read_only`, neither the file nor its directory is changed. It works in a read-only directory."""
        self._path = path
        self._read_only = read_only
        self._immutable = False
        self._connections = Connections(self._open_reader, self._connect)
        self.checked = True
        """Whether rows have checksums. Rows of the older format have none until they are migrated."""
        self.on_damage: Callable[[StoreCorrupt], None] = lambda error: None
        """Receives the error of a read that finds the file damaged. Called in any thread."""
        self.on_damaged_rows: Callable[[Collection[str]], None] = lambda rel_paths: None
        """Receives the documents that must be prepared again. An empty path stands for an unknown document."""
        self._identity: Identity | None = None
        self._open()

    @property
    def _writer(self) -> sqlite3.Connection:
        return self._connections.writer

    def _open(self) -> None:
        # Without a log beside it, no process has the file open. SQLite then need not create the files for sharing it.
        self._immutable = self._read_only and not self._path.with_name(f"{self._path.name}-wal").exists()
        # The file contains the text of every document. SQLite creates its log with the same permissions.
        if self._path.exists() and not self._path.is_file():
            raise corrupt_error()
        if not self._read_only:
            create_file(self._path)
        with _corrupt_if_unreadable():
            self._connections.open()
        self._identity = file_identity(self._path)
        try:
            with _corrupt_if_unreadable():
                if not self._read_only:
                    # FULL: a chunk that is in the lexical index must also be here, even after a power failure.
                    use_write_ahead_log(self._writer, synchronous="FULL")
                    # Deleted text must not remain in free pages: policy may exclude it.
                    self._writer.execute("PRAGMA secure_delete = ON")
                self._prepare_schema()
        except BaseException:
            self._writer.close()
            raise

    def _prepare_schema(self) -> None:
        if is_empty(self._writer):
            with self.transaction():
                for statement in _statements((files(SQL) / "schema.sql").read_text()):
                    self._writer.execute(statement)
                self.put_setting(_FORMAT_KEY, FORMAT_VERSION)
                self.put_setting("protocol_version", PROTOCOL_VERSION)
                for key in (DOCUMENTS_TALLY, CHUNKS_TALLY):
                    self.put_setting(key, "0")
        settings: dict[str, str] = dict(self.execute("get_checked_setting", (_FORMAT_KEY, _FORMAT_KEY + _CHECK_OF)))
        found = settings.get(_FORMAT_KEY)
        was_ours = settings.get(_FORMAT_KEY + _CHECK_OF) == setting_check(_FORMAT_KEY, FORMAT_VERSION)
        if found is None or not found.isdecimal() or (was_ours and found != FORMAT_VERSION):
            raise damaged_error(f"the setting {_FORMAT_KEY}")
        self.checked = found != _WITHOUT_CHECKS
        if not self.checked and not self._read_only:
            with self.transaction():
                self._add_checks()
                self.put_setting(_FORMAT_KEY, FORMAT_VERSION)
            self.checked = True
        elif self.checked and found != FORMAT_VERSION:
            newer = int(found) > int(FORMAT_VERSION)
            raise IndexVersionMismatch(
                f"the index has format {found}, this version reads {FORMAT_VERSION}",
                hint="use the newer version that made it, or run: dir2mcp reindex" if newer else "run: dir2mcp reindex",
            )
        if not self._read_only:
            self.execute("index_documents_in_trouble")

    def _add_checks(self) -> None:
        """Migrate from format 1, which had no checksums. Existing rows are assumed to be intact."""
        after = 0
        while rows := self.execute("spans_to_check", (after, _ROWS_AT_ONCE)):
            after = rows[-1][0]
            self.execute_many("put_span_check", [(span_check(*row), row[0]) for row in rows])
        for key, value in self.execute("all_settings"):
            self.put_setting(key, value)
        self.put_setting(DOCUMENTS_TALLY, tally(sum(document_mark(*row) for row in self.execute("all_documents"))))
        self.put_setting(CHUNKS_TALLY, tally(sum(chunk_mark(*row) for row in self.execute("all_chunks"))))

    def setting(self, key: str) -> str | None:
        """The current value of a setting. Raises if it is damaged."""
        rows: dict[str, str] = dict(self.execute("get_checked_setting", (key, key + _CHECK_OF)))
        value = rows.get(key)
        if value is not None and self.checked and rows.get(key + _CHECK_OF) != setting_check(key, value):
            raise damaged_error(f"the setting {key}")
        return value

    def put_setting(self, key: str, value: str) -> None:
        """Store a setting, within a transaction."""
        self.execute("put_setting", (key, value))
        self.execute("put_setting", (key + _CHECK_OF, setting_check(key, value)))

    def _begin_anew(self, aside: Path) -> None:
        """Move the database to `aside`, and open an empty one. The next read of each thread is from the new one."""
        with self._connections.write_lock:
            self._connections.close()
            move_aside(self._path, aside)
            self._open()

    def is_whole(self) -> bool:
        """Whether SQLite finds its own structures intact. Takes about a second per gigabyte."""
        with closing(self._connect()) as connection:
            try:
                return is_intact(connection)
            except sqlite3.DatabaseError as error:
                return not isinstance(from_sqlite(error), StoreCorrupt)
            except UnicodeDecodeError:
                return False

    def close(self) -> None:
        self._connections.close()

    @contextmanager
    def transaction(self) -> Generator[None]:
        """Commit the changes of the block atomically. A nested transaction is part of the outer one."""
        with self._connections.write_lock:
            if self._writer.in_transaction:
                yield
                return
            if not self._is_in_place():
                # Changes to a deleted file would be lost when this process ends.
                raise StoreCorrupt("meta.sqlite was removed or replaced", hint="it is made again by: dir2mcp up")
            with transaction(self._writer, _corpus_errors):
                yield

    def read(self, name: str, parameters: Any = ()) -> list[Any]:
        """The committed rows of a statement. Does not wait for a writer."""
        return self.read_together((name, parameters))[0]

    def read_together(self, *statements: tuple[str, Any]) -> list[list[Any]]:
        """The rows of several statements, from one snapshot."""
        try:
            with _corrupt_if_unreadable(), self._connections.reader() as reader:
                if len(statements) > 1:
                    reader.execute("BEGIN")
                return [reader.execute(_sql[name], parameters).fetchall() for name, parameters in statements]
        except StoreCorrupt as error:
            # An error without a code of SQLite is about the text in one row, not about the file.
            if getattr(error.__cause__, "sqlite_errorcode", None) is not None:
                self.on_damage(error)
            raise

    def execute(self, name: str, parameters: Any = ()) -> list[Any]:
        """Run a statement on the writing connection, which sees the changes of the current transaction."""
        with self._connections.write_lock, _corpus_errors():
            return self._writer.execute(_sql[name], parameters).fetchall()

    def execute_many(self, name: str, rows: Iterable[Any]) -> int:
        """Run a statement for each row, within a transaction. Returns how many rows of the table it changed."""
        with _corpus_errors():
            return max(0, self._writer.executemany(_sql[name], rows).rowcount)

    def leave_no_trace(self) -> bool:
        """Remove deleted rows completely from disk. Returns False if another reader still uses an old snapshot.

        The whole file is rewritten, because pages that were split or merged may contain copies of moved rows.
        """
        with self._connections.write_lock, _corpus_errors():
            self._writer.execute("VACUUM")
            busy, _, _ = self._writer.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
            return not busy

    def version(self) -> int:
        """A number that changes whenever another process changed something."""
        with self._connections.write_lock, _corrupt_if_unreadable():
            identity = self._identity
            with suppress(OSError):
                identity = file_identity(self._path)
            if identity != self._identity:
                # Another process began with an empty database.
                self._open()
            version = self._writer.execute("PRAGMA data_version").fetchone()[0]
            return version + (self._connections.generation << 32)

    def _is_in_place(self) -> bool:
        """Whether the open file is still the one at its path."""
        try:
            return file_identity(self._path) == self._identity
        except FileNotFoundError:
            return False

    def _open_reader(self) -> sqlite3.Connection:
        connection = self._connect()
        connection.execute("PRAGMA query_only = ON")
        return connection

    def _connect(self) -> sqlite3.Connection:
        read_only_mode = "immutable" if self._immutable else "ro"
        connection = connect(self._path, read_only_mode if self._read_only else "rwc")
        connection.execute("PRAGMA foreign_keys = OFF")
        return connection


def move_aside(path: Path, aside: Path) -> None:
    """Rename a database that no connection of this process uses."""
    for suffix in ("", "-wal"):
        with suppress(FileNotFoundError):
            os.replace(f"{path}{suffix}", f"{aside}{suffix}")
    Path(f"{path}-shm").unlink(missing_ok=True)


@contextmanager
def _corpus_errors(translate: Callable[[sqlite3.Error], CorpusError | None] = from_sqlite) -> Generator[None]:
    try:
        with translated_errors(translate):
            yield
    except UnicodeDecodeError as error:
        # The message about a damaged schema quotes it.
        raise corrupt_error() from error


def _corrupt_if_unreadable() -> AbstractContextManager[None]:
    return _corpus_errors(lambda error: from_sqlite(error) or corrupt_error())


def _statements(script: str) -> list[str]:
    lines = [line.split("--")[0].rstrip() for line in script.splitlines()]
    return [statement for part in "\n".join(lines).split(";") if (statement := part.strip())]
