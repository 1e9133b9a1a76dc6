"""`armarium registry import` and `export` in CI: exit codes, baselines, compression, SARIF output."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from armarium.capabilities.registry.reports import formats
from armarium.capabilities.registry.reports.formats import read_reports
from armarium.surfaces.cli.main import run
from support.command_line import InThisProcess
from support.scanner_reports import sarif, sarif_result, sarif_run

CODE = "".join(f"value_{number} = compute({number})\n" for number in range(40))
SEVERE = 3


@pytest.fixture
def code(tmp_path: Path) -> Path:
    directory = tmp_path / "code"
    directory.mkdir()
    for name in ("a.py", "b.py"):
        (directory / name).write_text(CODE)
    return directory


@pytest.fixture
def registry(
    code: Path, as_the_user: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> InThisProcess:
    as_the_user.chdir(code)
    return InThisProcess(lambda arguments: run(["registry", *arguments]), capsys, monkeypatch)


@pytest.fixture
def report(tmp_path: Path) -> Any:
    """Writes a report with results on these lines of `a.py`."""

    def written(*lines: int, level: str = "error", name: str = "report.sarif", **more: Any) -> Path:
        file = tmp_path / name
        file.write_bytes(sarif(sarif_run(*(sarif_result("a.py", line=line, level=level) for line in lines), **more)))
        return file

    return written


def test_the_exit_code_says_whether_a_finding_is_as_severe_as_asked(registry: InThisProcess, report: Any) -> None:
    for level, asked, expected in (
        ("error", "critical", 0), ("error", "high", SEVERE), ("error", "info", SEVERE), ("warning", "high", 0),
        ("warning", "medium", SEVERE), ("none", "info", SEVERE),
    ):  # fmt: skip
        outcome = registry("import", report(3, level=level), "--fail-on", asked)
        assert outcome.code == expected, (level, asked)
        assert ("1 finding of severity" in outcome.stderr) == bool(expected)
    assert registry("import", report(), "--covers", ".", "--fail-on", "info").code == 0


def test_judged_findings_do_not_fail_a_build(registry: InThisProcess, report: Any) -> None:
    registry("import", report(3))
    [finding] = registry("findings", "--json").json["results"]
    registry("judge", finding["id"], "false_positive")
    assert registry("import", report(3), "--fail-on", "info").code == 0


def test_new_means_not_in_the_previous_report_of_the_scanner(registry: InThisProcess, report: Any) -> None:
    check = ("--covers", ".", "--fail-on", "high:new")
    assert registry("import", report(3, 5), *check).code == SEVERE, "there is no previous report"
    assert registry("import", report(3, 5), *check).code == 0
    assert registry("import", report(3), *check).code == 0
    back = registry("import", report(3, 5), *check, "--json")
    assert (back.code, back.json["scans"][0]["new_by_severity"]["high"]) == (SEVERE, 1)
    assert back.json["scans"][0]["open_by_severity"]["high"] == 2
    # Another category is another series of reports.
    assert registry("import", report(3, 5, automationDetails={"id": "other/"}), *check).code == 0, "adopted"


def test_new_may_be_compared_with_a_baseline(registry: InThisProcess, report: Any, code: Path) -> None:
    baseline = report(3, 5, name="baseline.sarif")
    against = ("--fail-on", "info:new", "--baseline", baseline)
    assert registry("import", report(13, 15), *against).code == 0, "lines moved"
    assert registry("import", report(13, 15, 16), *against).code == SEVERE
    assert registry("import", report(13, 15, 16), *against).code == SEVERE, (
        "the registry knows it, the baseline does not"
    )
    registry("export", "--output", "main.sarif")
    assert registry("import", report(13, 15, 16), "--fail-on", "info:new", "--baseline", "main.sarif").code == 0


def test_a_failed_run_does_not_pass(registry: InThisProcess, report: Any) -> None:
    failed = report(invocations=[{"executionSuccessful": False}])
    assert registry("import", failed).code == 0
    outcome = registry("import", failed, "--fail-on", "high")
    assert (outcome.code, "failed" in outcome.stderr) == (1, True)


@pytest.mark.parametrize(
    "arguments",
    [["--fail-on", "worst"], ["--fail-on", "high:old"], ["--fail-on", "high", "--baseline", "x"], ["--baseline", "x"]],
)
def test_what_cannot_be_asked_is_a_misuse(registry: InThisProcess, report: Any, arguments: list[str]) -> None:
    outcome = registry("import", report(3), *arguments, "--json")
    assert (outcome.code, outcome.json["code"]) == (2, "USAGE")
    assert registry("findings").code == 2, "nothing was imported"


def test_a_report_without_a_usable_result_fails_and_changes_nothing(registry: InThisProcess, tmp_path: Path) -> None:
    file = tmp_path / "r.sarif"
    file.write_bytes(sarif(sarif_run(sarif_result("a.py"))))
    registry("import", file)
    file.write_bytes(sarif(sarif_run(sarif_result("/elsewhere/other.py"))))
    outcome = registry("import", file, "--covers", ".", "--json")
    assert (outcome.code, outcome.json["code"]) == (1, "all_results_skipped")
    assert "--map" in outcome.stderr
    assert [each["status"] for each in registry("findings", "--json").json["results"]] == ["open"]
    mapped = registry("import", file, "--covers", ".", "--map", "/elsewhere=.", "--json").json["scans"][0]
    assert (mapped["findings_created"], mapped["findings_closed"]) == (1, 1)


def test_paths_of_maps_are_relative_to_the_current_directory(
    registry: InThisProcess, code: Path, tmp_path: Path, as_the_user: pytest.MonkeyPatch
) -> None:
    registry("register", "a.py")
    (code / "sub").mkdir()
    as_the_user.chdir(code / "sub")
    file = tmp_path / "r.sarif"
    file.write_bytes(sarif(sarif_run(sarif_result("/ci/x.py"), sarif_result("y.py"))))
    assert registry("import", file, "--map", "/ci=.").code == 0
    assert {each["path"] for each in registry("files", "--json").json["results"]} == {"a.py", "sub/x.py", "sub/y.py"}


def test_a_compressed_report_is_read(registry: InThisProcess, report: Any, tmp_path: Path) -> None:
    packed = tmp_path / "report.sarif.gz"
    packed.write_bytes(gzip.compress(report(3, 5).read_bytes()))
    assert registry("import", packed, "--json").json["scans"][0]["findings_created"] == 2


@pytest.mark.parametrize("damage", ["cut", "changed", "bomb"])
def test_a_damaged_or_endless_compressed_report_is_an_error_of_that_report(
    registry: InThisProcess, report: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, damage: str
) -> None:
    monkeypatch.setattr(formats, "MAX_DECOMPRESSED_BYTES", 1 << 20)
    data = bytearray(gzip.compress(report(3).read_bytes() + b" " * (damage == "bomb" and 1 << 24)))
    if damage == "cut":
        del data[-20:]
    elif damage == "changed":
        data[len(data) // 2] ^= 0xFF
    packed = tmp_path / "report.sarif.gz"
    packed.write_bytes(data)
    outcome = registry("import", packed, "--json")
    assert (outcome.code, outcome.json["code"]) == (1, "validation_error")
    assert ("1 MiB" in outcome.json["error"]) == (damage == "bomb")


def test_findings_are_exported_as_sarif_that_other_programs_and_this_one_read(
    registry: InThisProcess, report: Any, tmp_path: Path, code: Path
) -> None:
    registry("import", report(3, 5, automationDetails={"id": "nightly/2026-11-18"}))
    registry("import", report(7, tool="Other", level="note"))
    first = registry("findings", "--source", "probe", "--json").json["results"][0]
    registry("judge", first["id"], "false_positive")
    registry("promote", registry("findings", "--source", "other", "--json").json["results"][0]["id"])
    log = registry("export").json
    assert (log["version"], [each["tool"]["driver"]["name"] for each in log["runs"]]) == ("2.1.0", ["other", "probe"])
    other, probe = log["runs"]
    assert probe["automationDetails"] == {"id": "nightly/"}
    assert "automationDetails" not in other
    [result] = other["results"]
    assert (result["ruleId"], result["level"], result["message"]["text"]) == ("R1", "note", "something is wrong")
    assert other["tool"]["driver"]["rules"][result["ruleIndex"]] == {"id": "R1"}
    assert result["locations"][0]["physicalLocation"] == {
        "artifactLocation": {"uri": "a.py", "uriBaseId": "%SRCROOT%"},
        "region": {"startLine": 7, "endLine": 7},
    }
    assert [len(each.get("suppressions", ())) for each in probe["results"]].count(1) == 1
    assert registry("export", "--source", "other", "--status", "fixed").json["runs"] == []
    reports = read_reports(json.dumps(log).encode())
    assert {(each.source, each.category, len(list(each.findings))) for each in reports} == {
        ("other", "", 1), ("probe", "nightly", 2),
    }  # fmt: skip
    # In another copy of the project, with other lines, it is the same.
    copy = tmp_path / "copy"
    copy.mkdir()
    (copy / "a.py").write_text("# new\n" + CODE)
    exported = tmp_path / "exported.sarif"
    exported.write_text(json.dumps(log))
    assert registry("import", exported, "--dir", copy).code == 0
    moved = registry("import", report(4, 6, automationDetails={"id": "nightly/x/"}), "--dir", copy, "--json")
    assert moved.code == 0


def test_an_export_that_cannot_be_written_says_so(registry: InThisProcess, report: Any) -> None:
    registry("import", report(3))
    assert registry("export", "--output", "none/x.sarif").code == 2
