"""The audit log: written behind the calls, read while it is written, kept private."""

from __future__ import annotations

import sqlite3
import stat
import threading
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from armarium.foundation.audit import AuditFilter, AuditLog, CallRecord, follow_records, read_records
from armarium.foundation.telemetry import timestamp

RECORD = CallRecord(
    at="2026-01-02T03:04:05.000006Z",
    call_id="c1",
    surface="http",
    capability="sandbox",
    tool="read_file",
    principal="ada",
    apikey_hash="0" * 64,
    session="s1",
    root="workspace",
    path="notes/a.txt",
    resolved_path=None,
    outcome="success",
    code=None,
    duration_ms=1.5,
    request_bytes=10,
    response_bytes=20,
    arguments='{"path":"notes/a.txt"}',
)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "state" / "audit.sqlite"


def write(file: Path, *records: CallRecord, retention_days: int | None = None) -> None:
    audit = AuditLog(file, retention_days=retention_days)
    for record in records:
        audit.append(record)
    audit.close()


def found(file: Path, *, last: int = 100, **wanted: str) -> list[str]:
    return [record.call_id for _, record in read_records(file, AuditFilter(**wanted), last=last)]


def test_what_is_appended_is_read_back_as_it_was_in_the_order_of_the_calls(file: Path) -> None:
    written = [replace(RECORD, call_id=f"c{number}", duration_ms=number) for number in range(50)]
    write(file, *written)
    read = read_records(file, AuditFilter(), last=100)
    assert [record for _, record in read] == written
    assert [row for row, _ in read] == sorted(row for row, _ in read)


def test_the_newest_records_are_given_when_fewer_are_wanted(file: Path) -> None:
    write(file, *(replace(RECORD, call_id=f"c{number}") for number in range(10)))
    assert found(file, last=3) == ["c7", "c8", "c9"]


def test_the_trail_outlives_the_server_and_the_next_one_goes_on(file: Path) -> None:
    write(file, RECORD)
    write(file, replace(RECORD, call_id="c2"))
    assert found(file) == ["c1", "c2"]


def test_the_trail_is_for_its_owner_alone(file: Path) -> None:
    write(file, RECORD)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700


@pytest.mark.parametrize(
    ("wanted", "calls"),
    [
        ({}, ["a", "b", "c", "d"]),
        ({"tool": "grep"}, ["b"]),
        ({"capability": "store"}, ["c"]),
        ({"principal": "bob"}, ["d"]),
        ({"root": "other"}, ["c"]),
        ({"outcome": "error"}, ["b", "d"]),
        ({"code": "NOT_FOUND"}, ["d"]),
        ({"path_prefix": "notes/"}, ["a", "b"]),
        ({"path_prefix": "no*"}, ["c"]),
        ({"path_prefix": "[x]"}, ["d"]),
        ({"since": "2026-01-02"}, ["b", "c", "d"]),
        ({"until": "2026-01-02"}, ["a"]),
        ({"since": "2026-01-02", "until": "2026-01-04", "outcome": "error"}, ["b"]),
    ],
)
def test_records_are_filtered(file: Path, wanted: dict[str, str], calls: list[str]) -> None:
    write(
        file,
        replace(RECORD, call_id="a", at="2026-01-01T00:00:00.000000Z"),
        replace(RECORD, call_id="b", at="2026-01-02T00:00:00.000000Z", tool="grep", outcome="error", code="X"),
        replace(RECORD, call_id="c", at="2026-01-03T00:00:00.000000Z", capability="store", root="other", path="no*t"),
        replace(
            RECORD,
            call_id="d",
            at="2026-01-04T00:00:00.000000Z",
            principal="bob",
            outcome="error",
            code="NOT_FOUND",
            path="[x]y",
        ),
    )
    assert found(file, **wanted) == calls


def test_a_filter_is_a_value_never_a_piece_of_sql(file: Path) -> None:
    write(file, RECORD)
    assert found(file, tool="read_file' OR '1'='1") == []
    assert found(file) == ["c1"]


def test_records_are_followed_while_they_are_written(file: Path) -> None:
    audit = AuditLog(file)
    audit.append(RECORD)
    followed: list[str] = []
    seen_two = threading.Event()

    def follow() -> None:
        for _, record in follow_records(file, AuditFilter(tool="read_file"), after=0, poll_s=0.01):
            followed.append(record.call_id)
            if len(followed) == 2:
                seen_two.set()
                return

    reader = threading.Thread(target=follow)
    reader.start()
    audit.append(replace(RECORD, call_id="not wanted", tool="grep"))
    audit.append(replace(RECORD, call_id="c2"))
    assert seen_two.wait(10)
    reader.join()
    audit.close()
    assert followed == ["c1", "c2"]


def test_old_records_are_forgotten_when_the_server_starts(file: Path) -> None:
    write(file, replace(RECORD, call_id="old", at="2020-01-01T00:00:00.000000Z"), replace(RECORD, at=timestamp()))
    write(file, replace(RECORD, call_id="new", at=timestamp()), retention_days=7)
    assert found(file) == ["c1", "new"]


def test_without_a_retention_everything_is_kept(file: Path) -> None:
    write(file, replace(RECORD, call_id="old", at="2020-01-01T00:00:00.000000Z"))
    write(file)
    assert found(file) == ["old"]


def test_a_reader_changes_nothing_and_needs_a_trail_to_read(file: Path, tmp_path: Path) -> None:
    with pytest.raises(sqlite3.OperationalError):
        read_records(file, AuditFilter(), last=1)
    assert list(tmp_path.iterdir()) == []


def test_two_servers_may_write_the_same_trail(file: Path) -> None:
    first, second = AuditLog(file), AuditLog(file)
    for number in range(100):
        first.append(replace(RECORD, call_id=f"first {number}"))
        second.append(replace(RECORD, call_id=f"second {number}"))
    first.close()
    second.close()
    assert len(set(found(file, last=1000))) == 200


def test_a_disk_that_takes_no_more_is_logged_and_stops_nobody(file: Path, caplog: pytest.LogCaptureFixture) -> None:
    audit = AuditLog(file)
    with sqlite3.connect(file) as other:
        other.execute("DROP TABLE calls")
    audit.append(RECORD)
    audit.close()
    other.close()
    assert [record.records for record in caplog.records] == [1]


def test_a_trail_from_before_costs_were_noted_is_read_and_gone_on_with(file: Path) -> None:
    write(file, RECORD)
    with closing(sqlite3.connect(file)) as connection, connection:
        connection.execute("ALTER TABLE calls DROP COLUMN cost")
    assert [record for _, record in read_records(file, AuditFilter(), last=10)] == [RECORD]
    charged = replace(RECORD, call_id="c2", cost=0.25)
    write(file, charged)
    assert [record for _, record in read_records(file, AuditFilter(), last=10)] == [RECORD, charged]
