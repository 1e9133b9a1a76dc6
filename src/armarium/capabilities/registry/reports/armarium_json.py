"""Reads reports in the form that the `report_findings` tool takes: the one to write when a scanner speaks no SARIF."""

from __future__ import annotations

from typing import Any

from armarium.capabilities.registry.model import SEVERITIES, Reported, ScanReport
from armarium.capabilities.registry.reports.fields import (
    Json,
    array_in,
    as_object,
    line_in,
    object_in,
    refused,
    text_in,
)

_REPORT_FIELDS = frozenset({"scan_source", "paths", "findings"})
_FINDING_FIELDS = frozenset(
    {"path", "rule_id", "message", "severity", "line_start", "line_end", "suggestion", "fingerprint", "metadata"}
)


def is_armarium_json(document: object) -> bool:
    """Whether this is a report of our own form."""
    return isinstance(document, dict) and "findings" in document and "runs" not in document


def read_armarium_json(document: object, source: str | None = None) -> ScanReport:
    """The findings of one scan; raises `ValidationError` where it is not one. `source` goes before its own."""
    report = as_object(document, "")
    _require_known(report, _REPORT_FIELDS, "")
    source = source or text_in(report, "scan_source", "")
    if not source:
        raise refused("scan_source is required")
    if not isinstance(report.get("findings"), list):
        raise refused("must be an array", "findings")
    findings = [
        _finding(as_object(each, f"findings[{n}]"), f"findings[{n}]") for n, each in enumerate(report["findings"])
    ]
    return ScanReport(source, findings, _covered(report))


def _covered(report: Json) -> tuple[str, ...] | None:
    if report.get("paths") is None:
        return None
    paths: list[Any] = array_in(report, "paths", "")
    for number, path in enumerate(paths):
        if not isinstance(path, str):
            raise refused("must be a text", f"paths[{number}]")
    return tuple(paths)


def _finding(entry: Json, at: str) -> Reported:
    _require_known(entry, _FINDING_FIELDS, at)
    for name in ("path", "rule_id", "message"):
        if not text_in(entry, name, at):
            raise refused(f"{name} is required", at)
    severity = text_in(entry, "severity", at) or "info"
    if severity not in SEVERITIES:
        raise refused(f"severity must be one of {', '.join(SEVERITIES)}", at)
    return Reported(
        entry["path"],
        text_in(entry, "rule_id", at),
        text_in(entry, "message", at),
        severity,
        line_in(entry, "line_start", at),
        line_in(entry, "line_end", at),
        text_in(entry, "suggestion", at),
        text_in(entry, "fingerprint", at) or None,
        object_in(entry, "metadata", at),
    )


def _require_known(entry: Json, known: frozenset[str], at: str) -> None:
    if not entry.keys() <= known:
        raise refused(f"has a field that is not one of {', '.join(sorted(known))}", at)
