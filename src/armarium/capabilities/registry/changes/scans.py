"""One scan's findings against what is known: new ones come in, known ones are seen again, missing ones are fixed."""

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
from armarium.capabilities.registry.model import FindingStatus, ReportEntry, ScanOutcome, ScanReport
from armarium.capabilities.registry.paths import ProjectPaths
from armarium.capabilities.registry.storage import files, findings, timeline
from armarium.capabilities.registry.storage.database import Row, Writer
from armarium.capabilities.registry.storage.findings import KnownFinding, OpenFinding
from armarium.capabilities.registry.storage.timeline import NewEvent

OnProgress = Callable[[int], None]
"""Told, from a worker thread, how many findings of a report have been taken in so far."""

OUTSIDE_PROJECT = "outside_project"
NOT_A_FILE = "not_a_file"
FILE_REMOVED = "file_removed"
"""The file was removed and is not there: the report is about what was."""
COVERED_OUTSIDE = "covered_path_outside_project"
"""Not a finding, but a path that was looked at."""

_BATCH = 1000
_DESCRIPTION = ("rule_id", "severity", "message", "suggestion", "line_start", "line_end")
"""What a finding is told anew for, when a scan describes it differently."""


@dataclass(slots=True)
class _ScannedFile:
    """A file that findings name: what was known of it before, and what has been seen of it now."""

    no: int
    known: dict[str, KnownFinding]
    seen: set[str] = field(default_factory=set[str])

    def take_unnamed(self, key: str, reported: ReportEntry) -> KnownFinding | None:
        """The finding that was known without a fingerprint in the place of one that has it now; known by that from here
        on, with all that happened to it."""
        by_place = identity_by_place(reported)
        if by_place not in self.known or by_place in self.seen:
            return None
        self.known[key] = self.known.pop(by_place)
        return self.known[key]


def apply_reports(
    writer: Writer,
    ids: Ids,
    paths: ProjectPaths,
    reports: Iterable[ScanReport],
    actor: str,
    on_progress: OnProgress | None = None,
) -> list[ScanOutcome]:
    """Take in one report after the other; progress goes on where the one before ended."""
    before = 0
    outcomes: list[ScanOutcome] = []
    for report in reports:
        done = 0

        def advance(count: int, start: int = before) -> None:
            nonlocal done
            done = count
            if on_progress is not None:
                on_progress(start + count)

        outcomes.append(apply_report(writer, ids, paths, report, actor, advance))
        before += done
    return outcomes


def apply_report(
    writer: Writer,
    ids: Ids,
    paths: ProjectPaths,
    report: ScanReport,
    actor: str,
    on_progress: OnProgress,
) -> ScanOutcome:
    """Bring what is known to where the report is, within the transaction of the writer."""
    scan = _Scan(writer, ids, paths, report.source, actor)
    done = 0
    for done, reported in enumerate(report.findings, 1):
        scan.add(reported)
        if done % _BATCH == 0:
            scan.flush()
            on_progress(done)
    scan.flush()
    # Whoever gave up half-way says nothing about what it no longer reports.
    scan.close_unseen(() if report.failed else report.covered)
    on_progress(done)
    scan.skipped.update(report.skipped)
    return scan.outcome(failed=report.failed)


class _Scan:
    """A scan under way. Rows are collected and written a thousand at a time."""

    def __init__(self, writer: Writer, ids: Ids, paths: ProjectPaths, source: str, actor: str) -> None:
        self._writer, self._ids, self._paths = writer, ids, paths.with_cache()
        self._source, self._actor = source, actor
        self._run_id = ids.scan_run()
        self._places: dict[str, _ScannedFile | str] = {}
        """By path as the report has it: the file, or why it is skipped."""
        self._files: dict[str, _ScannedFile] = {}
        """By canonical path."""
        self._new: list[tuple[_ScannedFile, str, ReportEntry]] = []
        self._named: list[Row] = []
        self._seen_again: list[Row] = []
        self._changed: list[Row] = []
        self._news: list[NewEvent] = []
        self._touched: set[int] = set()
        self._counts: Counter[str] = Counter()
        self.skipped: Counter[str] = Counter()

    def add(self, reported: ReportEntry) -> None:
        """One finding of the report."""
        place = self._places.get(reported.path)
        if place is None:
            place = self._places[reported.path] = self._place(reported.path)
        if isinstance(place, str):
            self.skipped[place] += 1
            return
        reported = normalised(reported)
        key = identity(reported)
        if key in place.seen:
            self._counts["duplicate"] += 1
            return
        place.seen.add(key)
        known = place.known.get(key)
        if known is None and reported.fingerprint:
            known = place.take_unnamed(key, reported)
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
            if stored is not None and stored.record.removed_at is not None and not self._paths.exists(canonical):
                return FILE_REMOVED
            no = file_records.register(self._writer, self._ids, canonical, self._actor)
            self._files[canonical] = _ScannedFile(no, findings.known(self._writer, no, self._source))
        return self._files[canonical]

    def _see_again(self, file_no: int, known: KnownFinding, reported: ReportEntry) -> None:
        self._seen_again.append((self._run_id, metadata_json(reported.metadata), known.no))
        status, suppressed = _status_now(known, reported)
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
        self._news.append(NewEvent(file_no, "finding_updated", known.id, data))
        self._touched.add(file_no)

    def flush(self) -> None:
        """Write what has been collected."""
        new_ids = self._ids.findings(self._writer, len(self._new)) if self._new else []
        rows: list[Row] = []
        created: list[NewEvent] = []
        now = self._writer.now
        for finding_id, (place, key, reported) in zip(new_ids, self._new, strict=True):
            status = "false_positive" if reported.suppressed else "open"
            described = (reported.rule_id, reported.severity, status, reported.message, reported.suggestion)
            place_in_file = (reported.line_start, reported.line_end, reported.fingerprint)
            times = (now, now, now)
            metadata = metadata_json(reported.metadata)
            stored = (self._run_id, *times, metadata, reported.suppressed)
            rows.append((finding_id, place.no, self._source, key, *described, *place_in_file, *stored))
            created.append(NewEvent(place.no, "finding_created", finding_id, self._event_data(reported, status)))
            self._touched.add(place.no)
        self._counts["created"] += len(rows)
        # First of all, as what is new may be known by what they were known by.
        findings.set_fingerprints(self._writer, self._named)
        findings.insert(self._writer, rows)
        findings.mark_seen(self._writer, self._seen_again)
        findings.update(self._writer, self._changed)
        timeline.append(self._writer, [*created, *self._news])
        for collected in (self._new, self._named, self._seen_again, self._changed, self._news):
            collected.clear()

    def close_unseen(self, covered: tuple[str, ...] | None) -> None:
        """What this source found earlier where it looked now, and did not find again, is fixed."""
        if covered is None:
            self._close([each for place in self._files.values() for each in _unseen(place)])
        for path in covered or ():
            try:
                canonical = self._paths.covered(path)
            except RegistryError:
                self.skipped[COVERED_OUTSIDE] += 1
                continue
            self._close(findings.open_of_source(self._writer, self._source, canonical, self._run_id))
        files.touch(self._writer, sorted(self._touched))

    def _close(self, fixed: list[OpenFinding]) -> None:
        self._touched |= file_records.close(self._writer, fixed, self._source, scan_run_id=self._run_id)
        self._counts["closed"] += len(fixed)

    def outcome(self, *, failed: bool) -> ScanOutcome:
        """What the scan changed."""
        return ScanOutcome(
            scan_source=self._source,
            scan_run_id=self._run_id,
            findings_created=self._counts["created"],
            findings_updated=self._counts["updated"],
            findings_closed=self._counts["closed"],
            findings_reopened=self._counts["reopened"],
            findings_unchanged=self._counts["unchanged"],
            findings_duplicate=self._counts["duplicate"],
            files=len(self._files),
            skipped=dict(self.skipped),
            failed=failed,
        )

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


def _unseen(place: _ScannedFile) -> list[OpenFinding]:
    return [
        OpenFinding(known.no, known.id, place.no, known.rule_id, known.severity)
        for key, known in place.known.items()
        if known.status == "open" and key not in place.seen
    ]


def _status_now(known: KnownFinding, reported: ReportEntry) -> tuple[FindingStatus, bool]:
    """What a finding is when it is reported again, and whether by the word of the scan: what a person judged to be a
    false positive stays one, what a scan suppressed is one for as long as it is suppressed."""
    if known.status == "false_positive" and not known.suppressed:
        return "false_positive", False
    return ("false_positive", True) if reported.suppressed else ("open", False)
