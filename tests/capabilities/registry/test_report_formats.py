"""The formats of reports are detected, and errors in a report name the place, never the content."""

from __future__ import annotations

import codecs
import json
from contextlib import suppress
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from armarium.capabilities.registry.arguments import ImportOptions
from armarium.capabilities.registry.errors import ValidationError
from armarium.capabilities.registry.model import ReportEntry, ScanReport
from armarium.capabilities.registry.reports.formats import read_reports
from armarium.capabilities.registry.values import ReportFormat
from support.scanner_reports import gitleaks_finding, sarif, sarif_result, sarif_run

SECRET = "s3cr3t-Value-0123456789"
OWN = {"scan_source": "mine", "paths": ["src"], "findings": [{"path": "src/a.py", "rule_id": "R", "message": "m"}]}


def encoded(document: object) -> bytes:
    return json.dumps(document).encode()


def test_gitleaks_is_recognised_and_its_secrets_stay_where_they_are() -> None:
    (report,) = read_reports(encoded([gitleaks_finding(SECRET)]))
    (finding,) = report.findings
    assert (report.source, finding.rule_id, finding.severity, finding.line_start) == (
        "gitleaks",
        "generic-api-key",
        "high",
        2,
    )
    assert finding.fingerprint == "deploy.sh:generic-api-key:2"
    assert SECRET not in repr(report)


def test_an_empty_gitleaks_report_is_a_scan_that_found_nothing() -> None:
    assert read_reports(b"[]\n", ImportOptions(scan_source="ci-gitleaks")) == [ScanReport("ci-gitleaks", [])]


def test_our_own_form_is_recognised_with_what_it_covers() -> None:
    (report,) = read_reports(encoded(OWN))
    assert report == ScanReport("mine", [ReportEntry("src/a.py", "R", "m")], ("src",))


def test_source_and_coverage_can_be_said_by_whoever_imports() -> None:
    for data in (encoded(OWN), encoded([gitleaks_finding(SECRET)]), sarif(sarif_run(sarif_result()))):
        (report,) = read_reports(data, ImportOptions(scan_source="nightly", paths=(".",)))
        assert (report.source, report.covered) == ("nightly", (".",))


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(codecs.BOM_UTF8 + encoded(OWN), id="with a byte order mark"),
        pytest.param(json.dumps(OWN).encode("utf-16"), id="as PowerShell redirects it"),
    ],
)
def test_reports_are_read_in_the_encodings_they_come_in(data: bytes) -> None:
    assert read_reports(data)[0].source == "mine"


def broken_result(**fields: Any) -> bytes:
    return sarif(sarif_run(sarif_result(), sarif_result(**fields)))


@pytest.mark.parametrize(
    ("data", "place"),
    [
        (b"", "empty"),
        (b'{"runs": [}', "line 1, column 11"),
        (b'{"version": "2.1.0",\n "runs": nothing}', "line 2"),
        (encoded({"version": "1.0.0", "runs": []}), "version"),
        (encoded({"version": "2.1.0", "runs": {}}), "runs: must be an array"),
        (encoded({"version": "2.1.0", "runs": [SECRET]}), "runs[0]: must be an object"),
        (encoded({"version": "2.1.0", "runs": [{}]}), "runs[0].tool.driver"),
        (broken_result(level=SECRET), "runs[0].results[1]"),
        (broken_result(locations=SECRET), "runs[0].results[1].locations: must be an array"),
        (broken_result(locations=[SECRET]), "runs[0].results[1].locations[0]: must be an object"),
        (broken_result(message=SECRET), "runs[0].results[1].message"),
        (broken_result(ruleIndex=True), "ruleIndex: must be an integer"),
        (encoded([gitleaks_finding(SECRET), {"RuleID": 4}]), "[1].RuleID: must be a text"),
        (encoded([gitleaks_finding(SECRET), {"RuleID": "r"}]), "[1]: needs RuleID and File"),
        (encoded({"findings": []}), "`scan_source` is required"),
        (encoded(OWN | {"findings": SECRET}), "findings: is not what report_findings takes"),
        (encoded(OWN | {"paths": [1]}), "paths.0"),
        (encoded(OWN | {SECRET: 1}), "is not what report_findings takes"),
        (encoded(OWN | {"findings": [{"path": "a", "rule_id": "r"}]}), "`findings.0.message` is required"),
        (encoded(OWN | {"findings": [OWN["findings"][0] | {"severity": SECRET}]}), "findings.0.severity"),  # type: ignore[index]
        (encoded(OWN | {"findings": [OWN["findings"][0] | {"line_start": "3"}]}), "findings.0.line_start"),  # type: ignore[index]
        (encoded({"results": []}), "format is not supported"),
        (encoded([SECRET]), "format is not supported"),
        (encoded(SECRET), "format is not supported"),
    ],
)
def test_an_error_in_a_report_names_its_place_and_not_its_content(data: bytes, place: str) -> None:
    with pytest.raises(ValidationError) as refusal:
        read_reports(data)
    assert place in refusal.value.message
    assert SECRET not in refusal.value.message
    assert refusal.value.code == "validation_error"
    assert refusal.value.hint


_WORDS = st.sampled_from(
    [
        *(
            "version",
            "2.1.0",
            "runs",
            "tool",
            "driver",
            "name",
            "rules",
            "extensions",
            "results",
            "ruleId",
            "ruleIndex",
        ),
        *("rule", "id", "index", "toolComponent", "message", "text", "arguments", "locations", "physicalLocation"),
        *("artifactLocation", "uri", "uriBaseId", "originalUriBaseIds", "region", "startLine", "level", "artifacts"),
        *("location", "roles", "analysisTarget", "fingerprints", "partialFingerprints", "suppressions", "properties"),
        *("security-severity", "file:///a", "https:", "%ff", "invocations", "executionSuccessful", "fixes"),
        *(
            "RuleID",
            "File",
            "Fingerprint",
            "scan_source",
            "findings",
            "paths",
            "path",
            "rule_id",
            "severity",
            "metadata",
        ),
    ]
)
_TEXTS = _WORDS | st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63) | st.floats(allow_nan=False) | _TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_TEXTS, inner, max_size=6),
    max_leaves=30,
)
_RUNS = st.fixed_dictionaries(
    {
        "version": st.just("2.1.0"),
        "runs": st.lists(st.fixed_dictionaries({"tool": _VALUES, "results": _VALUES}) | _VALUES),
    }
)


@given(document=_VALUES | _RUNS, form=st.sampled_from(["auto", "sarif", "gitleaks", "armarium"]))
def test_any_json_is_a_report_or_is_refused(document: object, form: ReportFormat) -> None:
    try:
        reports = read_reports(orjson.dumps(document, option=orjson.OPT_NON_STR_KEYS), ImportOptions(format=form))
    except ValidationError:
        return
    for report in reports:
        assert report.source
        assert all(finding.path and finding.rule_id and finding.message for finding in report.findings)


_RESULTS = st.dictionaries(_WORDS, _VALUES, max_size=5).map(lambda fields: sarif_result() | fields)


@given(
    results=st.lists(_RESULTS, max_size=3), rules=st.lists(_VALUES, max_size=2), more=st.dictionaries(_WORDS, _VALUES)
)
def test_any_result_in_a_run_is_read_or_refused(
    results: list[dict[str, Any]], rules: list[Any], more: dict[str, Any]
) -> None:
    document = {"version": "2.1.0", "runs": [sarif_run(*results, rules=rules) | more]}
    with suppress(ValidationError):
        assert all(report.source for report in read_reports(orjson.dumps(document)))


@given(data=st.binary(max_size=200))
def test_any_bytes_are_a_report_or_are_refused(data: bytes) -> None:
    with suppress(ValidationError):
        assert all(report.source for report in read_reports(data))
