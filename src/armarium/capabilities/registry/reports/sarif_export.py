"""Writes findings as a SARIF 2.1.0 log, which other programs show and which `--baseline` reads."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import groupby
from typing import Any
from urllib.parse import quote

from armarium.capabilities.registry.model import ExportedFinding, Finding
from armarium.capabilities.registry.reports.sarif_identity import FINGERPRINT, PLACE
from armarium.capabilities.registry.values import Severity
from armarium.foundation.schema import Json

SCHEMA_URI = "https://json.schemastore.org/sarif-2.1.0.json"

_LEVELS: Mapping[Severity, str] = {
    "critical": "error", "high": "error", "medium": "warning", "low": "note", "info": "none",
}  # fmt: skip
_SCORES: Mapping[Severity, str] = {"critical": "9.5", "high": "8.0", "medium": "5.5", "low": "2.0"}
"""A score in the band of the severity, so that a reader of the log gets the same severity."""


def to_sarif(findings: Iterable[ExportedFinding]) -> Json:
    """A log with a run for each scanner and category."""
    ordered = sorted(findings, key=lambda each: (_run_of(each), _position(each.finding)))
    runs = [_run(*key, list(group)) for key, group in groupby(ordered, key=_run_of)]
    return {"$schema": SCHEMA_URI, "version": "2.1.0", "runs": runs}


def _run_of(exported: ExportedFinding) -> tuple[str, str]:
    return exported.finding["scan_source"], exported.category


def _position(finding: Finding) -> tuple[str, int, str, str]:
    return finding["file_path"], finding["line_start"] or 0, finding["rule_id"], finding["id"]


def _run(source: str, category: str, findings: list[ExportedFinding]) -> Json:
    rule_ids = sorted({each.finding["rule_id"] for each in findings})
    indexes = {rule_id: index for index, rule_id in enumerate(rule_ids)}
    run: Json = {
        "tool": {"driver": {"name": source, "rules": [{"id": each} for each in rule_ids]}},
        "columnKind": "unicodeCodePoints",
        "results": [_result(each, indexes) for each in findings],
    }
    # The last part of an id names the single run. There is none.
    return run | {"automationDetails": {"id": f"{category}/"}} if category else run


def _result(exported: ExportedFinding, rules: Mapping[str, int]) -> Json:
    finding = exported.finding
    severity = finding["severity"]
    properties: Json = {"armariumFinding": finding["id"], "firstSeen": finding["first_seen"]}
    if severity in _SCORES:
        properties["security-severity"] = _SCORES[severity]
    if finding["issue_id"]:
        properties["armariumIssue"] = finding["issue_id"]
    result: Json = {
        "ruleId": finding["rule_id"],
        "ruleIndex": rules[finding["rule_id"]],
        "level": _LEVELS[severity],
        "message": {"text": finding["message"]},
        "locations": [{"physicalLocation": _location(finding)}],
        "properties": properties,
    }
    if finding["fingerprint"]:
        result["fingerprints"] = {FINGERPRINT: finding["fingerprint"]}
    if exported.place:
        result["partialFingerprints"] = {PLACE: exported.place.hex()}
    if finding["status"] == "fixed":
        result["baselineState"] = "absent"
    if finding["status"] == "false_positive":
        result["suppressions"] = [{"kind": "external", "status": "accepted"}]
    return result


def _location(finding: Finding) -> Json:
    location: Json = {"artifactLocation": {"uri": quote(finding["file_path"]), "uriBaseId": "%SRCROOT%"}}
    if finding["line_start"] is None:
        return location
    region: dict[str, Any] = {"startLine": finding["line_start"]}
    if finding["line_end"] is not None and finding["line_end"] >= finding["line_start"]:
        region["endLine"] = finding["line_end"]
    column = finding["metadata"].get("column")
    if isinstance(column, int) and column > 0:
        region["startColumn"] = column
    return location | {"region": region}
