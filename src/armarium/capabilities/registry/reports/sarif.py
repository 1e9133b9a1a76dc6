"""Reads SARIF 2.1.0 logs of linters and security scanners into one scan report per tool."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from armarium.capabilities.registry.limits import MAX_NAME_CHARS, printable
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
from armarium.capabilities.registry.reports.sarif_identity import digest_of, fingerprint, place
from armarium.capabilities.registry.reports.sarif_locations import Locations
from armarium.capabilities.registry.reports.sarif_rules import Rule, Rules, message_text, severity
from armarium.foundation.schema import Json

NO_LOCATION = "no_location"
NOT_A_FILE = "not_a_file"
"""Reasons for skipping results."""

_VERSION = "2.1"
_VARIANT = "variant"
"""In the metadata of findings that are otherwise alike."""
_RUN_ID = re.compile(r"\d{4}-?\d\d-?\d\d|^[\d.:_-]+$|\d{5}|^[0-9a-f]{7,}$|[0-9a-f]{8}-[0-9a-f]{4}-")
"""Dates, numbers and digests in the id of a run. Other words belong to its category."""
_PASSING_KINDS = frozenset({"pass", "notApplicable"})
"""Kinds of results that are not findings."""


def read_sarif(
    document: object, source: str | None = None, prefixes: Mapping[str, str] = MappingProxyType({})
) -> list[ScanReport]:
    """Read the scans of a log; raises `ValidationError` if it is invalid. `source` overrides the names of the tools;
    `prefixes` are paths in the project for bases of the log."""
    log = as_object(document, "")
    if not text_in(log, "version", "").startswith(_VERSION):
        raise refused("must be 2.1.0", "version")
    scans: dict[tuple[str, str], _Scan] = {}
    for number, each in enumerate(as_array(log.get("runs"), "runs")):
        at = f"runs[{number}]"
        run = as_object(each, at)
        key = source or _source(run, at), _category(run, at)
        scans.setdefault(key, _Scan(*key)).take(run, at, prefixes)
    return [scan.report() for scan in scans.values()]


def _source(run: Json, at: str) -> str:
    """The tool's name in a form for filters: `Semgrep OSS` is `semgrep-oss`."""
    at = f"{at}.tool"
    name = text_in(object_in(object_in(run, "tool", at), "driver", at), "name", f"{at}.driver")
    if not name.strip():
        raise refused("name is required", f"{at}.driver")
    return "-".join(name.lower().split())


def _category(run: Json, at: str) -> str:
    """The category of a run: its id without the last part, if that is different for each run."""
    at = f"{at}.automationDetails"
    category, _, last = text_in(object_in(run, "automationDetails", at), "id", at).rpartition("/")
    parts = [*category.split("/"), last]
    if _RUN_ID.search(last):
        parts.pop()
    # A category is stored, and compared with those of later reports.
    return printable("/".join(part for part in parts if part))[:MAX_NAME_CHARS]


@dataclass(slots=True)
class _Scan:
    """The runs of one tool and category. A tool may write a run per language or directory."""

    source: str
    category: str
    findings: list[ReportEntry] = field(default_factory=list[ReportEntry])
    skipped: Counter[str] = field(default_factory=Counter[str])
    skipped_rules: set[str] = field(default_factory=set[str])
    targets: list[str] = field(default_factory=list[str])
    """The scanned files, if the tool lists them."""
    roots: list[str] = field(default_factory=list[str])
    failed: bool = False
    results: dict[object, tuple[int, Json]] = field(default_factory=dict[object, tuple[int, Json]])
    """The first result of each description, with the number of its finding."""

    def take(self, run: Json, at: str, prefixes: Mapping[str, str]) -> None:
        rules, locations = Rules(run, at), Locations(run, at, prefixes)
        self.targets += locations.targets()
        self.roots += locations.roots()
        invocations = [as_object(each, f"{at}.invocations") for each in array_in(run, "invocations", at)]
        self.failed |= any(each.get("executionSuccessful") is False for each in invocations)
        for number, each in enumerate(array_in(run, "results", at)):
            place = f"{at}.results[{number}]"
            result = as_object(each, place)
            if text_in(result, "kind", place) in _PASSING_KINDS or result.get("baselineState") == "absent":
                continue
            rule = rules.of(result, place)
            finding = _finding(result, rule, locations, place)
            if isinstance(finding, str):
                self.skipped[finding] += 1
                self.skipped_rules.add(rule.id)
            else:
                self._add(finding, result)

    def _add(self, finding: ReportEntry, result: Json) -> None:
        """Add a finding. Results that differ only in what is not stored are told apart by a digest of it."""
        described = (finding.path, finding.rule_id, finding.line_start, finding.line_end, finding.message)
        key = (*described, finding.fingerprint, finding.metadata.get("column"))
        number, first = self.results.setdefault(key, (len(self.findings), result))
        if first is not result:
            digest, digest_of_first = digest_of(result), digest_of(first)
            is_variant = _VARIANT in self.findings[number].metadata
            if digest != digest_of_first and not is_variant:
                self.findings[number] = _as_variant(self.findings[number], digest_of_first)
            if digest != digest_of_first or is_variant:
                finding = _as_variant(finding, digest)
        self.findings.append(finding)

    def report(self) -> ScanReport:
        covered = tuple(dict.fromkeys([*self.targets, *(finding.path for finding in self.findings)]))
        return ScanReport(
            self.source,
            self.findings,
            covered if self.targets else None,
            dict(self.skipped),
            self.skipped_rules,
            self.failed,
            self.category,
            tuple(dict.fromkeys(self.roots)),
        )


def _as_variant(finding: ReportEntry, digest: str) -> ReportEntry:
    return replace(finding, metadata={**finding.metadata, _VARIANT: digest})


def _finding(result: Json, rule: Rule, locations: Locations, at: str) -> ReportEntry | str:
    """The finding, or the reason for skipping it: its file is unknown."""
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
        fingerprint(result, rule, at),
        _metadata(region, rule, at),
        _is_suppressed(result, at),
        place(physical, region, result, at),
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


def _metadata(region: Json, rule: Rule, at: str) -> Json:
    facts: Json = {"column": line_in(region, "startColumn", at), "help_uri": rule.help_uri}
    return {name: value for name, value in facts.items() if value}


def _is_suppressed(result: Json, at: str) -> bool:
    """Whether all suppressions of the result are accepted. One without a status is."""
    suppressions = [as_object(each, f"{at}.suppressions") for each in array_in(result, "suppressions", at)]
    return bool(suppressions) and all(each.get("status") in (None, "accepted") for each in suppressions)
