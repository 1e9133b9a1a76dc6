"""The registry's values. Typed dictionaries are the results of tools: their names and fields are in the schemas."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Generic, Literal, TypeVar

from pydantic import WithJsonSchema
from typing_extensions import TypedDict

from armarium.capabilities.registry.values import AssocType, FindingStatus, IssueStatus, Severity

# Stated explicitly: other capabilities omit absent fields, but here they are always present.
TextOrNull = Annotated[str | None, WithJsonSchema({"type": ["string", "null"]})]
NumberOrNull = Annotated[int | None, WithJsonSchema({"type": ["integer", "null"]})]

DEFAULT_PRIORITY = 2
LOWEST_PRIORITY = 4
"""0 is the most urgent."""

ItemT = TypeVar("ItemT")


class Page(TypedDict, Generic[ItemT]):
    """A part of a list, and the length of the whole list."""

    total: int
    limit: int
    offset: int
    has_more: bool
    results: list[ItemT]


class SeverityCounts(TypedDict):
    critical: int
    high: int
    medium: int
    low: int
    info: int


class FileSummary(TypedDict):
    """The number of findings a file ever had, and of its open findings by severity."""

    total_findings: int
    open_findings: int
    critical: int
    high: int
    medium: int
    low: int
    info: int


class RegisteredFile(TypedDict):
    """A file of the project. Its id survives a rename."""

    id: str
    path: str
    language: str
    file_type: str
    first_seen: str
    updated_at: str
    metadata: dict[str, Any]


class ListedFile(RegisteredFile):
    summary: FileSummary
    associations_count: int


class Association(TypedDict):
    """A link between a file and an issue."""

    id: int
    file_id: str
    issue_id: str
    assoc_type: AssocType
    created_at: str


class FileLink(Association):
    issue_title: str
    issue_status: IssueStatus


class IssueLink(Association):
    file_path: str
    file_language: str


class Finding(TypedDict):
    """A problem that a scanner or a person found in a file."""

    id: str
    file_id: str
    file_path: str
    scan_source: str
    rule_id: str
    severity: Severity
    status: FindingStatus
    message: str
    suggestion: str
    line_start: NumberOrNull
    line_end: NumberOrNull
    fingerprint: TextOrNull
    issue_id: TextOrNull
    seen_count: int
    scan_run_id: str
    first_seen: str
    updated_at: str
    last_seen_at: str
    metadata: dict[str, Any]


class FileDetail(TypedDict):
    """A file with its associations and the findings that changed last."""

    file: RegisteredFile
    associations: list[FileLink]
    recent_findings: list[Finding]
    summary: FileSummary


class TimelineEvent(TypedDict):
    """An event in the timeline of a file; `source_id` is the finding, issue or file that it is about."""

    id: str
    type: str
    timestamp: str
    source_id: str
    data: dict[str, Any]


class IssueAnswer(TypedDict):
    """A piece of work. `external_ref` names the same issue in another tracker."""

    id: str
    title: str
    body: str
    status: IssueStatus
    priority: int
    labels: list[str]
    external_ref: str
    created_at: str
    updated_at: str
    closed_at: TextOrNull


class Skipped(TypedDict):
    reason: str
    count: int


class Scanned(TypedDict):
    """The changes that a scan made."""

    scan_source: str
    scan_run_id: str
    findings_created: int
    findings_updated: int
    """Reported again with another severity, message or line."""
    findings_closed: int
    findings_reopened: int
    findings_unchanged: int
    findings_duplicate: int
    """Reported more than once in the same report."""
    files: int
    """The number of files with findings."""
    skipped: list[Skipped]
    """How many findings or scanned paths were skipped, by reason."""
    failed: bool
    """Whether the scanner failed, so that no finding was closed."""
    category: str
    """Which of the scanner's reports it is; each closes only findings of its own category."""
    open_by_severity: SeverityCounts
    """The open findings that the report contains."""
    new_by_severity: SeverityCounts
    """Those of them that the previous report of this scanner and category did not contain."""


class FindingPage(TypedDict):
    """A part of a list of findings. `next` is the cursor of the following part."""

    results: list[Finding]
    next: TextOrNull


class FindingDetail(TypedDict):
    """A finding with its latest events, newest first."""

    finding: Finding
    timeline: list[TimelineEvent]


class FacetValue(TypedDict):
    value: str
    count: int


class LastScan(TypedDict):
    """The last report of a scanner and category."""

    scan_source: str
    category: str
    at: str
    actor: str
    failed: bool
    findings_created: int
    findings_closed: int
    findings_reopened: int


class FindingCounts(TypedDict):
    total: int
    all: int
    """Without any filter."""
    severity: list[FacetValue]
    status: list[FacetValue]
    scan_source: list[FacetValue]
    rule_id: list[FacetValue]
    """The most frequent ones."""
    directory: list[FacetValue]
    """What is directly in the directory of `path_prefix`: directories, which end with a slash, and files. The most
    frequent ones."""


class FindingSummary(FindingCounts):
    """The number of selected findings, and of those by each facet. The counts of a facet ignore the filter by it."""

    last_scans: list[LastScan]
    read_only: bool
    """Whether the registry cannot be changed."""


class Judged(TypedDict):
    """`judgement_id` undoes the judgement; null if it changed nothing."""

    judgement_id: TextOrNull
    changed: int
    unchanged: int
    """Findings that had the status already."""


class Undone(TypedDict):
    restored: int
    skipped: int
    """Findings that were changed after the judgement, and stay as they are."""


class OwnRoles(TypedDict):
    roles: list[str]


class FileAtPath(TypedDict):
    """What the registry knows of a path. `id` is null if it is not registered."""

    path: str
    id: TextOrNull
    removed: bool
    summary: FileSummary
    associations: list[FileLink]


class IssuePage(TypedDict):
    """A part of a list of issues. `next` is the cursor of the following part; `by_status` counts all that match."""

    results: list[IssueAnswer]
    next: TextOrNull
    by_status: dict[str, int]


class IssueEvent(TypedDict):
    id: str
    type: str
    timestamp: str
    actor: str
    data: dict[str, Any]


class IssueTimeline(TypedDict):
    results: list[IssueEvent]
    next: TextOrNull


class IssueFiles(TypedDict):
    result: list[IssueLink]


class Linked(TypedDict):
    status: Literal["created"]


class Unlinked(TypedDict):
    status: Literal["removed"]


class Imported(TypedDict):
    scans: list[Scanned]


class Promoted(TypedDict):
    issue: IssueAnswer
    created: bool


@dataclass(frozen=True, slots=True)
class FileFilter:
    """Selects files; None means any."""

    language: str | None = None
    path_prefix: str | None = None
    min_findings: int | None = None
    has_severity: Severity | None = None
    scan_source: str | None = None


@dataclass(frozen=True, slots=True)
class FindingFilter:
    """Selects findings; None and empty tuples mean any."""

    file_id: str | None = None
    issue_id: str | None = None
    path_prefix: str | None = None
    text: str | None = None
    """Words that all occur in the message, the rule or the path."""
    status: tuple[FindingStatus, ...] = ()
    severity: tuple[Severity, ...] = ()
    scan_source: tuple[str, ...] = ()
    rule_id: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ReportEntry:
    """One finding as a report states it. The path is relative to the project, or absolute and inside it."""

    path: str
    rule_id: str
    message: str
    severity: Severity = "info"
    line_start: int | None = None
    line_end: int | None = None
    suggestion: str = ""
    fingerprint: str | None = None
    """Identifies the finding within its source and file, even if it moves to another line."""
    metadata: Mapping[str, Any] = field(default_factory=dict[str, Any])
    suppressed: bool = False
    """Whether the project suppresses it. It is then created as a false positive."""
    place: bytes = b""
    """Hashes of the content around it, from a snippet in the report. The file itself is preferred."""


@dataclass(frozen=True, slots=True)
class ScanReport:
    """What one scanner reported in one run."""

    source: str
    findings: Iterable[ReportEntry]
    """Iterated once, in the transaction of the scan; may be a generator. If it raises, the scan is rolled back."""
    covered: tuple[str, ...] | None = None
    """The scanned files and directories ("" or "." is the project). None means the files that have findings."""
    skipped: Mapping[str, int] = field(default_factory=dict[str, int])
    """How many results the reader of the report skipped, by reason. Read after the last finding."""
    skipped_rules: Collection[str] = ()
    """The rules of skipped results whose file is unknown. Their findings are not closed."""
    failed: bool = False
    """Whether the scanner reports that it failed. Then no finding is closed."""
    category: str = ""
    """Distinguishes reports of one scanner, for example one per language. A report closes only findings of its own."""
    roots: tuple[str, ...] = ()
    """Directories that were the project where the scanner ran."""
    prefixes: Mapping[str, str] = field(default_factory=dict[str, str])
    """The path in the project for each prefix of paths on another machine."""


@dataclass(frozen=True, slots=True)
class ExportedFinding:
    """A finding with what later scans recognise it by."""

    finding: Finding
    category: str
    place: bytes
