"""Findings as they are stored: found, listed, put in by the thousand, and changed."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from armarium.capabilities.registry.model import Finding, FindingStatus, Page, Severity
from armarium.capabilities.registry.storage.columns import finding
from armarium.capabilities.registry.storage.database import Reader, Row, Writer


class StoredFinding(NamedTuple):
    """A finding, and the numbers of it and of its file."""

    no: int
    file_no: int
    finding: Finding


class KnownFinding(NamedTuple):
    """What a scan compares a reported finding with."""

    no: int
    key: str
    id: str
    rule_id: str
    severity: Severity
    status: FindingStatus
    message: str
    suggestion: str
    line_start: int | None
    line_end: int | None
    suppressed: int
    """Whether it is a false positive by the word of a scan, not of a person."""


class OpenFinding(NamedTuple):
    """What is told of a finding when it closes."""

    no: int
    id: str
    file_no: int
    rule_id: str
    severity: Severity


class FindingFilter(NamedTuple):
    """Which findings a listing shows; what is None does not narrow it."""

    file_no: int | None = None
    status: FindingStatus | None = None
    severity: Severity | None = None
    scan_source: str | None = None


def by_id(reader: Reader, finding_id: str) -> StoredFinding | None:
    """The finding of that id."""
    row = reader.row("finding_by_id", (finding_id,))
    return None if row is None else StoredFinding(row[0], row[1], finding(row))


def recent(reader: Reader, file_no: int, limit: int) -> list[Finding]:
    """The findings of a file that changed last, newest first."""
    return [finding(row) for row in reader.rows("recent_findings", (file_no, limit))]


def page(reader: Reader, wanted: FindingFilter, limit: int, offset: int) -> Page[Finding]:
    """A part of the findings that are wanted, those that changed last first."""
    columns = {"file_no": "file_no", "status": "status", "severity": "severity", "source": "scan_source"}
    values: dict[str, Any] = {
        column: value for column, name in columns.items() if (value := getattr(wanted, name)) is not None
    }
    where = " AND ".join(f"n.{column} = :{column}" for column in values) or "TRUE"
    [(total,)] = reader.rows("count_findings", values, where=where)
    placed = values | {"limit": limit, "offset": offset}
    rows = reader.rows("list_findings", placed, where=where) if offset < total else []
    return Page([finding(row) for row in rows], total, limit, offset)


def known(reader: Reader, file_no: int, source: str) -> dict[str, KnownFinding]:
    """What a source found in a file before, by what it is known by."""
    return {row[1]: KnownFinding(*row) for row in reader.rows("known_findings", (file_no, source))}


def open_of_source(reader: Reader, source: str, path: str, run: str) -> list[OpenFinding]:
    """The open findings of a source in a file or below a directory ("" is the project), which a run has not seen."""
    name = "open_findings_covered" if path else "open_findings_of_source"
    asked = {"source": source, "run": run} | ({"path": path} if path else {})
    return [OpenFinding(*row) for row in reader.rows(name, asked)]


def open_of_file(reader: Reader, file_no: int) -> list[tuple[OpenFinding, str]]:
    """The open findings of a file, each with its source."""
    rows = reader.rows("open_findings_of_file", (file_no,))
    return [(OpenFinding(no, id_, file_no, rule, severity), source) for no, id_, source, rule, severity in rows]


def is_suppressed(reader: Reader, no: int) -> bool:
    """Whether a finding is a false positive by the word of a scan."""
    row = reader.row("is_finding_suppressed", (no,))
    return row is not None and bool(row[0])


def set_status(writer: Writer, numbers: Iterable[int], status: FindingStatus) -> None:
    """Give findings a status, which is no scan's suppression from now on."""
    writer.many("set_finding_status", ((status, writer.now, no) for no in numbers))


def insert(writer: Writer, rows: Iterable[Row]) -> None:
    """New findings, column by column as the statement names them."""
    writer.many("put_finding", rows)


def set_fingerprints(writer: Writer, rows: Iterable[Row]) -> None:
    """Key, fingerprint and number of findings that were known without one."""
    writer.many("set_finding_fingerprint", rows)


def mark_seen(writer: Writer, rows: Iterable[Row]) -> None:
    """Run, metadata and number of findings that a scan saw again."""
    writer.many("mark_finding_seen", ((writer.now, run, metadata, no) for run, metadata, no in rows))


def update(writer: Writer, rows: Iterable[Row]) -> None:
    """Findings that a scan describes differently now."""
    writer.many("change_finding", rows)


def set_issue(writer: Writer, no: int, issue_no: int) -> None:
    """Say which issue a finding became."""
    writer.rows("set_finding_issue", (issue_no, writer.now, no))
