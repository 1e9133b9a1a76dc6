"""A finding stays the same when its line moves, is reformatted, or its file is renamed; others are kept apart."""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from armarium.capabilities.registry.arguments import ImportOptions
from armarium.capabilities.registry.contents import MAX_FILE_BYTES
from armarium.capabilities.registry.errors import ValidationError
from armarium.capabilities.registry.lifespan import open_registry
from armarium.capabilities.registry.model import Finding, ReportEntry, Scanned, ScanReport
from armarium.capabilities.registry.reports.formats import read_reports
from armarium.capabilities.registry.service import Registry
from support.registry_calls import ACTOR, all_files, found, scanned
from support.scanner_reports import sarif, sarif_result, sarif_run

CODE = """\
import subprocess


def run(command, where):
    subprocess.call(command, shell=True)
    return subprocess.call(where, shell=False, env={'PATH': '/bin'})


def stop(process):
    process.kill()
    subprocess.call('sync', shell=True)
"""

REFORMATTED = """\
import subprocess


def run(
    command,
    where,
):
\tsubprocess.call(
\t\tcommand,
\t\tshell=True,
\t)
\treturn subprocess.call(
\t\twhere,
\t\tshell=False,
\t\tenv={
\t\t\t"PATH": "/bin",
\t\t},
\t)


def stop(process):
\tprocess.kill()
\tsubprocess.call("sync", shell=True)
"""


@pytest.fixture
async def judged(registry: Registry, project: Path) -> list[Finding]:
    """Findings of one rule in `run.py`, in the order of their lines; the first is a false positive."""
    (project / "run.py").write_text(CODE)
    await scan_lines(registry, "run.py", 5, 6, 11)
    [first, *_] = await by_line(registry)
    await registry.update_finding(first["id"], "false_positive", ACTOR)
    return await by_line(registry)


async def scan_lines(registry: Registry, path: str, *lines: int, **more: Any) -> Scanned:
    return await scanned(registry, *(found(path, line=line, message="shell", **more) for line in lines))


async def by_line(registry: Registry) -> list[Finding]:
    findings = (await registry.list_findings(limit=1000))["results"]
    return sorted((each for each in findings if each["status"] != "fixed"), key=lambda each: each["line_start"] or 0)


def ids(findings: list[Finding]) -> list[str]:
    return [each["id"] for each in findings]


async def test_findings_keep_judgement_issue_and_history_when_lines_move(
    registry: Registry, project: Path, judged: list[Finding]
) -> None:
    issue = await registry.promote_finding(judged[1]["id"], ACTOR)
    (project / "run.py").write_text("# one\n# two\n# three\n" + CODE)
    outcome = await scan_lines(registry, "run.py", 8, 9, 14)
    assert (outcome["findings_created"], outcome["findings_closed"], outcome["findings_updated"]) == (0, 0, 3)
    after = await by_line(registry)
    assert ids(after) == ids(judged)
    assert [each["status"] for each in after] == ["false_positive", "open", "open"]
    assert after[1]["issue_id"] == issue["issue"]["id"]
    [newest, *_] = (await registry.timeline(after[0]["file_id"]))["results"]
    assert newest["data"]["changes"] == {"line_start": {"old_value": 11, "new_value": 14}}


async def test_findings_are_recognised_after_reformatting(
    registry: Registry, project: Path, judged: list[Finding]
) -> None:
    (project / "run.py").write_text(REFORMATTED)
    outcome = await scan_lines(registry, "run.py", 8, 12, 23)
    assert (outcome["findings_created"], outcome["findings_closed"]) == (0, 0)
    assert ids(await by_line(registry)) == ids(judged)


async def test_a_renamed_file_keeps_its_findings_its_id_and_its_history(
    registry: Registry, project: Path, judged: list[Finding]
) -> None:
    (project / "src").mkdir()
    (project / "run.py").rename(project / "src" / "runner.py")
    (project / "src" / "runner.py").write_text(f"# moved\n{CODE}")
    outcome = await scanned(
        registry, *(found("src/runner.py", line=line, message="shell") for line in (6, 7, 12)), covered=(".",)
    )
    assert (outcome["findings_created"], outcome["findings_closed"]) == (0, 0)
    after = await by_line(registry)
    assert ids(after) == ids(judged)
    assert {each["file_path"] for each in after} == {"src/runner.py"}
    assert {each["file_id"] for each in after} == {judged[0]["file_id"]}


async def test_a_copied_file_is_another_file(registry: Registry, project: Path, judged: list[Finding]) -> None:
    (project / "copy.py").write_text(CODE)
    outcome = await scan_lines(registry, "copy.py", 5, 6, 11)
    assert outcome["findings_created"] == 3
    assert {each["path"] for each in await all_files(registry)} == {"run.py", "copy.py"}


async def test_another_file_in_place_of_a_removed_one_is_no_rename(
    registry: Registry, project: Path, judged: list[Finding]
) -> None:
    (project / "run.py").unlink()
    (project / "other.py").write_text("".join(f"value_{n} = compute({n}, table_{n})\n" for n in range(30)))
    outcome = await scanned(registry, found("other.py", line=5, message="shell"), covered=(".",))
    assert (outcome["findings_created"], outcome["findings_closed"]) == (1, 2)


async def test_a_finding_elsewhere_on_the_same_line_number_does_not_inherit_the_judgement(
    registry: Registry, project: Path, judged: list[Finding]
) -> None:
    (project / "run.py").write_text("import subprocess\n\n\n\nos.system(input('which program? ')) or sys.exit(1)\n")
    outcome = await scan_lines(registry, "run.py", 5)
    assert (outcome["findings_created"], outcome["findings_closed"]) == (1, 2)
    assert next(each for each in await by_line(registry) if each["status"] == "open")["line_start"] == 5


async def test_of_equal_lines_each_keeps_its_own_judgement(registry: Registry, project: Path) -> None:
    repeated = "    check(value)\n" * 40
    (project / "run.py").write_text(f"def test():\n{repeated}")
    await scan_lines(registry, "run.py", 20, 21, 22)
    middle = (await by_line(registry))[1]
    await registry.update_finding(middle["id"], "false_positive", ACTOR)
    (project / "run.py").write_text(f"# new\n# new\ndef test():\n{repeated}")
    await scan_lines(registry, "run.py", 22, 23, 24)
    assert [(each["line_start"], each["status"]) for each in await by_line(registry)] == [
        (22, "open"), (23, "false_positive"), (24, "open"),
    ]  # fmt: skip


async def test_findings_of_one_rule_on_one_line_are_followed_separately(registry: Registry, project: Path) -> None:
    (project / "a.js").write_text("var first = one, second = two;\n")

    def report(line: int) -> list[ReportEntry]:
        return [found("a.js", line=line, message="unused", metadata={"column": column}) for column in (5, 18)]

    assert (await scanned(registry, *report(1)))["findings_created"] == 2
    second = next(each for each in await by_line(registry) if each["metadata"]["column"] == 18)
    await registry.update_finding(second["id"], "false_positive", ACTOR)
    (project / "a.js").write_text("'use strict';\nvar first = one, second = two;\n")
    assert (await scanned(registry, *report(2)))["findings_created"] == 0
    after = {each["metadata"]["column"]: each for each in await by_line(registry)}
    assert (after[18]["id"], after[18]["status"], after[5]["status"]) == (second["id"], "false_positive", "open")
    # The first one is repaired: the other one stays what it is.
    (project / "a.js").write_text("'use strict';\nvar second = two;\n")
    await scanned(registry, found("a.js", line=2, message="unused", metadata={"column": 5}))
    assert [(each["id"], each["status"]) for each in await by_line(registry)] == [(second["id"], "false_positive")]


async def test_snippets_of_a_report_replace_files_that_are_not_here(registry: Registry) -> None:
    def report(line: int, around: str) -> list[ScanReport]:
        result = sarif_result("gone.py", line=line)
        result["locations"][0]["physicalLocation"]["contextRegion"] = {
            "startLine": line - 2,
            "snippet": {"text": around},
        }
        return read_reports(sarif(sarif_run(result)))

    before = "def load(path):\n    opened = open(path)\n    return pickle.load(opened)\n\n\ndef save(path):\n"
    await registry.scan_all(report(3, before), ACTOR)
    [finding] = await by_line(registry)
    await registry.update_finding(finding["id"], "false_positive", ACTOR)
    [moved] = await registry.scan_all(report(90, before), ACTOR)
    assert (moved["findings_created"], moved["findings_updated"]) == (0, 1)
    [other] = await registry.scan_all(report(90, "x = 1\ny = 2\nz = eval(input())\nprint(z, x, y)\n"), ACTOR)
    assert other["findings_created"] == 1


async def test_a_changed_fingerprint_with_the_same_content_is_the_same_finding(
    registry: Registry, project: Path
) -> None:
    """gitleaks writes the line into its fingerprints."""
    (project / "run.py").write_text(CODE)
    await scanned(registry, found("run.py", line=5, message="key", fingerprint="run.py:key:5"))
    (project / "run.py").write_text(f"\n{CODE}")
    moved = await scanned(registry, found("run.py", line=6, message="key", fingerprint="run.py:key:6"))
    assert (moved["findings_created"], moved["findings_closed"]) == (0, 0)
    assert [each["fingerprint"] for each in await by_line(registry)] == ["run.py:key:6"]


async def test_results_with_the_same_fingerprint_are_told_apart_by_their_place(registry: Registry) -> None:
    both = (found("a.py", line=3, fingerprint="same"), found("a.py", line=9, fingerprint="same"))
    assert (await scanned(registry, *both))["findings_created"] == 2
    first, second = await by_line(registry)
    await registry.update_finding(second["id"], "false_positive", ACTOR)
    assert (await scanned(registry, *both))["findings_unchanged"] == 2
    await scanned(registry, both[0])
    assert [each["id"] for each in await by_line(registry)] == ids([first, second]), "a judgement stays"


@pytest.mark.parametrize("kind", ["binary", "too large", "pipe", "link outside", "directory"])
async def test_files_that_cannot_be_read_fall_back_to_the_line(
    registry: Registry, project: Path, tmp_path: Path, kind: str
) -> None:
    file = project / "a.py"
    match kind:
        case "binary":
            file.write_bytes(b"\0" * 100)
        case "too large":
            file.write_text("x\n" * (MAX_FILE_BYTES // 2 + 1))
        case "pipe":
            os.mkfifo(file)
        case "link outside":
            (tmp_path / "secret").write_text(CODE)
            file.symlink_to(tmp_path / "secret")
        case _:
            file.mkdir()
    reported = (found("a.py", line=3), found("b.py"))
    first = await scanned(registry, *reported)
    again = await scanned(registry, *reported)
    stored = 2 if kind in ("binary", "too large") else 1
    assert (first["findings_created"], again["findings_unchanged"]) == (stored, stored)


async def test_a_pipe_is_not_registered(registry: Registry, project: Path) -> None:
    os.mkfifo(project / "pipe")
    with pytest.raises(ValidationError, match="not a regular file"):
        await registry.register_file("pipe", ACTOR)


async def test_categories_of_one_scanner_close_only_their_own_findings(registry: Registry) -> None:
    def report(language: str, *lines: int) -> list[ScanReport]:
        results = [sarif_result(f"app.{language}", line=line) for line in lines]
        run = sarif_run(*results, tool="CodeQL", automationDetails={"id": f"/language:{language}/2026-11-18T20"})
        return read_reports(sarif(run), ImportOptions(paths=(".",)))

    [python] = await registry.scan_all(report("python", 1, 2), ACTOR)
    [script] = await registry.scan_all(report("typescript", 1), ACTOR)
    assert (python["category"], script["category"]) == ("language:python", "language:typescript")
    assert script["findings_closed"] == 0
    [again] = await registry.scan_all(report("python", 2), ACTOR)
    assert (again["findings_closed"], again["findings_unchanged"]) == (1, 1)


@pytest.mark.parametrize(
    ("id_", "category"),
    [
        ("my-analysis/tool1/2021-02-01", "my-analysis/tool1"),
        ("my-analysis/tool1/", "my-analysis/tool1"),
        ("codeql/python", "codeql/python"),
        ("/language:python", "language:python"),
        ("nightly/1234567890", "nightly"),
        ("nightly/3f2504e0-4f89-11d3-9a0c-0305e82c3301", "nightly"),
        ("2021-02-01", ""),
        ("", ""),
    ],
)
def test_the_id_of_a_run_has_the_category_without_what_changes_with_each_run(id_: str, category: str) -> None:
    [report] = read_reports(sarif(sarif_run(sarif_result(), automationDetails={"id": id_})))
    assert report.category == category


async def test_findings_without_a_category_are_adopted_by_the_report_that_has_them(registry: Registry) -> None:
    await scanned(registry, found("a.py"), found("b.ts"))
    outcome = await registry.scan(ScanReport("ruff", [found("a.py")], (".",), category="python"), ACTOR)
    assert (outcome["findings_unchanged"], outcome["findings_created"], outcome["findings_closed"]) == (1, 0, 0)
    gone = await registry.scan(ScanReport("ruff", [], (".",), category="python"), ACTOR)
    assert gone["findings_closed"] == 1


async def test_results_that_differ_only_in_properties_are_different_findings(registry: Registry) -> None:
    results = [sarif_result(properties={"package": name}) for name in ("libssl", "libcrypto")]
    report = read_reports(sarif(sarif_run(*results, results[0] | {"guid": "3f2504e0-4f89-11d3-9a0c-0305e82c3301"})))
    [first] = await registry.scan_all(report, ACTOR)
    assert (first["findings_created"], first["findings_duplicate"]) == (2, 1)
    [again] = await registry.scan_all(read_reports(sarif(sarif_run(*reversed(results)))), ACTOR)
    assert (again["findings_unchanged"], again["findings_created"]) == (2, 0)


def test_results_that_are_too_deep_to_compare_are_an_error_of_the_report() -> None:
    deep: dict[str, Any] = {}
    for _ in range(400):
        deep = {"deeper": deep}
    with pytest.raises(ValidationError):
        read_reports(sarif(sarif_run(*(sarif_result(properties={"n": n, "deep": deep}) for n in range(2)))))


async def test_the_registry_of_the_version_before_keeps_every_judgement(project: Path) -> None:
    sample = Path(__file__).parent / "samples" / "version_3.sql"
    (project / ".armarium").mkdir()
    old = sqlite3.connect(project / ".armarium" / "registry.sqlite")
    old.executescript(sample.read_text())
    old.close()
    (project / ".armarium" / "registry.sqlite").chmod(0o600)
    lines = [f"line_{number} = compute({number})" for number in range(1, 21)]
    (project / "app.py").write_text("\n".join(lines))

    def medium(path: str, rule: str, line: int | None, message: str | None = None, **more: Any) -> ReportEntry:
        return found(path, rule, line, message=message or f"{rule} is broken", severity="medium", line_end=line, **more)

    def report(shift: int) -> list[ReportEntry]:
        return [
            medium("app.py", "R1", 3 + shift, metadata={"column": 5}), medium("app.py", "R1", 9 + shift),
            medium("app.py", "R2", 9 + shift), medium("app.py", "R3", None, "no line"),
            medium("app.py", "R4", 12 + shift, fingerprint="abcdef0123456789"),
            medium("app.py", "R5", 14 + shift, suppressed=True), medium("lib/util.py", "R1", 1),
        ]  # fmt: skip

    async with open_registry(project, read_only=True) as registry:
        before = (await registry.list_findings(limit=100))["results"]
        assert len(await registry.export_findings()) == len(before) == 8
    async with open_registry(project) as registry:
        outcome = await registry.scan(ScanReport("probe", report(0), (".",)), ACTOR)
        assert (outcome["findings_unchanged"], outcome["findings_created"], outcome["findings_closed"]) == (7, 0, 0)
        (project / "app.py").write_text("\n".join(["# new", *lines]))
        outcome = await registry.scan(ScanReport("probe", report(1), (".",)), ACTOR)
        assert (outcome["findings_updated"], outcome["findings_created"], outcome["findings_closed"]) == (5, 0, 0)
        after = (await registry.list_findings(limit=100))["results"]
    judgements = {each["id"]: (each["status"], each["issue_id"]) for each in before}
    assert {each["id"]: (each["status"], each["issue_id"]) for each in after} == judgements


async def test_a_registry_of_the_version_before_recognises_findings_that_moved_meanwhile(project: Path) -> None:
    (project / ".armarium").mkdir()
    old = sqlite3.connect(project / ".armarium" / "registry.sqlite")
    old.executescript((Path(__file__).parent / "samples" / "version_3.sql").read_text())
    old.close()
    (project / ".armarium" / "registry.sqlite").chmod(0o600)
    (project / "app.py").write_text("\n".join(f"line_{number} = compute({number})" for number in range(1, 40)))
    async with open_registry(project) as registry:
        outcome = await scanned(registry, found("app.py", "R2", 17), source="probe")
        assert (outcome["findings_created"], outcome["findings_closed"]) == (0, 1)
        [moved] = (await registry.list_findings(status="open", scan_source="probe"))["results"][:1]
        assert (moved["rule_id"], moved["line_start"], moved["issue_id"] is not None) == ("R2", 17, True)
