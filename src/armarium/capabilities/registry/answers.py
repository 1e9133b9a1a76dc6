"""Makes the answers of the registry's tools from what the service knows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from armarium.capabilities.registry.answer_shapes import (
    FileAnswer,
    FileLink,
    Files,
    FileSummary,
    Findings,
    FoundInFile,
    Happened,
    IssueAnswer,
    IssueLink,
    Issues,
    ListedFile,
    Paged,
    RegisteredFile,
    Scanned,
    Skipped,
    Timeline,
)
from armarium.capabilities.registry.model import (
    Association,
    FileDetail,
    FileRecord,
    Finding,
    Issue,
    Page,
    ScanOutcome,
    Summary,
    TimelineEvent,
)


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
        "findings_duplicate": outcome.findings_duplicate,
        "files": outcome.files,
        "skipped": _skipped(outcome.skipped),
        "failed": outcome.failed,
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
