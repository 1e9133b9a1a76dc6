"""The operations of the registry, for tools, routes and commands."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, TypeVar

import anyio
from anyio import to_thread

from armarium.capabilities.registry import model
from armarium.capabilities.registry.changes import file_records, scans
from armarium.capabilities.registry.changes import issues as issue_changes
from armarium.capabilities.registry.changes.ids import Ids
from armarium.capabilities.registry.changes.issues import IssueChange
from armarium.capabilities.registry.changes.scans import OnProgress
from armarium.capabilities.registry.errors import InvalidPath, ValidationError
from armarium.capabilities.registry.limits import metadata_json, one_line, required, required_name
from armarium.capabilities.registry.paths import ProjectPaths
from armarium.capabilities.registry.storage import files, findings, issues, timeline
from armarium.capabilities.registry.storage.database import Reader, RegistryDatabase, Writer

RECENT_FINDINGS = 10
_MAX_READERS = 4

ResultT = TypeVar("ResultT")


def _ignore_progress(done: int) -> None: ...


class Registry:
    """The registry of one project. `actor` is the name of the caller in the timeline."""

    def __init__(self, database: RegistryDatabase, paths: ProjectPaths, ids: Ids) -> None:
        self._database, self._paths, self._ids = database, paths, ids
        self.read_only = database.read_only
        self._readers = anyio.CapacityLimiter(_MAX_READERS)
        # One writer of this process at a time; SQLite waits for other processes.
        self._writers = anyio.CapacityLimiter(1)

    # Files

    async def list_files(
        self,
        wanted: model.FileFilter,
        *,
        sort: model.SortField = "updated_at",
        direction: model.Direction | None = None,
        limit: int = 100,
        offset: int = 0,
    ) -> model.Page[model.ListedFile]:
        """A page of files. By default, names are ascending and times descending."""
        if wanted.scan_source is not None:
            required_name(wanted.scan_source, "scan_source")
        towards = direction or files.DEFAULT_DIRECTIONS[sort]
        return await self._read(lambda reader: files.page(reader, wanted, sort, towards, limit, offset))

    async def get_file(self, file_id: str) -> model.FileDetail:
        required(file_id, "file_id")

        def look(reader: Reader) -> model.FileDetail:
            stored = files.by_id(reader, file_id)
            links, recent = issues.of_file(reader, stored.no), findings.recent(reader, stored.no, RECENT_FINDINGS)
            return {"file": stored.record, "associations": links, "recent_findings": recent, "summary": stored.summary}

        return await self._read(look)

    async def find_file(self, name: str) -> model.RegisteredFile:
        """The file with this path, relative or absolute and inside the project, or with this id. An existing file is
        preferred to a removed one at the same path."""
        required(name, "file")

        def look(reader: Reader) -> model.RegisteredFile:
            with suppress(InvalidPath, ValidationError):
                if stored := files.at(reader, self._paths.canonical(self._paths.relative(name))):
                    return stored.record
            return files.by_id(reader, name).record

        return await self._read(look)

    async def timeline(
        self, file_id: str, *, kind: model.EventKind | None = None, limit: int = 50, offset: int = 0
    ) -> model.Page[model.Happened]:
        required(file_id, "file_id")
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
        self, report: model.ScanReport, actor: str, on_progress: OnProgress = _ignore_progress
    ) -> model.Scanned:
        """Apply a report atomically. Progress is reported from a worker thread."""
        [outcome] = await self.scan_all([report], actor, on_progress)
        return outcome

    async def scan_all(
        self, reports: Sequence[model.ScanReport], actor: str, on_progress: OnProgress = _ignore_progress
    ) -> list[model.Scanned]:
        """Apply several reports atomically. Progress counts the findings of all."""
        for report in reports:
            required_name(report.source, "scan_source")
        return await self._write(
            lambda writer: scans.apply_reports(writer, self._ids, self._paths, reports, actor, on_progress)
        )

    async def list_findings(
        self,
        *,
        file_id: str | None = None,
        status: model.FindingStatus | None = None,
        severity: model.Severity | None = None,
        scan_source: str | None = None,
        limit: int = 100,
        offset: int = 0,
    ) -> model.Page[model.FoundInFile]:
        if file_id is not None:
            required(file_id, "file_id")
        if scan_source is not None:
            required_name(scan_source, "scan_source")

        def look(reader: Reader) -> model.Page[model.FoundInFile]:
            file_no = None if file_id is None else files.by_id(reader, file_id).no
            wanted = {"file_no": file_no, "status": status, "severity": severity, "source": scan_source}
            return findings.page(reader, wanted, limit, offset)

        return await self._read(look)

    async def update_finding(self, finding_id: str, status: model.FindingStatus, actor: str) -> model.FoundInFile:
        required(finding_id, "finding_id")
        return await self._write(lambda writer: issue_changes.set_finding_status(writer, finding_id, status, actor))

    async def promote_finding(self, finding_id: str, actor: str, wanted: IssueChange | None = None) -> model.Promoted:
        required(finding_id, "finding_id")
        change = wanted or IssueChange()
        return await self._write(lambda writer: issue_changes.promote(writer, self._ids, finding_id, change, actor))

    # Issues

    async def create_issue(self, wanted: IssueChange) -> model.IssueAnswer:
        return await self._write(lambda writer: issue_changes.create(writer, self._ids, wanted).issue)

    async def get_issue(self, issue_id: str) -> model.IssueAnswer:
        required(issue_id, "issue_id")
        return await self._read(lambda reader: issues.by_id(reader, issue_id).issue)

    async def list_issues(
        self, *, status: model.IssueStatus | None = None, label: str | None = None, limit: int = 100, offset: int = 0
    ) -> model.Page[model.IssueAnswer]:
        if label is not None:
            one_line(label, "label")
        return await self._read(lambda reader: issues.page(reader, status, label, limit, offset))

    async def update_issue(self, issue_id: str, wanted: IssueChange) -> model.IssueAnswer:
        required(issue_id, "issue_id")
        return await self._write(lambda writer: issue_changes.update(writer, issue_id, wanted))

    async def issue_files(self, issue_id: str) -> list[model.IssueLink]:
        required(issue_id, "issue_id")
        return await self._read(lambda reader: issues.of_issue(reader, issues.by_id(reader, issue_id).no))

    async def associate(self, file_id: str, issue_id: str, assoc_type: model.AssocType, actor: str) -> None:
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
