"""The arguments of the registry's tools. The docstrings of fields are what a model reads."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, WithJsonSchema

from armarium.capabilities.registry import model, values
from armarium.capabilities.registry.limits import MAX_LABELS, MAX_LINE, MAX_NAME_CHARS, MAX_TITLE_CHARS
from armarium.foundation.tools import Args

_MAX_INTEGER = 2**63 - 1


def _integer(value: Any) -> Any:
    """JSON has no integer type: 1e30 is an integer too. Integers beyond 64 bits are reduced to the largest."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return min(value, _MAX_INTEGER) if isinstance(value, int) else value


Limit = Annotated[int, Field(ge=1, le=10000), BeforeValidator(_integer)]
Offset = Annotated[int, Field(ge=0), BeforeValidator(_integer)]
Priority = Annotated[int, Field(ge=0, le=model.LOWEST_PRIORITY), BeforeValidator(_integer)]
Line = Annotated[int, Field(ge=1, le=MAX_LINE), BeforeValidator(_integer)]

Metadata = Annotated[dict[str, Any], WithJsonSchema({"type": "object"})]


class ListFilesArgs(Args):
    limit: Limit = 100
    """Maximum number of files to return."""
    offset: Offset = 0
    """Number of files to skip, for the next page."""
    language: str | None = None
    """Only files in this language, exactly as recorded; "" selects files without a language."""
    path_prefix: str | None = None
    """Only files whose path starts with this text. `src/` selects a directory; `%` and `_` have no special meaning."""
    min_findings: Offset | None = None
    """Only files with at least this many open findings."""
    has_severity: values.Severity | None = None
    """Only files with an open finding of this severity."""
    scan_source: str | None = None
    """Only files in which this scanner ever reported a finding."""
    sort: values.SortField = "updated_at"
    """Field to sort by. Ties are ordered by path, in reverse if the direction is not the default."""
    direction: Literal["asc", "desc", "ASC", "DESC"] | None = None
    """By default asc for path and language, desc (newest first) for updated_at and first_seen."""


class FileArgs(Args):
    file_id: str
    """Id of the file, from list_files or register_file."""


class TimelineArgs(FileArgs):
    limit: Limit = 50
    """Maximum number of events to return."""
    offset: Offset = 0
    """Number of events to skip, for the next page."""
    event_type: values.EventKind | None = None
    """Only events of this kind; `finding` selects created, updated and closed findings."""


class IssueArgs(Args):
    issue_id: str
    """Id of the issue, from create_issue or list_issues."""


class AssociationArgs(Args):
    file_id: str
    """Id of the file."""
    issue_id: str
    """Id of the issue."""
    assoc_type: values.AssocType
    """How the file is related to the issue."""


class RegisterArgs(Args):
    path: str
    """Path relative to the project, like src/app.py. The file need not exist yet."""
    language: str | None = None
    """Language. If omitted, it is guessed for a new file and unchanged for a registered one."""
    file_type: str | None = None
    """Purpose, such as test or config. If omitted, unchanged."""
    metadata: Metadata | None = None
    """Other data; replaces the earlier metadata. If omitted, unchanged."""


class ReportedFinding(Args):
    path: str = Field(min_length=1)
    """Path of the file, relative to the project, or absolute and inside it."""
    rule_id: str = Field(min_length=1)
    """The scanner's id of the violated rule, like E501."""
    message: str = Field(min_length=1)
    """What is wrong."""
    severity: values.Severity = "info"
    """Severity."""
    line_start: Line | None = None
    """First line, counted from 1."""
    line_end: Line | None = None
    """Last line."""
    suggestion: str | None = None
    """How to fix it."""
    fingerprint: str | None = None
    """Identifies the finding even if lines move. Without it, rule and content of the line identify it."""
    metadata: Metadata | None = None
    """Other data."""


class ReportArgs(Args):
    scan_source: str = Field(min_length=1, max_length=MAX_NAME_CHARS)
    """Name of the scanner or reviewer. Use the same name each time: findings are compared with its earlier ones."""
    findings: tuple[ReportedFinding, ...]
    """All findings of the scan. Earlier findings that are not among them are closed as fixed."""
    paths: tuple[str, ...] | None = None
    """Scanned files and directories, "." for all. If omitted, the files that have findings."""
    category: Annotated[str, Field(max_length=MAX_NAME_CHARS)] = ""
    """Name for a part of what the scanner checks, such as a language. Only findings of the same category are closed."""


class ImportOptions(Args):
    """How a report is read, and what overrides its content."""

    format: values.ReportFormat = "auto"
    """Format of the report; `auto` detects it."""
    scan_source: Annotated[str, Field(min_length=1, max_length=MAX_NAME_CHARS)] | None = None
    """Name of the scanner. Overrides the one in the report."""
    paths: tuple[str, ...] | None = None
    """Scanned files and directories. Overrides those in the report."""
    category: Annotated[str, Field(max_length=MAX_NAME_CHARS)] | None = None
    """Only findings of the same category are closed. Overrides the one in the report."""
    map: tuple[str, ...] = ()
    """`PREFIX=PATH`: paths that begin with PREFIX, or with a base such as %SRCROOT%, are below PATH in the project."""


class ImportArgs(ImportOptions):
    report: Annotated[Any, WithJsonSchema({"type": ["object", "array"]})]
    """SARIF 2.1.0, the JSON of gitleaks, or the arguments of report_findings."""


class ListFindingsArgs(Args):
    file_id: str | None = None
    """Only findings in this file."""
    status: values.FindingStatus | None = None
    """Only findings with this status."""
    severity: values.Severity | None = None
    """Only findings of this severity."""
    scan_source: str | None = None
    """Only findings of this scanner."""
    limit: Limit = 100
    """Maximum number of findings to return."""
    offset: Offset = 0
    """Number of findings to skip, for the next page."""


class UpdateFindingArgs(Args):
    finding_id: str
    """Id of the finding, from list_findings or get_file."""
    status: values.FindingStatus
    """false_positive is not changed by later scans; fixed is reopened if a scan reports the finding again."""


class IssueFields(Args):
    body: str | None = None
    """Description, in Markdown."""
    labels: tuple[str, ...] | None = Field(default=None, max_length=MAX_LABELS)
    """Labels to filter by."""
    external_ref: str | None = None
    """The same issue in another tracker, such as github:owner/repo#12 or PROJ-7."""


class CreateIssueArgs(IssueFields):
    title: str = Field(min_length=1, max_length=MAX_TITLE_CHARS)
    """Title, on one line."""
    priority: Priority = model.DEFAULT_PRIORITY
    """0 is the most urgent, 4 the least."""


class UpdateIssueArgs(IssueFields):
    issue_id: str
    """Id of the issue."""
    title: Annotated[str, Field(min_length=1, max_length=MAX_TITLE_CHARS)] | None = None
    """Title, on one line."""
    status: values.IssueStatus | None = None
    """Status."""
    priority: Priority | None = None
    """0 is the most urgent, 4 the least."""


class ListIssuesArgs(Args):
    status: values.IssueStatus | None = None
    """Only issues with this status."""
    label: str | None = None
    """Only issues with this label."""
    limit: Limit = 100
    """Maximum number of issues to return."""
    offset: Offset = 0
    """Number of issues to skip, for the next page."""


class PromoteArgs(IssueFields):
    finding_id: str
    """Id of the finding, from list_findings or get_file."""
    title: Annotated[str, Field(min_length=1, max_length=MAX_TITLE_CHARS)] | None = None
    """Title, on one line."""
    priority: Priority | None = None
    """0 is the most urgent, 4 the least. If omitted, derived from the severity of the finding."""


# Of tools that only routes name.

_MAX_CHOSEN = 200
_MAX_IDS = 1000
_MAX_REASON_CHARS = 2000
_Names = Annotated[tuple[str, ...], Field(max_length=_MAX_CHOSEN)]


class FindingFilterArgs(Args):
    file_id: str | None = None
    """Only findings in this file."""
    issue_id: str | None = None
    """Only findings that became this issue."""
    path_prefix: str | None = None
    """Only findings in files whose path begins with this text."""
    text: Annotated[str, Field(max_length=MAX_NAME_CHARS)] | None = None
    """Only findings that have all these words in the message, the rule or the path."""
    status: Annotated[tuple[values.FindingStatus, ...], Field(max_length=_MAX_CHOSEN)] = ()
    """Only findings with one of these statuses."""
    severity: Annotated[tuple[values.Severity, ...], Field(max_length=_MAX_CHOSEN)] = ()
    """Only findings with one of these severities."""
    scan_source: _Names = ()
    """Only findings of one of these scanners."""
    rule_id: _Names = ()
    """Only findings of one of these rules."""


class SearchFindingsArgs(FindingFilterArgs):
    sort: values.FindingSort = "updated_at"
    """`severity`: worst first, by file; `updated_at`: changed last first; `path`: by path and line."""
    limit: Annotated[int, Field(ge=1, le=1000), BeforeValidator(_integer)] = 100
    """Maximum number of findings to return."""
    cursor: str | None = None
    """`next` of the previous page, with the same filter and sort."""


class FindingArgs(Args):
    finding_id: str
    """Id of the finding."""


class JudgeArgs(Args):
    finding_ids: Annotated[tuple[str, ...], Field(max_length=_MAX_IDS)] | None = None
    """The findings to judge."""
    filter: FindingFilterArgs | None = None
    """Judges all findings that match, instead of `finding_ids`; needs `expected`."""
    expected: Annotated[int, Field(ge=0), BeforeValidator(_integer)] | None = None
    """How many findings match the filter, as the caller saw it. If they are not as many now, nothing is changed."""
    status: values.FindingStatus
    """The new status."""
    reason: Annotated[str, Field(max_length=_MAX_REASON_CHARS)] = ""
    """Why. It is in the timeline of every finding."""


class JudgementArgs(Args):
    judgement_id: str
    """Id of the judgement, from its answer."""


class PathArgs(Args):
    path: str
    """Path relative to the project, like src/app.py."""


class UnlinkArgs(Args):
    file_id: str
    """Id of the file."""
    association_id: Annotated[int, Field(ge=0), BeforeValidator(_integer)]
    """Id of the link, from get_file or get_issue_files."""


class SearchIssuesArgs(Args):
    status: Annotated[tuple[values.IssueStatus, ...], Field(max_length=_MAX_CHOSEN)] = ()
    """Only issues with one of these statuses."""
    label: str | None = None
    """Only issues with this label."""
    text: Annotated[str, Field(max_length=MAX_NAME_CHARS)] = ""
    """Only issues that have all these words in the id, title, body or labels."""
    limit: Annotated[int, Field(ge=1, le=1000), BeforeValidator(_integer)] = 100
    """Maximum number of issues to return."""
    cursor: str | None = None
    """`next` of the previous page, with the same filter."""


class IssueTimelineArgs(IssueArgs):
    limit: Annotated[int, Field(ge=1, le=1000), BeforeValidator(_integer)] = 50
    """Maximum number of events to return."""
    cursor: str | None = None
    """`next` of the previous page."""


class CommentArgs(IssueArgs):
    text: str = Field(min_length=1)
    """The comment, in Markdown."""


class ImportFileArgs(ImportOptions):
    content: Annotated[str, Field(json_schema_extra={"contentEncoding": "base64"})]
    """The report: JSON, which may be compressed with gzip."""
