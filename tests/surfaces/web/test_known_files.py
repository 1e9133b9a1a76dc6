"""`GET /api/files` over HTTP: what sandbox, corpus and registry know about one file, for whoever may know it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from support.files_server import ServedFiles, code_of, served_files
from support.waiting import eventually

FILES = "/api/files"


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedFiles]:
    """One directory as a root, as the corpus and as the project; a root inside of it; and one of staff elsewhere."""
    base = tmp_path_factory.mktemp("served")
    inner = base / "work" / "inner"
    inner.mkdir(parents=True)
    (base / "work" / "a.md").write_text("# Harbour\n\nShips leave at high tide.\n")
    (inner / "b.md").write_text("# Pier\n\nBoats stay.\n")
    (base / "work" / ".env").write_text("TOKEN=1\n")
    more = [
        {"name": "staffed", "allowed_tools": ["*"], "groups": ["staff"]},
        {"name": "inner", "allowed_tools": ["*"], "path": str(inner)},
        {"name": "listed", "allowed_tools": ["list_folder"]},
    ]
    directory = str(base / "work")
    corpus = {"root": directory, "state_dir": str(base / "corpus-state")}
    with served_files(base, more, corpus=corpus, registry={"project": directory, "groups": ["staff"]}) as files:
        (files.root("staffed") / "c.md").write_text("for staff\n")
        yield files


@pytest.fixture
def api(served: ServedFiles) -> Iterator[httpx.Client]:
    with served.http() as http:
        yield http


def described(http: httpx.Client, ref: str) -> dict[str, Any]:
    answer = http.get(FILES, params={"ref": ref})
    assert answer.status_code == 200, answer.text
    return answer.json()


async def indexed(http: httpx.Client, ref: str) -> dict[str, Any]:
    """What is known once the corpus has the file."""

    async def is_there() -> bool:
        return "corpus" in described(http, ref)["known"]

    await eventually(is_there, what="the document of the corpus")
    return described(http, ref)


async def test_one_file_is_known_by_every_capability(served: ServedFiles, api: httpx.Client) -> None:
    found = await indexed(api, "root://work/a.md")
    assert (found["ref"], found["name"]) == ("root://work/a.md", "a.md")
    [path] = found["known"]["sandbox"]["paths"]
    assert (path["root"], path["path"], path["type"], path["ref"]) == ("work", "a.md", "file", "root://work/a.md")
    document = found["known"]["corpus"]
    assert (document["rel_path"], document["ref"], document["doc_type"]) == ("a.md", "corpus://work/a.md", "md")
    assert "registry" not in found["known"]

    entry = {"path": "a.md", "rule_id": "R1", "message": "wrong", "severity": "high"}
    reported = api.post("/api/registry/scan-results", json={"scan_source": "test", "findings": [entry]})
    assert reported.is_success, reported.text
    registered = described(api, "root://work/a.md")["known"]["registry"]
    findings = registered["findings"]
    assert (registered["path"], findings["open_findings"], findings["high"]) == ("a.md", 1, 1)
    assert api.get(f"/api/registry/files/{registered['id']}").is_success
    assert described(api, "corpus://work/a.md")["known"] == described(api, "root://work/a.md")["known"]
    assert str(served.base) not in str(described(api, "root://work/a.md"))


def test_a_file_in_nested_roots_has_a_path_in_each(api: httpx.Client) -> None:
    paths = described(api, "root://inner/b.md")["known"]["sandbox"]["paths"]
    assert [(each["root"], each["path"]) for each in paths] == [("work", "inner/b.md"), ("inner", "b.md")]


def test_who_may_not_use_a_capability_or_a_root_learns_nothing_of_it(served: ServedFiles, api: httpx.Client) -> None:
    assert described(api, "root://staffed/c.md")["known"].keys() == {"sandbox"}
    with served.http("ben") as ben:
        hidden, absent = (ben.get(FILES, params={"ref": f"root://{name}/c.md"}) for name in ("staffed", "absent1"))
        assert (hidden.status_code, hidden.text.replace("staffed", "absent1")) == (404, absent.text)
        assert "registry" not in described(ben, "root://work/a.md")["known"]


@pytest.mark.parametrize(
    "ref", ["root://work/never.md", "corpus://work/never.md", "corpus://other/a.md", "corpus://work/../outside.txt"]
)
def test_nothing_is_known_of_a_file_that_was_never_there(api: httpx.Client, ref: str) -> None:
    assert described(api, ref) == {"ref": ref, "name": ref.rpartition("/")[2], "known": {}}


def test_a_name_that_is_not_utf8_is_described(served: ServedFiles, api: httpx.Client) -> None:
    with open(os.fsencode(served.root()) + b"/caf\xe9.md", "w") as file:
        file.write("tea")
    [path] = described(api, "root://work/caf%E9.md")["known"]["sandbox"]["paths"]
    assert (path["path"], path["ref"]) == (r"caf\xe9.md", "root://work/caf%E9.md")


@pytest.mark.parametrize(
    ("ref", "status", "code"),
    [
        ("root://work/../../etc/passwd", 403, "PATH_ESCAPES_ROOT"),
        ("root://listed/a.md", 403, "TOOL_NOT_ALLOWED"),
        ("root://none/a.md", 404, "UNKNOWN_ROOT"),
        ("registry://work/a.md", 400, "INVALID_ARGUMENT"),
        ("/etc/passwd", 400, "INVALID_ARGUMENT"),
    ],
)
def test_a_hostile_reference_tells_nothing(
    served: ServedFiles, api: httpx.Client, ref: str, status: int, code: str
) -> None:
    answer = api.get(FILES, params={"ref": ref})
    assert (answer.status_code, code_of(answer)) == (status, code)
    assert str(served.base) not in answer.text
