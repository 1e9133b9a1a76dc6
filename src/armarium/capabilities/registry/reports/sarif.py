"""Reads SARIF 2.1.0, as linters and security scanners write it, into one scan for each tool that speaks in it."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from armarium.capabilities.registry.model import ReportEntry, ScanReport
from armarium.capabilities.registry.reports.fields import array_in, as_object, line_in, object_in, refused, text_in
from armarium.capabilities.registry.reports.sarif_locations import Locations
from armarium.capabilities.registry.reports.sarif_rules import Rule, Rules, message_text, severity
from armarium.foundation.schema import Json

NO_LOCATION = "no_location"
NO_RULE = "no_rule"
NOT_A_FILE = "not_a_file"
"""Why results are left out."""

_VERSION = "2.1"
_PASSING_KINDS = frozenset({"pass", "notApplicable"})
"""Kinds of results that say that all is well."""
_LINE_HASH = "primaryLocationLineHash"
_VERSIONED = re.compile(r".+/v\d+")
_FINGERPRINT = re.compile(r"\S{8,}")


def is_sarif(document: object) -> bool:
    """Whether this is a SARIF log, of whatever version."""
    return isinstance(document, dict) and "runs" in document


def read_sarif(document: object, source: str | None = None) -> list[ScanReport]:
    """The scans of a log; raises `ValidationError` where it is not one. `source` goes before the tools' own names."""
    log = as_object(document, "")
    if not text_in(log, "version", "").startswith(_VERSION):
        raise refused("must be 2.1.0", "version")
    if not isinstance(log.get("runs"), list):
        raise refused("must be an array", "runs")
    scans: dict[str, _Scan] = {}
    for number, each in enumerate(log["runs"]):
        at = f"runs[{number}]"
        run = as_object(each, at)
        name = source or _source(run, at)
        scans.setdefault(name, _Scan(name)).take(run, at)
    return [scan.report() for scan in scans.values()]


def _source(run: Json, at: str) -> str:
    """The tool's name as people write it in a filter: `Semgrep OSS` is `semgrep-oss`."""
    at = f"{at}.tool"
    name = text_in(object_in(object_in(run, "tool", at), "driver", at), "name", f"{at}.driver")
    if not name.strip():
        raise refused("name is required", f"{at}.driver")
    return "-".join(name.lower().split())


@dataclass(slots=True)
class _Scan:
    """What the runs of one tool say together: a tool may write a run for each language or directory."""

    source: str
    findings: list[ReportEntry] = field(default_factory=list[ReportEntry])
    skipped: Counter[str] = field(default_factory=Counter[str])
    targets: list[str] = field(default_factory=list[str])
    """Files that were looked at, where the tool lists them."""
    failed: bool = False

    def take(self, run: Json, at: str) -> None:
        """Add what one run says."""
        rules, locations = Rules(run, at), Locations(run, at)
        self.targets += locations.targets()
        self.failed = self.failed or _has_failed(run, at)
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
        """All of it, as one scan."""
        return ScanReport(self.source, self.findings, self._covered(), dict(self.skipped), self.failed)

    def _covered(self) -> tuple[str, ...] | None:
        if not self.targets:
            return None
        return tuple(dict.fromkeys([*self.targets, *(finding.path for finding in self.findings)]))


def _has_failed(run: Json, at: str) -> bool:
    invocations = array_in(run, "invocations", at)
    return any(as_object(each, f"{at}.invocations").get("executionSuccessful") is False for each in invocations)


def _finding(result: Json, rules: Rules, locations: Locations, at: str) -> ReportEntry | str:
    """The finding, or why it cannot be one."""
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
    """What the tool knows the result by. Partial ones may hold anything, so only those made for this are taken.

    The rule is part of it: CodeQL's hash of a line is the same for everything found in that line.
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
    # Semgrep writes `requires login` where others have a hash.
    return isinstance(value, str) and _FINGERPRINT.fullmatch(value) is not None


def _metadata(region: Json, rule: Rule, at: str) -> Json:
    column = line_in(region, "startColumn", at)
    facts: Iterable[tuple[str, Any]] = (("column", column), ("help_uri", rule.help_uri))
    return {name: value for name, value in facts if value}


def _is_suppressed(result: Json, at: str) -> bool:
    """Whether every decision about the result is to leave it; one without a status is such a decision."""
    suppressions = [as_object(each, f"{at}.suppressions") for each in array_in(result, "suppressions", at)]
    return bool(suppressions) and all(each.get("status") in (None, "accepted") for each in suppressions)
