"""The search for findings and issues: filters, orders, pages without gaps, and counts that agree with the lists."""

from __future__ import annotations

import sqlite3
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from armarium.capabilities.registry.changes.issues import IssueChange
from armarium.capabilities.registry.errors import NotFound, ValidationError
from armarium.capabilities.registry.model import FacetValue, FileFilter, Finding, FindingFilter
from armarium.capabilities.registry.service import Registry
from armarium.capabilities.registry.storage import finding_search
from armarium.capabilities.registry.storage.database import STATEMENTS
from armarium.capabilities.registry.values import FindingSort
from support.registry_calls import ACTOR, file_at, found, scanned

SORTS: list[FindingSort] = ["severity", "updated_at", "path"]


@pytest.fixture
async def filled(registry: Registry) -> Registry:
    """Findings of two scanners in several directories."""
    await scanned(
        registry,
        found("src/db.py", "S608", 88, severity="high", message="SQL made of strings"),
        found("src/db.py", "S608", 131, severity="high", message="SQL made of strings"),
        found("src/web/app.py", "E501", 9, severity="low", message="line too long (100% too long)"),
        found("README.md", "S105", 2, severity="critical", message="a password"),
        source="ruff",
    )
    await scanned(registry, found("src/app_x.py", "secret", 3, severity="high", message="AWS key"), source="keys")
    return registry


async def listed(registry: Registry, sort: FindingSort = "path", **wanted: Any) -> list[Finding]:
    return (await registry.search_findings(FindingFilter(**wanted), sort=sort))["results"]


async def places(registry: Registry, sort: FindingSort = "path", **wanted: Any) -> list[str]:
    return [f"{each['file_path']}:{each['line_start']}" for each in await listed(registry, sort, **wanted)]


def by_value(facet: list[FacetValue]) -> dict[str, int]:
    return {each["value"]: each["count"] for each in facet}


async def test_every_filter_selects_what_it_names(filled: Registry) -> None:
    assert await places(filled, severity=("critical", "low")) == ["README.md:2", "src/web/app.py:9"]
    assert await places(filled, scan_source=("keys",)) == ["src/app_x.py:3"]
    assert await places(filled, rule_id=("S608", "E501")) == ["src/db.py:88", "src/db.py:131", "src/web/app.py:9"]
    assert await places(filled, path_prefix="src/db") == ["src/db.py:88", "src/db.py:131"]
    assert await places(filled, status=("fixed",)) == []
    file = await file_at(filled, "README.md")
    assert await places(filled, file_id=file["id"]) == ["README.md:2"]
    with pytest.raises(NotFound):
        await places(filled, file_id="nobody-f-1")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("sql STRINGS", ["src/db.py:88", "src/db.py:131"]),
        ("s608 sql", ["src/db.py:88", "src/db.py:131"]),
        ("app", ["src/app_x.py:3", "src/web/app.py:9"]),
        ("100%", ["src/web/app.py:9"]),
        ("p_x", ["src/app_x.py:3"]),
        ("_", ["src/app_x.py:3"]),
        ("\\", []),
        ("sql key", []),
    ],
)
async def test_all_words_must_occur_and_have_no_special_meaning(
    filled: Registry, text: str, expected: list[str]
) -> None:
    assert await places(filled, text=text) == expected


async def test_findings_of_an_issue_are_found_by_it(filled: Registry) -> None:
    [finding] = await listed(filled, scan_source=("keys",))
    issue = (await filled.promote_finding(finding["id"], ACTOR))["issue"]
    assert await places(filled, issue_id=issue["id"]) == ["src/app_x.py:3"]
    with pytest.raises(NotFound):
        await places(filled, issue_id="nobody-1")


async def test_the_worst_findings_come_first(filled: Registry) -> None:
    severities = [each["severity"] for each in await listed(filled, "severity")]
    assert severities == ["critical", "high", "high", "high", "low"]


@pytest.mark.parametrize("sort", SORTS)
@pytest.mark.parametrize("limit", [1, 2, 3])
async def test_pages_have_every_finding_once(filled: Registry, sort: FindingSort, limit: int) -> None:
    await scanned(filled, found("src/late.py", "E501", None, severity="info"), source="late")
    everything = await listed(filled, sort)
    pages: list[Finding] = []
    cursor: str | None = None
    while True:
        page = await filled.search_findings(FindingFilter(), sort=sort, limit=limit, cursor=cursor)
        pages += page["results"]
        assert len(page["results"]) <= limit
        if (cursor := page["next"]) is None:
            break
    assert pages == everything
    assert len(everything) == 6


@pytest.mark.parametrize("cursor", ["", "x", "!!", "W10", "WzEsMiwiMyJd", "eyJhIjoxfQ", "é"])
async def test_a_cursor_of_another_list_is_refused(filled: Registry, cursor: str) -> None:
    with pytest.raises(ValidationError):
        await filled.search_findings(FindingFilter(), sort="severity", cursor=cursor)


async def test_facets_count_what_choosing_them_would_list(filled: Registry) -> None:
    [password] = await listed(filled, severity=("critical",))
    await filled.judge_findings([password["id"]], "false_positive", "", ACTOR)
    for wanted in (
        FindingFilter(),
        FindingFilter(status=("open",)),
        FindingFilter(severity=("high",), status=("open",)),
        FindingFilter(rule_id=("S608",), scan_source=("keys",)),
        FindingFilter(path_prefix="src/", text="s"),
    ):
        summary = await filled.summarise_findings(wanted)
        assert summary["all"] == 5
        for facet in ("severity", "status", "scan_source", "rule_id"):
            for value, count in by_value(summary[facet]).items():
                chosen = replace(wanted, **{facet: (value,)})
                assert len((await filled.search_findings(chosen))["results"]) == count, (wanted, facet, value)
        assert len((await filled.search_findings(wanted))["results"]) == summary["total"]


async def test_directories_are_counted_level_by_level(filled: Registry) -> None:
    assert by_value((await filled.summarise_findings(FindingFilter()))["directory"]) == {"src/": 4, "README.md": 1}
    below = await filled.summarise_findings(FindingFilter(path_prefix="src/", severity=("high", "low")))
    assert by_value(below["directory"]) == {"src/db.py": 2, "src/app_x.py": 1, "src/web/": 1}


async def test_counts_follow_every_change(filled: Registry) -> None:
    wanted = FindingFilter(status=("open",))
    assert (await filled.summarise_findings(wanted))["total"] == 5
    [finding, *_] = await listed(filled)
    await filled.update_finding(finding["id"], "fixed", ACTOR)
    assert (await filled.summarise_findings(wanted))["total"] == 4


async def test_the_last_scan_of_each_scanner_is_told_also_if_it_found_nothing(filled: Registry) -> None:
    scans = {each["scan_source"]: each for each in (await filled.summarise_findings(FindingFilter()))["last_scans"]}
    assert (scans["ruff"]["findings_created"], scans["ruff"]["actor"]) == (4, ACTOR)
    await scanned(filled, source="keys", covered=(".",))
    latest = (await filled.summarise_findings(FindingFilter()))["last_scans"][0]
    assert (latest["scan_source"], latest["findings_created"], latest["findings_closed"]) == ("keys", 0, 1)


async def test_the_orders_read_only_their_page(filled: Registry, project: Path) -> None:
    connection = sqlite3.connect(project / ".armarium/registry.sqlite")
    for sort in SORTS:
        order = finding_search._ORDERS[sort]  # pyright: ignore[reportPrivateUsage]
        statement = STATEMENTS["search_findings"]
        for part, text in {"tables": order.tables, "where": "TRUE", "order": order.order}.items():
            statement = statement.replace(f"{{{part}}}", text)
        plan = [row[3] for row in connection.execute(f"EXPLAIN QUERY PLAN {statement}", {"limit": 1})]
        sorted_whole = [step for step in plan if step == "USE TEMP B-TREE FOR ORDER BY"]
        assert not sorted_whole, (sort, plan)
    connection.close()


async def test_a_path_is_looked_up_without_registering_it(filled: Registry) -> None:
    known = await filled.file_at("./src/../src/db.py")
    assert known["path"] == "src/db.py"
    assert known["id"] == (await file_at(filled, "src/db.py"))["id"]
    assert (known["summary"]["open_findings"], known["summary"]["high"]) == (2, 2)
    unknown = await filled.file_at("src/new.py")
    assert (unknown["id"], unknown["summary"]["total_findings"], unknown["associations"]) == (None, 0, [])
    assert (await filled.list_files(FileFilter(path_prefix="src/new")))["total"] == 0


async def test_issues_are_searched_by_words_and_counted_by_status(registry: Registry) -> None:
    for number, title in enumerate(("Relight the lamp", "Oil the lamp", "Paint the door")):
        labels = ["night"] if number == 0 else []
        await registry.create_issue(IssueChange(title, priority=number, labels=labels), ACTOR)
    page = await registry.search_issues(text="LAMP the")
    assert [each["title"] for each in page["results"]] == ["Relight the lamp", "Oil the lamp"]
    await registry.update_issue(page["results"][0]["id"], IssueChange(status="closed"), ACTOR)
    lamps = await registry.search_issues(["open"], text="lamp")
    assert [each["title"] for each in lamps["results"]] == ["Oil the lamp"]
    assert lamps["by_status"] == {"open": 1, "closed": 1}
    assert [each["title"] for each in (await registry.search_issues(text="night"))["results"]] == ["Relight the lamp"]
    titles: list[str] = []
    cursor: str | None = None
    while True:
        part = await registry.search_issues(limit=1, cursor=cursor)
        titles += [each["title"] for each in part["results"]]
        if (cursor := part["next"]) is None:
            break
    assert titles == ["Relight the lamp", "Oil the lamp", "Paint the door"]


async def test_the_timeline_of_an_issue_tells_its_whole_life(filled: Registry) -> None:
    [finding] = await listed(filled, scan_source=("keys",))
    issue = (await filled.promote_finding(finding["id"], ACTOR))["issue"]
    readme = await file_at(filled, "README.md")
    await filled.associate(readme["id"], issue["id"], "mentioned_in", ACTOR)
    await filled.comment_issue(issue["id"], "rotated at *noon*", "ada")
    await filled.update_issue(issue["id"], IssueChange(status="closed", body="done"), "ada")
    [link] = [each for each in await filled.issue_files(issue["id"]) if each["file_path"] == "README.md"]
    await filled.unlink(readme["id"], link["id"], "ada")
    events = (await filled.issue_timeline(issue["id"]))["results"]
    kinds = [each["type"] for each in events]
    assert kinds == ["file_unlinked", "issue_updated", "commented", "file_linked", "file_linked", "issue_created"]
    assert events[1]["data"]["changes"] == {"status": {"old_value": "open", "new_value": "closed"}, "body": {}}
    assert (events[2]["data"]["text"], events[2]["actor"]) == ("rotated at *noon*", "ada")
    assert events[5]["data"] == {"finding_id": finding["id"]}
    first = await filled.issue_timeline(issue["id"], limit=4)
    rest = await filled.issue_timeline(issue["id"], limit=4, cursor=first["next"])
    assert [*first["results"], *rest["results"]] == events
    assert rest["next"] is None


async def test_a_link_is_removed_once_and_its_file_tells_it(filled: Registry) -> None:
    issue = await filled.create_issue(IssueChange("Relight"), ACTOR)
    file = await file_at(filled, "README.md")
    other = await file_at(filled, "src/db.py")
    await filled.associate(file["id"], issue["id"], "task_for", ACTOR)
    [link] = await filled.issue_files(issue["id"])
    with pytest.raises(NotFound):
        await filled.unlink(other["id"], link["id"], ACTOR)
    await filled.unlink(file["id"], link["id"], ACTOR)
    assert await filled.issue_files(issue["id"]) == []
    assert (await file_at(filled, "README.md"))["associations_count"] == 0
    [removed, created] = (await filled.timeline(file["id"], kind="association"))["results"]
    assert (removed["type"], created["type"]) == ("association_removed", "association_created")
    assert removed["source_id"] == issue["id"]
    with pytest.raises(NotFound):
        await filled.unlink(file["id"], link["id"], ACTOR)
