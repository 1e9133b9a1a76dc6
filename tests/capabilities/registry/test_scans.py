"""Scans: findings are created, updated, closed and reopened, atomically."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from armarium.capabilities.registry.errors import ValidationError
from armarium.capabilities.registry.model import FileFilter, Finding, ReportEntry, ScanReport
from armarium.capabilities.registry.service import Registry
from support.registry_calls import ACTOR, all_files, file_at, found, scanned, skipped, summary


async def findings_at(registry: Registry, path: str) -> list[Finding]:
    page = await registry.list_findings(file_id=(await file_at(registry, path))["id"])
    return sorted(page["results"], key=lambda finding: (finding["line_start"] or 0, finding["rule_id"]))


async def event_types(registry: Registry, path: str) -> list[str]:
    """Oldest first."""
    timeline = await registry.timeline((await file_at(registry, path))["id"])
    return [event["type"] for event in reversed(timeline["results"])]


async def test_findings_come_in_with_their_files(registry: Registry) -> None:
    outcome = await scanned(registry, found("a.py", severity="critical"), found("b/c.go", "R2", 5, suggestion="fix it"))
    assert (outcome["findings_created"], outcome["files"], skipped(outcome)) == (2, 2, {})
    assert [(file["path"], file["language"]) for file in await all_files(registry)] == [
        ("a.py", "python"),
        ("b/c.go", "go"),
    ]
    [finding] = await findings_at(registry, "b/c.go")
    assert (finding["scan_source"], finding["rule_id"], finding["line_start"]) == ("ruff", "R2", 5)
    assert (finding["suggestion"], finding["status"], finding["seen_count"]) == ("fix it", "open", 1)
    assert finding["scan_run_id"] == outcome["scan_run_id"]
    assert finding["id"].startswith("light-house-sf-")
    assert (await file_at(registry, "a.py"))["summary"] == summary(1, 1, critical=1)


async def test_the_same_report_again_changes_nothing_but_how_often_it_was_seen(registry: Registry) -> None:
    report = (found("a.py"), found("a.py", "R2", None), found("a.py", "R3", 7, fingerprint="abc"))
    await scanned(registry, *report)
    before = await file_at(registry, "a.py"), await event_types(registry, "a.py")
    again = await scanned(registry, *report)
    assert (again["findings_created"], again["findings_updated"], again["findings_closed"]) == (0, 0, 0)
    assert again["findings_unchanged"] == 3
    assert (await file_at(registry, "a.py"), await event_types(registry, "a.py")) == before
    assert {finding["seen_count"] for finding in await findings_at(registry, "a.py")} == {2}
    assert {finding["scan_run_id"] for finding in await findings_at(registry, "a.py")} == {again["scan_run_id"]}


async def test_a_finding_that_a_report_contains_twice_counts_once_and_different_ones_are_kept_apart(
    registry: Registry,
) -> None:
    said = (found("a.py"), found("./a.py", message="said differently"), found("x/../a.py"))
    columns = (found("a.py", metadata={"column": 4}), found("a.py", metadata={"column": 9}))
    outcome = await scanned(registry, *said, *columns, found("a.py", severity="high"))
    assert (outcome["findings_created"], outcome["findings_duplicate"], outcome["files"]) == (5, 1, 1)
    again = await scanned(registry, *columns, found("a.py", severity="high"), *said)
    assert (again["findings_unchanged"], again["findings_created"], again["findings_closed"]) == (5, 0, 0)


async def test_a_fingerprint_is_followed_to_another_line(registry: Registry) -> None:
    await scanned(registry, found("a.py", line=1, fingerprint="abc"))
    [before] = await findings_at(registry, "a.py")
    moved = await scanned(registry, found("a.py", line=9, fingerprint="abc", severity="high"))
    assert (moved["findings_created"], moved["findings_updated"], moved["findings_closed"]) == (0, 1, 0)
    [after] = await findings_at(registry, "a.py")
    assert (after["id"], after["line_start"], after["severity"]) == (before["id"], 9, "high")
    assert after["updated_at"] > before["updated_at"]
    newest = (await registry.timeline(after["file_id"]))["results"][0]
    assert newest["type"] == "finding_updated"
    assert newest["data"]["changes"] == {
        "line_start": {"old_value": 1, "new_value": 9},
        "severity": {"old_value": "info", "new_value": "high"},
    }
    assert (await file_at(registry, "a.py"))["summary"] == summary(1, 1, high=1)


async def test_without_fingerprint_and_line_the_message_tells_findings_apart(registry: Registry) -> None:
    await scanned(registry, found("a.py", line=None, message="one"), found("a.py", line=None, message="two"))
    later = await scanned(registry, found("a.py", line=None, message="two"))
    assert (later["findings_unchanged"], later["findings_closed"]) == (1, 1)


async def test_findings_not_reported_again_are_fixed_and_reopened_when_they_return(registry: Registry) -> None:
    await scanned(registry, found("a.py"), found("a.py", "R2", 2))
    fixed = await scanned(registry, found("a.py", "R2", 2))
    assert fixed["findings_closed"] == 1
    assert [finding["status"] for finding in await findings_at(registry, "a.py")] == ["fixed", "open"]
    assert (await file_at(registry, "a.py"))["summary"] == summary(2, 1, info=1)
    back = await scanned(registry, found("a.py"), found("a.py", "R2", 2))
    assert (back["findings_reopened"], back["findings_updated"], back["findings_created"]) == (1, 0, 0)
    assert [finding["status"] for finding in await findings_at(registry, "a.py")] == ["open", "open"]
    newest = (await registry.timeline((await file_at(registry, "a.py"))["id"]))["results"][0]
    assert (newest["type"], newest["data"]["status"], newest["data"]["reopened"]) == ("finding_updated", "open", True)
    types = await event_types(registry, "a.py")
    assert types == ["finding_created", "finding_created", "finding_closed", "finding_updated"]


async def test_a_scan_closes_only_its_own_findings_where_it_looked(registry: Registry) -> None:
    await scanned(registry, found("src/a.py"), found("src/deep/b.py"), found("srcs/c.py"), found("src.py"))
    await scanned(registry, found("src/a.py"), source="bandit")
    outcome = await scanned(registry, covered=("src",))
    assert (outcome["findings_closed"], outcome["files"]) == (2, 0)
    still_open = [file["path"] for file in await all_files(registry) if file["summary"]["open_findings"]]
    assert still_open == ["src.py", "src/a.py", "srcs/c.py"]
    assert (await scanned(registry, covered=("src.py", "nowhere")))["findings_closed"] == 1
    assert (await scanned(registry, covered=(".",)))["findings_closed"] == 1
    assert (await scanned(registry, covered=(".",), source="bandit"))["findings_closed"] == 1


async def test_overlapping_covered_paths_close_once_and_spare_what_was_just_seen(registry: Registry) -> None:
    await scanned(registry, found("src/a.py"), found("src/a.py", "R2", 2))
    outcome = await scanned(registry, found("src/a.py"), found("src/a.py", "R3", 3), covered=("src", "src/a.py", ""))
    assert (outcome["findings_closed"], outcome["findings_created"], outcome["findings_unchanged"]) == (1, 1, 1)


async def test_a_false_positive_of_a_person_stays_one_and_a_suppressed_finding_begins_as_one(
    registry: Registry,
) -> None:
    await scanned(registry, found("a.py"), found("a.py", "R2", 2, suppressed=True))
    first, second = await findings_at(registry, "a.py")
    assert (first["status"], second["status"]) == ("open", "false_positive")
    judged = await registry.update_finding(first["id"], "false_positive", ACTOR)
    assert judged["status"] == "false_positive"
    assert (await file_at(registry, "a.py"))["summary"] == summary(2, 0)
    again = await scanned(registry, found("a.py", suppressed=True), found("a.py", "R2", 2, suppressed=True))
    assert again["findings_unchanged"] == 2
    lifted = await scanned(registry, found("a.py"), found("a.py", "R2", 2, suppressed=True))
    assert lifted["findings_unchanged"] == 2, "a suppression does not take over what a person judged"
    assert (await scanned(registry, covered=("a.py",)))["findings_closed"] == 0
    assert {finding["status"] for finding in await findings_at(registry, "a.py")} == {"false_positive"}


async def test_an_open_finding_that_becomes_suppressed_counts_no_more(registry: Registry) -> None:
    await scanned(registry, found("a.py"))
    outcome = await scanned(registry, found("a.py", suppressed=True))
    assert outcome["findings_updated"] == 1
    assert (await file_at(registry, "a.py"))["summary"] == summary(1, 0)


async def test_a_suppression_that_is_lifted_opens_the_finding_again(registry: Registry) -> None:
    for began in (found("a.py"), found("a.py", suppressed=True)):
        await scanned(registry, began)
        await scanned(registry, found("a.py", suppressed=True))
        lifted = await scanned(registry, found("a.py"))
        assert (lifted["findings_reopened"], lifted["findings_updated"]) == (1, 0)
        assert (await file_at(registry, "a.py"))["summary"] == summary(1, 1, info=1)
    newest = (await registry.timeline((await file_at(registry, "a.py"))["id"]))["results"][0]
    assert (newest["data"]["status"], newest["data"]["reopened"]) == ("open", True)
    assert newest["data"]["changes"] == {"status": {"old_value": "false_positive", "new_value": "open"}}


async def test_confirming_a_suppression_is_a_decision(registry: Registry) -> None:
    await scanned(registry, found("a.py", suppressed=True))
    [finding] = await findings_at(registry, "a.py")
    for _ in range(2):
        await registry.update_finding(finding["id"], "false_positive", ACTOR)
        assert await event_types(registry, "a.py") == ["finding_created", "finding_updated"]
    assert (await scanned(registry, found("a.py")))["findings_unchanged"] == 1
    await registry.update_finding(finding["id"], "open", ACTOR)
    await scanned(registry, found("a.py", suppressed=True))
    assert (await scanned(registry, found("a.py")))["findings_reopened"] == 1


async def test_a_scanner_that_begins_to_write_fingerprints_keeps_its_history(registry: Registry) -> None:
    await scanned(registry, found("a.py"), found("a.py", "R2", 2), found("a.py", "R3", None))
    before = await findings_at(registry, "a.py")
    [judged] = [finding for finding in before if finding["rule_id"] == "R2"]
    await registry.update_finding(judged["id"], "false_positive", ACTOR)
    named = (
        found("a.py", fingerprint="one"),
        found("a.py", "R2", 2, fingerprint="two"),
        found("a.py", "R3", None, fingerprint="three"),
    )
    outcome = await scanned(registry, *named)
    assert (outcome["findings_unchanged"], outcome["findings_created"], outcome["findings_closed"]) == (3, 0, 0)
    after = await findings_at(registry, "a.py")
    assert [finding["id"] for finding in after] == [finding["id"] for finding in before]
    assert {finding["rule_id"]: (finding["fingerprint"], finding["status"]) for finding in after} == {
        "R1": ("one", "open"), "R2": ("two", "false_positive"), "R3": ("three", "open"),
    }  # fmt: skip
    moved = await scanned(registry, found("a.py", line=40, fingerprint="one"), *named[1:])
    assert (moved["findings_updated"], moved["findings_unchanged"], moved["findings_created"]) == (1, 2, 0)


async def test_a_fingerprint_takes_over_only_what_nothing_else_in_the_report_is(registry: Registry) -> None:
    await scanned(registry, found("a.py"))
    [before] = await findings_at(registry, "a.py")
    both = await scanned(registry, found("a.py"), found("a.py", fingerprint="one"))
    assert (both["findings_unchanged"], both["findings_created"]) == (1, 1)
    other_way = await scanned(registry, found("a.py", fingerprint="two"), found("a.py"))
    assert (other_way["findings_unchanged"], other_way["findings_created"], other_way["findings_closed"]) == (1, 1, 1)
    marks = {finding["fingerprint"]: finding["id"] for finding in await findings_at(registry, "a.py")}
    assert set(marks) == {None, "one", "two"}
    assert before["id"] in marks.values()
    unlike = await scanned(
        registry, found("a.py", "R2", fingerprint="three"), found("a.py", line=2, fingerprint="four")
    )
    assert unlike["findings_created"] == 2


async def test_findings_that_changed_last_are_listed_first(registry: Registry) -> None:
    await scanned(registry, found("a.py"), found("a.py", "R2", 2), found("b.py", "R3"))
    for rule in ("R2", "R3", "R1"):
        [finding] = [each for each in (await registry.list_findings())["results"] if each["rule_id"] == rule]
        await registry.update_finding(finding["id"], "fixed", ACTOR)
    assert [each["rule_id"] for each in (await registry.list_findings())["results"]] == ["R1", "R3", "R2"]
    of_a = await registry.list_findings(file_id=(await file_at(registry, "a.py"))["id"])
    assert [each["rule_id"] for each in of_a["results"]] == ["R1", "R2"]


async def test_findings_outside_the_project_are_skipped_and_counted(registry: Registry, project: Path) -> None:
    (project / "src").mkdir()
    outcome = await registry.scan(
        ScanReport(
            "ruff",
            [found("/etc/passwd"), found("../x"), found("src"), found(""), found(f"{project}/a.py")],
            skipped={"unreadable": 2},
        ),
        ACTOR,
    )
    assert skipped(outcome) == {"outside_project": 2, "not_a_file": 2, "unreadable": 2}
    assert [file["path"] for file in await all_files(registry)] == ["a.py"]


async def test_invalid_lines_and_unpaired_surrogates_are_replaced(registry: Registry) -> None:
    await scanned(registry, found("a.py", line=-1, message="half \ud800"), found("b.py", line=2**70, line_end=0))
    [a], [b] = await findings_at(registry, "a.py"), await findings_at(registry, "b.py")
    assert (a["line_start"], a["message"], b["line_start"], b["line_end"]) == (None, "half ?", None, None)


async def test_a_report_that_fails_in_the_middle_changes_nothing(registry: Registry) -> None:
    await scanned(registry, found("a.py"))

    def failing() -> Iterator[ReportEntry]:
        yield from (found(f"{number}.py") for number in range(3000))
        raise ValidationError("the rest is unreadable")

    with pytest.raises(ValidationError):
        await registry.scan(ScanReport("ruff", failing(), (".",)), ACTOR)
    assert [(file["path"], file["summary"]["open_findings"]) for file in await all_files(registry)] == [("a.py", 1)]
    assert (await scanned(registry, found("a.py")))["findings_unchanged"] == 1


async def test_numbers_that_json_readers_do_not_agree_on_are_refused(registry: Registry) -> None:
    with pytest.raises(ValidationError):
        await scanned(registry, found("a.py", metadata={"n": 2**70}))
    with pytest.raises(ValidationError):
        await registry.register_file("a.py", ACTOR, metadata={"n": 2**70})
    assert await all_files(registry) == []


async def test_progress_is_reported_while_findings_are_processed(registry: Registry) -> None:
    progress: list[int] = []
    await registry.scan(ScanReport("ruff", [found("a.py", line=n + 1) for n in range(2500)]), ACTOR, progress.append)
    assert progress == [1000, 2000, 2500]


@pytest.mark.parametrize("source", ["", "two\nlines", "x" * 201])
async def test_a_source_is_a_name(registry: Registry, source: str) -> None:
    with pytest.raises(ValidationError):
        await scanned(registry, found("a.py"), source=source)


async def test_a_failed_run_closes_no_findings(registry: Registry) -> None:
    await scanned(registry, found("a.py"), found("b.py"))
    outcome = await registry.scan(ScanReport("ruff", [found("a.py", "R2", 2)], (".",), failed=True), ACTOR)
    assert (outcome["failed"], outcome["findings_created"], outcome["findings_closed"]) == (True, 1, 0)
    assert (await registry.list_findings(status="open"))["total"] == 3


async def test_a_report_of_several_scanners_is_applied_atomically(registry: Registry) -> None:
    progress: list[int] = []
    reports = [ScanReport("ruff", [found("a.py")]), ScanReport("bandit", [found("a.py"), found("b.py")])]
    outcomes = await registry.scan_all(reports, ACTOR, progress.append)
    assert [(each["scan_source"], each["findings_created"]) for each in outcomes] == [("ruff", 1), ("bandit", 2)]
    assert progress == [1, 3]

    def failing() -> Iterator[ReportEntry]:
        yield found("c.py")
        raise ValidationError("the rest is unreadable")

    with pytest.raises(ValidationError):
        await registry.scan_all([ScanReport("ruff", [found("new.py")]), ScanReport("bandit", failing())], ACTOR)
    with pytest.raises(ValidationError):
        await registry.scan_all([ScanReport("ruff", [found("new.py")]), ScanReport("two\nlines", [])], ACTOR)
    assert [file["path"] for file in await all_files(registry)] == ["a.py", "b.py"]


async def test_findings_reported_twice_are_counted(registry: Registry) -> None:
    outcome = await scanned(registry, found("a.py"), found("./a.py"), found("a.py", "R2"))
    assert (outcome["findings_created"], outcome["findings_duplicate"]) == (2, 1)


async def test_skipped_scanned_paths_are_counted_apart_from_findings(registry: Registry) -> None:
    outcome = await scanned(registry, found("../x"), found("a.py"), covered=("../elsewhere", "/etc", "src"))
    assert skipped(outcome) == {"outside_project": 1, "covered_path_outside_project": 2}


async def test_texts_of_findings_are_cut_and_their_names_put_on_one_line(registry: Registry) -> None:
    long = "x" * 20_000
    await scanned(registry, found("a.py", "two\nlines", message=long, suggestion=long, fingerprint="f" * 500))
    await scanned(registry, found("b.py", long))
    [finding] = await findings_at(registry, "a.py")
    assert (finding["rule_id"], len(finding["message"]), len(finding["suggestion"])) == ("two lines", 10_000, 10_000)
    assert len((await findings_at(registry, "b.py"))[0]["rule_id"]) == 200
    again = await scanned(registry, found("a.py", "two\nlines", message=long, suggestion=long, fingerprint="f" * 500))
    assert again["findings_unchanged"] == 1
    other = await scanned(registry, found("a.py", "two\nlines", fingerprint="f" * 501))
    assert other["findings_created"] == 1, "long fingerprints that begin alike are not the same"


async def test_metadata_of_findings_has_limits(registry: Registry) -> None:
    with pytest.raises(ValidationError):
        await scanned(registry, found("a.py", metadata={"x": "y" * 70_000}))


@pytest.mark.parametrize("source", ["", "two\nlines", "\x1b[31m", "x" * 201])
async def test_a_source_that_cannot_be_is_refused_as_a_filter(registry: Registry, source: str) -> None:
    with pytest.raises(ValidationError):
        await registry.list_files(FileFilter(scan_source=source))
    with pytest.raises(ValidationError):
        await registry.list_findings(scan_source=source)


async def test_a_late_result_about_a_removed_file_keeps_no_finding_of_another_file_open(registry: Registry) -> None:
    """Its path is known, so it cannot mean a file whose path is the end of it."""
    await scanned(registry, found("a.py"), found("a.py", "R2", 2), found("d/a.py"))
    await registry.record_removed("d/a.py", ACTOR)
    outcome = await scanned(registry, found("a.py"), found("d/a.py"))
    assert (skipped(outcome), outcome["findings_closed"]) == ({"file_removed": 1}, 1)
