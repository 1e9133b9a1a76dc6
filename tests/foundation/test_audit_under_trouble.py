"""The audit trail while its file is locked or in a hurry: calls go on, memory is bounded, and what is lost is told."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Generator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from armarium.foundation import audit as audit_module
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
    """A trail that a server has written before."""
    file = tmp_path / "audit.sqlite"
    earlier = AuditLog(file)
    earlier.append(replace(RECORD, call_id="old", at="2020-01-01T00:00:00.000000Z"))
    earlier.close()
    return file


@contextmanager
def locked(file: Path) -> Generator[None]:
    """Somebody else is writing, and takes their time."""
    with closing(sqlite3.connect(file)) as other:
        other.execute("BEGIN IMMEDIATE")
        yield
        other.rollback()


def calls(file: Path) -> list[str]:
    return [record.call_id for _, record in read_records(file, AuditFilter(), last=1000)]


class Told:
    """Waits for what the log says."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.messages: list[str] = []
        self.counts: list[int] = []
        self.news = threading.Event()
        monkeypatch.setattr(audit_module._log, "exception", self._tell)
        monkeypatch.setattr(audit_module._log, "error", self._tell)

    def _tell(self, message: str, extra: dict[str, int] | None = None) -> None:
        self.messages.append(message)
        self.counts.append((extra or {}).get("records", 0))
        self.news.set()


def test_a_lock_on_the_day_of_forgetting_does_not_end_the_record_of_new_calls(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = Told(monkeypatch)
    with locked(file):
        audit = AuditLog(file, retention_days=7, busy_timeout_s=0.01)
        assert told.news.wait(DEADLINE_S)
    audit.append(RECORD)
    audit.close()
    assert told.messages == ["old audit records could not be removed"]
    assert calls(file) == ["old", "c"]


def test_while_nothing_can_be_written_the_oldest_records_make_room_and_that_is_told_once(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = Told(monkeypatch)
    # The thread waits for the lock to delete old records, so new ones stay pending.
    with locked(file):
        audit = AuditLog(file, retention_days=7, max_pending=100)
        for number in range(250):
            audit.append(replace(RECORD, call_id=f"c{number}"))
    audit.close()
    assert calls(file) == [f"c{number}" for number in range(150, 250)]
    assert told.counts == [150]


def test_a_trail_that_is_closed_at_once_has_every_record(file: Path) -> None:
    for number in range(30):
        audit = AuditLog(file, retention_days=7)
        audit.append(replace(RECORD, call_id=f"c{number}"))
        audit.close()
    assert calls(file) == [f"c{number}" for number in range(30)]
