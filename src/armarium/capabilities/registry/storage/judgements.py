"""The tables of judgements on many findings, and of the last scans."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import orjson

from armarium.capabilities.registry.errors import NotFound, ValidationError
from armarium.capabilities.registry.model import LastScan, Scanned
from armarium.capabilities.registry.storage.columns import named
from armarium.capabilities.registry.storage.database import Reader, Writer
from armarium.capabilities.registry.values import FindingStatus, Severity

_MAX_SCANS = 100
_MAX_JUDGED = 100_000
"""The most findings of one judgement: its transaction makes other writers wait."""


class JudgedFinding(NamedTuple):
    """The part of a finding that its judgement needs, and, if that is undone, the event of the judgement."""

    no: int
    id: str
    file_no: int
    source: str
    rule_id: str
    severity: Severity
    status: FindingStatus
    suppressed: int
    updated_at: str
    event: dict[str, Any] = {}  # noqa: RUF012 never changed


class Judgement(NamedTuple):
    id: str
    at: str
    actor: str
    status: FindingStatus
    reason: str
    first_event: int
    last_event: int
    undone_at: str | None


def selected(reader: Reader, where: str, values: dict[str, Any]) -> list[JudgedFinding]:
    """The findings that a condition selects, in the order of their creation."""
    rows = reader.rows("findings_to_judge", values | {"limit": _MAX_JUDGED + 1}, where=where)
    if len(rows) > _MAX_JUDGED:
        raise ValidationError(f"these are more than {_MAX_JUDGED:,} findings", hint="narrow the filter")
    return [JudgedFinding(*row) for row in rows]


def insert(writer: Writer, judgement: Judgement) -> None:
    writer.rows("put_judgement", judgement[:-1])


def by_id(reader: Reader, judgement_id: str) -> Judgement:
    row = reader.row("judgement", (judgement_id,))
    if row is None:
        raise NotFound("no judgement has this id", hint="judging findings returns it")
    return Judgement._make(row)


def changed_by(reader: Reader, judgement: Judgement) -> list[JudgedFinding]:
    """The findings that a judgement changed, as they are now."""
    rows = reader.rows("judged_findings", (judgement.first_event, judgement.last_event))
    return [JudgedFinding(*row[:-1], event=orjson.loads(row[-1])) for row in rows]


def restore(writer: Writer, findings: Iterable[tuple[FindingStatus, bool, int]]) -> None:
    """Set the status of findings, and whether a scan set it."""
    writer.many("restore_finding", ((status, by_scan, writer.now, no) for status, by_scan, no in findings))


def put_scan(writer: Writer, scan: Scanned, actor: str) -> None:
    counts = (scan["findings_created"], scan["findings_closed"], scan["findings_reopened"])
    run = (scan["scan_source"], scan["category"], writer.now, actor, scan["scan_run_id"], scan["failed"])
    writer.many("put_scan", [(*run, *counts)])


def last_scans(reader: Reader) -> list[LastScan]:
    """The last scan of each scanner and category, the latest first."""
    rows = reader.rows("last_scans", (_MAX_SCANS,)) if reader.has_judgements else []
    return [{**named(LastScan, row), "failed": bool(row[4])} for row in rows]
