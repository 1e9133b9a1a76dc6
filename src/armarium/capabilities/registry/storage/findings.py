"""The table of findings: lookup, pages, bulk inserts and updates."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from armarium.capabilities.registry.errors import KNOWN_FINDINGS, NotFound
from armarium.capabilities.registry.model import ExportedFinding, Finding, Page
from armarium.capabilities.registry.storage.columns import finding, page_of
from armarium.capabilities.registry.storage.database import Reader, Writer
from armarium.capabilities.registry.values import FindingStatus, Severity

_NOT_FIXED = "n.status <> 'fixed'"


class StoredFinding(NamedTuple):
    """A finding with its number and that of its file in the database."""

    no: int
    file_no: int
    finding: Finding


class KnownFinding(NamedTuple):
    """The part of a stored finding that a scan compares with a reported one."""

    no: int
    id: str
    rule_id: str
    severity: Severity
    status: FindingStatus
    message: str
    suggestion: str
    line_start: int | None
    line_end: int | None
    suppressed: int
    """Whether a scan, not a person, made it a false positive."""
    category: str
    fingerprint: str | None
    place: bytes
    """Hashes of the content around it; empty if unknown."""
    metadata: str


class OpenFinding(NamedTuple):
    """The part of an open finding that the event of its closing needs."""

    no: int
    id: str
    file_no: int
    rule_id: str
    severity: Severity


def by_id(reader: Reader, finding_id: str) -> StoredFinding:
    row = reader.row("finding_by_id", (finding_id,))
    if row is None:
        raise NotFound("no finding has this id", hint=KNOWN_FINDINGS)
    return StoredFinding(row[-2], row[-1], finding(row))


def recent(reader: Reader, file_no: int, limit: int) -> list[Finding]:
    return [finding(row) for row in reader.rows("recent_findings", (file_no, limit))]


def page(reader: Reader, wanted: Mapping[str, object], limit: int, offset: int) -> Page[Finding]:
    """A page of the findings with these values in columns, those that changed last first. None means any."""
    values = {column: value for column, value in wanted.items() if value is not None}
    where = " AND ".join(f"n.{column} = :{column}" for column in values) or "TRUE"
    [(total,)] = reader.rows("count_findings", values, where=where)
    placed = values | {"limit": limit, "offset": offset}
    rows = reader.rows("list_findings", placed, where=where) if offset < total else []
    return page_of([finding(row) for row in rows], total, limit, offset)


def exported(reader: Reader, status: FindingStatus | None, source: str | None) -> list[ExportedFinding]:
    """All findings of a source with a status; without one, those that are not fixed."""
    values = {name: value for name, value in {"status": status, "source": source}.items() if value is not None}
    where = " AND ".join([*(f"n.{column} = :{column}" for column in values), *([] if status else [_NOT_FIXED])])
    rows = reader.rows("list_findings", values | {"limit": -1, "offset": 0}, where=where)
    contexts = {row[0]: row[1:] for row in reader.rows("contexts")} if reader.has_contexts else {}
    return [ExportedFinding(finding(row), *contexts.get(row[-2], ("", b""))) for row in rows]


def known(reader: Reader, file_no: int, source: str, category: str) -> list[KnownFinding]:
    """The findings of a source in a file: those of a category, and those without one."""
    wanted = {"file_no": file_no, "source": source, "category": category}
    return [KnownFinding._make(row) for row in reader.rows("known_findings", wanted)]


def open_of_source(reader: Reader, source: str, category: str, path: str, run: str) -> list[OpenFinding]:
    """The open findings of a source and category in a file or directory ("" is the project) that a run did not
    report."""
    wanted = {"source": source, "category": category, "run": run, "path": path}
    rows = reader.rows("open_findings_covered" if path else "open_findings_of_source", wanted)
    return [OpenFinding(*row) for row in rows]


def open_of_file(reader: Reader, file_no: int) -> list[tuple[OpenFinding, str]]:
    rows = reader.rows("open_findings_of_file", (file_no,))
    return [(OpenFinding(no, id_, file_no, rule, severity), source) for no, id_, source, rule, severity in rows]


def is_suppressed(reader: Reader, no: int) -> bool:
    row = reader.row("is_finding_suppressed", (no,))
    return row is not None and bool(row[0])


def set_status(writer: Writer, numbers: Iterable[int], status: FindingStatus) -> None:
    """Set the status of findings. It no longer counts as a scan's suppression."""
    writer.many("set_finding_status", ((status, writer.now, no) for no in numbers))
