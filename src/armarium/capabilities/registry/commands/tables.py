"""Formats results of the registry as lines of text, with untrusted text escaped."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from armarium.command_line.output import printable

Json = Mapping[str, Any]
Columns = Mapping[str, Callable[[Json], object]]

_SEVERITIES = ("critical", "high", "medium", "low", "info")
_TIME_LENGTH = len("2026-01-01T00:00:00")

_FINDINGS: Columns = {
    "ID": lambda finding: finding["id"],
    "SEVERITY": lambda finding: finding["severity"],
    "STATUS": lambda finding: finding["status"],
    "SOURCE": lambda finding: finding["scan_source"],
    "RULE": lambda finding: finding["rule_id"],
    "WHERE": lambda finding: _where(finding),
    "MESSAGE": lambda finding: finding["message"],
}
_ISSUES: Columns = {
    "ID": lambda issue: issue["id"],
    "PRIORITY": lambda issue: issue["priority"],
    "STATUS": lambda issue: issue["status"],
    "LABELS": lambda issue: ",".join(issue["labels"]) or "-",
    "TITLE": lambda issue: issue["title"],
}
_LISTS: Mapping[str, Columns] = {
    "list_files": {
        "ID": lambda file: file["id"],
        "OPEN": lambda file: file["summary"]["open_findings"],
        "WORST": lambda file: next((name for name in _SEVERITIES if file["summary"][name]), "-"),
        "ISSUES": lambda file: file["associations_count"],
        "LANGUAGE": lambda file: file["language"] or "-",
        "PATH": lambda file: file["path"],
    },
    "list_findings": _FINDINGS,
    "get_file_timeline": {
        "WHEN": lambda event: event["timestamp"][:_TIME_LENGTH],
        "WHAT": lambda event: event["type"],
        "ABOUT": lambda event: event["source_id"],
        "": lambda event: _event_details(event["data"]),
    },
    "list_issues": _ISSUES,
}


def lines(tool: str, results: Iterable[Json]) -> list[str]:
    """The results of a list as a table; no lines if there are no results."""
    return _table(_LISTS[tool], results)


def file_lines(result: Json) -> list[str]:
    file, summary = result["file"], result["summary"]
    counts = ", ".join(f"{summary[name]} {name}" for name in _SEVERITIES if summary[name]) or "none"
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
    issues: Columns = {
        "ISSUE": lambda link: link["issue_id"],
        "AS": lambda link: link["assoc_type"],
        "STATUS": lambda link: link["issue_status"],
        "TITLE": lambda link: link["issue_title"],
    }
    return _join_parts(
        _facts(facts), _table(issues, result["associations"]), _table(_FINDINGS, result["recent_findings"])
    )


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
    files: Columns = {
        "FILE": lambda link: link["file_id"],
        "AS": lambda link: link["assoc_type"],
        "PATH": lambda link: link["file_path"],
    }
    body = [printable(line) for line in result["body"].splitlines()]
    return _join_parts(_facts(facts), body, _table(files, result.get("files", ())))


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


def _where(finding: Json) -> str:
    line = finding["line_start"]
    return finding["file_path"] if line is None else f"{finding['file_path']}:{line}"


def _event_details(facts: Json) -> str:
    return " ".join(f"{name}={value}" for name, value in facts.items() if not isinstance(value, dict | list))


def _facts(facts: Mapping[str, object]) -> list[str]:
    width = max(map(len, facts))
    return [f"{name:<{width}}  {printable(str(value))}" for name, value in facts.items() if value != ""]


def _table(columns: Columns, rows: Iterable[Json]) -> list[str]:
    cells = [[printable(str(value(row))) for value in columns.values()] for row in rows]
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
