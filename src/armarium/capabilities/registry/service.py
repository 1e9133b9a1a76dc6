"""What the registry offers to tools, routes and commands."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, TypeVar

import anyio
from anyio import to_thread

from armarium.capabilities.registry.changes import file_records, scans
from armarium.capabilities.registry.changes import issues as issue_changes
from armarium.capabilities.registry.changes.ids import Ids
from armarium.capabilities.registry.changes.issues import IssueChange
from armarium.capabilities.registry.changes.scans import OnProgress
from armarium.capabilities.registry.errors import InvalidPath, ValidationError
from armarium.capabilities.registry.limits import metadata_json, one_line, required, required_name
from armarium.capabilities.registry.model import (
    Association,
    AssocType,
    Direction,
    EventKind,
    FileDetail,
    FileFilter,
    FileRecord,
    Finding,
    FindingStatus,
    Issue,
    IssueStatus,
    Page,
    ScanOutcome,
    ScanReport,
    Severity,
    SortField,
    TimelineEvent,
)
from armarium.capabilities.registry.paths import ProjectPaths
from armarium.capabilities.registry.storage import files, findings, issues, timeline
from armarium.capabilities.registry.storage.database import Reader, RegistryDatabase, Writer
from armarium.capabilities.registry.storage.files import StoredFile

RECENT_FINDINGS = 10
_READING_THREADS = 4

ResultT = TypeVar("ResultT")


class Registry:
    """What is known about the files of one project. `actor` is whoever wants a change, as the timeline tells it."""

    def __init__(self, database: RegistryDatabase, paths: ProjectPaths, ids: Ids) -> None:
        self._database = database
        self._paths = paths
        self._ids = ids
        self._readers = anyio.CapacityLimiter(_READING_THREADS)
        # One of ours at a time; for others SQLite itself waits.
        self._writers = anyio.CapacityLimiter(1)

    @property
    def read_only(self) -> bool:
        """Whether nothing can be changed."""
        return self._database.read_only

    # Files

    async def list_files(
        self,
        wanted: FileFilter,
        *,
        sort: SortField = "updated_at",
        direction: Direction | None = None,
        limit: int = 100,
        offset: int = 0,
    ) -> Page[FileRecord]:
        """A page of the files; without a direction, as one reads that order: names from A, times from now."""
        if wanted.scan_source is not None:
            required_name(wanted.scan_source, "scan_source")
        towards = direction or files.DEFAULT_DIRECTIONS[sort]
        return await self._read(lambda reader: files.page(reader, wanted, sort, towards, limit, offset))

    async def get_file(self, file_id: str) -> FileDetail:
        """A file, what it is linked to, and what was last found in it."""
        required(file_id, "file_id")

        def look(reader: Reader) -> FileDetail:
            stored = files.by_id(reader, file_id)
            if stored is None:
                raise issue_changes.no_file()
            recent = findings.recent(reader, stored.no, RECENT_FINDINGS)
            return FileDetail(stored.record, issues.of_file(reader, stored.no), recent)

        return await self._read(look)

    async def find_file(self, name: str) -> FileRecord:
        """The file that somebody names: by its path, relative or absolute and inside the project, or by its id. Of
        several that had a path, the one that has it."""
        required(name, "file")

        def look(reader: Reader) -> FileRecord:
            stored: StoredFile | None = None
            with suppress(InvalidPath, ValidationError):
                stored = files.at(reader, self._paths.canonical(self._paths.relative(name)))
            stored = stored or files.by_id(reader, name)
            if stored is None:
                raise issue_changes.no_file()
            return stored.record

        return await self._read(look)

    async def timeline(
        self, file_id: str, *, kind: EventKind | None = None, limit: int = 50, offset: int = 0
    ) -> Page[TimelineEvent]:
        """A page of what happened to a file, newest first."""
        required(file_id, "file_id")

        def look(reader: Reader) -> Page[TimelineEvent]:
            stored = files.by_id(reader, file_id)
            if stored is None:
                raise issue_changes.no_file()
            return timeline.page(reader, stored.no, kind, limit, offset)

        return await self._read(look)

    async def register_file(
        self,
        path: str,
        actor: str,
        *,
        language: str | None = None,
        file_type: str | None = None,
        metadata: dict[str, Any] | None = None,
    ) -> FileRecord:
        """The record of a file, made or changed; the file need not exist."""
        one_line(language or "", "language")
        one_line(file_type or "", "file_type")
        metadata_json(metadata or {})

        def change(writer: Writer) -> FileRecord:
            canonical = self._paths.canonical(path)
            no = file_records.register(
                writer, self._ids, canonical, actor, language=language, file_type=file_type, metadata=metadata
            )
            return files.by_no(writer, no)

        return await self._write(change)

    async def record_changed(self, paths: Sequence[str], actor: str) -> None:
        """Files were written: those not known yet are registered, those that were removed are back. What is no file of
        the project is passed over: it is news, not a request, and the rest of it still holds."""

        def change(writer: Writer) -> None:
            project = self._paths.with_cache()
            for path in paths:
                with suppress(InvalidPath, ValidationError):
                    file_records.register(writer, self._ids, project.canonical(path), actor)

        await self._write(change)

    async def record_removed(self, path: str, actor: str) -> int:
        """A file, or a directory with all below it, is gone: records and history stay. How many files."""

        def change(writer: Writer) -> int:
            gone = files.at_or_below(writer, self._paths.covered(path))
            for stored in gone:
                file_records.remove(writer, stored, actor)
            return len(gone)

        return await self._write(change)

    async def record_moved(self, old_path: str, new_path: str, actor: str) -> int:
        """A file, or a directory with all below it, has another path now: ids and history move along. How many."""
        return await self._write(
            lambda writer: file_records.move(
                writer, self._paths.covered(old_path), self._paths.covered(new_path), actor
            )
        )

    # Findings

    async def scan(self, report: ScanReport, actor: str, on_progress: OnProgress | None = None) -> ScanOutcome:
        """Take in what a scanner said: all of it, or nothing. Progress is told from a worker thread."""
        [outcome] = await self.scan_all([report], actor, on_progress)
        return outcome

    async def scan_all(
        self, reports: Sequence[ScanReport], actor: str, on_progress: OnProgress | None = None
    ) -> list[ScanOutcome]:
        """Take in what several scanners said, of all of them or of none; progress counts the findings of all."""
        for report in reports:
            required_name(report.source, "scan_source")
        return await self._write(
            lambda writer: scans.apply_reports(writer, self._ids, self._paths, reports, actor, on_progress)
        )

    async def list_findings(
        self,
        *,
        file_id: str | None = None,
        status: FindingStatus | None = None,
        severity: Severity | None = None,
        scan_source: str | None = None,
        limit: int = 100,
        offset: int = 0,
    ) -> Page[Finding]:
        """A page of findings, those that changed last first."""

        def look(reader: Reader) -> Page[Finding]:
            file_no = None
            if file_id is not None:
                stored = files.by_id(reader, file_id)
                if stored is None:
                    raise issue_changes.no_file()
                file_no = stored.no
            wanted = findings.FindingFilter(file_no, status, severity, scan_source)
            return findings.page(reader, wanted, limit, offset)

        if file_id is not None:
            required(file_id, "file_id")
        if scan_source is not None:
            required_name(scan_source, "scan_source")
        return await self._read(look)

    async def update_finding(self, finding_id: str, status: FindingStatus, actor: str) -> Finding:
        """The finding with the status that somebody gives it."""
        required(finding_id, "finding_id")
        return await self._write(lambda writer: issue_changes.set_finding_status(writer, finding_id, status, actor))

    async def promote_finding(
        self, finding_id: str, actor: str, wanted: IssueChange | None = None
    ) -> tuple[Issue, bool]:
        """The issue that a finding is, and whether it was made now."""
        required(finding_id, "finding_id")
        change = wanted or IssueChange()
        return await self._write(lambda writer: issue_changes.promote(writer, self._ids, finding_id, change, actor))

    # Issues

    async def create_issue(self, wanted: IssueChange) -> Issue:
        """A new issue."""
        return await self._write(lambda writer: issue_changes.create(writer, self._ids, wanted).issue)

    async def get_issue(self, issue_id: str) -> Issue:
        """An issue."""
        required(issue_id, "issue_id")

        def look(reader: Reader) -> Issue:
            stored = issues.by_id(reader, issue_id)
            if stored is None:
                raise issue_changes.no_issue()
            return stored.issue

        return await self._read(look)

    async def list_issues(
        self, *, status: IssueStatus | None = None, label: str | None = None, limit: int = 100, offset: int = 0
    ) -> Page[Issue]:
        """A page of issues, the most urgent first."""
        if label is not None:
            one_line(label, "label")
        return await self._read(lambda reader: issues.page(reader, status, label, limit, offset))

    async def update_issue(self, issue_id: str, wanted: IssueChange) -> Issue:
        """The issue with what is wanted of it."""
        required(issue_id, "issue_id")
        return await self._write(lambda writer: issue_changes.update(writer, issue_id, wanted))

    async def issue_files(self, issue_id: str) -> list[Association]:
        """Which files an issue has to do with."""
        required(issue_id, "issue_id")

        def look(reader: Reader) -> list[Association]:
            stored = issues.by_id(reader, issue_id)
            if stored is None:
                raise issue_changes.no_issue()
            return issues.of_issue(reader, stored.no)

        return await self._read(look)

    async def associate(self, file_id: str, issue_id: str, assoc_type: AssocType, actor: str) -> None:
        """Link a file with an issue; once is as good as twice."""
        required(file_id, "file_id")
        required(issue_id, "issue_id")
        await self._write(lambda writer: issue_changes.associate(writer, file_id, issue_id, assoc_type, actor))

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

        return await to_thread.run_sync(run, limiter=self._writers)
