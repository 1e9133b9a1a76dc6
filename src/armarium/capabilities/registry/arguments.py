"""The arguments of the registry's tools, as the model is told them."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, WithJsonSchema

from armarium.capabilities.registry.limits import MAX_LABELS, MAX_LINE, MAX_NAME_CHARS, MAX_TITLE_CHARS
from armarium.capabilities.registry.model import (
    DEFAULT_PRIORITY,
    LOWEST_PRIORITY,
    AssocType,
    EventKind,
    FindingStatus,
    IssueStatus,
    ReportFormat,
    Severity,
    SortField,
)
from armarium.foundation.tools import Args

_LARGEST = 2**63 - 1


def _whole(value: Any) -> Any:
    """JSON knows no integers: 1e30 is a whole number as well, and as good as the largest that anybody can count to."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return min(value, _LARGEST) if isinstance(value, int) else value


Limit = Annotated[int, Field(ge=1, le=10000), BeforeValidator(_whole)]
Offset = Annotated[int, Field(ge=0), BeforeValidator(_whole)]
Priority = Annotated[int, Field(ge=0, le=LOWEST_PRIORITY), BeforeValidator(_whole)]
Line = Annotated[int, Field(ge=1, le=MAX_LINE), BeforeValidator(_whole)]

Metadata = Annotated[dict[str, Any], WithJsonSchema({"type": "object"})]


class ListFilesArgs(Args):
    """Which files, in what order."""

    limit: Limit = 100
    """Most files in the answer."""
    offset: Offset = 0
    """Files to skip, for the next page."""
    language: str | None = None
    """Only files in this language, exactly as recorded; "" is files whose language is not known."""
    path_prefix: str | None = None
    """Only files whose path begins with this text, character by character: `src/` is a directory, `%` and `_` mean
    themselves."""
    min_findings: Offset | None = None
    """Only files with at least so many open findings."""
    has_severity: Severity | None = None
    """Only files with an open finding of this severity."""
    scan_source: str | None = None
    """Only files in which this scanner ever found something."""
    sort: SortField = "updated_at"
    """Files that sort alike come in the order of their paths, or in its reverse where the direction is not the
    default one."""
    direction: Literal["asc", "desc", "ASC", "DESC"] | None = None
    """By default asc for path and language, desc (newest first) for updated_at and first_seen."""


class FileArgs(Args):
    """Which file."""

    file_id: str
    """Id of the file, as list_files and register_file give it."""


class TimelineArgs(FileArgs):
    """Which events of a file."""

    limit: Limit = 50
    """Most events in the answer."""
    offset: Offset = 0
    """Events to skip, for the next page."""
    event_type: EventKind | None = None
    """Only events of this kind; finding is all about findings: created, updated, closed."""


class IssueArgs(Args):
    """Which issue."""

    issue_id: str
    """Id of the issue, as create_issue and list_issues give it."""


class AssociationArgs(Args):
    """What to link."""

    file_id: str
    """Id of the file."""
    issue_id: str
    """Id of the issue."""
    assoc_type: AssocType
    """What the file has to do with the issue."""


class RegisterArgs(Args):
    """What is known of a file."""

    path: str
    """Path relative to the project, like src/app.py. The file need not exist yet."""
    language: str | None = None
    """Its language; left out, guessed for a new file and kept for a known one."""
    file_type: str | None = None
    """What it is for, such as test or config; left out, kept."""
    metadata: Metadata | None = None
    """Anything else worth knowing; replaces what was known. Left out, kept."""


class ReportedFinding(Args):
    """One finding."""

    path: str = Field(min_length=1)
    """File it is in, relative to the project, or absolute and inside it."""
    rule_id: str = Field(min_length=1)
    """Which rule was broken, in the scanner's own words, like E501."""
    message: str = Field(min_length=1)
    """What is wrong."""
    severity: Severity = "info"
    """How bad it is."""
    line_start: Line | None = None
    """First line, from 1."""
    line_end: Line | None = None
    """Last line."""
    suggestion: str | None = None
    """What to do about it."""
    fingerprint: str | None = None
    """What the scanner knows the finding by when lines move; without it, rule and line are."""
    metadata: Metadata | None = None
    """Anything else worth knowing."""


class ReportArgs(Args):
    """What a scanner found."""

    scan_source: str = Field(min_length=1, max_length=MAX_NAME_CHARS)
    """Name of the scanner, or of whoever looked: always the same, as findings are compared with its earlier ones."""
    findings: tuple[ReportedFinding, ...]
    """All that was found; what was found earlier and is not among them closes as fixed."""
    paths: tuple[str, ...] | None = None
    """Files and directories that were looked at, "." for all. Left out: the files that findings name."""


class ImportArgs(Args):
    """A report as a scanner wrote it."""

    report: Annotated[Any, WithJsonSchema({"type": ["object", "array"]})]
    """SARIF 2.1.0, the JSON of gitleaks, or the arguments of report_findings."""
    format: ReportFormat = "auto"
    """Which of them it is; `auto` finds out."""
    scan_source: Annotated[str, Field(min_length=1, max_length=MAX_NAME_CHARS)] | None = None
    """Name of the scanner, before the one in the report."""
    paths: tuple[str, ...] | None = None
    """Files and directories that were looked at, before those in the report."""


class ListFindingsArgs(Args):
    """Which findings."""

    file_id: str | None = None
    """Only findings in this file."""
    status: FindingStatus | None = None
    """Only findings in this state."""
    severity: Severity | None = None
    """Only findings of this severity."""
    scan_source: str | None = None
    """Only findings of this scanner."""
    limit: Limit = 100
    """Most findings in the answer."""
    offset: Offset = 0
    """Findings to skip, for the next page."""


class UpdateFindingArgs(Args):
    """What a finding is judged to be."""

    finding_id: str
    """Id of the finding, as list_findings and get_file give it."""
    status: FindingStatus
    """false_positive stays, whatever scans say; fixed opens again when a scan finds it again."""


class IssueFields(Args):
    """What an issue says."""

    body: str | None = None
    """All the rest, in Markdown."""
    labels: tuple[str, ...] | None = Field(default=None, max_length=MAX_LABELS)
    """Words to find it by."""
    external_ref: str | None = None
    """The same issue in another tracker, such as github:owner/repo#12 or PROJ-7."""


class CreateIssueArgs(IssueFields):
    """A new issue."""

    title: str = Field(min_length=1, max_length=MAX_TITLE_CHARS)
    """What is to be done, in one line."""
    priority: Priority = DEFAULT_PRIORITY
    """0 is the most urgent, 4 the least."""


class UpdateIssueArgs(IssueFields):
    """What changes; what is left out stays."""

    issue_id: str
    """Id of the issue."""
    title: Annotated[str, Field(min_length=1, max_length=MAX_TITLE_CHARS)] | None = None
    """What is to be done, in one line."""
    status: IssueStatus | None = None
    """Where it stands."""
    priority: Priority | None = None
    """0 is the most urgent, 4 the least."""


class ListIssuesArgs(Args):
    """Which issues."""

    status: IssueStatus | None = None
    """Only issues that stand like this."""
    label: str | None = None
    """Only issues with this label."""
    limit: Limit = 100
    """Most issues in the answer."""
    offset: Offset = 0
    """Issues to skip, for the next page."""


class PromoteArgs(IssueFields):
    """Which finding becomes an issue; what is left out is made from the finding."""

    finding_id: str
    """Id of the finding, as list_findings and get_file give it."""
    title: Annotated[str, Field(min_length=1, max_length=MAX_TITLE_CHARS)] | None = None
    """What is to be done, in one line."""
    priority: Priority | None = None
    """0 is the most urgent, 4 the least; left out, as severe as the finding."""
