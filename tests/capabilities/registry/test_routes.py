"""The registry's JSON API, through a running server: each route says its tool, and scanners hand in their reports."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import httpx
import pytest
import schemathesis
from openapi_spec_validator import OpenAPIV31SpecValidator
from schemathesis import GenerationMode

from armarium.capabilities.registry.tools import IMPORT_TOOL, TOOLS, registry_routes
from armarium.surfaces.web.openapi import openapi_document
from support.registry_calls import ServedProject
from support.scanner_reports import bandit_report, faulty_project, ruff_report
from support.tried_routes import MODES, operations_of, try_operation

ISSUE = {"title": "Relight the lamp", "labels": ["night"]}


@pytest.fixture(scope="module")
def http(served: ServedProject) -> Generator[httpx.Client]:
    with httpx.Client(base_url=f"{served.server.url}/api", timeout=30) as client:
        yield client


def description() -> dict[str, Any]:
    """The registry's API without one behind it. The server under test wants no key."""
    routes = registry_routes([*(tool.spec for tool in TOOLS), IMPORT_TOOL.spec])
    document = openapi_document([("registry", route) for route in routes])
    del document["security"], document["components"]["securitySchemes"]
    return document


def told(answer: httpx.Response, status: int = 200) -> Any:
    assert answer.status_code == status, answer.text
    return answer.json()


def registered(http: httpx.Client, path: str) -> dict[str, Any]:
    return told(http.post("/registry/files", json={"path": path}))


def test_the_description_is_valid_openapi(http: httpx.Client) -> None:
    document = told(http.get("/openapi.json"))
    OpenAPIV31SpecValidator(document).validate()
    assert "/api/registry/scan-results" in document["paths"]


def test_a_file_is_registered_found_and_told_about(http: httpx.Client) -> None:
    file = registered(http, "./lamp/../lamp/oil.py")
    assert (file["path"], file["language"]) == ("lamp/oil.py", "python")
    listed = told(http.get("/registry/files", params={"path_prefix": "lamp/", "limit": 1, "sort": "path"}))
    assert [each["id"] for each in listed["results"]] == [file["id"]]
    assert (listed["total"], listed["limit"], listed["has_more"]) == (1, 1, False)
    assert told(http.get(f"/registry/files/{file['id']}"))["file"]["path"] == "lamp/oil.py"
    assert told(http.get(f"/registry/files/{file['id']}/timeline"))["total"] == 0


def test_an_issue_goes_from_its_making_to_its_end(http: httpx.Client) -> None:
    file = registered(http, "issues/wick.py")
    issue = told(http.post("/registry/issues", json=ISSUE), 201)
    link = {"issue_id": issue["id"], "assoc_type": "task_for"}
    for _ in range(2):
        assert told(http.post(f"/registry/files/{file['id']}/associations", json=link)) == {"status": "created"}
    files = told(http.get(f"/registry/issues/{issue['id']}/files"))["result"]
    assert [each["file_path"] for each in files] == ["issues/wick.py"]
    assert told(http.patch(f"/registry/issues/{issue['id']}", json={"status": "closed"}))["status"] == "closed"
    assert told(http.get(f"/registry/issues/{issue['id']}"))["closed_at"]
    assert issue["id"] in {each["id"] for each in told(http.get("/registry/issues"))["results"]}


def test_reports_are_taken_in_as_scanners_write_them(served: ServedProject, http: httpx.Client) -> None:
    project = faulty_project(served.directory / "scanned")
    headers = {"content-type": "application/json"}
    for report in (ruff_report(project), bandit_report(project)):
        query = {"paths": "scanned"}
        (scan,) = told(http.post("/registry/scan-results", params=query, content=report, headers=headers))["scans"]
        assert scan["findings_created"] + sum(each["count"] for each in scan["skipped"]) > 0


def test_a_finding_is_judged_and_becomes_an_issue(http: httpx.Client) -> None:
    report = {
        "scan_source": "keeper",
        "findings": [{"path": "judged/a.py", "rule_id": "R1", "message": "too dark", "severity": "high"}],
    }
    (scan,) = told(http.post("/registry/scan-results", json=report))["scans"]
    assert scan["findings_created"] == 1
    (finding,) = told(http.get("/registry/findings", params={"scan_source": "keeper"}))["results"]
    promoted = told(http.post(f"/registry/findings/{finding['id']}/issue", json={}))
    assert promoted["created"]
    assert not told(http.post(f"/registry/findings/{finding['id']}/issue"))["created"]
    judged = told(http.patch(f"/registry/findings/{finding['id']}", json={"status": "false_positive"}))
    assert judged["status"] == "false_positive"


@pytest.mark.parametrize(
    ("method", "path", "asked", "status", "code"),
    [
        ("GET", "/registry/files/nobody-f-0", {}, 404, "not_found"),
        ("GET", "/registry/files?limit=0", {}, 400, "validation_error"),
        ("GET", "/registry/files?limit=true", {}, 400, "validation_error"),
        ("GET", "/registry/files?sort=size", {}, 400, "validation_error"),
        ("GET", "/registry/files?colour=red", {}, 400, "validation_error"),
        ("POST", "/registry/files", {"json": {"path": "/etc/passwd"}}, 400, "invalid_path"),
        ("POST", "/registry/files", {"json": {"path": "../up"}}, 400, "invalid_path"),
        ("POST", "/registry/files", {"json": []}, 400, "validation_error"),
        ("POST", "/registry/scan-results", {"json": {"version": "2.1.0"}}, 400, "validation_error"),
        ("POST", "/registry/scan-results", {"json": 7}, 400, "validation_error"),
        ("POST", "/registry/scan-results", {"content": b"<xml>", "headers": {"content-type": "application/json"}},
         400, "validation_error"),
        ("POST", "/registry/scan-results?format=xml", {"json": {}}, 400, "validation_error"),
        ("PATCH", "/registry/issues/nobody-1", {"json": {"status": "closed"}}, 404, "not_found"),
        ("PATCH", "/registry/issues/nobody-1", {"json": {"status": "gone"}}, 400, "validation_error"),
    ],
)  # fmt: skip
def test_mistakes_have_the_contract_s_codes(
    http: httpx.Client, method: str, path: str, asked: dict[str, Any], status: int, code: str
) -> None:
    error = told(http.request(method, path, **asked), status)
    assert error["code"] == code
    assert set(error) == {"error", "code"}


def test_the_tool_behind_the_reports_is_not_offered_to_models(served: ServedProject, http: httpx.Client) -> None:
    request = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "import_scan_results"}}
    answer = httpx.post(f"{served.server.url}/mcp", json=request, headers={"accept": "application/json"})
    assert "scans" not in answer.text


def test_nothing_of_this_machine_is_told(served: ServedProject, http: httpx.Client) -> None:
    answer = http.post("/registry/files", json={"path": str(served.directory / "a.py")})
    assert str(served.directory) not in answer.text


def tries() -> list[Any]:
    """Every operation with right requests, and with wrong ones: of a path alone nothing can be wrong, only unknown."""
    return [
        pytest.param(operation, mode, id=f"{operation.label} {mode.value}")
        for operation in operations_of(schemathesis.openapi.from_dict(description()))
        for mode in MODES
        if mode is GenerationMode.POSITIVE or operation.body or operation.query
    ]


@pytest.mark.parametrize(("operation", "mode"), tries())
def test_whatever_is_sent_to_a_route_is_answered_as_described(
    served: ServedProject, operation: Any, mode: GenerationMode
) -> None:
    try_operation(operation, mode, base_url=served.server.url)
