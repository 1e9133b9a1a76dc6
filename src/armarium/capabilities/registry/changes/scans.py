"""Applies scan reports: creates new findings, updates known ones, and closes those not reported again."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from armarium.capabilities.registry import model, values
from armarium.capabilities.registry.changes import file_records
from armarium.capabilities.registry.changes.file_records import Ids
from armarium.capabilities.registry.changes.matches import Candidate
from armarium.capabilities.registry.changes.reported_files import (
    DESCRIPTION,
    BaselineKey,
    ReportedFiles,
    ScannedFile,
    counts_of,
    description_of,
)
from armarium.capabilities.registry.changes.reported_findings import kind_of
from armarium.capabilities.registry.errors import AllSkipped, RegistryError
from armarium.capabilities.registry.paths import ProjectPaths
from armarium.capabilities.registry.storage import files, findings, judgements, timeline
from armarium.capabilities.registry.storage.columns import Row, named
from armarium.capabilities.registry.storage.database import Writer
from armarium.capabilities.registry.storage.findings import KnownFinding, OpenFinding
from armarium.capabilities.registry.storage.timeline import NewEvent

OnProgress = Callable[[int], None]
"""Called from a worker thread with the number of findings processed so far."""

COVERED_OUTSIDE = "covered_path_outside_project"
"""Counts scanned paths, not findings."""

_BATCH = 1000


def apply_reports(
    writer: Writer,
    ids: Ids,
    paths: ProjectPaths,
    reports: Iterable[model.ScanReport],
    actor: str,
    on_progress: OnProgress,
    baseline: Iterable[model.ScanReport] | None = None,
    *,
    all_may_be_skipped: bool = False,
) -> list[model.Scanned]:
    """Apply reports one after the other, in the transaction of the writer. Progress counts the findings of all. With a
    baseline, the findings that it does not have are new; otherwise those that the previous report did not have."""
    paths = paths.with_cache()
    known = None if baseline is None else counts_of(paths, baseline)
    done, unusable = 0, 0
    outcomes: list[model.Scanned] = []
    for report in reports:
        reported = ReportedFiles(writer, paths, report)
        scan = _Scan(writer, ids, reported, report, actor, known)
        scan.apply(lambda processed, before=done: on_progress(before + processed))
        unusable += reported.is_unusable
        scan.close_unseen()
        done += reported.total
        on_progress(done)
        outcomes.append(scan.outcome())
        judgements.put_scan(writer, outcomes[-1], actor)
    if unusable and not all_may_be_skipped and not any(each["files"] for each in outcomes):
        raise _all_skipped(outcomes)
    return outcomes


def _all_skipped(outcomes: Iterable[model.Scanned]) -> AllSkipped:
    reasons = sorted({each["reason"] for outcome in outcomes for each in outcome["skipped"]})
    hint = "import it in the project that was scanned, or with --map PREFIX=PATH if it is from another machine"
    return AllSkipped(f"every result of the report was skipped ({', '.join(reasons)}); nothing was changed", hint=hint)


@dataclass(eq=False)
class _Scan:
    """A scan in progress. Rows are collected and written in batches."""

    writer: Writer
    ids: Ids
    reported: ReportedFiles
    report: model.ScanReport
    actor: str
    baseline: Counter[BaselineKey] | None

    def __post_init__(self) -> None:
        self._run_id = self.ids.scan_run()
        self._new: list[tuple[ScannedFile, Candidate]] = []
        self._identified: list[Row] = []
        self._seen_again: list[Row] = []
        self._changed: list[Row] = []
        self._events: list[NewEvent] = []
        self._touched: set[int] = set()
        self._counts: Counter[str] = Counter()
        self._open: Counter[str] = Counter()
        self._new_open: Counter[str] = Counter()

    def apply(self, on_progress: OnProgress) -> None:
        renamed = self.reported.renamed()
        processed = 0
        for file in self.reported.files.values():
            if file.path in renamed:
                file_records.move(self.writer, renamed[file.path], file.path, self.actor)
                file.is_new = False
            file.no = file_records.register(self.writer, self.ids, file.path, self.actor)
            for candidate in self.reported.recognised(file):
                if candidate.known is None:
                    self._new.append((file, candidate))
                    self._count_open(file, candidate, _first_status(candidate.reported), is_new=True)
                else:
                    self._see_again(file, candidate, candidate.known)
                processed += 1
                if processed % _BATCH == 0:
                    self._flush()
                    on_progress(processed)
        self._flush()

    def _see_again(self, file: ScannedFile, candidate: Candidate, known: KnownFinding) -> None:
        reported = candidate.reported
        self._seen_again.append((self.writer.now, self._run_id, candidate.metadata, known.no))
        fingerprint, place = reported.fingerprint or known.fingerprint, candidate.place or known.place
        if (self.report.category, fingerprint, place) != (known.category, known.fingerprint, known.place):
            self._identified.append((self.report.category, fingerprint, place, known.no))
        status, suppressed = _new_status(known, reported)
        self._count_open(file, candidate, status, is_new=known.status == "fixed")
        described, before = description_of(reported), description_of(known)
        changes: dict[str, Any] = {}
        if described != before:
            values = zip(DESCRIPTION, before, described, strict=True)
            changes = {name: {"old_value": old, "new_value": new} for name, old, new in values if old != new}
        if status != known.status:
            changes["status"] = {"old_value": known.status, "new_value": status}
        if not changes:
            self._counts["unchanged"] += 1
            return
        reopened = known.status != "open" and status == "open"
        self._counts["reopened" if reopened else "updated"] += 1
        self._changed.append((*described[:2], status, *described[2:], suppressed, self.writer.now, known.no))
        data = self._event_data(reported, status) | {"changes": changes}
        if reopened:
            data["reopened"] = True
        self._events.append(NewEvent(file.no, "finding_updated", known.id, data))
        self._touched.add(file.no)

    def _count_open(
        self, file: ScannedFile, candidate: Candidate, status: values.FindingStatus, *, is_new: bool
    ) -> None:
        if self.baseline is not None:
            key = (self.report.source, file.path, *kind_of(candidate.reported))
            is_new = not self.baseline[key]
            self.baseline[key] -= not is_new
        if status == "open":
            self._open[candidate.reported.severity] += 1
            self._new_open[candidate.reported.severity] += is_new

    def _flush(self) -> None:
        new_ids = self.ids.new(self.writer, "finding", len(self._new)) if self._new else []
        rows: list[Row] = []
        created: list[NewEvent] = []
        now = self.writer.now
        for finding_id, (file, candidate) in zip(new_ids, self._new, strict=True):
            reported = candidate.reported
            status = _first_status(reported)
            owner = (finding_id, file.no, self.report.source, finding_id)
            described = (reported.rule_id, reported.severity, status, reported.message, reported.suggestion)
            place_in_file = (reported.line_start, reported.line_end, reported.fingerprint)
            seen = (self._run_id, now, now, now, candidate.metadata, reported.suppressed)
            identity = (self.report.category, candidate.place)
            rows.append((*owner, *described, *place_in_file, *seen, *identity))
            created.append(NewEvent(file.no, "finding_created", finding_id, self._event_data(reported, status)))
            self._touched.add(file.no)
        self._counts["created"] += len(rows)
        self.writer.many("put_finding", rows)
        self.writer.many("set_finding_identity", self._identified)
        self.writer.many("mark_finding_seen", self._seen_again)
        self.writer.many("change_finding", self._changed)
        timeline.append(self.writer, [*created, *self._events])
        for collected in (self._new, self._identified, self._seen_again, self._changed, self._events):
            collected.clear()

    def close_unseen(self) -> None:
        """Close the earlier findings of this source and category, in the scanned files, that were not reported again. A
        failed scan, or one without a usable result, proves nothing about what it does not report, and none does about
        what it may have skipped."""
        covered = self.report.covered
        if self.report.failed or self.reported.is_unusable:
            covered = ()
        if covered is None:
            unseen = [(file.no, it) for file in self.reported.files.values() for it in file.unseen]
            still_open = [(no, it) for no, it in unseen if it.status == "open"]
            self._close([OpenFinding(it.no, it.id, no, it.rule_id, it.severity) for no, it in still_open])
        for path in covered or ():
            try:
                canonical = self.reported.paths.covered(path)
            except RegistryError:
                self.reported.skipped[COVERED_OUTSIDE] += 1
                continue
            category = self.report.category
            self._close(findings.open_of_source(self.writer, self.report.source, category, canonical, self._run_id))
        files.touch(self.writer, sorted(self._touched))

    def _close(self, unseen: list[OpenFinding]) -> None:
        fixed = [each for each in unseen if not self.reported.may_have_skipped(each)]
        self._touched |= file_records.close(self.writer, fixed, self.report.source, scan_run_id=self._run_id)
        self._counts["closed"] += len(fixed)

    def outcome(self) -> model.Scanned:
        return {
            "scan_source": self.report.source,
            "scan_run_id": self._run_id,
            "findings_created": self._counts["created"],
            "findings_updated": self._counts["updated"],
            "findings_closed": self._counts["closed"],
            "findings_reopened": self._counts["reopened"],
            "findings_unchanged": self._counts["unchanged"],
            "findings_duplicate": self.reported.duplicates,
            "files": len(self.reported.files),
            "skipped": [{"reason": reason, "count": count} for reason, count in sorted(self.reported.skipped.items())],
            "failed": self.report.failed,
            "category": self.report.category,
            "open_by_severity": _by_severity(self._open),
            "new_by_severity": _by_severity(self._new_open),
        }

    def _event_data(self, reported: model.ReportEntry, status: values.FindingStatus) -> dict[str, Any]:
        data: dict[str, Any] = {
            "scan_source": self.report.source,
            "rule_id": reported.rule_id,
            "severity": reported.severity,
            "status": status,
            "message": reported.message,
            "scan_run_id": self._run_id,
        }
        return data if reported.line_start is None else data | {"line_start": reported.line_start}


def _first_status(reported: model.ReportEntry) -> values.FindingStatus:
    return "false_positive" if reported.suppressed else "open"


def _by_severity(counts: Counter[str]) -> model.SeverityCounts:
    return named(model.SeverityCounts, (counts[each] for each in values.SEVERITIES))


def _new_status(known: KnownFinding, reported: model.ReportEntry) -> tuple[values.FindingStatus, bool]:
    """The status of a finding that is reported again, and whether the scan suppresses it. A false positive set by a
    person remains; one by suppression lasts as long as the suppression."""
    if known.status == "false_positive" and not known.suppressed:
        return "false_positive", False
    return ("false_positive", True) if reported.suppressed else ("open", False)
