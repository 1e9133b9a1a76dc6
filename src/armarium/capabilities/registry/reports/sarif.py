"""Reads SARIF 2.1.0 logs of linters and security scanners into one scan report per tool."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from armarium.capabilities.registry.model import ReportEntry, ScanReport
from armarium.capabilities.registry.reports.fields import (
    array_in,
    as_array,
    as_object,
    line_in,
    object_in,
    refused,
    text_in,
)
from armarium.capabilities.registry.reports.sarif_locations import Locations
from armarium.capabilities.registry.reports.sarif_rules import Rule, Rules, message_text, severity
from armarium.foundation.schema import Json

NO_LOCATION = "no_location"
NO_RULE = "no_rule"
NOT_A_FILE = "not_a_file"
"""Reasons for skipping results."""

_VERSION = "2.1"
_PASSING_KINDS = frozenset({"pass", "notApplicable"})
"""Kinds of results that are not findings."""
_LINE_HASH = "primaryLocationLineHash"
_VERSIONED = re.compile(r".+/v\d+")
_FINGERPRINT = re.compile(r"\S{8,}")


def read_sarif(document: object, source: str | None = None) -> list[ScanReport]:
    """Read the scans of a log; raises `ValidationError` if it is invalid. `source` overrides the names of the tools."""
    log = as_object(document, "")
    if not text_in(log, "version", "").startswith(_VERSION):
        raise refused("must be 2.1.0", "version")
    scans: dict[str, _Scan] = {}
    for number, each in enumerate(as_array(log.get("runs"), "runs")):
        at = f"runs[{number}]"
        run = as_object(each, at)
        name = source or _source(run, at)
        scans.setdefault(name, _Scan(name)).take(run, at)
    return [scan.report() for scan in scans.values()]


def _source(run: Json, at: str) -> str:
    """The tool's name in a form for filters: `Semgrep OSS` is `semgrep-oss`."""
    at = f"{at}.tool"
    name = text_in(object_in(object_in(run, "tool", at), "driver", at), "name", f"{at}.driver")
    if not name.strip():
        raise refused("name is required", f"{at}.driver")
    return "-".join(name.lower().split())


@dataclass(slots=True)
class _Scan:
    """The runs of one tool. A tool may write a run per language or directory."""

    source: str
    findings: list[ReportEntry] = field(default_factory=list[ReportEntry])
    skipped: Counter[str] = field(default_factory=Counter[str])
    targets: list[str] = field(default_factory=list[str])
    """The scanned files, if the tool lists them."""
    failed: bool = False

    def take(self, run: Json, at: str) -> None:
        rules, locations = Rules(run, at), Locations(run, at)
        self.targets += locations.targets()
        invocations = [as_object(each, f"{at}.invocations") for each in array_in(run, "invocations", at)]
        self.failed |= any(each.get("executionSuccessful") is False for each in invocations)
        for number, each in enumerate(array_in(run, "results", at)):
            place = f"{at}.results[{number}]"
            result = as_object(each, place)
            if text_in(result, "kind", place) in _PASSING_KINDS or result.get("baselineState") == "absent":
                continue
            finding = _finding(result, rules, locations, place)
            if isinstance(finding, str):
                self.skipped[finding] += 1
            else:
                self.findings.append(finding)

    def report(self) -> ScanReport:
        covered = tuple(dict.fromkeys([*self.targets, *(finding.path for finding in self.findings)]))
        return ScanReport(
            self.source, self.findings, covered if self.targets else None, dict(self.skipped), self.failed
        )


def _finding(result: Json, rules: Rules, locations: Locations, at: str) -> ReportEntry | str:
    """The finding, or the reason for skipping it."""
    rule = rules.of(result, at)
    if rule is None:
        return NO_RULE
    physical = _physical_location(result, at)
    if physical is None:
        return NO_LOCATION
    path = locations.path(object_in(physical, "artifactLocation", at), at)
    if path is None:
        return NOT_A_FILE
    region = object_in(physical, "region", at)
    first_line = line_in(region, "startLine", at)
    return ReportEntry(
        path,
        rule.id,
        message_text(result, rule, at),
        severity(result, rule, at),
        first_line,
        line_in(region, "endLine", at) or first_line,
        _suggestion(result, at),
        _fingerprint(result, rule, at),
        _metadata(region, rule, at),
        _is_suppressed(result, at),
    )


def _physical_location(result: Json, at: str) -> Json | None:
    for number, each in enumerate(array_in(result, "locations", at)):
        place = f"{at}.locations[{number}]"
        physical = object_in(as_object(each, place), "physicalLocation", place)
        if physical.get("artifactLocation") is not None:
            return physical
    return None


def _suggestion(result: Json, at: str) -> str:
    for each in array_in(result, "fixes", at):
        described = text_in(object_in(as_object(each, f"{at}.fixes"), "description", at), "text", at)
        if described:
            return described
    return ""


def _fingerprint(result: Json, rule: Rule, at: str) -> str | None:
    """The fingerprint of a result. Of the partial fingerprints, only those made for this purpose are used.

    The rule is part of it: CodeQL's hash of a line is the same for all findings in that line.
    """
    whole, partial = object_in(result, "fingerprints", at), object_in(result, "partialFingerprints", at)
    known = [(name, value) for name, value in sorted(whole.items()) if _is_fingerprint(value)]
    if not known and _is_fingerprint(partial.get(_LINE_HASH)):
        known = [(_LINE_HASH, partial[_LINE_HASH])]
    if not known:
        known = [pair for pair in sorted(partial.items()) if _VERSIONED.fullmatch(pair[0]) and _is_fingerprint(pair[1])]
    if not known:
        return None
    return hashlib.sha256(repr((rule.id, known)).encode("utf-8", "replace")).hexdigest()[:32]


def _is_fingerprint(value: Any) -> bool:
    # Semgrep writes `requires login` instead of a hash.
    return isinstance(value, str) and _FINGERPRINT.fullmatch(value) is not None


def _metadata(region: Json, rule: Rule, at: str) -> Json:
    facts: Json = {"column": line_in(region, "startColumn", at), "help_uri": rule.help_uri}
    return {name: value for name, value in facts.items() if value}


def _is_suppressed(result: Json, at: str) -> bool:
    """Whether all suppressions of the result are accepted. One without a status is."""
    suppressions = [as_object(each, f"{at}.suppressions") for each in array_in(result, "suppressions", at)]
    return bool(suppressions) and all(each.get("status") in (None, "accepted") for each in suppressions)
