"""The operations of the registry, for tools, routes and commands."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, TypeVar

import anyio
from anyio import to_thread

from armarium.capabilities.registry import model, values
from armarium.capabilities.registry.changes import file_records, judgements, scans
from armarium.capabilities.registry.changes import issues as issue_changes
from armarium.capabilities.registry.changes.file_records import Ids
from armarium.capabilities.registry.changes.issues import IssueChange
from armarium.capabilities.registry.changes.judgements import FilteredFindings
from armarium.capabilities.registry.changes.scans import OnProgress
from armarium.capabilities.registry.errors import InvalidPath, ValidationError
from armarium.capabilities.registry.limits import check_name, check_present, metadata_json, one_line
from armarium.capabilities.registry.paths import ProjectPaths
from armarium.capabilities.registry.storage import files, finding_search, findings, issues, timeline
from armarium.capabilities.registry.storage.columns import named
from armarium.capabilities.registry.storage.database import Reader, RegistryDatabase, Writer
from armarium.capabilities.registry.storage.judgements import last_scans

RECENT_FINDINGS = 10
_EVENTS_OF_FINDING = 50
_MAX_SUMMARIES = 64
_MAX_READERS = 4

ResultT = TypeVar("ResultT")


class Registry:
    """The registry of one project. `actor` is the name of the caller in the timeline."""

    def __init__(self, database: RegistryDatabase, paths: ProjectPaths, ids: Ids) -> None:
        self._database, self._paths, self._ids = database, paths, ids
        self.read_only = database.read_only
        self._readers = anyio.CapacityLimiter(_MAX_READERS)
        # One writer of this process at a time; SQLite waits for other processes.
        self._writers = anyio.CapacityLimiter(1)
        self._listeners: list[Callable[[], None]] = []
        self._summaries: dict[tuple[object, ...], model.FindingCounts] = {}
        """The counts by filter and last event, because many pages ask for the same after each change."""

    # Files

    async def list_files(
        self,
        wanted: model.FileFilter,
        *,
        sort: values.SortField = "updated_at",
        direction: values.Direction | None = None,
        limit: int = 100,
        offset: int = 0,
    ) -> model.Page[model.ListedFile]:
        """A page of files. By default, names are ascending and times descending."""
        check_name(wanted.scan_source, "scan_source")
        towards = direction or files.DEFAULT_DIRECTIONS[sort]
        return await self._read(lambda reader: files.page(reader, wanted, sort, towards, limit, offset))

    async def get_file(self, file_id: str) -> model.FileDetail:
        check_present(file_id, "file_id")

        def look(reader: Reader) -> model.FileDetail:
            stored = files.by_id(reader, file_id)
            links, recent = issues.of_file(reader, stored.no), findings.recent(reader, stored.no, RECENT_FINDINGS)
            return {"file": stored.record, "associations": links, "recent_findings": recent, "summary": stored.summary}

        return await self._read(look)

    async def find_file(self, name: str) -> model.RegisteredFile:
        """The file with this path, relative or absolute and inside the project, or with this id. An existing file is
        preferred to a removed one at the same path."""
        check_present(name, "file")

        def look(reader: Reader) -> model.RegisteredFile:
            with suppress(InvalidPath, ValidationError):
                if stored := files.at(reader, self._paths.canonical(self._paths.relative(name))):
                    return stored.record
            return files.by_id(reader, name).record

        return await self._read(look)

    async def file_at(self, path: str) -> model.FileAtPath:
        """What is known of a path, which need not be registered."""

        def look(reader: Reader) -> model.FileAtPath:
            canonical = self._paths.canonical(path)
            stored = files.at(reader, canonical)
            empty = named(model.FileSummary, [0] * len(model.FileSummary.__annotations__))
            return {
                "path": canonical,
                "id": stored and stored.record["id"],
                "removed": stored is not None and stored.removed_at is not None,
                "summary": stored.summary if stored else empty,
                "associations": issues.of_file(reader, stored.no) if stored else [],
            }

        return await self._read(look)

    async def timeline(
        self, file_id: str, *, kind: values.EventKind | None = None, limit: int = 50, offset: int = 0
    ) -> model.Page[model.TimelineEvent]:
        check_present(file_id, "file_id")
        return await self._read(
            lambda reader: timeline.page(reader, files.by_id(reader, file_id).no, kind, limit, offset)
        )

    async def register_file(
        self,
        path: str,
        actor: str,
        *,
        language: str | None = None,
        file_type: str | None = None,
        metadata: dict[str, Any] | None = None,
    ) -> model.RegisteredFile:
        """Register a file or change its record. The file need not exist."""
        one_line(language or "", "language")
        one_line(file_type or "", "file_type")
        metadata_json(metadata or {})

        def change(writer: Writer) -> model.RegisteredFile:
            canonical = self._paths.canonical(path)
            given: dict[str, Any] = {"language": language, "file_type": file_type, "metadata": metadata}
            return files.by_no(writer, file_records.register(writer, self._ids, canonical, actor, **given))

        return await self._write(change)

    async def record_changed(self, paths: Sequence[str], actor: str) -> None:
        """Record that files were written: unknown ones are registered, removed ones restored. Paths that are not files
        of the project are ignored, because an event cannot be refused."""

        def change(writer: Writer) -> None:
            project = self._paths.with_cache()
            for path in paths:
                with suppress(InvalidPath, ValidationError):
                    file_records.register(writer, self._ids, project.canonical(path), actor)

        await self._write(change)

    async def record_removed(self, path: str, actor: str) -> int:
        """Record that a file or directory was removed. Records and history remain. Returns the number of files."""

        def change(writer: Writer) -> int:
            gone = files.at_or_below(writer, self._paths.covered(path))
            for stored in gone:
                file_records.remove(writer, stored, actor)
            return len(gone)

        return await self._write(change)

    async def record_moved(self, old_path: str, new_path: str, actor: str) -> int:
        """Record that a file or directory was moved. Ids and history remain. Returns the number of files."""
        return await self._write(
            lambda writer: file_records.move(
                writer, self._paths.covered(old_path), self._paths.covered(new_path), actor
            )
        )

    # Findings

    async def scan(
        self, report: model.ScanReport, actor: str, on_progress: OnProgress = lambda done: None
    ) -> model.Scanned:
        """Apply a report atomically. Its result tells what was skipped, even if that is all. Progress is reported from
        a worker thread."""
        [outcome] = await self._scan([report], actor, on_progress, all_may_be_skipped=True)
        return outcome

    async def scan_all(
        self,
        reports: Sequence[model.ScanReport],
        actor: str,
        on_progress: OnProgress = lambda done: None,
        baseline: Sequence[model.ScanReport] | None = None,
    ) -> list[model.Scanned]:
        """Apply several reports atomically. Progress counts the findings of all. A baseline says which are not new.
        Raises `AllSkipped` if no result is about the project."""
        return await self._scan(reports, actor, on_progress, baseline=baseline)

    async def _scan(self, reports: Sequence[model.ScanReport], *given: Any, **more: Any) -> list[model.Scanned]:
        for report in reports:
            check_name(report.source, "scan_source")
            one_line(report.category, "category")
        return await self._write(
            lambda writer: scans.apply_reports(writer, self._ids, self._paths, reports, *given, **more)
        )

    async def list_findings(
        self,
        *,
        file_id: str | None = None,
        status: values.FindingStatus | None = None,
        severity: values.Severity | None = None,
        scan_source: str | None = None,
        limit: int = 100,
        offset: int = 0,
    ) -> model.Page[model.Finding]:
        check_present(file_id, "file_id")
        check_name(scan_source, "scan_source")

        def look(reader: Reader) -> model.Page[model.Finding]:
            file_no = None if file_id is None else files.by_id(reader, file_id).no
            wanted = {"file_no": file_no, "status": status, "severity": severity, "source": scan_source}
            return findings.page(reader, wanted, limit, offset)

        return await self._read(look)

    async def search_findings(
        self,
        wanted: model.FindingFilter,
        *,
        sort: values.FindingSort = "updated_at",
        limit: int = 100,
        cursor: str | None = None,
    ) -> model.FindingPage:
        return await self._read(lambda reader: finding_search.page(reader, wanted, sort, limit, cursor))

    async def summarise_findings(self, wanted: model.FindingFilter) -> model.FindingSummary:
        def look(reader: Reader) -> model.FindingSummary:
            key = (wanted, timeline.last(reader))
            counts = self._summaries.get(key)
            if counts is None:
                counts = finding_search.counts(reader, wanted)
                if len(self._summaries) >= _MAX_SUMMARIES:
                    self._summaries.clear()
                self._summaries[key] = counts
            return {**counts, "last_scans": last_scans(reader), "read_only": self.read_only}

        return await self._read(look)

    async def get_finding(self, finding_id: str) -> model.FindingDetail:
        def look(reader: Reader) -> model.FindingDetail:
            _, file_no, finding = findings.by_id(reader, finding_id)
            events = timeline.of_finding(reader, file_no, finding_id, _EVENTS_OF_FINDING)
            return {"finding": finding, "timeline": events}

        return await self._read(look)

    async def judge_findings(
        self,
        chosen: Sequence[str] | FilteredFindings,
        status: values.FindingStatus,
        reason: str,
        actor: str,
        on_progress: OnProgress = lambda done: None,
    ) -> model.Judged:
        """Judge the findings with these ids, or all that match a filter, atomically."""
        return await self._write(
            lambda writer: judgements.judge(writer, self._ids, chosen, status, reason, actor, on_progress)
        )

    async def undo_judgement(
        self, judgement_id: str, actor: str, on_progress: OnProgress = lambda done: None
    ) -> model.Undone:
        return await self._write(lambda writer: judgements.undo(writer, judgement_id, actor, on_progress))

    async def export_findings(
        self, *, status: values.FindingStatus | None = None, scan_source: str | None = None
    ) -> list[model.ExportedFinding]:
        check_name(scan_source, "scan_source")
        return await self._read(lambda reader: findings.exported(reader, status, scan_source))

    async def update_finding(self, finding_id: str, status: values.FindingStatus, actor: str) -> model.Finding:
        check_present(finding_id, "finding_id")
        return await self._write(lambda writer: issue_changes.set_finding_status(writer, finding_id, status, actor))

    async def promote_finding(self, finding_id: str, actor: str, wanted: IssueChange | None = None) -> model.Promoted:
        check_present(finding_id, "finding_id")
        change = wanted or IssueChange()
        return await self._write(lambda writer: issue_changes.promote(writer, self._ids, finding_id, change, actor))

    # Issues

    async def create_issue(self, wanted: IssueChange, actor: str) -> model.IssueAnswer:
        return await self._write(lambda writer: issue_changes.create(writer, self._ids, wanted, actor).issue)

    async def get_issue(self, issue_id: str) -> model.IssueAnswer:
        check_present(issue_id, "issue_id")
        return await self._read(lambda reader: issues.by_id(reader, issue_id).issue)

    async def list_issues(
        self, *, status: values.IssueStatus | None = None, label: str | None = None, limit: int = 100, offset: int = 0
    ) -> model.Page[model.IssueAnswer]:
        one_line(label or "", "label")
        return await self._read(lambda reader: issues.page(reader, status, label, limit, offset))

    async def update_issue(self, issue_id: str, wanted: IssueChange, actor: str) -> model.IssueAnswer:
        check_present(issue_id, "issue_id")
        return await self._write(lambda writer: issue_changes.update(writer, issue_id, wanted, actor))

    async def search_issues(
        self,
        statuses: Sequence[values.IssueStatus] = (),
        label: str | None = None,
        text: str = "",
        *,
        limit: int = 100,
        cursor: str | None = None,
    ) -> model.IssuePage:
        one_line(label or "", "label")
        return await self._read(lambda reader: issues.search(reader, statuses, label, text, limit, cursor))

    async def issue_timeline(self, issue_id: str, *, limit: int = 50, cursor: str | None = None) -> model.IssueTimeline:
        """The comments and changes of an issue, newest first."""

        def look(reader: Reader) -> model.IssueTimeline:
            events, following = issues.events(reader, issues.by_id(reader, issue_id).no, limit, cursor)
            return {"results": events, "next": following}

        return await self._read(look)

    async def comment_issue(self, issue_id: str, text: str, actor: str) -> model.IssueEvent:
        return await self._write(lambda writer: issue_changes.comment(writer, issue_id, text, actor))

    async def issue_files(self, issue_id: str) -> list[model.IssueLink]:
        check_present(issue_id, "issue_id")
        return await self._read(lambda reader: issues.of_issue(reader, issues.by_id(reader, issue_id).no))

    async def associate(self, file_id: str, issue_id: str, assoc_type: values.AssocType, actor: str) -> None:
        check_present(file_id, "file_id")
        check_present(issue_id, "issue_id")
        await self._write(lambda writer: issue_changes.associate(writer, file_id, issue_id, assoc_type, actor))

    async def unlink(self, file_id: str, association_id: int, actor: str) -> None:
        await self._write(lambda writer: issue_changes.unlink(writer, file_id, association_id, actor))

    # Changes

    def on_change(self, listener: Callable[[], None]) -> None:
        """Call the listener in the event loop after every change that this process makes."""
        self._listeners.append(listener)

    def last_change(self) -> object:
        """Differs when this process or another one has changed the registry."""
        return self._database.last_change()

    # Threads

    async def _read(self, look: Callable[[Reader], ResultT]) -> ResultT:
        def run() -> ResultT:
            with self._database.reading() as reader:
                return look(reader)

        return await to_thread.run_sync(run, limiter=self._readers)

    async def _write(self, change: Callable[[Writer], ResultT]) -> ResultT:
        def run() -> ResultT:
            with self._database.writing() as writer:
                return change(writer)

        result = await to_thread.run_sync(run, limiter=self._writers)
        for listener in self._listeners:
            listener()
        return result
