"""The audit log: one row per call, and per target of a call with several, in a SQLite file that other processes can
read while the server runs."""

from __future__ import annotations

import logging
import re
import sqlite3
import threading
import time
from collections import Counter, deque
from collections.abc import Generator, Iterable, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from armarium.foundation.errors import ConfigError
from armarium.foundation.files.state_files import make_private_directory
from armarium.foundation.sqlite import connect, create_file, schema_version, transaction, use_write_ahead_log

_log = logging.getLogger(__name__)

_BATCH_S = 0.05
"""How long records are collected before they are written in one transaction."""
_BUSY_TIMEOUT_S = 10.0
_MAX_PENDING = 100_000

_VERSION = 1
"""`PRAGMA user_version` of the files this program writes. Those of the first release have 0 and the same tables."""

_SCHEMA = """
CREATE TABLE IF NOT EXISTS calls (
    id INTEGER PRIMARY KEY,
    at TEXT NOT NULL,
    call_id TEXT NOT NULL,
    surface TEXT NOT NULL,
    capability TEXT NOT NULL,
    tool TEXT NOT NULL,
    principal TEXT NOT NULL,
    apikey_hash TEXT NOT NULL,
    session TEXT,
    root TEXT,
    path TEXT,
    resolved_path TEXT,
    outcome TEXT NOT NULL,
    code TEXT,
    duration_ms REAL NOT NULL,
    request_bytes INTEGER NOT NULL,
    response_bytes INTEGER NOT NULL,
    arguments TEXT NOT NULL,
    cost REAL NOT NULL DEFAULT 0,
    read_only INTEGER NOT NULL DEFAULT 0
);
CREATE INDEX IF NOT EXISTS calls_by_time ON calls (at);
CREATE INDEX IF NOT EXISTS calls_by_tool ON calls (tool, id);
CREATE INDEX IF NOT EXISTS calls_by_caller ON calls (apikey_hash, at);
"""

_ADDED = {"cost": "REAL NOT NULL DEFAULT 0", "read_only": "INTEGER NOT NULL DEFAULT 0"}
"""Columns that files of older servers do not have."""


@dataclass(frozen=True, slots=True)
class CallRecord:
    """The record of one call. No field contains file content or a key."""

    at: str
    call_id: str
    surface: str
    capability: str
    tool: str
    principal: str
    apikey_hash: str
    """Whose call it was: `Principal.person`."""
    session: str | None
    root: str | None
    path: str | None
    resolved_path: str | None
    outcome: str
    code: str | None
    duration_ms: float
    request_bytes: int
    response_bytes: int
    arguments: str
    cost: float = 0.0
    """What the caller was charged."""
    read_only: bool = False
    """Whether the tool changes nothing."""

    def public_fields(self) -> dict[str, Any]:
        """What callers may see of it: no arguments, no paths of this machine, no sessions and hashes of keys."""
        return {name: getattr(self, name) for name in _PUBLIC}


_PUBLIC = (
    *("at", "call_id", "surface", "capability", "tool", "principal", "root", "path", "outcome", "code"),
    *("duration_ms", "request_bytes", "response_bytes", "cost", "read_only"),
)
_COLUMNS = tuple(column.name for column in fields(CallRecord))
_INSERT = f"INSERT INTO calls ({', '.join(_COLUMNS)}) VALUES ({', '.join('?' * len(_COLUMNS))})"  # noqa: S608 our own names


def files_of_audit(file: Path) -> list[Path]:
    """The audit log and the files that SQLite creates beside it. No caller may see or change them."""
    return [file.with_name(file.name + ending) for ending in ("", "-wal", "-shm", "-journal")]


class AuditLog:
    """Appends records in its own thread, in batches of one transaction each."""

    def __init__(
        self,
        file: Path,
        *,
        retention_days: int | None = None,
        busy_timeout_s: float = _BUSY_TIMEOUT_S,
        max_pending: int = _MAX_PENDING,
    ) -> None:
        """If the file stays locked, the oldest records beyond `max_pending` are dropped: memory stays bounded."""
        self.file = file
        self._retention_days = retention_days
        self._max_pending = max_pending
        self._pending: deque[CallRecord] = deque(maxlen=max_pending)
        self._dropped = self._dropped_logged = 0
        self._awaited: deque[threading.Event] = deque()
        self._wake_up = threading.Event()
        self._closing = threading.Event()
        self._connection = _open_for_writing(file, busy_timeout_s)
        self._thread = threading.Thread(target=self._write_until_closed, name="audit", daemon=True)
        self._thread.start()

    def append(self, record: CallRecord) -> None:
        """Queue the record; it is written shortly after."""
        if len(self._pending) == self._max_pending:
            self._dropped += 1
        self._pending.append(record)
        # Waking the thread for every record would cost more than all the rest of a short call.
        if not self._wake_up.is_set():
            self._wake_up.set()

    def flush(self, timeout_s: float) -> None:
        """Wait until every record that is queued now is written, but not longer than this."""
        written = threading.Event()
        self._awaited.append(written)
        self._wake_up.set()
        written.wait(timeout_s)

    def close(self) -> None:
        """Write the pending records and close the file."""
        self._closing.set()
        self._wake_up.set()
        self._thread.join()
        self._connection.close()

    def _write_until_closed(self) -> None:
        self._delete_old_records()
        while not self._closing.is_set():
            self._wake_up.wait()
            self._closing.wait(_BATCH_S)
            self._wake_up.clear()
            self._write_pending()
        # Records that arrived between the last write and closing.
        self._write_pending()

    def _write_pending(self) -> None:
        # First, so that what they wait for is among the rows.
        awaited = [self._awaited.popleft() for _ in range(len(self._awaited))]
        self._write_rows()
        for written in awaited:
            written.set()

    def _write_rows(self) -> None:
        rows: list[tuple[object, ...]] = []
        while self._pending:
            record = self._pending.popleft()
            rows.append(tuple(getattr(record, name) for name in _COLUMNS))
        if (dropped := self._dropped - self._dropped_logged) > 0:
            self._dropped_logged += dropped
            _log.error(
                "audit records were dropped: calls came faster than they could be written", extra={"records": dropped}
            )
        if not rows:
            return
        try:
            with transaction(self._connection):
                self._connection.executemany(_INSERT, rows)
        except sqlite3.Error:
            # The structured log has the calls as well. A full disk must not stop the server.
            _log.exception("audit records could not be written", extra={"records": len(rows)})

    def _delete_old_records(self) -> None:
        if self._retention_days is None:
            return
        try:
            with transaction(self._connection):
                self._connection.execute(
                    "DELETE FROM calls WHERE at < strftime('%Y-%m-%dT%H:%M:%fZ', 'now', ?)",
                    (f"-{self._retention_days} days",),
                )
        except sqlite3.Error:
            # Old records can wait for the next start.
            _log.exception("old audit records could not be removed")


OneOrMore = str | tuple[str, ...] | None
"""A value, or several of which one must match."""


@dataclass(frozen=True, slots=True)
class AuditFilter:
    """Selects records; None means any."""

    tool: OneOrMore = None
    capability: OneOrMore = None
    principal: OneOrMore = None
    root: OneOrMore = None
    path_prefix: str | None = None
    outcome: str | None = None
    code: str | None = None
    since: str | None = None
    until: str | None = None
    status: OneOrMore = None
    """An outcome, or the code of an error."""
    apikey_hash: str | None = None
    surface: OneOrMore = None
    without_reads_over: tuple[str, ...] = ()
    """Surfaces whose calls of read-only tools are left out."""

    def of_caller_and_time(self) -> AuditFilter:
        """Only the conditions that an index answers."""
        return AuditFilter(apikey_hash=self.apikey_hash, since=self.since, until=self.until)

    def where(self) -> tuple[str, list[str | int]]:
        """The SQL condition and its parameters."""
        columns = ("tool", "capability", "principal", "root", "outcome", "code", "apikey_hash", "surface")
        wanted: list[tuple[str, OneOrMore]] = [(f"{column} = ?", getattr(self, column)) for column in columns]
        wanted += [("? IN (outcome, code)", self.status), ("at >= ?", self.since), ("at < ?", self.until)]
        if self.path_prefix is not None:
            wanted.append(("path GLOB ?", re.sub(r"([*?\[])", r"[\1]", self.path_prefix) + "*"))
        conditions, values = ["TRUE"], list[str | int]()
        for condition, value in wanted:
            if value is not None:
                any_of = (value,) if isinstance(value, str) else value
                conditions.append(f"({' OR '.join([condition] * len(any_of))})")
                values += any_of
        if self.without_reads_over:
            conditions.append(f"NOT (read_only AND surface IN ({', '.join('?' * len(self.without_reads_over))}))")
            values += self.without_reads_over
        return " AND ".join(conditions), values


def read_records(file: Path, wanted: AuditFilter, *, last: int) -> list[tuple[int, CallRecord]]:
    """The newest `last` matching records, oldest first, each with its row number."""
    condition, values = wanted.where()
    with _opened_for_reading(file) as connection:
        return _select(connection, f"{condition} ORDER BY id DESC LIMIT ?", *values, last)[::-1]


Position = tuple[str, int]
"""The time and the row number of a record, by which pages are ordered."""


def read_page(
    file: Path, wanted: AuditFilter, *, most: int, scanned: int, before: Position | None = None
) -> tuple[list[tuple[int, CallRecord]], Position | None]:
    """The newest `most` matching records, newest first, and where the next page begins, or None if there is none.

    Reads at most `scanned` records of the caller and the time in the filter, whatever the other conditions leave of
    them: a page can have fewer records although others follow.
    """
    condition, values = wanted.of_caller_and_time().where()
    if before is not None:
        condition, values = f"{condition} AND (at, id) < (?, ?)", [*values, *before]
    matches, further = wanted.where()
    ordered = f"FROM calls WHERE {condition} ORDER BY at DESC, id DESC"
    with _opened_for_reading(file) as connection:
        end = f"SELECT at, id {ordered} LIMIT 1 OFFSET {scanned - 1}"
        last: Position | None = connection.execute(end, values).fetchone()
        newest = f"(SELECT * {ordered} LIMIT {scanned})"
        rows = _select(
            connection, f"{matches} ORDER BY at DESC, id DESC LIMIT ?", *values, *further, most, source=newest
        )
    if len(rows) == most:
        number, record = rows[-1]
        last = (record.at, number)
    return rows, last


FACETS = ("tool", "capability", "surface", "principal", "root", "status")
"""What calls are counted by. The status is the outcome or, of a failed call, its code."""


@dataclass(frozen=True, slots=True)
class CallCounts:
    """How many calls there are, by the values of each facet."""

    by_facet: Mapping[str, Counter[str]]
    calls: int
    is_complete: bool
    """Whether all calls that match were counted."""


def count_by_facet(file: Path, wanted: AuditFilter, *, scanned: int) -> CallCounts:
    """Count the matching calls among the newest `scanned` of the caller and the time in the filter."""
    condition, values = wanted.of_caller_and_time().where()
    matches, further = wanted.where()
    newest = f"(SELECT * FROM calls WHERE {condition} ORDER BY at DESC, id DESC LIMIT {scanned})"  # noqa: S608 our own names
    columns = f"{', '.join(FACETS[:-1])}, coalesce(code, outcome)"
    counts: dict[str, Counter[str]] = {name: Counter() for name in FACETS}
    calls = 0
    with _opened_for_reading(file) as connection:
        grouped = f"SELECT {columns}, count(*) FROM {newest} WHERE {matches} GROUP BY {columns}"  # noqa: S608 our own names
        for *row, number in connection.execute(grouped, [*values, *further]):
            calls += number
            for name, value in zip(FACETS, row, strict=True):
                if value is not None:
                    counts[name][value] += number
        read = f"SELECT 1 FROM calls WHERE {condition} ORDER BY at DESC, id DESC LIMIT 1 OFFSET {scanned}"  # noqa: S608
        is_complete = connection.execute(read, values).fetchone() is None
    return CallCounts(counts, calls, is_complete)


def last_calls(file: Path, apikey_hashes: Iterable[str]) -> dict[str, str]:
    """When each of these callers called last, if they have called."""
    with _opened_for_reading(file) as connection:
        newest = "SELECT max(at) FROM calls WHERE apikey_hash = ?"
        found = {each: connection.execute(newest, (each,)).fetchone()[0] for each in apikey_hashes}
    return {each: at for each, at in found.items() if at is not None}


def follow_records(
    file: Path, wanted: AuditFilter, *, after: int, poll_s: float = 0.2
) -> Iterator[tuple[int, CallRecord]]:
    """Yield matching records after row `after` as they are written, without end."""
    condition, values = wanted.where()
    with _opened_for_reading(file) as connection:
        while True:
            for numbered in _select(connection, f"id > ? AND {condition} ORDER BY id", after, *values):
                after = numbered[0]
                yield numbered
            time.sleep(poll_s)


def _select(
    connection: sqlite3.Connection, condition: str, *values: str | int, source: str = "calls"
) -> list[tuple[int, CallRecord]]:
    absent = _absent_columns(connection)
    columns = [column for column in _COLUMNS if column not in absent]
    rows = connection.execute(f"SELECT id, {', '.join(columns)} FROM {source} WHERE {condition}", values)  # noqa: S608 our own names
    return [(number, _record_of(dict(zip(columns, row, strict=True)))) for number, *row in rows]


def _record_of(row: dict[str, Any]) -> CallRecord:
    row["read_only"] = bool(row.get("read_only"))
    return CallRecord(**row)


def _absent_columns(connection: sqlite3.Connection) -> list[str]:
    """The columns that the file of an older server does not have."""
    present = {column[1] for column in connection.execute("PRAGMA table_info(calls)")}
    return [column for column in _ADDED if column not in present]


def _open_for_writing(file: Path, busy_timeout_s: float) -> sqlite3.Connection:
    try:
        make_private_directory(file.parent)
        create_file(file)
        with ExitStack() as undo:
            connection = undo.enter_context(closing(connect(file, busy_timeout_s=busy_timeout_s)))
            found = _check_version(connection, file)
            use_write_ahead_log(connection, synchronous="NORMAL")
            connection.executescript(_SCHEMA)
            for column in _absent_columns(connection):
                connection.execute(f"ALTER TABLE calls ADD COLUMN {column} {_ADDED[column]}")
            if found != _VERSION:  # setting it again would wait for other writers
                connection.execute(f"PRAGMA user_version = {_VERSION}")
            undo.pop_all()
            return connection
    except (OSError, sqlite3.Error) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise ConfigError(
            f"cannot write the audit log {file}: {reason}",
            hint="move it away if it is damaged, let this user write it, or name another file in `audit.file`",
        ) from error


@contextmanager
def _opened_for_reading(file: Path) -> Generator[sqlite3.Connection]:
    with closing(connect(file, "ro", busy_timeout_s=_BUSY_TIMEOUT_S)) as connection:
        _check_version(connection, file)
        yield connection


def _check_version(connection: sqlite3.Connection, file: Path) -> int:
    found = schema_version(connection)
    if found > _VERSION:
        raise ConfigError(
            f"the audit log {file} has version {found}, this program reads up to {_VERSION}",
            hint="update Armarium, or name another file in `audit.file`",
        )
    return found
