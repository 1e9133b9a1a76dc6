"""The values that fields and options of the registry can have. Commands import this module, and it imports nothing."""

from __future__ import annotations

from typing import Literal, get_args

Severity = Literal["critical", "high", "medium", "low", "info"]
FindingStatus = Literal["open", "fixed", "false_positive"]
AssocType = Literal["bug_in", "task_for", "scan_finding", "mentioned_in"]
IssueStatus = Literal["open", "in_progress", "closed"]
FindingSort = Literal["severity", "updated_at", "path"]
SortField = Literal["updated_at", "first_seen", "path", "language"]
Direction = Literal["asc", "desc"]
ReportFormat = Literal["auto", "sarif", "gitleaks", "armarium"]
EventKind = Literal["finding", "association", "file_metadata_update"]
"""The kinds that a timeline can be filtered by. The three types of events about findings are one kind."""

SEVERITIES: tuple[Severity, ...] = get_args(Severity)
"""Worst first."""
