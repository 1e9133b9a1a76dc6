"""The results of the registry's tools, field by field as in the contract. Names of nested types are in the schemas."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import WithJsonSchema
from typing_extensions import TypedDict

from armarium.capabilities.registry.model import AssocType, FindingStatus, IssueStatus, Severity

# Stated explicitly: other capabilities omit absent fields, but here they are always present.
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


class FilesPage(Paged):
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


class FileDetailResult(TypedDict):
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


class TimelinePage(Paged):
    results: list[Happened]


class IssueLink(TypedDict):
    id: int
    file_id: str
    issue_id: str
    assoc_type: AssocType
    created_at: str
    file_path: str
    file_language: str


class IssueFilesResult(TypedDict):
    result: list[IssueLink]


class AssociationResult(TypedDict):
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
    findings_duplicate: int
    files: int
    skipped: list[Skipped]
    failed: bool


class ImportResult(TypedDict):
    scans: list[Scanned]


class FindingsPage(Paged):
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


class IssuesPage(Paged):
    results: list[IssueAnswer]


class PromotionResult(TypedDict):
    issue: IssueAnswer
    created: bool
