"""The six tools of the contract, through a real client: schemas, payloads, errors."""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from typing import Any

import pytest

from support.registry_calls import Calls, Json

INPUTS: dict[str, Json] = {
    "list_files": {
        "type": "object",
        "properties": {
            "limit": {"type": "integer", "minimum": 1, "maximum": 10000, "default": 100},
            "offset": {"type": "integer", "minimum": 0, "default": 0},
            "language": {"type": "string"},
            "path_prefix": {"type": "string"},
            "min_findings": {"type": "integer", "minimum": 0},
            "has_severity": {"type": "string", "enum": ["critical", "high", "medium", "low", "info"]},
            "scan_source": {"type": "string"},
            "sort": {
                "type": "string",
                "enum": ["updated_at", "first_seen", "path", "language"],
                "default": "updated_at",
            },
            "direction": {"type": "string", "enum": ["asc", "desc", "ASC", "DESC"]},
        },
    },
    "get_file": {"type": "object", "properties": {"file_id": {"type": "string"}}, "required": ["file_id"]},
    "get_file_timeline": {
        "type": "object",
        "properties": {
            "file_id": {"type": "string"},
            "limit": {"type": "integer", "minimum": 1, "maximum": 10000, "default": 50},
            "offset": {"type": "integer", "minimum": 0, "default": 0},
            "event_type": {"type": "string", "enum": ["finding", "association", "file_metadata_update"]},
        },
        "required": ["file_id"],
    },
    "get_issue_files": {"type": "object", "properties": {"issue_id": {"type": "string"}}, "required": ["issue_id"]},
    "add_file_association": {
        "type": "object",
        "properties": {
            "file_id": {"type": "string"},
            "issue_id": {"type": "string"},
            "assoc_type": {"type": "string", "enum": ["bug_in", "task_for", "scan_finding", "mentioned_in"]},
        },
        "required": ["file_id", "issue_id", "assoc_type"],
    },
    "register_file": {
        "type": "object",
        "properties": {
            "path": {"type": "string"},
            "language": {"type": "string"},
            "file_type": {"type": "string"},
            "metadata": {"type": "object"},
        },
        "required": ["path"],
    },
}
MORE_TOOLS = {
    "report_findings", "list_findings", "update_finding", "promote_finding",
    "create_issue", "get_issue", "list_issues", "update_issue",
}  # fmt: skip
READING = {
    "list_files",
    "get_file",
    "get_file_timeline",
    "get_issue_files",
    "list_findings",
    "get_issue",
    "list_issues",
}
FILE_FIELDS = {"id", "path", "language", "file_type", "first_seen", "updated_at", "metadata"}
SUMMARY_FIELDS = {"total_findings", "open_findings", "critical", "high", "medium", "low", "info"}
NOTHING_FOUND = dict.fromkeys(SUMMARY_FIELDS, 0)


def without_descriptions(schema: Json) -> Json:
    properties = {
        name: {key: value for key, value in about.items() if key != "description"}
        for name, about in schema["properties"].items()
    }
    return schema | {"properties": properties}


async def test_every_tool_is_served_and_says_whether_it_changes_anything(calls: Calls) -> None:
    tools = {tool.name: tool for tool in (await calls.client.mcp.list_tools()).tools}
    assert set(tools) == set(INPUTS) | MORE_TOOLS | {"mcp_pipe"}
    for name, tool in tools.items():
        assert tool.annotations is not None
        assert tool.annotations.read_only_hint == (name in READING)


@pytest.mark.parametrize("tool", INPUTS)
async def test_the_input_schemas_are_the_contracts_own_and_unknown_arguments_are_refused(
    calls: Calls, tool: str
) -> None:
    [served] = [each for each in (await calls.client.mcp.list_tools()).tools if each.name == tool]
    assert without_descriptions(served.input_schema) == INPUTS[tool] | {"additionalProperties": False}
    assert list(served.input_schema["properties"]) == list(INPUTS[tool]["properties"])
    assert all("description" in about for about in served.input_schema["properties"].values())


async def test_a_registered_file_comes_back_as_its_record(calls: Calls) -> None:
    made = await calls.register("./x/../a.py", file_type="module", metadata={"owner": "ops", "deep": {"n": [1, None]}})
    assert set(made) == FILE_FIELDS
    assert re.fullmatch(r"light-house-f-[0-9a-f]{10}", made["id"])
    assert made["path"] == f"{calls.area}/a.py"
    assert (made["language"], made["file_type"]) == ("python", "module")
    assert made["metadata"] == {"owner": "ops", "deep": {"n": [1, None]}}
    assert made["first_seen"] == made["updated_at"]
    assert datetime.fromisoformat(made["first_seen"]).utcoffset() == timedelta(0)


async def test_registering_again_changes_what_is_given_and_only_that(calls: Calls) -> None:
    made = await calls.register("a.unknown", metadata={"a": 1})
    again = await calls.register("a.unknown")
    assert again == made
    changed = await calls.register("a.unknown", language="cobol", metadata={"b": 2})
    assert changed == made | {"language": "cobol", "metadata": {"b": 2}, "updated_at": changed["updated_at"]}
    assert changed["updated_at"] > made["updated_at"]
    events = (await calls.ok("get_file_timeline", file_id=made["id"]))["results"]
    assert [event["type"] for event in events] == ["file_metadata_update"] * 2
    changes = {event["data"]["field"]: (event["data"]["old_value"], event["data"]["new_value"]) for event in events}
    assert changes == {"language": ("", "cobol"), "metadata": ({"a": 1}, {"b": 2})}


async def test_a_listing_has_the_contracts_shape(calls: Calls) -> None:
    made = await calls.register("a.py")
    assert await calls.listed() == {
        "results": [made | {"summary": NOTHING_FOUND, "associations_count": 0}],
        "total": 1,
        "limit": 100,
        "offset": 0,
        "has_more": False,
    }
    everything = await calls.ok("list_files")
    assert everything["total"] >= 1


async def test_pages_follow_each_other_and_say_how_much_there_is(calls: Calls) -> None:
    for number in range(5):
        await calls.register(f"{number}.py")
    first = await calls.listed(limit=2, sort="path")
    assert (first["total"], first["limit"], first["offset"], first["has_more"]) == (5, 2, 0, True)
    assert await calls.names(limit=2, offset=2, sort="path") == ["2.py", "3.py"]
    last = await calls.listed(limit=2, offset=4, sort="path")
    assert (len(last["results"]), last["has_more"]) == (1, False)
    behind = await calls.listed(limit=2, offset=10**30)
    assert (behind["results"], behind["total"], behind["offset"], behind["has_more"]) == ([], 5, 2**63 - 1, False)


async def test_files_are_sorted_by_each_field_in_both_directions(calls: Calls) -> None:
    for name in ("b.rs", "a.py", "d.py", "c.go"):
        await calls.register(name)
    await calls.register("a.py", file_type="touched")
    assert await calls.names() == ["a.py", "c.go", "d.py", "b.rs"]
    assert await calls.names(direction="ASC") == ["b.rs", "d.py", "c.go", "a.py"]
    assert await calls.names(sort="first_seen") == ["c.go", "d.py", "a.py", "b.rs"]
    assert await calls.names(sort="first_seen", direction="asc") == ["b.rs", "a.py", "d.py", "c.go"]
    assert await calls.names(sort="path") == ["a.py", "b.rs", "c.go", "d.py"]
    assert await calls.names(sort="path", direction="DESC") == ["d.py", "c.go", "b.rs", "a.py"]
    assert await calls.names(sort="language") == ["c.go", "a.py", "d.py", "b.rs"]
    assert await calls.names(sort="language", direction="desc") == ["b.rs", "d.py", "a.py", "c.go"]


async def test_files_that_sort_alike_keep_the_order_of_their_paths(calls: Calls) -> None:
    names = [f"{number:03}.py" for number in range(30)]
    await calls.report(*({"path": name} for name in reversed(names)))
    assert await calls.names() == names
    assert await calls.names(sort="first_seen") == names
    assert await calls.names(direction="asc") == names[::-1]
    paged = [name for offset in range(0, 30, 7) for name in await calls.names(limit=7, offset=offset)]
    assert paged == names


async def test_a_prefix_is_a_prefix_whatever_characters_it_has(calls: Calls) -> None:
    for name in ("a%b/x.py", "a_b/x.py", "aXb/x.py", "a%c.py", "A%b/x.py", "a\U0010ffffz.py", "aé.py"):
        await calls.register(name)
    assert await calls.names(path_prefix=f"{calls.area}/a%", sort="path") == ["a%b/x.py", "a%c.py"]
    assert await calls.names(path_prefix=f"{calls.area}/a_") == ["a_b/x.py"]
    assert await calls.names(path_prefix=f"{calls.area}/a\U0010ffff") == ["a\U0010ffffz.py"]
    assert await calls.names(path_prefix=f"{calls.area}/aé.py") == ["aé.py"]
    assert await calls.names(path_prefix=f"{calls.area}/aé.py/") == []
    assert (await calls.ok("list_files", path_prefix="", limit=1))["total"] >= 7
    assert (await calls.ok("list_files", path_prefix="\U0010ffff"))["total"] == 0


async def test_filters_look_at_open_findings_and_can_be_combined(calls: Calls) -> None:
    await calls.report(
        {"path": "a.py", "severity": "critical", "line_start": 1},
        {"path": "a.py", "severity": "low", "line_start": 2},
        {"path": "b.py", "severity": "low"},
        {"path": "c.go", "severity": "critical"},
    )
    await calls.report({"path": "b.py", "severity": "info"}, source="bandit")
    await calls.register("clean.py")
    assert await calls.names(has_severity="critical", sort="path") == ["a.py", "c.go"]
    assert await calls.names(has_severity="critical", language="python") == ["a.py"]
    assert await calls.names(min_findings=2, sort="path") == ["a.py", "b.py"]
    assert len(await calls.names(min_findings=0)) == 4
    assert await calls.names(min_findings=10**30) == []
    assert await calls.names(scan_source="bandit") == ["b.py"]
    assert await calls.names(scan_source="band") == []
    both = {"scan_source": "ruff", "has_severity": "low", "min_findings": 2, "language": "python"}
    assert await calls.names(**both) == ["b.py", "a.py"]
    await calls.report({"path": "c.go", "severity": "critical", "line_start": 9})
    await calls.ok("report_findings", scan_source="ruff", findings=[], paths=[calls.area])
    assert await calls.names(has_severity="critical") == []
    assert await calls.names(min_findings=1) == ["b.py"]
    assert set(await calls.names(scan_source="ruff")) == {"a.py", "b.py", "c.go"}


async def test_a_file_is_told_with_findings_associations_and_summary(calls: Calls) -> None:
    await calls.report(*({"path": "a.py", "line_start": line, "severity": "high"} for line in range(1, 13)))
    [file] = (await calls.listed())["results"]
    issue = await calls.ok("create_issue", title="Fix it")
    await calls.ok("add_file_association", file_id=file["id"], issue_id=issue["id"], assoc_type="task_for")
    detail = await calls.ok("get_file", file_id=file["id"])
    assert set(detail) == {"file", "associations", "recent_findings", "summary"}
    assert set(detail["file"]) == FILE_FIELDS
    assert detail["summary"] == NOTHING_FOUND | {"total_findings": 12, "open_findings": 12, "high": 12}
    assert len(detail["recent_findings"]) == 10
    assert {finding["file_id"] for finding in detail["recent_findings"]} == {file["id"]}
    [link] = detail["associations"]
    assert link == {
        "id": link["id"], "file_id": file["id"], "issue_id": issue["id"], "assoc_type": "task_for",
        "created_at": link["created_at"], "issue_title": "Fix it", "issue_status": "open",
    }  # fmt: skip
    assert isinstance(link["id"], int)


async def test_the_findings_of_a_file_that_changed_last_come_first(calls: Calls) -> None:
    await calls.report({"path": "a.py", "line_start": 1}, {"path": "a.py", "line_start": 2})
    [file] = (await calls.listed())["results"]
    await calls.report({"path": "a.py", "line_start": 1, "message": "worse"}, {"path": "a.py", "line_start": 2})
    recent = (await calls.ok("get_file", file_id=file["id"]))["recent_findings"]
    assert [finding["line_start"] for finding in recent] == [1, 2]
    assert [finding["seen_count"] for finding in recent] == [2, 2]


async def test_a_timeline_is_newest_first_with_ids_that_stay(calls: Calls) -> None:
    made = await calls.register("a.py")
    await calls.report({"path": "a.py"})
    issue = await calls.ok("create_issue", title="Fix it")
    await calls.ok("add_file_association", file_id=made["id"], issue_id=issue["id"], assoc_type="mentioned_in")
    await calls.register("a.py", language="jython")
    await calls.ok("report_findings", scan_source="ruff", findings=[], paths=[f"{calls.area}/a.py"])
    whole = await calls.ok("get_file_timeline", file_id=made["id"])
    assert set(whole) == {"results", "total", "limit", "offset", "has_more"}
    assert (whole["total"], whole["limit"], whole["offset"], whole["has_more"]) == (4, 50, 0, False)
    assert [event["type"] for event in whole["results"]] == [
        "finding_closed", "file_metadata_update", "association_created", "finding_created",
    ]  # fmt: skip
    assert all(set(event) == {"id", "type", "timestamp", "source_id", "data"} for event in whole["results"])
    times = [event["timestamp"] for event in whole["results"]]
    assert times == sorted(times, reverse=True)
    assert whole["results"][2]["source_id"] == issue["id"]
    paged = [
        event
        for offset in range(4)
        for event in (await calls.ok("get_file_timeline", file_id=made["id"], limit=1, offset=offset))["results"]
    ]
    assert paged == whole["results"]
    assert len({event["id"] for event in paged}) == 4


@pytest.mark.parametrize(
    ("kind", "types"),
    [
        ("finding", ["finding_created"]),
        ("association", ["association_created"]),
        ("file_metadata_update", ["file_metadata_update"]),
    ],
)
async def test_a_timeline_can_be_narrowed_to_a_kind(calls: Calls, kind: str, types: list[str]) -> None:
    made = await calls.register("a.py")
    await calls.report({"path": "a.py"})
    issue = await calls.ok("create_issue", title="Fix it")
    await calls.ok("add_file_association", file_id=made["id"], issue_id=issue["id"], assoc_type="bug_in")
    await calls.register("a.py", language="jython")
    part = await calls.ok("get_file_timeline", file_id=made["id"], event_type=kind)
    assert [event["type"] for event in part["results"]] == types
    assert part["total"] == 1


async def test_associating_is_idempotent_and_always_answers_the_same(calls: Calls) -> None:
    made = await calls.register("a.py")
    issue = await calls.ok("create_issue", title="Fix it")
    link = {"file_id": made["id"], "issue_id": issue["id"]}
    for assoc_type in ("bug_in", "bug_in", "task_for", "bug_in"):
        assert await calls.ok("add_file_association", **link, assoc_type=assoc_type) == {"status": "created"}
    links = await calls.ok("get_issue_files", issue_id=issue["id"])
    assert isinstance(links, list)
    assert links[0] == {
        "id": links[0]["id"], "file_id": made["id"], "issue_id": issue["id"], "assoc_type": "bug_in",
        "created_at": links[0]["created_at"], "file_path": made["path"], "file_language": "python",
    }  # fmt: skip
    assert [each["assoc_type"] for each in links] == ["bug_in", "task_for"]
    assert (await calls.listed())["results"][0]["associations_count"] == 2
    assert (await calls.ok("get_file_timeline", file_id=made["id"], event_type="association"))["total"] == 2


async def test_a_new_link_is_a_change_of_the_file_and_the_same_again_is_none(calls: Calls) -> None:
    made = await calls.register("a.py")
    await calls.register("b.py")
    issue = await calls.ok("create_issue", title="Fix it")
    link = {"file_id": made["id"], "issue_id": issue["id"], "assoc_type": "bug_in"}
    await calls.ok("add_file_association", **link)
    linked = (await calls.listed())["results"][0]
    assert linked["id"] == made["id"]
    assert linked["updated_at"] > made["updated_at"]
    await calls.ok("add_file_association", **link)
    assert (await calls.listed())["results"][0] == linked


async def test_links_of_a_file_come_oldest_first(calls: Calls) -> None:
    made = await calls.register("a.py")
    issues = [(await calls.ok("create_issue", title=f"{number}"))["id"] for number in range(4)]
    linked = [(issues[2], "task_for"), (issues[0], "task_for"), (issues[3], "bug_in"), (issues[0], "bug_in")]
    for issue_id, assoc_type in linked:
        await calls.ok("add_file_association", file_id=made["id"], issue_id=issue_id, assoc_type=assoc_type)
    links = (await calls.ok("get_file", file_id=made["id"]))["associations"]
    assert [(link["issue_id"], link["assoc_type"]) for link in links] == linked


async def test_an_issue_without_files_has_an_empty_array(calls: Calls) -> None:
    issue = await calls.ok("create_issue", title="Alone")
    assert await calls.ok("get_issue_files", issue_id=issue["id"]) == []


@pytest.mark.parametrize(
    ("tool", "arguments", "code"),
    [
        ("get_file", {"file_id": "light-house-f-0000000000"}, "not_found"),
        ("get_file_timeline", {"file_id": "light-house-f-0000000000"}, "not_found"),
        ("get_issue_files", {"issue_id": "light-house-000000"}, "not_found"),
        ("get_issue", {"issue_id": "light-house-000000"}, "not_found"),
        ("update_issue", {"issue_id": "light-house-000000", "title": "x"}, "not_found"),
        ("list_findings", {"file_id": "light-house-f-0000000000"}, "not_found"),
        ("update_finding", {"finding_id": "light-house-sf-0", "status": "fixed"}, "not_found"),
        ("promote_finding", {"finding_id": "light-house-sf-0"}, "not_found"),
    ],
)
async def test_what_nobody_knows_is_not_found(calls: Calls, tool: str, arguments: Json, code: str) -> None:
    assert await calls.code(tool, **arguments) == code


async def test_a_missing_file_is_not_found_and_a_missing_issue_a_bad_argument(calls: Calls) -> None:
    made = await calls.register("a.py")
    issue = await calls.ok("create_issue", title="Fix it")
    missing: dict[str, Any] = {"assoc_type": "bug_in"}
    assert await calls.code("add_file_association", file_id="nobody", issue_id=issue["id"], **missing) == "not_found"
    assert await calls.code("add_file_association", file_id="nobody", issue_id="nothing", **missing) == "not_found"
    bad = await calls.code("add_file_association", file_id=made["id"], issue_id="nothing", **missing)
    assert bad == "validation_error"
