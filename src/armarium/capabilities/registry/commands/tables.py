"""Formats results of the registry as lines of text, with untrusted text escaped."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from armarium.capabilities.registry.values import SEVERITIES
from armarium.command_line.output import printable

Json = Mapping[str, Any]
Columns = Mapping[str, str | Callable[[Json], object]]
"""The headings of a table, with the field below each, or a function that computes the value."""

_TIME_LENGTH = len("2026-01-01T00:00:00")

_FINDINGS: Columns = {
    "ID": "id",
    "SEVERITY": "severity",
    "STATUS": "status",
    "SOURCE": "scan_source",
    "RULE": "rule_id",
    "WHERE": lambda finding: ":".join(str(finding[each]) for each in ("file_path", "line_start") if finding[each]),
    "MESSAGE": "message",
}
_ISSUES: Columns = {
    "ID": "id",
    "PRIORITY": "priority",
    "STATUS": "status",
    "LABELS": lambda issue: ",".join(issue["labels"]) or "-",
    "TITLE": "title",
}
_FILE_LINKS: Columns = {"ISSUE": "issue_id", "AS": "assoc_type", "STATUS": "issue_status", "TITLE": "issue_title"}
_ISSUE_LINKS: Columns = {"FILE": "file_id", "AS": "assoc_type", "PATH": "file_path"}
_LISTS: Mapping[str, Columns] = {
    "list_files": {
        "ID": "id",
        "OPEN": lambda file: file["summary"]["open_findings"],
        "WORST": lambda file: next((name for name in SEVERITIES if file["summary"][name]), "-"),
        "ISSUES": "associations_count",
        "LANGUAGE": lambda file: file["language"] or "-",
        "PATH": "path",
    },
    "list_findings": _FINDINGS,
    "get_file_timeline": {
        "WHEN": lambda event: event["timestamp"][:_TIME_LENGTH],
        "WHAT": "type",
        "ABOUT": "source_id",
        "": lambda event: " ".join(
            f"{name}={value}" for name, value in event["data"].items() if not isinstance(value, dict | list)
        ),
    },
    "list_issues": _ISSUES,
}


def lines(tool: str, results: Iterable[Json]) -> list[str]:
    """The results of a list as a table; no lines if there are no results."""
    return _table(_LISTS[tool], results)


def file_lines(result: Json) -> list[str]:
    file, summary = result["file"], result["summary"]
    counts = ", ".join(f"{summary[name]} {name}" for name in SEVERITIES if summary[name]) or "none"
    facts = {
        "file": file["path"],
        "id": file["id"],
        "language": file["language"],
        "type": file["file_type"],
        "open findings": counts,
        "all findings": summary["total_findings"],
        "first seen": file["first_seen"][:_TIME_LENGTH],
        "updated": file["updated_at"][:_TIME_LENGTH],
    }
    links, findings = _table(_FILE_LINKS, result["associations"]), _table(_FINDINGS, result["recent_findings"])
    return _join_parts(_facts(facts), links, findings)


def issue_lines(result: Json) -> list[str]:
    facts = {
        "issue": result["title"],
        "id": result["id"],
        "status": result["status"],
        "priority": result["priority"],
        "labels": ", ".join(result["labels"]),
        "elsewhere": result["external_ref"],
        "updated": result["updated_at"][:_TIME_LENGTH],
    }
    body = [printable(line) for line in result["body"].splitlines()]
    return _join_parts(_facts(facts), body, _table(_ISSUE_LINKS, result.get("files", ())))


def changed_lines(tool: str, result: Json) -> list[str]:
    """The result of a change: the id comes first, because the next command needs it."""
    if tool == "add_file_association":
        return ["linked"]
    if tool == "register_file":
        return [printable(f"{result['id']}  {result['path']}")]
    if tool == "update_finding":
        return _table(_FINDINGS, [result])
    return _table(_ISSUES, [result.get("issue", result)])


def scan_lines(result: Json) -> list[str]:
    parts = ["created", "updated", "reopened", "closed", "unchanged"]
    parts += ["duplicate"] if result["findings_duplicate"] else []
    counts = ", ".join(f"{result[f'findings_{part}']} {part}" for part in parts)
    summary = f"{result['scan_source']}: {counts}; in {result['files']} files"
    return [printable(summary), *(f"skipped {each['count']}: {each['reason']}" for each in result["skipped"])]


def _facts(facts: Mapping[str, object]) -> list[str]:
    width = max(map(len, facts))
    return [f"{name:<{width}}  {printable(str(value))}" for name, value in facts.items() if value != ""]


def _table(columns: Columns, rows: Iterable[Json]) -> list[str]:
    cells = [[printable(str(row[of] if isinstance(of, str) else of(row))) for of in columns.values()] for row in rows]
    if not cells:
        return []
    cells.insert(0, list(columns))
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    return ["  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)).rstrip() for row in cells]


def _join_parts(*parts: Sequence[str]) -> list[str]:
    """The parts that are not empty, separated by empty lines."""
    joined: list[str] = []
    for part in parts:
        if part:
            joined += ["", *part] if joined else part
    return joined
