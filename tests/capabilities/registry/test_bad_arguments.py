"""Invalid arguments: each is reported as a validation_error in the contract's envelope."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from armarium.capabilities.registry.commands.project import RegistryProject
from armarium.capabilities.registry.errors import ValidationError
from armarium.surfaces.cli.host import Host
from support.client import RawSession
from support.registry_calls import Calls, Json, ServedProject, error_of

FINDING = {"path": "a.py", "rule_id": "R", "message": "m"}
GOOD: dict[str, Json] = {
    "list_files": {},
    "get_file": {"file_id": "x"},
    "get_file_timeline": {"file_id": "x"},
    "get_issue_files": {"issue_id": "x"},
    "add_file_association": {"file_id": "x", "issue_id": "x", "assoc_type": "bug_in"},
    "register_file": {"path": "bad-arguments/a.py"},
    "report_findings": {"scan_source": "ruff", "findings": []},
    "list_findings": {},
    "update_finding": {"finding_id": "x", "status": "open"},
    "promote_finding": {"finding_id": "x"},
    "create_issue": {"title": "x"},
    "get_issue": {"issue_id": "x"},
    "list_issues": {},
    "update_issue": {"issue_id": "x"},
}
PAGES: dict[str, list[Any]] = {
    "limit": [0, -1, 10001, 10**30, "10", True, False, 1.5, [], {}],
    "offset": [-1, "0", True, 0.5, [1], {}],
}
TEXTS: list[Any] = [7, 1.5, True, [], ["x"], {}]
ENUMS: list[Any] = ["", "unknown", "OPEN", 7, True, [], {}]
PRIORITIES: list[Any] = [-1, 5, 10**30, "2", True, 2.5, []]
NAMES: list[Any] = ["x" * 201, "two\nlines", "\x1b[31mred"]
LABELS: list[Any] = ["x", [7], [""], [" "], ["x"] * 51, ["x" * 201], ["two\nlines"], {}, True]
BAD: dict[str, dict[str, list[Any]]] = {
    "list_files": PAGES
    | {
        "language": TEXTS,
        "path_prefix": TEXTS,
        "min_findings": [-1, "1", True, 1.5, []],
        "has_severity": ENUMS,
        "scan_source": ["", *NAMES, *TEXTS],
        "sort": ["size", *ENUMS],
        "direction": ["up", "Asc", *ENUMS],
    },
    "get_file": {"file_id": ["", *TEXTS]},
    "get_file_timeline": PAGES | {"file_id": ["", *TEXTS], "event_type": ["finding_created", *ENUMS]},
    "get_issue_files": {"issue_id": ["", *TEXTS]},
    "add_file_association": {"file_id": ["", *TEXTS], "issue_id": ["", *TEXTS], "assoc_type": ENUMS},
    "register_file": {
        "path": ["", *TEXTS],
        "language": [*NAMES, *TEXTS],
        "file_type": [*NAMES, *TEXTS],
        "metadata": ["", "x", 7, True, [], [{}]],
    },
    "report_findings": {
        "scan_source": ["", *NAMES, *TEXTS],
        "paths": ["", "x", 7, [7], {}],
        "findings": [
            {}, "x", 7, ["x"], [{}], [FINDING | {"severity": "worst"}], [FINDING | {"line_start": 0}],
            [FINDING | {"line_start": True}], [FINDING | {"line_end": "1"}], [FINDING | {"line_end": 2**31}],
            [FINDING | {"message": 7}], [FINDING | {"metadata": []}], [FINDING | {"unknown": 1}],
            [{"path": "a.py", "rule_id": "R"}], [FINDING | {"path": ""}], [FINDING | {"rule_id": ""}],
            [FINDING | {"message": ""}], [FINDING | {"suggestion": None}],
            [FINDING | {"metadata": {"x": "y" * 70_000}}],
        ],
    },
    "list_findings": PAGES
    | {"file_id": ["", *TEXTS], "status": ENUMS, "severity": ENUMS, "scan_source": ["", *NAMES, *TEXTS]},
    "update_finding": {"finding_id": ["", *TEXTS], "status": ENUMS},
    "promote_finding": {
        "finding_id": ["", *TEXTS], "priority": PRIORITIES, "labels": [*TEXTS[:3], [7], ["x"] * 51], "title": ["", 7],
    },
    "create_issue": {
        "title": ["", " \n", "x" * 501, "two\nlines", *TEXTS],
        "body": ["x" * 70_000, *TEXTS],
        "priority": PRIORITIES,
        "labels": LABELS,
        "external_ref": ["x" * 501, "two\nlines", *TEXTS],
    },
    "get_issue": {"issue_id": ["", *TEXTS]},
    "list_issues": PAGES | {"status": ENUMS, "label": [*NAMES, *TEXTS]},
    "update_issue": {"issue_id": ["", *TEXTS], "status": ENUMS, "priority": PRIORITIES, "title": ["", 7]},
}  # fmt: skip


def each_bad_call(tool: str) -> Iterator[Json]:
    for argument, values in BAD[tool].items():
        for value in values:
            yield GOOD[tool] | {argument: value}
    yield GOOD[tool] | {"unknown": 1}
    yield GOOD[tool] | {"": ""}
    for required in GOOD[tool]:
        yield {name: value for name, value in GOOD[tool].items() if name != required}
        yield GOOD[tool] | {required: None}


@pytest.mark.parametrize("tool", GOOD)
async def test_every_bad_argument_is_a_validation_error(calls: Calls, tool: str) -> None:
    before = (await calls.ok("list_files"))["total"], (await calls.ok("list_issues"))["total"]
    for arguments in each_bad_call(tool):
        error = error_of(await calls.client.result(tool, arguments))
        assert error["code"] == "validation_error", f"{tool} {arguments}: {error}"
    after = (await calls.ok("list_files"))["total"], (await calls.ok("list_issues"))["total"]
    assert after == before, "a refused call changed something"


@pytest.mark.parametrize("tool", GOOD)
async def test_the_good_arguments_beside_them_are_good(calls: Calls, tool: str) -> None:
    result = await calls.client.result(tool, GOOD[tool])
    if result.is_error:
        assert error_of(result)["code"] == "not_found"


@pytest.mark.parametrize("argument", ["language", "file_type", "path"])
def test_an_unpaired_surrogate_is_refused(served: ServedProject, argument: str) -> None:
    arguments = {"path": '"half/a.py"'} | {argument: '"\\ud800"'}
    written = ", ".join(f'"{name}": {value}' for name, value in arguments.items())
    with RawSession.opened(served.server.url) as session:
        answer = session.call("register_file", f"{{{written}}}")
    assert answer.status_code == 200
    assert '"isError":true' in answer.text
    assert "validation_error" in answer.text or "invalid_path" in answer.text


async def test_whole_numbers_may_be_written_with_a_fraction_of_nothing(calls: Calls) -> None:
    await calls.register("a.py")
    page = await calls.listed(limit=5.0, offset=0.0, min_findings=0.0)
    assert (page["limit"], page["total"]) == (5, 1)


async def test_metadata_may_hold_the_largest_number_that_json_readers_agree_on(calls: Calls) -> None:
    made = await calls.register("a.py", metadata={"n": 2**63 - 1, "deep": [[[{"x": None}]]]})
    assert made["metadata"] == {"n": 2**63 - 1, "deep": [[[{"x": None}]]]}


async def test_a_report_in_a_file_is_refused_for_what_the_tool_refuses_it(project: Path) -> None:
    registry = RegistryProject(Host(), project)
    command = {"file": "-", "format": "armarium"}

    async def import_report(arguments: Any) -> list[Any]:
        data = json.dumps(arguments).encode()
        return (await registry.import_report(data, command, lambda done, total: None))["scans"]

    for arguments in each_bad_call("report_findings"):
        with pytest.raises(ValidationError):
            await import_report(arguments)
    (scan,) = await import_report(GOOD["report_findings"] | {"paths": None})
    assert scan["findings_created"] == 0, "what is null was not given, as for the tool"
