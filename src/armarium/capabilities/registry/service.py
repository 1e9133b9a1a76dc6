"""What the registry offers to tools, routes and commands."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

import anyio
from anyio import to_thread

from armarium.capabilities.registry import records, scans, tracking
from armarium.capabilities.registry.errors import InvalidPath, RegistryUnusable, ValidationError
from armarium.capabilities.registry.ids import Ids
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
from armarium.capabilities.registry.scans import OnProgress
from armarium.capabilities.registry.settings import DATABASE_NAME, STATE_DIRECTORY, prefix_of
from armarium.capabilities.registry.storage import files, findings, issues, timeline
from armarium.capabilities.registry.storage.database import Database, Reader, Writer
from armarium.capabilities.registry.tracking import IssueChange
from armarium.foundation.files.confine import ConfinedRoot

RECENT_FINDINGS = 10
_LONGEST_SOURCE = 200
_READING_THREADS = 4

ResultT = TypeVar("ResultT")


class Registry:
    """What is known about the files of one project. `actor` is whoever wants a change, as the timeline tells it."""

    def __init__(self, database: Database, paths: ProjectPaths, ids: Ids) -> None:
        self._database = database
        self._paths = paths
        self._ids = ids
        self._readers = anyio.CapacityLimiter(_READING_THREADS)
        # One of ours at a time; for others SQLite itself waits.
        self._writers = anyio.CapacityLimiter(1)

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
            _require(wanted.scan_source, "scan_source")
        towards = direction or files.DEFAULT_DIRECTIONS[sort]
        return await self._read(lambda reader: files.page(reader, wanted, sort, towards, limit, offset))

    async def get_file(self, file_id: str) -> FileDetail:
        """A file, what it is linked to, and what was last found in it."""
        _require(file_id, "file_id")

        def look(reader: Reader) -> FileDetail:
            kept = files.by_id(reader, file_id)
            if kept is None:
                raise tracking.no_file()
            recent = findings.recent(reader, kept.no, RECENT_FINDINGS)
            return FileDetail(kept.record, issues.of_file(reader, kept.no), recent)

        return await self._read(look)

    async def timeline(
        self, file_id: str, *, kind: EventKind | None = None, limit: int = 50, offset: int = 0
    ) -> Page[TimelineEvent]:
        """A page of what happened to a file, newest first."""
        _require(file_id, "file_id")

        def look(reader: Reader) -> Page[TimelineEvent]:
            kept = files.by_id(reader, file_id)
            if kept is None:
                raise tracking.no_file()
            return timeline.page(reader, kept.no, kind, limit, offset)

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

        def change(writer: Writer) -> FileRecord:
            canonical = self._paths.canonical(path)
            no = records.register(
                writer, self._ids, canonical, actor, language=language, file_type=file_type, metadata=metadata
            )
            return files.by_no(writer, no)

        return await self._write(change)

    async def note_changed(self, paths: Sequence[str], actor: str) -> None:
        """Files were written: those not known yet are registered, those that were removed are back. What is no file of
        the project is passed over: it is news, not a request, and the rest of it still holds."""

        def change(writer: Writer) -> None:
            for path in paths:
                with suppress(InvalidPath, ValidationError):
                    records.register(writer, self._ids, self._paths.canonical(path), actor)

        await self._write(change)

    async def note_removed(self, path: str, actor: str) -> int:
        """A file, or a directory with all below it, is gone: records and history stay. How many files."""

        def change(writer: Writer) -> int:
            gone = files.at_or_below(writer, self._paths.covered(path))
            for kept in gone:
                records.remove(writer, kept, actor)
            return len(gone)

        return await self._write(change)

    async def note_moved(self, old_path: str, new_path: str, actor: str) -> int:
        """A file, or a directory with all below it, has another path now: ids and history move along. How many."""
        return await self._write(
            lambda writer: records.move(writer, self._paths.covered(old_path), self._paths.covered(new_path), actor)
        )

    # Findings

    async def scan(self, report: ScanReport, actor: str, on_progress: OnProgress | None = None) -> ScanOutcome:
        """Take in what a scanner said: all of it, or nothing. Progress is told from a worker thread."""
        _require(report.source, "scan_source")
        if len(report.source) > _LONGEST_SOURCE or not report.source.isprintable():
            raise ValidationError(f"`scan_source` is a name of at most {_LONGEST_SOURCE} characters, on one line")
        return await self._write(
            lambda writer: scans.take_in(writer, self._ids, self._paths, report, actor, on_progress)
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
                kept = files.by_id(reader, file_id)
                if kept is None:
                    raise tracking.no_file()
                file_no = kept.no
            wanted = findings.FindingFilter(file_no, status, severity, scan_source)
            return findings.page(reader, wanted, limit, offset)

        for name, value in (("file_id", file_id), ("scan_source", scan_source)):
            if value is not None:
                _require(value, name)
        return await self._read(look)

    async def update_finding(self, finding_id: str, status: FindingStatus, actor: str) -> Finding:
        """The finding with the status that somebody gives it."""
        _require(finding_id, "finding_id")
        return await self._write(lambda writer: tracking.judge(writer, finding_id, status, actor))

    async def promote_finding(
        self, finding_id: str, actor: str, wanted: IssueChange | None = None
    ) -> tuple[Issue, bool]:
        """The issue that a finding is, and whether it was made now."""
        _require(finding_id, "finding_id")
        change = wanted or IssueChange()
        return await self._write(lambda writer: tracking.promote(writer, self._ids, finding_id, change, actor))

    # Issues

    async def create_issue(self, wanted: IssueChange) -> Issue:
        """A new issue."""
        return await self._write(lambda writer: tracking.create(writer, self._ids, wanted))

    async def get_issue(self, issue_id: str) -> Issue:
        """An issue."""
        _require(issue_id, "issue_id")

        def look(reader: Reader) -> Issue:
            kept = issues.by_id(reader, issue_id)
            if kept is None:
                raise tracking.no_issue()
            return kept.issue

        return await self._read(look)

    async def list_issues(
        self, *, status: IssueStatus | None = None, label: str | None = None, limit: int = 100, offset: int = 0
    ) -> Page[Issue]:
        """A page of issues, the most urgent first."""
        return await self._read(lambda reader: issues.page(reader, status, label, limit, offset))

    async def update_issue(self, issue_id: str, wanted: IssueChange) -> Issue:
        """The issue with what is wanted of it."""
        _require(issue_id, "issue_id")
        return await self._write(lambda writer: tracking.update(writer, issue_id, wanted))

    async def issue_files(self, issue_id: str) -> list[Association]:
        """Which files an issue has to do with."""
        _require(issue_id, "issue_id")

        def look(reader: Reader) -> list[Association]:
            kept = issues.by_id(reader, issue_id)
            if kept is None:
                raise tracking.no_issue()
            return issues.of_issue(reader, kept.no)

        return await self._read(look)

    async def associate(self, file_id: str, issue_id: str, assoc_type: AssocType, actor: str) -> None:
        """Link a file with an issue; once is as good as twice."""
        _require(file_id, "file_id")
        _require(issue_id, "issue_id")
        await self._write(lambda writer: tracking.associate(writer, file_id, issue_id, assoc_type, actor))

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


@asynccontextmanager
async def open_registry(project: Path, prefix: str | None = None) -> AsyncGenerator[Registry]:
    """The registry of a project's directory, made on the first time."""

    def begin() -> tuple[ConfinedRoot, Database, Ids]:
        try:
            root = ConfinedRoot(str(project))
        except OSError as error:
            raise RegistryUnusable(
                f"the project cannot be opened: {project}: {error.strerror}", hint="name a directory that exists"
            ) from error
        try:
            database = Database(_state_directory(project) / DATABASE_NAME)
        except OSError as error:
            root.close()
            raise RegistryUnusable(
                f"the registry cannot be kept in {project}: {error.strerror}", hint="let this user write there"
            ) from error
        except BaseException:
            root.close()
            raise
        try:
            return root, database, Ids(_kept_prefix(database, prefix, project))
        except BaseException:
            database.close()
            root.close()
            raise

    root, database, ids = await to_thread.run_sync(begin)
    with root:
        try:
            yield Registry(database, ProjectPaths(root, str(project)), ids)
        finally:
            database.close()


def _kept_prefix(database: Database, wanted: str | None, project: Path) -> str:
    """What ids begin with: the same for everybody who opens this registry, whatever their settings leave out."""
    with database.reading() as reader:
        kept = reader.row("fact", ("prefix",))
    prefix = wanted or (kept[0] if kept else prefix_of(project))
    if kept is None or kept[0] != prefix:
        with database.writing() as writer:
            writer.many("put_fact", [("prefix", prefix)])
    return prefix


def _state_directory(project: Path) -> Path:
    directory = project / STATE_DIRECTORY
    for place in (directory, directory / DATABASE_NAME):
        # A project may come from anywhere; it does not choose where on this machine is written.
        if place.is_symlink():
            raise RegistryUnusable(f"{place} is a link", hint="remove it; the registry makes its own files")
    directory.mkdir(mode=0o700, exist_ok=True)
    marker = directory / ".gitignore"
    if not marker.exists():
        marker.write_text("*\n", encoding="utf-8")
    return directory


def _require(value: str, name: str) -> None:
    if not value:
        raise ValidationError(f"`{name}` must not be empty")
