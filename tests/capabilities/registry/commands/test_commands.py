"""`armarium registry` returns what the tools return, imports reports of scanners, and prints hints."""

from __future__ import annotations

import json
import signal
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pexpect
import pytest

from armarium.surfaces.cli.main import run
from support.command_line import Command, CommandLine, InThisProcess
from support.scanner_reports import (
    FIXED,
    bandit_report,
    faulty_project,
    gitleaks_finding,
    ruff_report,
    sarif,
    sarif_result,
    sarif_run,
)
from support.server import installed_command

SECRET = "Zq8-not-to-be-kept-31415926535"


@pytest.fixture
def code(tmp_path: Path) -> Path:
    """A project with faults in it."""
    return faulty_project(tmp_path / "code")


@pytest.fixture
def registry(
    code: Path, as_the_user: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> InThisProcess:
    as_the_user.chdir(code)
    return InThisProcess(lambda arguments: run(["registry", *arguments]), capsys, monkeypatch)


def written(directory: Path, data: bytes, name: str = "report.json") -> Path:
    file = directory / name
    file.write_bytes(data)
    return file


def only(results: dict[str, Any]) -> dict[str, Any]:
    (result,) = results["results"]
    return result


def test_a_finding_of_ruff_is_imported_closed_when_it_is_repaired_and_reopened(
    registry: InThisProcess, code: Path, tmp_path: Path
) -> None:
    before = written(tmp_path, ruff_report(code), "before.sarif")
    (first,) = registry("import", before, "--covers", ".", "--json").json["scans"]
    assert first["scan_source"] == "ruff"
    assert first["findings_created"] >= 3
    assert first["files"] == 2
    (code / "pkg" / "faulty.py").write_text(FIXED)
    after = written(tmp_path, ruff_report(code), "after.sarif")
    (second,) = registry("import", after, "--covers", ".", "--json").json["scans"]
    assert second["findings_closed"] == first["findings_created"] - second["findings_unchanged"] > 0
    repaired = only(registry("files", "--prefix", "pkg/faulty", "--json").json)
    assert (repaired["summary"]["open_findings"], repaired["summary"]["total_findings"]) == (
        0,
        second["findings_closed"],
    )
    (third,) = registry("import", before, "--json").json["scans"]
    assert third["findings_reopened"] == second["findings_closed"]


def test_findings_of_several_scanners_are_kept_apart(registry: InThisProcess, code: Path, tmp_path: Path) -> None:
    registry("import", written(tmp_path, ruff_report(code)))
    outcome = registry("import", written(tmp_path, bandit_report(code)))
    assert (outcome.code, outcome.stdout.startswith("bandit: ")) == (0, True)
    sources = {each["scan_source"] for each in registry("findings", "pkg/faulty.py", "--json").json["results"]}
    assert sources == {"ruff", "bandit"}
    assert only(registry("files", "--source", "bandit", "--json").json)["path"] == "pkg/faulty.py"


def test_a_report_is_read_from_standard_input(code: Path, environ: dict[str, str]) -> None:
    armarium = CommandLine("armarium", code, environ)
    report = sarif(sarif_run(sarif_result("fine.py"))).decode()
    outcome = armarium("registry", "import", "-", "--source", "nightly", "--json", input=report)
    assert outcome.code == 0
    assert outcome.json["scans"][0]["scan_source"] == "nightly"


def test_an_import_shows_a_progress_bar_at_a_terminal(code: Path, environ: dict[str, str], tmp_path: Path) -> None:
    report = written(tmp_path, sarif(sarif_run(*(sarif_result("a.py", line=line) for line in range(1, 3000)))))
    child = pexpect.spawn(
        installed_command("armarium"),
        ["registry", "import", str(report)],
        cwd=str(code),
        env={**environ, "TERM": "xterm"},
        encoding="utf-8",
        timeout=60,
    )
    with child:
        child.expect("Importing findings")
        child.expect("100%")
        child.expect("2999 created")
        child.expect(pexpect.EOF)


def test_an_import_that_is_killed_changes_nothing(
    registry: InThisProcess, code: Path, environ: dict[str, str], tmp_path: Path
) -> None:
    registry("import", written(tmp_path, sarif(sarif_run(sarif_result("fine.py"), sarif_result("old.py")))))
    asked = (["files", "--json"], ["findings", "--json"], ["timeline", "fine.py", "--json"])
    before = [registry(*each).json for each in asked]
    many = [sarif_result(f"new/{line % 50}.py", line=line) for line in range(1, 20_000)]
    report = written(tmp_path, sarif(sarif_run(*many)), "many.sarif")
    child = pexpect.spawn(
        installed_command("armarium"),
        ["registry", "import", str(report), "--covers", "."],
        cwd=str(code),
        env={**environ, "TERM": "xterm"},
        encoding="utf-8",
        timeout=60,
    )
    with child:
        # Some of it is written, and not all.
        child.expect(r" [1-9]\d?%")
        with (
            closing(sqlite3.connect(code / ".armarium" / "registry.sqlite", timeout=0)) as other,
            pytest.raises(sqlite3.OperationalError, match="locked"),
        ):
            other.execute("BEGIN IMMEDIATE")
        child.kill(signal.SIGKILL)
        child.expect(pexpect.EOF)
    assert child.signalstatus == signal.SIGKILL
    assert [registry(*each).json for each in asked] == before
    (after,) = registry("import", written(tmp_path, sarif(sarif_run(*many[:10]))), "--covers", ".", "--json").json[
        "scans"
    ]
    assert (after["findings_created"], after["findings_closed"]) == (10, 2)


def test_secrets_that_gitleaks_reports_are_not_stored(registry: InThisProcess, code: Path, tmp_path: Path) -> None:
    report = written(tmp_path, json.dumps([gitleaks_finding(SECRET), gitleaks_finding(SECRET, line=9)]).encode())
    outcome = registry("import", report, "--json")
    assert outcome.json["scans"][0]["findings_created"] == 2
    finding = registry("findings", "deploy.sh", "--json").json["results"][0]
    assert (finding["rule_id"], finding["severity"]) == ("generic-api-key", "high")
    stored = b"".join(file.read_bytes() for file in (code / ".armarium").iterdir())
    assert b"generic-api-key" in stored
    assert SECRET.encode() not in stored


def test_a_finding_becomes_an_issue_that_is_worked_on_and_closed(registry: InThisProcess, tmp_path: Path) -> None:
    registry("import", written(tmp_path, sarif(sarif_run(sarif_result("fine.py", level="error")))))
    finding = only(registry("findings", "--json").json)
    promoted = registry("promote", finding["id"], "--label", "ci", "--label", "easy", "--json").json
    assert (promoted["created"], promoted["issue"]["labels"]) == (True, ["ci", "easy"])
    issue_id = promoted["issue"]["id"]
    assert registry("promote", finding["id"], "--json").json["created"] is False
    assert registry("update-issue", issue_id, "--status", "in_progress", "--title", "Repair it", "--json").code == 0
    shown = registry("issue", issue_id, "--json").json
    assert (shown["title"], shown["status"], shown["files"][0]["file_path"]) == ("Repair it", "in_progress", "fine.py")
    assert only(registry("issues", "--label", "easy", "--json").json)["id"] == issue_id
    assert registry("judge", finding["id"], "false_positive", "--json").json["status"] == "false_positive"


def test_all_fields_of_an_issue_are_stored(registry: InThisProcess, tmp_path: Path) -> None:
    fields = {"title": "Our words", "body": "All of it", "priority": 3, "labels": ["ci"], "external_ref": "PROJ-7"}
    more = ["--body", "All of it", "--priority", "3", "--label", "ci", "--ref", "PROJ-7", "--json"]
    registry("import", written(tmp_path, sarif(sarif_run(sarif_result("fine.py")))))
    finding = only(registry("findings", "--json").json)
    other = registry("new-issue", "Something else", "--json").json
    for issue in (
        registry("new-issue", "Our words", *more).json,
        registry("promote", finding["id"], "--title", "Our words", *more).json["issue"],
        registry("update-issue", other["id"], "--title", "Our words", *more).json,
    ):
        assert {name: issue[name] for name in fields} == fields


def test_files_findings_and_issues_are_filtered(registry: InThisProcess, tmp_path: Path) -> None:
    first = [
        sarif_result("a.py", level="error", line=1),
        sarif_result("a.py", level="note", line=2),
        sarif_result("b.py", level="note"),
        sarif_result("c.go", level="error"),
    ]
    registry("import", written(tmp_path, sarif(sarif_run(*first))), "--source", "probe")
    registry("import", written(tmp_path, sarif(sarif_run(sarif_result("b.py", level="warning")))), "--source", "other")
    judged = only(registry("findings", "c.go", "--json").json)["id"]
    registry("judge", judged, "false_positive")

    def paths(*options: str) -> list[str]:
        return [each["path"] for each in registry("files", "--sort", "path", *options, "--json").json["results"]]

    def places(*options: str) -> set[tuple[str, str]]:
        found = registry("findings", *options, "--json").json["results"]
        return {(each["file_path"], each["severity"]) for each in found}

    assert paths() == ["a.py", "b.py", "c.go"]
    assert paths("--direction", "desc") == ["c.go", "b.py", "a.py"]
    assert paths("--language", "go") == ["c.go"]
    assert paths("--severity", "high") == ["a.py"]
    assert paths("--min-findings", "1") == ["a.py", "b.py"]
    assert paths("--source", "other") == ["b.py"]
    assert places("--status", "false_positive") == {("c.go", "high")}
    assert places("--severity", "low") == {("a.py", "low"), ("b.py", "low")}
    assert places("--source", "other") == {("b.py", "medium")}
    closed, _ = (registry("new-issue", title, "--json").json["id"] for title in ("one", "two"))
    registry("update-issue", closed, "--status", "closed")
    assert only(registry("issues", "--status", "closed", "--json").json)["id"] == closed


def test_a_suppression_in_a_report_holds_until_a_later_report_removes_it(
    registry: InThisProcess, tmp_path: Path
) -> None:
    def status_after(**more: Any) -> str:
        registry("import", written(tmp_path, sarif(sarif_run(sarif_result("fine.py", **more)))))
        return only(registry("findings", "--json").json)["status"]

    assert status_after() == "open"
    assert status_after(suppressions=[{"kind": "inSource"}]) == "false_positive"
    assert status_after() == "open"
    assert status_after(suppressions=[{"kind": "external", "status": "accepted"}]) == "false_positive"
    assert status_after(suppressions=[{"kind": "external", "status": "rejected"}]) == "open"


def test_a_file_is_registered_linked_and_shown_by_its_path(registry: InThisProcess) -> None:
    record = registry("register", "./docs/../plan.md", "--type", "doc", "--metadata", '{"owner": "ada"}', "--json").json
    assert (record["path"], record["language"], record["metadata"]) == ("plan.md", "markdown", {"owner": "ada"})
    issue = registry("new-issue", "Write the plan", "--priority", "1", "--ref", "PROJ-7", "--json").json
    assert (issue["priority"], issue["external_ref"]) == (1, "PROJ-7")
    assert registry("link", "plan.md", issue["id"], "--as", "mentioned_in", "--json").json == {"status": "created"}
    by_path, by_id = registry("file", "plan.md", "--json").json, registry("file", record["id"], "--json").json
    assert by_path == by_id
    assert by_path["associations"][0]["issue_title"] == "Write the plan"
    events = registry("timeline", "plan.md", "--type", "association", "--json").json
    assert only(events)["source_id"] == issue["id"]


def test_tables_contain_the_ids_that_the_next_command_needs(registry: InThisProcess, tmp_path: Path) -> None:
    result = sarif_result("fine.py", level="error", message={"text": "a line\nand \x1b[31mcolour"})
    registry("import", written(tmp_path, sarif(sarif_run(result))))
    finding = only(registry("findings", "--json").json)
    for command in (["files"], ["findings"], ["file", "fine.py"], ["timeline", "fine.py"]):
        outcome = registry(*command)
        assert outcome.code == 0
        assert "\x1b" not in outcome.stdout
        assert "fine.py" in outcome.stdout or finding["id"] in outcome.stdout
    assert finding["id"] in registry("findings").stdout
    issue = registry("promote", finding["id"]).stdout
    assert finding["file_id"].split("-f-")[0] in issue
    assert registry("issues").stdout.splitlines()[0].split() == ["ID", "PRIORITY", "STATUS", "LABELS", "TITLE"]


def test_a_long_list_ends_with_the_offset_of_the_next_page(registry: InThisProcess) -> None:
    for number in range(3):
        registry("register", f"f{number}.py")
    first = registry("files", "--sort", "path", "--limit", "2")
    assert "1 to 2 of 3; --offset 2 shows the next" in first.stderr
    assert "f2.py" in registry("files", "--sort", "path", "--limit", "2", "--offset", "2").stdout
    assert "no results" in registry("files", "--prefix", "none/").stderr


def test_an_empty_report_prints_how_to_close_findings(registry: InThisProcess, tmp_path: Path) -> None:
    empty = written(tmp_path, sarif(sarif_run()))
    assert "--covers" in registry("import", empty).stderr
    assert "--covers" not in registry("import", empty, "--covers", ".").stderr


@pytest.mark.parametrize(
    ("arguments", "exit_code", "error_code", "message"),
    [
        (["register", "../out.py"], 1, "invalid_path", "relative to the project"),
        (["register", "/etc/passwd"], 1, "invalid_path", "relative to the project"),
        (["register", "a.py", "--metadata", "[]"], 1, "validation_error", "`metadata` must be an object"),
        (["register", "a.py", "--metadata", "{"], 2, "USAGE", "--metadata is not JSON"),
        (["files", "--limit", "0"], 1, "validation_error", "`limit` must be at least 1"),
        (["files", "--limit", "10001"], 1, "validation_error", "`limit` must be at most 10000"),
        (["files", "--severity", "bad"], 2, "USAGE", "bad"),
        (["file", "unknown.py"], 1, "not_found", "armarium registry files"),
        (["issue", "none"], 1, "not_found", "no issue has this id"),
        (["promote", "none"], 1, "not_found", "finding"),
        (["link", "fine.py", "none"], 1, "validation_error", "issue"),
        (["new-issue", ""], 1, "validation_error", "`title`"),
        (["import", "none.sarif"], 2, "USAGE", "cannot be read"),
        (["import", "fine.py"], 1, "validation_error", "not JSON"),
    ],
)
def test_errors_have_an_exit_code_an_error_code_and_a_message(
    registry: InThisProcess, arguments: list[str], exit_code: int, error_code: str, message: str
) -> None:
    registry("register", "fine.py")
    outcome = registry(*arguments, "--json")
    assert (outcome.code, outcome.json.keys(), outcome.json["code"]) == (exit_code, {"error", "code"}, error_code)
    assert message in outcome.stderr
    assert message in outcome.json["error"]


def test_reading_does_not_create_a_registry_and_a_hint_names_commands_that_do(
    registry: InThisProcess, code: Path
) -> None:
    outcome = registry("files")
    assert outcome.code == 2
    assert "armarium registry import" in outcome.stderr
    assert not (code / ".armarium").exists()
    assert registry("files", "--dir", "none").code == 2


def test_another_directory_can_be_the_project(registry: InThisProcess, code: Path) -> None:
    assert registry("register", "faulty.py", "--dir", "pkg").code == 0
    assert (code / "pkg" / ".armarium").is_dir()
    assert not (code / ".armarium").exists()


def test_a_partly_invalid_report_changes_nothing(registry: InThisProcess, tmp_path: Path) -> None:
    registry("import", written(tmp_path, sarif(sarif_run(sarif_result("fine.py")))))
    before = registry("findings", "--json").json
    broken = sarif(sarif_run(sarif_result("fine.py", line=8), sarif_result("fine.py", level=7)))
    assert registry("import", written(tmp_path, broken), "--json").json["code"] == "validation_error"
    assert registry("findings", "--json").json == before


def test_up_has_a_registry_if_its_directory_can_be_written(quick: InThisProcess, project: Path) -> None:
    assert quick("config", "print", "--dir", ".", "--json").json["registry"]["project"] == str(project)
    missing = quick("config", "print", "--dir", "none", "--json").json
    assert missing["registry"] is None


def test_a_damaged_or_newer_registry_is_reported_and_omitted(quick: InThisProcess, project: Path) -> None:
    file = project / ".armarium" / "registry.sqlite"
    file.parent.mkdir()
    file.write_bytes(b"this is no database " * 100)
    outcome = quick("config", "print", "--dir", ".", "--json")
    assert outcome.json["registry"] is None
    assert "starting without the registry" in outcome.stderr
    assert "--no-registry" in outcome.stderr
    file.unlink()
    newer = sqlite3.connect(file)
    newer.execute("PRAGMA user_version = 99")
    newer.close()
    file.chmod(0o600)
    outcome = quick("config", "print", "--dir", ".", "--json")
    assert outcome.json["registry"] is None
    assert "version 99" in outcome.stderr


def test_a_directory_is_served_without_a_registry_that_is_damaged_or_excluded(
    start: Callable[..., Command], project: Path
) -> None:
    file = project / ".armarium" / "registry.sqlite"
    for more in (["--no-registry"], []):
        server = start("up", "--no-index", "--port", "0", "--json", *more)
        assert json.loads(server.stdout.next())["directory"] == str(project)
        server.interrupt()
        assert file.exists() == (not more)
    file.write_bytes(b"this is no database " * 100)
    server = start("up", "--no-index", "--port", "0", "--json")
    assert json.loads(server.stdout.next())["directory"] == str(project)
    server.stderr.until("starting without the registry")
    server.interrupt()


def test_in_a_subdirectory_the_registry_above_is_found_and_paths_are_relative_to_the_subdirectory(
    registry: InThisProcess, code: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    registry("register", "fine.py")
    monkeypatch.chdir(code / "pkg")
    made = registry("register", "faulty.py", "--json").json
    assert made["path"] == "pkg/faulty.py"
    for name in ("faulty.py", "./faulty.py", "../pkg//faulty.py", "pkg/faulty.py", str(code / "pkg" / "faulty.py")):
        assert registry("file", name, "--json").json["file"]["id"] == made["id"], name
    assert registry("file", "../fine.py", "--json").json["file"]["path"] == "fine.py"
    report = written(tmp_path, sarif(sarif_run(sarif_result("faulty.py"))))
    assert registry("import", report, "--covers", ".", "--json").json["scans"][0]["findings_created"] == 1
    assert only(registry("findings", "faulty.py", "--json").json)["file_path"] == "pkg/faulty.py"
    assert not (code / "pkg" / ".armarium").exists()


def test_a_failed_run_is_reported_and_closes_nothing(registry: InThisProcess, tmp_path: Path) -> None:
    registry("import", written(tmp_path, sarif(sarif_run(sarif_result("fine.py")))))
    failed = sarif(sarif_run(invocations=[{"executionSuccessful": False}]))
    outcome = registry("import", written(tmp_path, failed), "--covers", ".")
    assert (outcome.code, "its run failed" in outcome.stderr) == (0, True)
    assert only(registry("findings", "--json").json)["status"] == "open"


def test_labels_can_be_removed(registry: InThisProcess) -> None:
    issue = registry("new-issue", "Repair it", "--label", "ci", "--json").json
    assert registry("update-issue", issue["id"], "--no-labels", "--json").json["labels"] == []
    assert registry("update-issue", issue["id"], "--no-labels", "--label", "x").code == 2


def test_hints_name_commands_instead_of_tools(registry: InThisProcess) -> None:
    registry("register", "fine.py")
    for arguments in (["issue", "none"], ["promote", "none"], ["link", "fine.py", "none"]):
        said = registry(*arguments).stderr
        assert "armarium registry " in said
        assert "list_" not in said
