"""Applies scan reports: creates new findings, updates known ones, and closes those not reported again."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from armarium.capabilities.registry.changes import file_records
from armarium.capabilities.registry.changes.ids import Ids
from armarium.capabilities.registry.changes.reported_findings import identity, identity_by_place, normalised
from armarium.capabilities.registry.errors import InvalidPath, RegistryError
from armarium.capabilities.registry.limits import metadata_json
from armarium.capabilities.registry.model import FindingStatus, ReportEntry, Scanned, ScanReport
from armarium.capabilities.registry.paths import ProjectPaths
from armarium.capabilities.registry.storage import files, findings, timeline
from armarium.capabilities.registry.storage.columns import Row
from armarium.capabilities.registry.storage.database import Writer
from armarium.capabilities.registry.storage.findings import KnownFinding, OpenFinding
from armarium.capabilities.registry.storage.timeline import NewEvent

OnProgress = Callable[[int], None]
"""Called from a worker thread with the number of findings processed so far."""

OUTSIDE_PROJECT = "outside_project"
NOT_A_FILE = "not_a_file"
FILE_REMOVED = "file_removed"
"""The file was removed and does not exist: the report is outdated."""
COVERED_OUTSIDE = "covered_path_outside_project"
"""Counts scanned paths, not findings."""

_BATCH = 1000
_DESCRIPTION = ("rule_id", "severity", "message", "suggestion", "line_start", "line_end")
"""The fields whose change makes an event."""


@dataclass(slots=True)
class _ScannedFile:
    """A file with reported findings: the findings known before the scan, and the keys reported in it."""

    no: int
    known: dict[str, KnownFinding]
    seen: set[str] = field(default_factory=set[str])

    def adopt(self, key: str, reported: ReportEntry) -> KnownFinding | None:
        """The known finding without a fingerprint at the place of a reported one that has one. It gets the new key and
        keeps its history."""
        by_place = identity_by_place(reported)
        if by_place not in self.known or by_place in self.seen:
            return None
        self.known[key] = self.known.pop(by_place)
        return self.known[key]


def apply_reports(
    writer: Writer, ids: Ids, paths: ProjectPaths, reports: Iterable[ScanReport], actor: str, on_progress: OnProgress
) -> list[Scanned]:
    """Apply reports one after the other, in the transaction of the writer. Progress counts the findings of all."""
    done = 0
    outcomes: list[Scanned] = []
    for report in reports:
        scan = _Scan(writer, ids, paths, report.source, actor)
        for reported in report.findings:
            scan.add(reported)
            done += 1
            if done % _BATCH == 0:
                scan.flush()
                on_progress(done)
        scan.flush()
        # A failed scan proves nothing about findings that it does not report.
        scan.close_unseen(() if report.failed else report.covered)
        on_progress(done)
        outcomes.append(scan.outcome(report))
    return outcomes


class _Scan:
    """A scan in progress. Rows are collected and written in batches."""

    def __init__(self, writer: Writer, ids: Ids, paths: ProjectPaths, source: str, actor: str) -> None:
        self._writer, self._ids, self._paths = writer, ids, paths.with_cache()
        self._source, self._actor = source, actor
        self._run_id = ids.scan_run()
        self._places: dict[str, _ScannedFile | str] = {}
        """The file, or the reason to skip it, by path in the report."""
        self._files: dict[str, _ScannedFile] = {}
        """The files by canonical path."""
        self._new: list[tuple[_ScannedFile, str, ReportEntry]] = []
        self._named: list[Row] = []
        self._seen_again: list[Row] = []
        self._changed: list[Row] = []
        self._events: list[NewEvent] = []
        self._touched: set[int] = set()
        self._counts: Counter[str] = Counter()
        self._skipped: Counter[str] = Counter()

    def add(self, reported: ReportEntry) -> None:
        place = self._places.get(reported.path)
        if place is None:
            place = self._places[reported.path] = self._place(reported.path)
        if isinstance(place, str):
            self._skipped[place] += 1
            return
        reported = normalised(reported)
        key = identity(reported)
        if key in place.seen:
            self._counts["duplicate"] += 1
            return
        place.seen.add(key)
        known = place.known.get(key)
        if known is None and reported.fingerprint:
            known = place.adopt(key, reported)
            if known is not None:
                self._named.append((key, reported.fingerprint, known.no))
        if known is None:
            self._new.append((place, key, reported))
        else:
            self._see_again(place.no, known, reported)

    def _place(self, path: str) -> _ScannedFile | str:
        try:
            canonical = self._paths.canonical(self._paths.relative(path))
        except InvalidPath:
            return OUTSIDE_PROJECT
        except RegistryError:
            return NOT_A_FILE
        if canonical not in self._files:
            stored = files.at(self._writer, canonical)
            if stored is not None and stored.removed_at is not None and not self._paths.exists(canonical):
                return FILE_REMOVED
            no = file_records.register(self._writer, self._ids, canonical, self._actor)
            self._files[canonical] = _ScannedFile(no, findings.known(self._writer, no, self._source))
        return self._files[canonical]

    def _see_again(self, file_no: int, known: KnownFinding, reported: ReportEntry) -> None:
        self._seen_again.append((self._writer.now, self._run_id, metadata_json(reported.metadata), known.no))
        status, suppressed = _new_status(known, reported)
        changes = {
            name: {"old_value": getattr(known, name), "new_value": getattr(reported, name)}
            for name in _DESCRIPTION
            if getattr(known, name) != getattr(reported, name)
        }
        if status != known.status:
            changes["status"] = {"old_value": known.status, "new_value": status}
        if not changes:
            self._counts["unchanged"] += 1
            return
        reopened = known.status != "open" and status == "open"
        self._counts["reopened" if reopened else "updated"] += 1
        described = tuple(getattr(reported, name) for name in _DESCRIPTION)
        self._changed.append((*described[:2], status, *described[2:], suppressed, self._writer.now, known.no))
        data = self._event_data(reported, status) | {"changes": changes}
        if reopened:
            data["reopened"] = True
        self._events.append(NewEvent(file_no, "finding_updated", known.id, data))
        self._touched.add(file_no)

    def flush(self) -> None:
        new_ids = self._ids.new(self._writer, "finding", len(self._new)) if self._new else []
        rows: list[Row] = []
        created: list[NewEvent] = []
        now = self._writer.now
        for finding_id, (place, key, reported) in zip(new_ids, self._new, strict=True):
            status = "false_positive" if reported.suppressed else "open"
            described = (reported.rule_id, reported.severity, status, reported.message, reported.suggestion)
            place_in_file = (reported.line_start, reported.line_end, reported.fingerprint)
            seen = (self._run_id, now, now, now, metadata_json(reported.metadata), reported.suppressed)
            rows.append((finding_id, place.no, self._source, key, *described, *place_in_file, *seen))
            created.append(NewEvent(place.no, "finding_created", finding_id, self._event_data(reported, status)))
            self._touched.add(place.no)
        self._counts["created"] += len(rows)
        # First, because a new finding may have the key that one of these had before.
        self._writer.many("set_finding_fingerprint", self._named)
        self._writer.many("put_finding", rows)
        self._writer.many("mark_finding_seen", self._seen_again)
        self._writer.many("change_finding", self._changed)
        timeline.append(self._writer, [*created, *self._events])
        for collected in (self._new, self._named, self._seen_again, self._changed, self._events):
            collected.clear()

    def close_unseen(self, covered: tuple[str, ...] | None) -> None:
        """Close the earlier findings of this source in the scanned files that were not reported again."""
        if covered is None:
            known = [(place, key, each) for place in self._files.values() for key, each in place.known.items()]
            unseen = [(place.no, it) for place, key, it in known if it.status == "open" and key not in place.seen]
            self._close([OpenFinding(it.no, it.id, file_no, it.rule_id, it.severity) for file_no, it in unseen])
        for path in covered or ():
            try:
                canonical = self._paths.covered(path)
            except RegistryError:
                self._skipped[COVERED_OUTSIDE] += 1
                continue
            self._close(findings.open_of_source(self._writer, self._source, canonical, self._run_id))
        files.touch(self._writer, sorted(self._touched))

    def _close(self, fixed: list[OpenFinding]) -> None:
        self._touched |= file_records.close(self._writer, fixed, self._source, scan_run_id=self._run_id)
        self._counts["closed"] += len(fixed)

    def outcome(self, report: ScanReport) -> Scanned:
        self._skipped.update(report.skipped)
        return {
            "scan_source": self._source,
            "scan_run_id": self._run_id,
            "findings_created": self._counts["created"],
            "findings_updated": self._counts["updated"],
            "findings_closed": self._counts["closed"],
            "findings_reopened": self._counts["reopened"],
            "findings_unchanged": self._counts["unchanged"],
            "findings_duplicate": self._counts["duplicate"],
            "files": len(self._files),
            "skipped": [{"reason": reason, "count": count} for reason, count in sorted(self._skipped.items())],
            "failed": report.failed,
        }

    def _event_data(self, reported: ReportEntry, status: FindingStatus) -> dict[str, Any]:
        data: dict[str, Any] = {
            "scan_source": self._source,
            "rule_id": reported.rule_id,
            "severity": reported.severity,
            "status": status,
            "message": reported.message,
            "scan_run_id": self._run_id,
        }
        return data if reported.line_start is None else data | {"line_start": reported.line_start}


def _new_status(known: KnownFinding, reported: ReportEntry) -> tuple[FindingStatus, bool]:
    """The status of a finding that is reported again, and whether the scan suppresses it. A false positive set by a
    person remains; one by suppression lasts as long as the suppression."""
    if known.status == "false_positive" and not known.suppressed:
        return "false_positive", False
    return ("false_positive", True) if reported.suppressed else ("open", False)
