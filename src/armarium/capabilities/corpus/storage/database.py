"""`meta.sqlite` itself: its connections, its transactions, and the format it is in."""

from __future__ import annotations

import os
import sqlite3
import threading
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager, suppress
from importlib.resources import files
from pathlib import Path
from typing import Any

from armarium.capabilities.corpus.errors import IndexVersionMismatch, StoreCorrupt
from armarium.capabilities.corpus.settings import PROTOCOL_VERSION
from armarium.capabilities.corpus.storage.checks import CHUNKS_TALLY, DOCUMENTS_TALLY, setting_check
from armarium.capabilities.corpus.storage.migration import add_checks
from armarium.capabilities.corpus.troubles import corrupt, damaged, of_sqlite
from armarium.foundation.sql import queries

FORMAT_VERSION = "2"
"""Of everything in the state directory. An older number is brought to this one, a newer one cannot be read."""
SQL = "armarium.capabilities.corpus.storage.sql"
"""The package with the statements, which are run by their names."""

_FORMAT_KEY = "index_format_version"
_WITHOUT_CHECKS = "1"
_CHECK_OF = "#"
_BUSY_S = 30.0

_sql = queries(SQL)


class Database:
    """Any number of readers, one writer at a time, each change whole or not at all."""

    def __init__(self, path: Path, *, read_only: bool = False) -> None:
        """`read_only` leaves file and directory as they are, and can do so where nothing may be written."""
        self._path = path
        self._read_only = read_only
        self._writing = threading.RLock()
        self._readers = threading.local()
        self._open_readers: list[sqlite3.Connection] = []
        self._generation = 0
        self.checked = True
        """Whether its rows have checksums. Those of an older format get them, unless nothing may be written."""
        self.on_damage: Callable[[StoreCorrupt], None] = lambda error: None
        """Hears of damage that a read came upon; in any thread."""
        self._open_writer()

    def _open_writer(self) -> None:
        self._address = _read_only_address(self._path) if self._read_only else self._path.absolute().as_uri()
        # The text of every document is in it, and in the log that SQLite makes with the same permissions.
        if self._path.exists() and not self._path.is_file():
            raise corrupt()
        if not self._read_only:
            self._path.touch(mode=0o600)
        with _corrupt_if_unreadable():
            self._writer = self._connected()
        self._inode = self._path.stat().st_ino
        try:
            with _corrupt_if_unreadable():
                if not self._read_only:
                    self._writer.execute("PRAGMA journal_mode = WAL")
                    # FULL: a chunk that is in the words index must be here too, whatever happens to the machine.
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
                self.put_setting(_FORMAT_KEY, FORMAT_VERSION)
                self.put_setting("protocol_version", PROTOCOL_VERSION)
                for tally in (DOCUMENTS_TALLY, CHUNKS_TALLY):
                    self.put_setting(tally, "0")
        settings: dict[str, str] = dict(self.read_latest("get_checked_setting", (_FORMAT_KEY, _FORMAT_KEY + _CHECK_OF)))
        found = settings.get(_FORMAT_KEY)
        was_ours = settings.get(_FORMAT_KEY + _CHECK_OF) == setting_check(_FORMAT_KEY, FORMAT_VERSION)
        if found is None or not found.isdecimal() or (was_ours and found != FORMAT_VERSION):
            raise damaged(f"the setting {_FORMAT_KEY}")
        self.checked = found != _WITHOUT_CHECKS
        if not self.checked and not self._read_only:
            with self.transaction():
                add_checks(self)
                self.put_setting(_FORMAT_KEY, FORMAT_VERSION)
            self.checked = True
        elif self.checked and found != FORMAT_VERSION:
            newer = int(found) > int(FORMAT_VERSION)
            raise IndexVersionMismatch(
                f"the index has format {found}, this version reads {FORMAT_VERSION}",
                hint="use the newer version that made it, or run: dir2mcp reindex" if newer else "run: dir2mcp reindex",
            )

    # Settings

    def setting(self, key: str) -> str | None:
        """A setting as it is now; raises when it is damaged."""
        rows: dict[str, str] = dict(self.read_latest("get_checked_setting", (key, key + _CHECK_OF)))
        value = rows.get(key)
        if value is not None and self.checked and rows.get(key + _CHECK_OF) != setting_check(key, value):
            raise damaged(f"the setting {key}")
        return value

    def put_setting(self, key: str, value: str) -> None:
        """Put a setting down, within a transaction."""
        self.write("put_setting", (key, value))
        self.write("put_setting", (key + _CHECK_OF, setting_check(key, value)))

    def start_over(self, aside: Path) -> None:
        """Begin with an empty database; the old one is at `aside` then.

        Threads that read from the old one go on to the new one by themselves.
        """
        with self._writing:
            with suppress(sqlite3.Error):
                self._writer.close()
            for suffix in ("", "-wal"):
                with suppress(FileNotFoundError):
                    os.replace(f"{self._path}{suffix}", f"{aside}{suffix}")
            Path(f"{self._path}-shm").unlink(missing_ok=True)
            self._generation += 1
            self._open_writer()

    def is_whole(self) -> bool:
        """Whether SQLite finds its own structures in order. Takes a while: about a second for a gigabyte."""
        connection = self._connected()
        try:
            return connection.execute("PRAGMA quick_check(1)").fetchone()[0] == "ok"
        except sqlite3.DatabaseError as error:
            return not isinstance(of_sqlite(error), StoreCorrupt)
        except UnicodeDecodeError:
            return False
        finally:
            connection.close()

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
            if not self._is_in_place():
                # What is written to a file without a name is lost with this process.
                raise StoreCorrupt("meta.sqlite was removed or replaced", hint="it is made again by: dir2mcp up")
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
        try:
            with _corrupt_if_unreadable():
                return self._reader().execute(_sql[name], parameters).fetchall()
        except StoreCorrupt as error:
            # An error of Python's own is about the text in one row, not about the file.
            if getattr(error.__cause__, "sqlite_errorcode", None) is not None:
                self.on_damage(error)
            raise

    @contextmanager
    def reading_together(self) -> Generator[None]:
        """What this thread reads inside was true at one moment."""
        reader = self._reader()
        with _corrupt_if_unreadable():
            reader.execute("BEGIN")
        try:
            yield
        finally:
            with suppress(sqlite3.Error):
                reader.rollback()

    def _reader(self) -> sqlite3.Connection:
        reader: sqlite3.Connection | None = getattr(self._readers, "connection", None)
        if reader is None or self._readers.generation != self._generation:
            if reader is not None:
                # Only here: a connection may not be closed while its own thread reads.
                reader.close()
                self._open_readers.remove(reader)
            reader = self._readers.connection = self._connected()
            self._readers.generation = self._generation
            reader.execute("PRAGMA query_only = ON")
            self._open_readers.append(reader)
        return reader

    def read_latest(self, name: str, parameters: Any = ()) -> list[Any]:
        """Rows as they are now, with what the transaction under way has changed in them."""
        with self._writing, _told_by_meaning():
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
        with self._writing, _corrupt_if_unreadable():
            if self._is_replaced():
                self._writer.close()
                self._generation += 1
                self._open_writer()
            return self._writer.execute("PRAGMA data_version").fetchone()[0] + (self._generation << 32)

    def _is_replaced(self) -> bool:
        """Whether another process began with an empty database."""
        with suppress(OSError):
            return self._path.stat().st_ino != self._inode
        return False

    def _is_in_place(self) -> bool:
        """Whether the open file is the one that the next process will find."""
        try:
            return self._path.stat().st_ino == self._inode
        except FileNotFoundError:
            return False

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
    except UnicodeDecodeError as error:
        # The message about a damaged schema quotes it.
        raise corrupt() from error


@contextmanager
def _corrupt_if_unreadable() -> Generator[None]:
    try:
        yield
    except sqlite3.DatabaseError as error:
        raise of_sqlite(error) or corrupt() from error
    except UnicodeDecodeError as error:
        raise corrupt() from error


def _statements(script: str) -> list[str]:
    lines = [line.split("--")[0].rstrip() for line in script.splitlines()]
    return [statement for part in "\n".join(lines).split(";") if (statement := part.strip())]
