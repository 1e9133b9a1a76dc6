"""The registry's JSON API, through a running server: a route for each tool, and the import of scanners' reports."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Generator
from typing import Any

import httpx
import pytest
import schemathesis
from openapi_spec_validator import OpenAPIV31SpecValidator
from schemathesis import GenerationMode

from armarium.capabilities.registry.manifest import MANIFEST
from armarium.surfaces.web.openapi import openapi_document
from support.registry_calls import ServedProject
from support.scanner_reports import bandit_report, faulty_project, ruff_report, sarif_result, sarif_run
from support.tried_routes import MODES, operations_of, try_operation

ISSUE = {"title": "Relight the lamp", "labels": ["night"]}


@pytest.fixture(scope="module")
def http(served: ServedProject) -> Generator[httpx.Client]:
    with httpx.Client(base_url=f"{served.server.url}/api", timeout=30) as client:
        yield client


def description() -> dict[str, Any]:
    """The registry's API without one behind it. The server under test wants no key."""
    document = openapi_document([("registry", route) for route in MANIFEST.declared_routes()])
    del document["security"], document["components"]["securitySchemes"]
    return document


def body_of(answer: httpx.Response, status: int = 200) -> Any:
    assert answer.status_code == status, answer.text
    return answer.json()


def registered(http: httpx.Client, path: str) -> dict[str, Any]:
    return body_of(http.post("/registry/files", json={"path": path}))


def test_the_description_is_valid_openapi(http: httpx.Client) -> None:
    document = body_of(http.get("/openapi.json"))
    OpenAPIV31SpecValidator(document).validate()
    assert "/api/registry/scan-results" in document["paths"]


def test_a_file_is_registered_found_and_told_about(http: httpx.Client) -> None:
    file = registered(http, "./lamp/../lamp/oil.py")
    assert (file["path"], file["language"]) == ("lamp/oil.py", "python")
    listed = body_of(http.get("/registry/files", params={"path_prefix": "lamp/", "limit": 1, "sort": "path"}))
    assert [each["id"] for each in listed["results"]] == [file["id"]]
    assert (listed["total"], listed["limit"], listed["has_more"]) == (1, 1, False)
    assert body_of(http.get(f"/registry/files/{file['id']}"))["file"]["path"] == "lamp/oil.py"
    assert body_of(http.get(f"/registry/files/{file['id']}/timeline"))["total"] == 0


def test_an_issue_goes_from_its_making_to_its_end(http: httpx.Client) -> None:
    file = registered(http, "issues/wick.py")
    issue = body_of(http.post("/registry/issues", json=ISSUE), 201)
    link = {"issue_id": issue["id"], "assoc_type": "task_for"}
    for _ in range(2):
        assert body_of(http.post(f"/registry/files/{file['id']}/associations", json=link)) == {"status": "created"}
    files = body_of(http.get(f"/registry/issues/{issue['id']}/files"))["result"]
    assert [each["file_path"] for each in files] == ["issues/wick.py"]
    assert body_of(http.patch(f"/registry/issues/{issue['id']}", json={"status": "closed"}))["status"] == "closed"
    assert body_of(http.get(f"/registry/issues/{issue['id']}"))["closed_at"]
    assert issue["id"] in {each["id"] for each in body_of(http.get("/registry/issues"))["results"]}


def test_reports_are_taken_in_as_scanners_write_them(served: ServedProject, http: httpx.Client) -> None:
    project = faulty_project(served.directory / "scanned")
    headers = {"content-type": "application/json"}
    for report in (ruff_report(project), bandit_report(project)):
        query = {"paths": "scanned"}
        (scan,) = body_of(http.post("/registry/scan-results", params=query, content=report, headers=headers))["scans"]
        assert scan["findings_created"] + sum(each["count"] for each in scan["skipped"]) > 0


def test_reports_of_other_machines_are_mapped_and_counted_or_refused(http: httpx.Client) -> None:
    report = {"version": "2.1.0", "runs": [sarif_run(sarif_result("/ci/mapped/a.py", level="error"), tool="Far")]}
    error = body_of(http.post("/registry/scan-results", params={"paths": "."}, json=report), 422)
    assert error["code"] == "all_results_skipped"
    query = {"paths": "far", "map": ["/ci=far", "/other=x"], "category": "nightly"}
    (scan,) = body_of(http.post("/registry/scan-results", params=query, json=report))["scans"]
    assert (scan["findings_created"], scan["category"], scan["new_by_severity"]["high"]) == (1, "nightly", 1)
    (finding,) = body_of(http.get("/registry/findings", params={"scan_source": "far"}))["results"]
    assert finding["file_path"] == "far/mapped/a.py"
    assert (
        body_of(http.post("/registry/scan-results", params={"map": "x"}, json=report), 400)["code"]
        == "validation_error"
    )


def test_a_finding_is_judged_and_becomes_an_issue(http: httpx.Client) -> None:
    report = {
        "scan_source": "keeper",
        "findings": [{"path": "judged/a.py", "rule_id": "R1", "message": "too dark", "severity": "high"}],
    }
    (scan,) = body_of(http.post("/registry/scan-results", json=report))["scans"]
    assert scan["findings_created"] == 1
    (finding,) = body_of(http.get("/registry/findings", params={"scan_source": "keeper"}))["results"]
    promoted = body_of(http.post(f"/registry/findings/{finding['id']}/issue", json={}))
    assert promoted["created"]
    assert not body_of(http.post(f"/registry/findings/{finding['id']}/issue"))["created"]
    judged = body_of(http.patch(f"/registry/findings/{finding['id']}", json={"status": "false_positive"}))
    assert judged["status"] == "false_positive"


def test_findings_are_searched_counted_judged_together_and_restored(http: httpx.Client) -> None:
    places = [{"path": f"many/{name}.py", "rule_id": "M1", "message": "dim", "severity": "low"} for name in "abc"]
    body_of(http.post("/registry/scan-results", json={"scan_source": "many", "findings": places}))
    query = {"path_prefix": "many/", "severity": ["low", "high"], "sort": "path", "limit": 2}
    page = body_of(http.get("/registry/findings/search", params=query))
    assert [each["file_path"] for each in page["results"]] == ["many/a.py", "many/b.py"]
    rest = body_of(http.get("/registry/findings/search", params=query | {"cursor": page["next"]}))
    assert ([each["file_path"] for each in rest["results"]], rest["next"]) == (["many/c.py"], None)
    wanted = {"path_prefix": "many/", "status": ["open"]}
    assert body_of(http.get("/registry/summary", params=wanted))["total"] == 3
    asked = {"filter": wanted, "expected": 3, "status": "false_positive", "reason": "dim is fine"}
    judged = body_of(http.post("/registry/findings/judge", json=asked))
    assert judged["changed"] == 3
    assert body_of(http.post("/registry/findings/judge", json=asked), 409)["code"] == "conflict"
    detail = body_of(http.get(f"/registry/findings/{page['results'][0]['id']}"))
    assert detail["finding"]["status"] == "false_positive"
    assert detail["timeline"][0]["data"]["reason"] == "dim is fine"
    undo = {"judgement_id": judged["judgement_id"]}
    assert body_of(http.post("/registry/findings/undo", json=undo)) == {"restored": 3, "skipped": 0}
    assert body_of(http.get("/registry/summary", params=wanted))["total"] == 3
    for wrong in ({}, {"filter": {}}, {"filter": {}, "expected": 1, "finding_ids": []}):
        error = body_of(http.post("/registry/findings/judge", json=wrong | {"status": "open"}), 400)
        assert error["code"] == "validation_error"


def test_a_caller_learns_their_roles(http: httpx.Client) -> None:
    assert body_of(http.get("/registry/roles")) == {"roles": ["read", "report", "judge", "administer"]}


def test_a_path_is_looked_up_and_stays_unknown(http: httpx.Client) -> None:
    for _ in range(2):
        found = body_of(http.get("/registry/file", params={"path": "lookup/new.py"}))
        assert (found["path"], found["id"]) == ("lookup/new.py", None)
    assert body_of(http.get("/registry/file", params={"path": "/etc/passwd"}), 400)["code"] == "invalid_path"


def test_links_are_removed_and_issues_searched_and_commented(http: httpx.Client) -> None:
    file = registered(http, "links/wick.py")
    issue = body_of(http.post("/registry/issues", json={"title": "Trim the wick"}), 201)
    link = {"issue_id": issue["id"], "assoc_type": "task_for"}
    body_of(http.post(f"/registry/files/{file['id']}/associations", json=link))
    [linked] = body_of(http.get(f"/registry/issues/{issue['id']}/files"))["result"]
    address = f"/registry/files/{file['id']}/associations/{linked['id']}"
    assert body_of(http.delete(address)) == {"status": "removed"}
    assert body_of(http.delete(address), 404)["code"] == "not_found"
    comment = body_of(http.post(f"/registry/issues/{issue['id']}/comments", json={"text": "done"}), 201)
    assert comment["data"] == {"text": "done"}
    assert body_of(http.get(f"/registry/issues/{issue['id']}/timeline"))["results"][0] == comment
    found = body_of(http.get("/registry/issues/search", params={"text": "trim", "status": "open"}))
    assert [each["id"] for each in found["results"]] == [issue["id"]]


@pytest.mark.parametrize("compress", [bytes, gzip.compress])
def test_the_file_of_a_report_is_imported_as_the_command_does(
    http: httpx.Client, compress: Callable[[bytes], bytes]
) -> None:
    name = f"upload-{compress.__name__}"
    report = {"version": "2.1.0", "runs": [sarif_run(sarif_result(f"/ci/{name}/a.py", level="error"), tool=name)]}
    query = {"map": "/ci=.", "category": "nightly", "paths": name}
    headers = {"content-type": "application/sarif+json"}
    content = compress(json.dumps(report).encode())
    (scan,) = body_of(http.post("/registry/import", params=query, content=content, headers=headers))["scans"]
    assert (scan["findings_created"], scan["category"]) == (1, "nightly")
    report["runs"] = [sarif_run(tool=name)]
    content = compress(json.dumps(report).encode())
    (scan,) = body_of(http.post("/registry/import", params=query, content=content, headers=headers))["scans"]
    assert scan["findings_closed"] == 1


@pytest.mark.parametrize("content", [b"", b"<xml>", b"\x1f\x8bnothing", b"{}", b"[1]"])
def test_a_file_that_is_no_report_changes_nothing(http: httpx.Client, content: bytes) -> None:
    assert body_of(http.post("/registry/import", content=content), 400)["code"] == "validation_error"


def test_a_report_that_grows_when_it_is_decompressed_is_refused(http: httpx.Client) -> None:
    content = gzip.compress(b" " * (65 * 1024 * 1024))
    assert "64 MiB" in body_of(http.post("/registry/import", content=content), 400)["error"]


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
    error = body_of(http.request(method, path, **asked), status)
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
