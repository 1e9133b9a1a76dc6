"""Builds the results of the registry's tools from what the service returns."""

from __future__ import annotations

from functools import cache
from operator import attrgetter
from typing import Any, TypeVar, cast

from armarium.capabilities.registry import model
from armarium.capabilities.registry import result_types as types

ResultT = TypeVar("ResultT")


def files_page(page: model.Page[model.FileRecord]) -> types.FilesPage:
    """A page of files."""
    return {"results": [_listed_file(file) for file in page.items], **_picked(types.Paged, page)}


def registered_file(file: model.FileRecord) -> types.RegisteredFile:
    """A file's record."""
    return _picked(types.RegisteredFile, file)


def file_detail(detail: model.FileDetail) -> types.FileDetailResult:
    """A file with its associations, recent findings and counts."""
    return {
        "file": registered_file(detail.file),
        "associations": [_picked(types.FileLink, each) for each in detail.associations],
        "recent_findings": [finding(each) for each in detail.recent_findings],
        "summary": _picked(types.FileSummary, detail.file.summary),
    }


def timeline_page(page: model.Page[model.TimelineEvent]) -> types.TimelinePage:
    """A page of events."""
    return {"results": [_picked(types.Happened, each) for each in page.items], **_picked(types.Paged, page)}


def finding(finding: model.Finding) -> types.FoundInFile:
    """A finding."""
    return _picked(types.FoundInFile, finding)


def findings_page(page: model.Page[model.Finding]) -> types.FindingsPage:
    """A page of findings."""
    return {"results": [finding(each) for each in page.items], **_picked(types.Paged, page)}


def issue(issue: model.Issue) -> types.IssueAnswer:
    """An issue."""
    return {**_picked(types.IssueAnswer, issue), "labels": list(issue.labels)}


def issues_page(page: model.Page[model.Issue]) -> types.IssuesPage:
    """A page of issues."""
    return {"results": [issue(each) for each in page.items], **_picked(types.Paged, page)}


def issue_link(link: model.Association) -> types.IssueLink:
    """A file that is linked to an issue."""
    return _picked(types.IssueLink, link)


def scan_result(outcome: model.ScanOutcome) -> types.Scanned:
    """The changes that a scan made."""
    skipped: list[types.Skipped] = [
        {"reason": reason, "count": count} for reason, count in sorted(outcome.skipped.items())
    ]
    return {**_picked(types.Scanned, outcome), "skipped": skipped}


def _listed_file(file: model.FileRecord) -> types.ListedFile:
    return {**_picked(types.ListedFile, file), "summary": _picked(types.FileSummary, file.summary)}


def _picked(result_type: type[ResultT], value: object) -> ResultT:
    """The fields of a result, taken from the attributes of the same names.

    The two differ only in which fields callers see, so the names are not repeated here.
    """
    names, values = _fields(result_type)
    return cast(ResultT, dict(zip(names, values(value), strict=True)))


@cache
def _fields(result_type: type[Any]) -> tuple[tuple[str, ...], attrgetter[tuple[Any, ...]]]:
    names = tuple(result_type.__annotations__)
    return names, attrgetter(*names)
