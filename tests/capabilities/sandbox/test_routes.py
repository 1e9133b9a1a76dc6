"""The sandbox's JSON API: every tool has a route, over HTTP against a server process."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import schemathesis
from openapi_spec_validator import OpenAPIV31SpecValidator

from armarium.capabilities.sandbox.manifest import MANIFEST
from armarium.surfaces.web.openapi import openapi_document
from support.files_server import KEYS, ServedFiles, code_of, served_files
from support.trees import empty
from support.tried_routes import MODES, operations_of, try_operation
from support.waiting import eventually

ROOTS = [
    {"name": "guarded", "allowed_tools": ["*"], "read_only": True},
    {"name": "listed", "allowed_tools": ["list_folder"]},
    {"name": "staffed", "allowed_tools": ["*"], "groups": ["staff"]},
]
ENTRIES = 10_000


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedFiles]:
    with served_files(tmp_path_factory.mktemp("served"), ROOTS) as files:
        yield files


@pytest.fixture
def work(served: ServedFiles) -> Path:
    """The directory of the root, empty."""
    empty(served.root())
    return served.root()


@pytest.fixture
def api(served: ServedFiles, work: Path) -> Iterator[httpx.Client]:
    with served.http() as http:
        http.base_url = http.base_url.join("/api/sandbox/")
        yield http


def sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def test_every_tool_has_a_route() -> None:
    tools, routes = MANIFEST.declared_tools(), MANIFEST.declared_routes()
    assert {route.tool.name for route in routes} == {tool.name for tool in tools}
    OpenAPIV31SpecValidator(openapi_document([("sandbox", route) for route in routes])).validate()


def test_the_roots_tell_what_each_allows(served: ServedFiles, api: httpx.Client) -> None:
    roots = {root["name"]: root for root in api.get("roots").json()["roots"]}
    assert roots["guarded"]["read_only"] is True
    assert roots["listed"]["allowed_tools"] == ["list_folder"]
    assert "write_file" in roots["work"]["allowed_tools"]
    with served.http("ben") as ben:
        assert "staffed" not in ben.get("/api/sandbox/roots").text


def test_a_file_is_created_read_patched_replaced_and_removed(api: httpx.Client, work: Path) -> None:
    at = {"path": "notes/a.md"}
    made = api.post("work/file", params=at, json={"content": "one\n"})
    assert (made.status_code, made.json()["created"], made.json()["mode"]) == (201, True, "create_only")
    again = api.post("work/file", params=at, json={"content": "x"})
    assert (again.status_code, code_of(again)) == (409, "ALREADY_EXISTS")
    read = api.get("work/file", params=at).json()
    assert (read["content"], read["sha256"]) == ("one\n", sha256("one\n"))
    diff = "--- a\n+++ b\n@@ -1 +1 @@\n-one\n+two\n"
    patched = api.patch("work/file", params=at, json={"patch": diff, "if_match": read["sha256"]})
    assert (patched.status_code, patched.json()["hunks_applied"]) == (200, 1)
    for _ in range(2):
        replaced = api.put("work/file", params=at, json={"content": "three\n"})
        assert (replaced.status_code, (work / "notes/a.md").read_text()) == (200, "three\n")
    assert api.delete("work/file", params=at | {"if_match": sha256("three\n")}).status_code == 200
    assert not (work / "notes/a.md").exists()


@pytest.mark.parametrize(
    ("method", "body"),
    [("PUT", {"content": "mine"}), ("PATCH", {"patch": "--- a\n+++ b\n@@ -1 +1 @@\n-x\n+y\n"}), ("DELETE", None)],
)
def test_a_file_that_changed_meanwhile_is_not_touched(
    api: httpx.Client, work: Path, method: str, body: dict[str, Any] | None
) -> None:
    (work / "a.txt").write_text("theirs")
    params = {"path": "a.txt"} | ({"if_match": sha256("seen")} if body is None else {})
    content = None if body is None else body | {"if_match": sha256("seen")}
    refused = api.request(method, "work/file", params=params, json=content)
    assert (refused.status_code, code_of(refused)) == (409, "CONFLICT")
    assert refused.json()["error"]["details"]["current_sha256"] == sha256("theirs")
    assert (work / "a.txt").read_text() == "theirs"


def test_a_put_can_only_replace(api: httpx.Client, work: Path) -> None:
    refused = api.put("work/file", params={"path": "a.txt"}, json={"content": "x", "mode": "append"})
    assert (refused.status_code, code_of(refused)) == (400, "INVALID_ARGUMENT")
    assert os.listdir(work) == []


def test_metadata_digests_and_permissions_are_read(api: httpx.Client, work: Path) -> None:
    (work / "a.txt").write_text("text")
    (work / "a.txt").chmod(0o640)
    at = {"path": "a.txt"}
    stat = api.get("work/stat", params=at | {"include_sha256": "true"}).json()
    assert (stat["type"], stat["size"], stat["sha256"]) == ("file", 4, sha256("text"))
    digest = api.get("work/hash", params=at | {"algorithm": "md5"}).json()
    assert digest["hash"] == hashlib.md5(b"text").hexdigest()
    assert api.get("work/permissions", params=at).json()["mode"] == "0640"
    files = api.post("work/files", json={"paths": ["a.txt", "none"]}).json()["files"]
    assert (files[0]["content"], files[1]["error"]["code"]) == ("text", "NOT_FOUND")


def test_folders_are_made_searched_moved_copied_and_removed(api: httpx.Client, work: Path) -> None:
    made = api.post("work/folder", params={"path": "docs/deep"})
    assert (made.status_code, made.json()["existed"]) == (200, False)
    (work / "docs/a.md").write_text("the harbour\n")
    found = api.get("work/glob", params={"pattern": "**/*.md"}).json()["matches"]
    assert [each["path"] for each in found] == ["docs/a.md"]
    hits = api.get("work/grep", params={"pattern": "harb", "context_lines": "1"}).json()["matches"]
    assert [(each["file"], each["line_number"]) for each in hits] == [("docs/a.md", 1)]
    here = {"source_root": "work", "dest_root": "work"}
    copied = api.post("copy", json=here | {"source_path": "docs", "dest_path": "copy"})
    assert (copied.status_code, copied.json()["files_copied"]) == (200, 1)
    moved = api.post("move", json=here | {"source_path": "copy/a.md", "dest_path": "b.md"})
    assert (moved.json()["destination"], (work / "b.md").read_text()) == ("root://work/b.md", "the harbour\n")
    removed = api.delete("work/folder", params={"path": "docs"})
    assert (removed.status_code, (work / "docs").exists()) == (200, False)


def test_ten_thousand_entries_come_in_one_answer_and_page_by_page(api: httpx.Client, work: Path) -> None:
    for number in range(ENTRIES):
        (work / f"{number:05d}.txt").touch()
    whole = api.get("work/folder", params={"path": ""}).json()
    assert (whole["count"], whole["total"]) == (ENTRIES, ENTRIES)
    pages, wanted = list[str](), {"path": "", "limit": "4000"}
    while "cursor" not in wanted or wanted["cursor"]:
        page = api.get("work/folder", params=wanted).json()
        pages += [entry["name"] for entry in page["entries"]]
        wanted["cursor"] = page.get("next_cursor", "")
    assert pages == [entry["name"] for entry in whole["entries"]]


def test_a_name_that_is_not_utf8_is_a_path_like_any_other(api: httpx.Client, work: Path) -> None:
    with open(os.fsencode(work) + b"/caf\xe9.txt", "w") as file:
        file.write("tea")
    [entry] = api.get("work/folder", params={"path": "."}).json()["entries"]
    assert entry["name"] == r"caf\xe9.txt"
    assert api.get("work/file", params={"path": entry["name"]}).json()["content"] == "tea"


@pytest.mark.parametrize(
    ("method", "path", "params", "status", "code"),
    [
        ("GET", "work/file", {"path": "none"}, 404, "NOT_FOUND"),
        ("GET", "work/file", {"path": "."}, 409, "IS_A_DIRECTORY"),
        ("GET", "work/file", {"path": "../x"}, 403, "PATH_ESCAPES_ROOT"),
        ("GET", "work/file", {"path": "a\0b"}, 400, "INVALID_PATH"),
        ("GET", "work/file", {}, 400, "INVALID_ARGUMENT"),
        ("GET", "none/folder", {"path": "."}, 404, "UNKNOWN_ROOT"),
        ("GET", "listed/file", {"path": "a"}, 403, "TOOL_NOT_ALLOWED"),
        ("DELETE", "guarded/file", {"path": "a"}, 403, "READ_ONLY_ROOT"),
        ("DELETE", "work/folder", {"path": "."}, 409, "CANNOT_REMOVE_ROOT"),
        ("GET", "work/grep", {"pattern": "("}, 400, "INVALID_PATTERN"),
        ("POST", "work/folder", {"path": ".git/hooks"}, 403, "WRITE_DENIED"),
    ],
)
def test_an_error_has_the_status_of_its_kind_and_no_host_path(
    served: ServedFiles, api: httpx.Client, method: str, path: str, params: dict[str, str], status: int, code: str
) -> None:
    refused = api.request(method, path, params=params)
    assert (refused.status_code, code_of(refused)) == (status, code)
    assert str(served.base) not in refused.text


async def test_every_route_is_audited_as_its_tool(served: ServedFiles, api: httpx.Client, work: Path) -> None:
    (work / "a.txt").write_text("text")
    assert api.get("work/hash", params={"path": "a.txt", "algorithm": "sha1"}).is_success

    async def recorded() -> bool:
        found = served.calls(tool="hash_file")
        return any((call["surface"], call["root"], call["path"]) == ("api", "work", "a.txt") for call in found)

    await eventually(recorded, what="the record of the call")


DESCRIBED = openapi_document([("sandbox", route) for route in MANIFEST.declared_routes()])


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    "operation", operations_of(schemathesis.openapi.from_dict(DESCRIBED)), ids=lambda operation: operation.label
)
def test_whatever_is_sent_is_answered_as_described(
    served: ServedFiles, work: Path, operation: Any, mode: schemathesis.GenerationMode
) -> None:
    (work / "a").write_text("a\n")

    def in_a_root(case: Any) -> None:
        if "root" in (case.path_parameters or {}) and mode is schemathesis.GenerationMode.POSITIVE:
            case.path_parameters["root"] = "work"

    headers = {"authorization": f"Bearer {KEYS['ann']}"}
    try_operation(operation, mode, prepare=in_a_root, examples=10, base_url=served.process.url, headers=headers)
