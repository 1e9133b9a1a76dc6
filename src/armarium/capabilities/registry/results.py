"""Makes the answers of the registry's tools from what the service knows."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from operator import attrgetter
from typing import Any, TypeVar, cast

from armarium.capabilities.registry.model import (
    Association,
    FileDetail,
    FileRecord,
    Finding,
    Issue,
    Page,
    ScanOutcome,
    TimelineEvent,
)
from armarium.capabilities.registry.result_types import (
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

ShapeT = TypeVar("ShapeT")


def files_answer(page: Page[FileRecord]) -> Files:
    """A page of files."""
    return {"results": [_listed(file) for file in page.items], **_shaped(Paged, page)}


def file_answer(file: FileRecord) -> RegisteredFile:
    """A file's record."""
    return _shaped(RegisteredFile, file)


def detail_answer(detail: FileDetail) -> FileAnswer:
    """A file with all that is around it."""
    return {
        "file": file_answer(detail.file),
        "associations": [_shaped(FileLink, each) for each in detail.associations],
        "recent_findings": [finding_answer(each) for each in detail.recent_findings],
        "summary": _shaped(FileSummary, detail.file.summary),
    }


def timeline_answer(page: Page[TimelineEvent]) -> Timeline:
    """A page of events."""
    return {"results": [_shaped(Happened, each) for each in page.items], **_shaped(Paged, page)}


def finding_answer(finding: Finding) -> FoundInFile:
    """A finding."""
    return _shaped(FoundInFile, finding)


def findings_answer(page: Page[Finding]) -> Findings:
    """A page of findings."""
    return {"results": [finding_answer(each) for each in page.items], **_shaped(Paged, page)}


def issue_answer(issue: Issue) -> IssueAnswer:
    """An issue."""
    return {**_shaped(IssueAnswer, issue), "labels": list(issue.labels)}


def issues_answer(page: Page[Issue]) -> Issues:
    """A page of issues."""
    return {"results": [issue_answer(each) for each in page.items], **_shaped(Paged, page)}


def issue_link_answer(link: Association) -> IssueLink:
    """A file that an issue has to do with."""
    return _shaped(IssueLink, link)


def scan_answer(outcome: ScanOutcome) -> Scanned:
    """What a scan changed."""
    return {**_shaped(Scanned, outcome), "skipped": _skipped(outcome.skipped)}


def _listed(file: FileRecord) -> ListedFile:
    return {**_shaped(ListedFile, file), "summary": _shaped(FileSummary, file.summary)}


def _skipped(reasons: Mapping[str, int]) -> list[Skipped]:
    return [{"reason": reason, "count": count} for reason, count in sorted(reasons.items())]


def _shaped(shape: type[ShapeT], value: object) -> ShapeT:
    """The fields that the shape has, of a value that has them by the same names."""
    names, values = _fields(shape)
    return cast(ShapeT, dict(zip(names, values(value), strict=True)))


@cache
def _fields(shape: type[Any]) -> tuple[tuple[str, ...], attrgetter[tuple[Any, ...]]]:
    names = tuple(shape.__annotations__)
    return names, attrgetter(*names)
