"""SARIF of real tools: URIs, rules, severities, fingerprints and suppressions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from armarium.capabilities.registry.model import ReportEntry, ScanReport
from armarium.capabilities.registry.reports.formats import read_reports
from support.scanner_reports import bandit_report, faulty_project, ruff_report, sarif, sarif_result, sarif_run


def findings_of(report: ScanReport) -> list[ReportEntry]:
    return list(report.findings)


def only_report(data: bytes) -> ScanReport:
    (report,) = read_reports(data)
    return report


def only_finding(result: dict[str, Any], **run: Any) -> ReportEntry:
    (finding,) = findings_of(only_report(sarif(sarif_run(result, **run))))
    return finding


def test_what_ruff_writes_is_read(tmp_path: Path) -> None:
    project = faulty_project(tmp_path / "project")
    report = only_report(ruff_report(project))
    assert report.source == "ruff"
    found = {(finding.path.removeprefix(f"{project}/"), finding.rule_id) for finding in report.findings}
    assert {("pkg/faulty.py", "F401"), ("pkg/faulty.py", "F821"), ("pkg/ein ä.py", "F401")} <= found
    unused = next(each for each in report.findings if each.rule_id == "F401" and each.path.endswith("faulty.py"))
    assert (unused.line_start, unused.severity) == (1, "high")
    assert "os" in unused.message
    assert "os" in unused.suggestion
    assert unused.metadata["help_uri"].startswith("https://")


def test_what_bandit_writes_is_read(tmp_path: Path) -> None:
    report = only_report(bandit_report(faulty_project(tmp_path / "project")))
    assert report.source == "bandit"
    by_rule = {finding.rule_id: finding for finding in report.findings}
    assert {"B602", "B307", "B301"} <= by_rule.keys()
    assert (by_rule["B602"].path, by_rule["B602"].line_start, by_rule["B602"].severity) == ("pkg/faulty.py", 7, "high")
    assert by_rule["B307"].severity == "medium"


def test_what_semgrep_writes_is_read() -> None:
    rule = {
        "id": "python.lang.security.audit.eval",
        "defaultConfiguration": {"level": "error"},
        "help": {"text": "long"},
        "shortDescription": {"text": "no eval"},
        "properties": {"precision": "very-high", "tags": ["security"]},
    }
    location = {
        "physicalLocation": {
            "artifactLocation": {"uri": "src/app.py", "uriBaseId": "%SRCROOT%"},
            "region": {"startLine": 4, "endLine": 5, "startColumn": 2, "snippet": {"text": "eval(x)"}},
        }
    }
    result = {
        "ruleId": rule["id"],
        "message": {"text": "do not"},
        "locations": [location],
        "fingerprints": {"matchBasedId/v1": "requires login"},
    }
    (report,) = read_reports(sarif(sarif_run(result, tool="Semgrep OSS", rules=[rule])))
    (finding,) = findings_of(report)
    assert report.source == "semgrep-oss"
    assert (finding.path, finding.line_start, finding.line_end, finding.severity) == ("src/app.py", 4, 5, "high")
    assert finding.fingerprint is None, "the same words for every finding tell none apart"
    assert "eval(x)" not in repr(finding)


def test_what_codeql_writes_is_read() -> None:
    rules = [{"id": "py/other"}, {"id": "py/injection", "properties": {"security-severity": "9.8"}}]
    run = {
        "tool": {"driver": {"name": "CodeQL"}, "extensions": [{"name": "empty"}, {"name": "q", "rules": rules}]},
        "artifacts": [{"location": {"uri": "src/a%20b.py", "uriBaseId": "%SRCROOT%", "index": 0}}],
        "results": [
            {
                "rule": {"id": "py/injection", "index": 1, "toolComponent": {"index": 1}},
                "message": {"text": "this depends on [a value](1)."},
                "locations": [
                    {"physicalLocation": {"artifactLocation": {"index": 0}, "region": {"startLine": 9, "endColumn": 3}}}
                ],
                "partialFingerprints": {
                    "primaryLocationLineHash": "39fa2ee980eb94b0:1",
                    "primaryLocationStartColumnFingerprint": "4",
                },
            }
        ],
    }
    (finding,) = findings_of(only_report(sarif(run)))
    assert (finding.path, finding.rule_id, finding.severity) == ("src/a b.py", "py/injection", "critical")
    assert finding.line_end == 9
    assert finding.fingerprint is not None


def test_two_rules_in_one_line_have_two_fingerprints() -> None:
    same_line = {"primaryLocationLineHash": "39fa2ee980eb94b0:1"}
    one = only_finding(sarif_result(rule="R1", partialFingerprints=same_line))
    other = only_finding(sarif_result(rule="R2", partialFingerprints=same_line))
    assert one.fingerprint != other.fingerprint
    assert one.fingerprint == only_finding(sarif_result(rule="R1", line=80, partialFingerprints=same_line)).fingerprint


def test_who_committed_a_line_is_no_fingerprint() -> None:
    about_commit = {"commitSha": "0123456789abcdef", "author": "somebody-or-other"}
    assert only_finding(sarif_result(partialFingerprints=about_commit)).fingerprint is None


@pytest.mark.parametrize(
    ("root", "path"),
    [
        pytest.param("file:///srv/project/", "/srv/project/package-lock.json", id="where it was started"),
        pytest.param("file:///", "package-lock.json", id="the root of the file system"),
    ],
)
def test_what_trivy_writes_is_read(root: str, path: str) -> None:
    rule = {
        "id": "CVE-2026-1",
        "name": "LanguageSpecificPackageVulnerability",
        "defaultConfiguration": {"level": "error"},
        "properties": {"security-severity": "5.5", "tags": ["vulnerability"]},
        "helpUri": "https://example.org/cve-2026-1",
    }
    result = sarif_result("package-lock.json", None, 1, ruleIndex=0, level="error")
    result["locations"][0]["physicalLocation"]["artifactLocation"]["uriBaseId"] = "ROOTPATH"
    finding = only_finding(result, tool="Trivy", rules=[rule], originalUriBaseIds={"ROOTPATH": {"uri": root}})
    assert (finding.path, finding.rule_id, finding.severity) == (path, "CVE-2026-1", "medium")
    assert finding.metadata == {"help_uri": "https://example.org/cve-2026-1"}


def test_bases_are_found_through_each_other_and_one_that_leads_to_itself_ends() -> None:
    result = sarif_result("a.py")
    result["locations"][0]["physicalLocation"]["artifactLocation"]["uriBaseId"] = "SRC"
    bases: dict[str, Any] = {"SRC": {"uri": "src/", "uriBaseId": "HOME"}, "HOME": {"uri": "file:///srv/x/"}}
    assert only_finding(result, originalUriBaseIds=bases).path == "/srv/x/src/a.py"
    bases["HOME"] = {"uri": "up/", "uriBaseId": "SRC"}
    assert only_finding(result, originalUriBaseIds=bases).path.endswith("src/a.py")


@pytest.mark.parametrize(
    ("uri", "path"),
    [
        ("file:///srv/%C3%A4.py", "/srv/ä.py"),
        ("file://localhost/srv/a.py", "/srv/a.py"),
        ("file:/srv/a.py", "/srv/a.py"),
        ("./src//a.py", "./src//a.py"),
        ("C:\\src\\a.py", "C:\\src\\a.py"),
    ],
)
def test_addresses_become_paths(uri: str, path: str) -> None:
    assert only_finding(sarif_result(uri)).path == path


def test_results_without_a_file_of_this_machine_are_counted_and_left_out() -> None:
    report = only_report(
        sarif(
            sarif_run(
                sarif_result(None),
                sarif_result("https://example.org/a.py"),
                sarif_result("file://elsewhere/a.py"),
                sarif_result("a.py"),
            )
        )
    )
    assert [finding.path for finding in report.findings] == ["a.py"]
    assert report.skipped == {"no_location": 1, "not_a_file": 2}


@pytest.mark.parametrize(
    ("result", "rule", "severity"),
    [
        ({"level": "error"}, {}, "high"),
        ({"level": "warning"}, {}, "medium"),
        ({"level": "note"}, {}, "low"),
        ({"level": "none"}, {}, "info"),
        ({}, {}, "medium"),
        ({}, {"defaultConfiguration": {"level": "note"}}, "low"),
        ({"level": "note"}, {"properties": {"security-severity": "9.0"}}, "critical"),
        ({"level": "note"}, {"properties": {"security-severity": "8.9"}}, "high"),
        ({"level": "note"}, {"properties": {"security-severity": 4}}, "medium"),
        ({"level": "error"}, {"properties": {"security-severity": "0.1"}}, "low"),
        ({"level": "error"}, {"properties": {"security-severity": "0.0"}}, "high"),
        ({"level": "error"}, {"properties": {"security-severity": "very"}}, "high"),
        ({"properties": {"security-severity": "7.1"}}, {"properties": {"security-severity": "1.0"}}, "high"),
    ],
)
def test_how_bad_a_result_is(result: dict[str, Any], rule: dict[str, Any], severity: str) -> None:
    assert only_finding(sarif_result(**result), rules=[{"id": "R1"} | rule]).severity == severity


@pytest.mark.parametrize(
    ("suppressions", "suppressed"),
    [
        ([], False),
        ([{"kind": "inSource"}], True),
        ([{"kind": "external", "status": "accepted"}], True),
        ([{"kind": "external", "status": "underReview"}], False),
        ([{"kind": "inSource"}, {"kind": "external", "status": "rejected"}], False),
    ],
)
def test_a_decision_to_leave_a_result_is_heard(suppressions: list[Any], suppressed: bool) -> None:
    assert only_finding(sarif_result(suppressions=suppressions)).suppressed is suppressed


def test_results_that_are_no_findings_are_none() -> None:
    run = sarif_run(sarif_result(baselineState="absent"), sarif_result(kind="pass"), sarif_result(rule="R2"))
    assert [finding.rule_id for finding in only_report(sarif(run)).findings] == ["R2"]


def test_messages_come_from_the_rule_where_the_result_only_names_them() -> None:
    rule = {"id": "R1", "messageStrings": {"default": {"text": "{0} is not {1}, nor {7}"}}}
    message = {"id": "default", "arguments": ["this", "that"]}
    assert only_finding(sarif_result(message=message), rules=[rule]).message == "this is not that, nor {7}"
    bare = {"id": "R1", "shortDescription": {"text": "short"}}
    assert only_finding(sarif_result(message={}), rules=[bare]).message == "short"
    assert only_finding(sarif_result(message={})).message == "R1"


def test_runs_of_one_tool_are_one_scan_and_those_of_others_their_own() -> None:
    reports = read_reports(
        sarif(
            sarif_run(sarif_result("a.py"), tool="One"),
            sarif_run(sarif_result("b.py"), tool="Other"),
            sarif_run(sarif_result("c.py"), tool="One"),
        )
    )
    assert [(each.source, [finding.path for finding in each.findings]) for each in reports] == [
        ("one", ["a.py", "c.py"]),
        ("other", ["b.py"]),
    ]


def test_a_run_that_lists_what_it_looked_at_covers_that_and_what_it_found() -> None:
    artifacts = [
        {"location": {"uri": "clean.py"}, "roles": ["analysisTarget"]},
        {"location": {"uri": "settings.toml"}, "roles": ["toolSpecifiedConfiguration"]},
    ]
    assert only_report(sarif(sarif_run(sarif_result("a.py"), artifacts=artifacts))).covered == ("clean.py", "a.py")
    assert only_report(sarif(sarif_run(sarif_result("a.py")))).covered is None


def test_a_run_that_failed_closes_nothing() -> None:
    report = only_report(sarif(sarif_run(sarif_result(), invocations=[{"executionSuccessful": False}])))
    assert report.failed
    assert len(findings_of(report)) == 1


def test_results_without_a_rule_get_one_by_the_kind_of_their_message() -> None:
    messages = ("Unexpected token 'x' in line 3", "Unexpected token 'y' in line 14", "Unterminated string")
    results = [sarif_result(rule=None, ruleIndex=7, message={"text": each}) for each in messages]
    report = only_report(sarif(sarif_run(*results, sarif_result())))
    assert report.skipped == {}
    first, second, third, named = [finding.rule_id for finding in report.findings]
    assert first == second != third
    assert (first, named) == ("unnamed-61689c2e", "R1")
