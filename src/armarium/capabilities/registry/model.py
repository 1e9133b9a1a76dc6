"""What the registry knows, as values: files, findings, issues, what links them, and what happened to them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, Literal, TypeVar, get_args

Severity = Literal["critical", "high", "medium", "low", "info"]
FindingStatus = Literal["open", "fixed", "false_positive"]
AssocType = Literal["bug_in", "task_for", "scan_finding", "mentioned_in"]
IssueStatus = Literal["open", "in_progress", "closed"]
SortField = Literal["updated_at", "first_seen", "path", "language"]
Direction = Literal["asc", "desc"]
ReportFormat = Literal["auto", "sarif", "gitleaks", "armarium"]
EventKind = Literal["finding", "association", "file_metadata_update"]
"""What a timeline can be narrowed to; the three types of events about findings are one kind."""

SEVERITIES: tuple[Severity, ...] = get_args(Severity)
"""Worst first."""
DEFAULT_PRIORITY = 2
LOWEST_PRIORITY = 4
"""0 is the most urgent."""

ItemT = TypeVar("ItemT")


@dataclass(frozen=True, slots=True)
class Summary:
    """How many findings a file ever had, and how many of each severity are open: neither fixed nor a false positive."""

    total_findings: int = 0
    open_findings: int = 0
    critical: int = 0
    high: int = 0
    medium: int = 0
    low: int = 0
    info: int = 0


@dataclass(frozen=True, slots=True)
class FileRecord:
    """One file of the project. It keeps its id when it is renamed."""

    id: str
    path: str
    language: str
    file_type: str
    first_seen: str
    updated_at: str
    metadata: dict[str, Any]
    removed_at: str | None
    summary: Summary
    associations_count: int


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that a scanner, or a person, found in a file."""

    id: str
    file_id: str
    file_path: str
    scan_source: str
    rule_id: str
    severity: Severity
    status: FindingStatus
    message: str
    suggestion: str
    line_start: int | None
    line_end: int | None
    fingerprint: str | None
    issue_id: str | None
    seen_count: int
    scan_run_id: str
    first_seen: str
    updated_at: str
    last_seen_at: str
    metadata: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Issue:
    """Work to be done. `external_ref` names the same issue in another tracker."""

    id: str
    title: str
    body: str
    status: IssueStatus
    priority: int
    labels: tuple[str, ...]
    external_ref: str
    created_at: str
    updated_at: str
    closed_at: str | None


@dataclass(frozen=True, slots=True)
class Association:
    """How a file has to do with an issue."""

    id: int
    file_id: str
    issue_id: str
    assoc_type: AssocType
    created_at: str
    file_path: str
    file_language: str
    issue_title: str
    issue_status: IssueStatus


@dataclass(frozen=True, slots=True)
class TimelineEvent:
    """Something that happened to a file; `source_id` is the finding, issue or file it came from."""

    id: str
    type: str
    timestamp: str
    source_id: str
    data: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Page(Generic[ItemT]):
    """A part of a list, and how long the whole list is."""

    items: list[ItemT]
    total: int
    limit: int
    offset: int

    @property
    def has_more(self) -> bool:
        """Whether the list goes on behind this page."""
        return self.offset + len(self.items) < self.total


@dataclass(frozen=True, slots=True)
class FileDetail:
    """A file with what it is linked to and what was last found in it."""

    file: FileRecord
    associations: list[Association]
    recent_findings: list[Finding]


@dataclass(frozen=True, slots=True)
class FileFilter:
    """Which files a listing shows; what is None does not narrow it."""

    language: str | None = None
    path_prefix: str | None = None
    min_findings: int | None = None
    has_severity: Severity | None = None
    scan_source: str | None = None


@dataclass(frozen=True, slots=True)
class ReportEntry:
    """A finding as a report states it. The path is relative to the project, or absolute and inside it."""

    path: str
    rule_id: str
    message: str
    severity: Severity = "info"
    line_start: int | None = None
    line_end: int | None = None
    suggestion: str = ""
    fingerprint: str | None = None
    """What the scanner knows the finding by, whatever line it moves to; within its source and file."""
    metadata: Mapping[str, Any] = field(default_factory=dict[str, Any])
    suppressed: bool = False
    """Whether the people of the project decided against it: then it is a false positive from the beginning."""


@dataclass(frozen=True, slots=True)
class ScanReport:
    """What one scanner said in one run."""

    source: str
    findings: Iterable[ReportEntry]
    """Read once, in the transaction of the scan, so it may be a generator; what it raises undoes the scan."""
    covered: tuple[str, ...] | None = None
    """Files and directories that were looked at ("" or "." is the project); None: the files that findings name."""
    skipped: Mapping[str, int] = field(default_factory=dict[str, int])
    """What the reader of the report left out already: reasons, and how often. Looked at after the last finding."""
    failed: bool = False
    """Whether the scanner says that it did not get through: then nothing closes, whatever it was to cover."""


@dataclass(frozen=True, slots=True)
class ScanOutcome:
    """What a scan changed."""

    scan_source: str
    scan_run_id: str
    findings_created: int
    findings_updated: int
    """Seen again with another severity, message or line."""
    findings_closed: int
    findings_reopened: int
    findings_unchanged: int
    findings_duplicate: int
    """Said more than once in the same report."""
    files: int
    """Files that the findings are in."""
    skipped: dict[str, int]
    """Reasons why findings, or paths that were looked at, were left out, and how often."""
    failed: bool
    """Whether the scanner did not get through, so that nothing was closed."""
