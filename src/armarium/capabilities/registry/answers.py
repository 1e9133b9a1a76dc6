"""What the registry's tools answer, field by field as its contract has it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import WithJsonSchema
from typing_extensions import TypedDict

from armarium.capabilities.registry.model import (
    Association,
    AssocType,
    FileDetail,
    FileRecord,
    Finding,
    FindingStatus,
    Issue,
    IssueStatus,
    Page,
    ScanOutcome,
    Severity,
    Summary,
    TimelineEvent,
)

# Said outright: elsewhere what may be missing is left out, but these fields are always there.
TextOrNull = Annotated[str | None, WithJsonSchema({"type": ["string", "null"]})]
NumberOrNull = Annotated[int | None, WithJsonSchema({"type": ["integer", "null"]})]


class Paged(TypedDict):
    total: int
    limit: int
    offset: int
    has_more: bool


class FileSummary(TypedDict):
    total_findings: int
    open_findings: int
    critical: int
    high: int
    medium: int
    low: int
    info: int


class RegisteredFile(TypedDict):
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


class Files(Paged):
    results: list[ListedFile]


class FileLink(TypedDict):
    id: int
    file_id: str
    issue_id: str
    assoc_type: AssocType
    created_at: str
    issue_title: str
    issue_status: IssueStatus


class FoundInFile(TypedDict):
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


class FileAnswer(TypedDict):
    file: RegisteredFile
    associations: list[FileLink]
    recent_findings: list[FoundInFile]
    summary: FileSummary


class Happened(TypedDict):
    id: str
    type: str
    timestamp: str
    source_id: str
    data: dict[str, Any]


class Timeline(Paged):
    results: list[Happened]


class IssueLink(TypedDict):
    id: int
    file_id: str
    issue_id: str
    assoc_type: AssocType
    created_at: str
    file_path: str
    file_language: str


class IssueLinks(TypedDict):
    result: list[IssueLink]


class Associated(TypedDict):
    status: Literal["created"]


class Skipped(TypedDict):
    reason: str
    count: int


class Scanned(TypedDict):
    scan_source: str
    scan_run_id: str
    findings_created: int
    findings_updated: int
    findings_closed: int
    findings_reopened: int
    findings_unchanged: int
    files: int
    skipped: list[Skipped]


class Imported(TypedDict):
    scans: list[Scanned]


class Findings(Paged):
    results: list[FoundInFile]


class IssueAnswer(TypedDict):
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


class Issues(Paged):
    results: list[IssueAnswer]


class Promoted(TypedDict):
    issue: IssueAnswer
    created: bool


def summary_answer(summary: Summary) -> FileSummary:
    """How many findings."""
    return {
        "total_findings": summary.total_findings,
        "open_findings": summary.open_findings,
        "critical": summary.critical,
        "high": summary.high,
        "medium": summary.medium,
        "low": summary.low,
        "info": summary.info,
    }


def file_answer(file: FileRecord) -> RegisteredFile:
    """A file's record."""
    return {
        "id": file.id,
        "path": file.path,
        "language": file.language,
        "file_type": file.file_type,
        "first_seen": file.first_seen,
        "updated_at": file.updated_at,
        "metadata": file.metadata,
    }


def files_answer(page: Page[FileRecord]) -> Files:
    """A page of files."""
    results: list[ListedFile] = [
        {**file_answer(file), "summary": summary_answer(file.summary), "associations_count": file.associations_count}
        for file in page.items
    ]
    return {"results": results, **_paged(page)}


def detail_answer(detail: FileDetail) -> FileAnswer:
    """A file with all that is around it."""
    return {
        "file": file_answer(detail.file),
        "associations": [_file_link(each) for each in detail.associations],
        "recent_findings": [finding_answer(each) for each in detail.recent_findings],
        "summary": summary_answer(detail.file.summary),
    }


def timeline_answer(page: Page[TimelineEvent]) -> Timeline:
    """A page of events."""
    results: list[Happened] = [
        {
            "id": event.id,
            "type": event.type,
            "timestamp": event.timestamp,
            "source_id": event.source_id,
            "data": event.data,
        }
        for event in page.items
    ]
    return {"results": results, **_paged(page)}


def finding_answer(finding: Finding) -> FoundInFile:
    """A finding."""
    return {
        "id": finding.id,
        "file_id": finding.file_id,
        "file_path": finding.file_path,
        "scan_source": finding.scan_source,
        "rule_id": finding.rule_id,
        "severity": finding.severity,
        "status": finding.status,
        "message": finding.message,
        "suggestion": finding.suggestion,
        "line_start": finding.line_start,
        "line_end": finding.line_end,
        "fingerprint": finding.fingerprint,
        "issue_id": finding.issue_id,
        "seen_count": finding.seen_count,
        "scan_run_id": finding.scan_run_id,
        "first_seen": finding.first_seen,
        "updated_at": finding.updated_at,
        "last_seen_at": finding.last_seen_at,
        "metadata": finding.metadata,
    }


def findings_answer(page: Page[Finding]) -> Findings:
    """A page of findings."""
    return {"results": [finding_answer(each) for each in page.items], **_paged(page)}


def issue_answer(issue: Issue) -> IssueAnswer:
    """An issue."""
    return {
        "id": issue.id,
        "title": issue.title,
        "body": issue.body,
        "status": issue.status,
        "priority": issue.priority,
        "labels": list(issue.labels),
        "external_ref": issue.external_ref,
        "created_at": issue.created_at,
        "updated_at": issue.updated_at,
        "closed_at": issue.closed_at,
    }


def issues_answer(page: Page[Issue]) -> Issues:
    """A page of issues."""
    return {"results": [issue_answer(each) for each in page.items], **_paged(page)}


def issue_link_answer(link: Association) -> IssueLink:
    """A file that an issue has to do with."""
    return {
        "id": link.id,
        "file_id": link.file_id,
        "issue_id": link.issue_id,
        "assoc_type": link.assoc_type,
        "created_at": link.created_at,
        "file_path": link.file_path,
        "file_language": link.file_language,
    }


def scan_answer(outcome: ScanOutcome) -> Scanned:
    """What a scan changed."""
    return {
        "scan_source": outcome.scan_source,
        "scan_run_id": outcome.scan_run_id,
        "findings_created": outcome.findings_created,
        "findings_updated": outcome.findings_updated,
        "findings_closed": outcome.findings_closed,
        "findings_reopened": outcome.findings_reopened,
        "findings_unchanged": outcome.findings_unchanged,
        "files": outcome.files,
        "skipped": _skipped(outcome.skipped),
    }


def _paged(page: Page[Any]) -> Paged:
    return {"total": page.total, "limit": page.limit, "offset": page.offset, "has_more": page.has_more}


def _skipped(reasons: Mapping[str, int]) -> list[Skipped]:
    return [{"reason": reason, "count": count} for reason, count in sorted(reasons.items())]


def _file_link(link: Association) -> FileLink:
    return {
        "id": link.id,
        "file_id": link.file_id,
        "issue_id": link.issue_id,
        "assoc_type": link.assoc_type,
        "created_at": link.created_at,
        "issue_title": link.issue_title,
        "issue_status": link.issue_status,
    }
