"""The audit log while its file is locked: calls continue, memory is bounded, and lost records are logged."""

from __future__ import annotations

import logging
import sqlite3
import threading
from collections.abc import Generator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from armarium.foundation.audit import AuditFilter, AuditLog, CallRecord, read_records
from armarium.foundation.telemetry import timestamp

RECORD = CallRecord(
    at=timestamp(),
    call_id="c",
    surface="http",
    capability="sandbox",
    tool="read_file",
    principal="ada",
    apikey_hash="0" * 64,
    session=None,
    root="workspace",
    path="a.txt",
    resolved_path=None,
    outcome="success",
    code=None,
    duration_ms=1.0,
    request_bytes=1,
    response_bytes=1,
    arguments="{}",
)
DEADLINE_S = 10.0


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """An audit log with one old record."""
    file = tmp_path / "audit.sqlite"
    earlier = AuditLog(file)
    earlier.append(replace(RECORD, call_id="old", at="2020-01-01T00:00:00.000000Z"))
    earlier.close()
    return file


@contextmanager
def locked(file: Path) -> Generator[None]:
    """Another process writes during the block."""
    with closing(sqlite3.connect(file)) as other:
        other.execute("BEGIN IMMEDIATE")
        yield
        other.rollback()


def calls(file: Path) -> list[str]:
    return [record.call_id for _, record in read_records(file, AuditFilter(), last=1000)]


class LogRecorder(logging.Handler):
    """Collects what the audit log logs."""

    def __init__(self) -> None:
        super().__init__()
        self.messages: list[str] = []
        self.counts: list[int] = []
        self.logged = threading.Event()

    def emit(self, record: logging.LogRecord) -> None:
        self.messages.append(record.getMessage())
        self.counts.append(getattr(record, "records", 0))
        self.logged.set()


@pytest.fixture
def log() -> Generator[LogRecorder]:
    recorder = LogRecorder()
    logger = logging.getLogger("armarium.foundation.audit")
    logger.addHandler(recorder)
    yield recorder
    logger.removeHandler(recorder)


def test_a_lock_while_old_records_are_deleted_does_not_stop_the_recording_of_new_calls(
    file: Path, log: LogRecorder
) -> None:
    with locked(file):
        audit = AuditLog(file, retention_days=7, busy_timeout_s=0.01)
        assert log.logged.wait(DEADLINE_S)
    audit.append(RECORD)
    audit.close()
    assert log.messages == ["old audit records could not be removed"]
    assert calls(file) == ["old", "c"]


def test_while_the_file_is_locked_the_oldest_records_are_dropped_and_that_is_logged_once(
    file: Path, log: LogRecorder
) -> None:
    # The thread waits for the lock to delete old records, so new ones stay pending.
    with locked(file):
        audit = AuditLog(file, retention_days=7, max_pending=100)
        for number in range(250):
            audit.append(replace(RECORD, call_id=f"c{number}"))
    audit.close()
    assert calls(file) == [f"c{number}" for number in range(150, 250)]
    assert log.counts == [150]


def test_a_trail_that_is_closed_at_once_has_every_record(file: Path) -> None:
    for number in range(30):
        audit = AuditLog(file, retention_days=7)
        audit.append(replace(RECORD, call_id=f"c{number}"))
        audit.close()
    assert calls(file) == [f"c{number}" for number in range(30)]
