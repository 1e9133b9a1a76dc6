"""Issues and findings that become issues, through a real client."""

from __future__ import annotations

import re

from support.registry_calls import Calls


async def test_an_issue_has_what_it_was_given_and_defaults_for_the_rest(calls: Calls) -> None:
    plain = await calls.ok("create_issue", title="  Mend the lamp ")
    assert re.fullmatch(r"light-house-[0-9a-f]{6,}", plain["id"])
    assert plain == {
        "id": plain["id"], "title": "Mend the lamp", "body": "", "status": "open", "priority": 2, "labels": [],
        "external_ref": "", "created_at": plain["created_at"], "updated_at": plain["created_at"], "closed_at": None,
    }  # fmt: skip
    full = {"title": "x", "body": "b", "priority": 0, "labels": ["lamp", "fog"], "external_ref": "github:o/r#7"}
    made = await calls.ok("create_issue", **full)
    assert {name: made[name] for name in full} == full
    assert await calls.ok("get_issue", issue_id=made["id"]) == made


async def test_an_update_changes_what_is_given_and_closing_has_a_time(calls: Calls) -> None:
    made = await calls.ok("create_issue", title="x", labels=["a"])
    assert await calls.ok("update_issue", issue_id=made["id"], title="x", labels=["a"]) == made
    begun = await calls.ok("update_issue", issue_id=made["id"], status="in_progress", labels=["b", "b", " c "])
    assert (begun["status"], begun["labels"], begun["closed_at"]) == ("in_progress", ["b", "c"], None)
    named = await calls.ok("update_issue", issue_id=made["id"], external_ref=" PROJ-7 ")
    assert named == begun | {"external_ref": "PROJ-7", "updated_at": named["updated_at"]}
    assert await calls.ok("get_issue", issue_id=made["id"]) == named
    closed = await calls.ok("update_issue", issue_id=made["id"], status="closed", body="done")
    assert closed["closed_at"] == closed["updated_at"] > begun["updated_at"]
    later = await calls.ok("update_issue", issue_id=made["id"], priority=4)
    assert (later["closed_at"], later["body"]) == (closed["closed_at"], "done")
    assert (await calls.ok("update_issue", issue_id=made["id"], status="open"))["closed_at"] is None


async def test_issues_are_listed_most_urgent_first_by_status_label_and_page(calls: Calls) -> None:
    label = calls.area
    ids = [
        (await calls.ok("create_issue", title=f"{priority}", priority=priority, labels=[label]))["id"]
        for priority in (3, 0, 1)
    ]
    await calls.ok("update_issue", issue_id=ids[2], status="closed")
    listed = await calls.ok("list_issues", label=label)
    assert [issue["id"] for issue in listed["results"]] == [ids[1], ids[2], ids[0]]
    assert (listed["total"], listed["has_more"]) == (3, False)
    closed = await calls.ok("list_issues", label=label, status="closed")
    assert [issue["id"] for issue in closed["results"]] == [ids[2]]
    page = await calls.ok("list_issues", label=label, limit=1, offset=1)
    assert [issue["id"] for issue in page["results"]] == [ids[2]]
    assert page["has_more"]


async def test_among_equally_urgent_issues_what_changed_last_comes_first(calls: Calls) -> None:
    label = calls.area
    ids = [(await calls.ok("create_issue", title=f"{number}", labels=[label]))["id"] for number in range(3)]
    await calls.ok("update_issue", issue_id=ids[1], body="changed")
    listed = await calls.ok("list_issues", label=label)
    assert [issue["id"] for issue in listed["results"]] == [ids[1], ids[2], ids[0]]


async def test_a_promoted_finding_says_what_is_wanted_of_it(calls: Calls) -> None:
    await calls.report({"path": "a.py", "severity": "critical"})
    [file] = (await calls.listed())["results"]
    [finding] = await calls.findings_of(file["id"])
    wanted = {"title": "Our words", "body": "All of it", "priority": 3, "labels": ["x"], "external_ref": "PROJ-8"}
    issue = (await calls.ok("promote_finding", finding_id=finding["id"], **wanted))["issue"]
    assert {name: issue[name] for name in wanted} == wanted
    assert await calls.ok("get_issue", issue_id=issue["id"]) == issue


async def test_a_promoted_finding_is_one_issue_linked_to_its_file(calls: Calls) -> None:
    await calls.report({"path": "a.py", "line_start": 3, "severity": "critical", "message": "Leaks\nbadly"})
    [file] = (await calls.listed())["results"]
    [finding] = await calls.findings_of(file["id"])
    promoted = await calls.ok("promote_finding", finding_id=finding["id"], labels=["leak"])
    assert promoted["created"]
    issue = promoted["issue"]
    assert (issue["title"], issue["priority"], issue["labels"]) == ("Leaks", 0, ["leak"])
    assert f"{calls.area}/a.py:3" in issue["body"]
    again = await calls.ok("promote_finding", finding_id=finding["id"], title="Another")
    assert again == {"issue": issue, "created": False}
    [link] = await calls.ok("get_issue_files", issue_id=issue["id"])
    assert (link["file_id"], link["assoc_type"]) == (file["id"], "bug_in")
    [finding] = await calls.findings_of(file["id"])
    assert finding["issue_id"] == issue["id"]


async def test_findings_are_listed_by_state_severity_and_source_and_judged(calls: Calls) -> None:
    source = calls.area
    await calls.report(
        {"path": "a.py", "line_start": 1, "severity": "high"}, {"path": "b.py", "severity": "low"}, source=source
    )
    listed = await calls.ok("list_findings", scan_source=source)
    assert (listed["total"], listed["limit"], listed["offset"], listed["has_more"]) == (2, 100, 0, False)
    [high] = (await calls.ok("list_findings", scan_source=source, severity="high"))["results"]
    assert high["file_path"] == f"{calls.area}/a.py"
    judged = await calls.ok("update_finding", finding_id=high["id"], status="fixed")
    assert judged == high | {"status": "fixed", "updated_at": judged["updated_at"]}
    assert await calls.ok("update_finding", finding_id=high["id"], status="fixed") == judged
    fixed = (await calls.ok("list_findings", scan_source=source, status="fixed"))["results"]
    assert fixed == [judged]
    newest = (await calls.ok("get_file_timeline", file_id=high["file_id"]))["results"][0]
    assert (newest["type"], newest["source_id"]) == ("finding_closed", high["id"])
    page = await calls.ok("list_findings", scan_source=source, limit=1, offset=1)
    assert (len(page["results"]), page["has_more"]) == (1, False)


async def test_what_was_skipped_is_told_with_its_reason(calls: Calls) -> None:
    outcome = await calls.ok(
        "report_findings",
        scan_source="ruff",
        findings=[{"path": "/etc/passwd", "rule_id": "R", "message": "m"}],
    )
    assert outcome["skipped"] == [{"reason": "outside_project", "count": 1}]
    assert (outcome["findings_created"], outcome["files"]) == (0, 0)
