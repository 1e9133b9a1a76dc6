"""The JSON API of the corpus, over real HTTP against the whole server."""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import httpx
import pytest
from openapi_spec_validator import OpenAPIV31SpecValidator

from support.api_server import ApiServer, api_server, events_of, until_indexed
from support.corpus_calls import write_lighthouse
from support.waiting import eventually

Json = dict[str, Any]
SECRET = "aws_secret_access_key = wJalrXUtnFEMI/K7MDENG/bPxRfiCYzzzzzzKEY1\n"


def write_files(root: Path) -> None:
    """Files to find, and files that cannot be indexed."""
    write_lighthouse(root)
    for number in range(3):
        (root / f"broken-{number}.pdf").write_bytes(b"%PDF-1.4 and then nothing")
    (root / "credentials.txt").write_text(SECRET)
    (root / "photo.png").write_bytes(b"\x89PNG\r\n\x1a\n" + bytes(100))


@pytest.fixture
async def served(tmp_path: Path) -> AsyncGenerator[ApiServer]:
    """A server with a corpus that members of `users` may use, and `admin` index again."""
    root = tmp_path / "lighthouse"
    write_files(root)
    corpus = {"root": str(root), "groups": ["users"], "access": {"administer": ["admin"]}}
    async with api_server(tmp_path, corpus=corpus) as server:
        yield server


@pytest.fixture
async def http(served: ApiServer) -> AsyncGenerator[httpx.AsyncClient]:
    """An administrator."""
    async with served.client() as client:
        await until_indexed(client)
        yield client


def body_of(answer: httpx.Response, status: int = 200) -> Any:
    assert answer.status_code == status, answer.text
    return answer.json()


def code_of(answer: httpx.Response, status: int) -> str:
    return body_of(answer, status)["error"]["code"]


async def test_a_hit_can_be_opened_and_is_listed(http: httpx.AsyncClient) -> None:
    found = body_of(await http.get("/corpus/search", params={"query": "horn in fog", "k": 3, "doc_types": ["md"]}))
    hit = found["hits"][0]
    assert (hit["rel_path"], found["k"]) == ("handbook.md", 3)
    opened = body_of(await http.get("/corpus/file", params={"rel_path": hit["rel_path"], "chunk_id": hit["chunk_id"]}))
    assert "every two minutes" in opened["content"]
    listed = body_of(await http.get("/corpus/files", params={"glob": "*.py"}))
    assert [file["rel_path"] for file in listed["files"]] == ["lamp.py"]


REFUSED: list[tuple[str, Json, int, str]] = [
    ("/corpus/search", {}, 400, "MISSING_FIELD"),
    ("/corpus/search", {"query": "x", "k": 51}, 400, "INVALID_RANGE"),
    ("/corpus/file", {"rel_path": "absent.md"}, 404, "FILE_NOT_FOUND"),
    ("/corpus/file", {"rel_path": "../outside"}, 403, "PATH_OUTSIDE_ROOT"),
    ("/corpus/file", {"rel_path": "credentials.txt"}, 403, "FORBIDDEN"),
    ("/corpus/file", {"rel_path": "photo.png"}, 422, "DOC_TYPE_UNSUPPORTED"),
    ("/corpus/file", {"rel_path": "handbook.md", "start_line": 5, "end_line": 2}, 400, "INVALID_RANGE"),
    ("/corpus/troubles", {"limit": 0}, 400, "INVALID_RANGE"),
    ("/corpus/troubles", {"cursor": "nowhere:a"}, 400, "INVALID_FIELD"),
    ("/corpus/troubles", {"cursor": "skipped:a", "state": "failed"}, 400, "INVALID_FIELD"),
]


async def test_errors_have_a_code_and_a_status(http: httpx.AsyncClient) -> None:
    for path, query, status, code in REFUSED:
        assert code_of(await http.get(path, params=query), status) == code, (path, query)


async def test_the_status_tells_lexical_search_and_vectors_apart_and_names_no_host_path(
    http: httpx.AsyncClient, tmp_path: Path
) -> None:
    answer = await http.get("/corpus/stats")
    status = body_of(answer)
    indexing = status["indexing"]
    assert (status["name"], status["indexing_complete"], status["generates_answers"]) == ("lighthouse", True, False)
    assert indexing["running"] is False
    assert indexing["lexical"]["done"] == indexing["lexical"]["total"] == 8
    assert indexing["vectors"]["done"] == indexing["vectors"]["total"] > 0
    assert indexing["errors"] == 3
    assert str(tmp_path) not in answer.text


async def test_troubles_come_page_by_page_failed_files_first(http: httpx.AsyncClient) -> None:
    seen: list[tuple[str, str]] = []
    query: Json = {"limit": 2}
    while True:
        page = body_of(await http.get("/corpus/troubles", params=query))
        assert page["counts"] == {"failed": 3, "skipped": 2}
        assert len(page["files"]) <= 2
        seen += [(file["state"], file["rel_path"]) for file in page["files"]]
        if "next" not in page:
            break
        query["cursor"] = page["next"]
    assert seen == [
        *(("failed", f"broken-{number}.pdf") for number in range(3)),
        ("skipped", "credentials.txt"),
        ("skipped", "photo.png"),
    ]


async def test_a_trouble_says_what_happened_and_what_to_do(http: httpx.AsyncClient) -> None:
    failed = body_of(await http.get("/corpus/troubles", params={"state": "failed", "limit": 1}))
    (file,) = failed["files"]
    assert (file["code"], file["message"]) == ("EXTRACT_FAILED", "the PDF is damaged")
    assert "index it again" in file["hint"]
    skipped = body_of(await http.get("/corpus/troubles", params={"state": "skipped"}))["files"]
    assert [file["code"] for file in skipped] == ["FORBIDDEN", "DOC_TYPE_UNSUPPORTED"]
    assert "wJalr" not in str(skipped)


@pytest.mark.parametrize("body", [{"path": "notes.txt"}, {"path": "deep"}, {}])
async def test_a_file_is_indexed_again_on_request(tmp_path: Path, body: Json) -> None:
    """Its size and its time are those it had, so that only the request makes the server look at its content."""
    root = tmp_path / "lighthouse"
    write_lighthouse(root)
    (root / "deep").mkdir()
    files = [root / "notes.txt", root / "deep/notes.txt"]
    files[0].write_text("The harbour master wants a list of all ships by Friday.\n")
    files[1].write_text("Nobody at the harbour knows when the boat with the oil comes.\n")
    corpus = {"root": str(root), "ingest": {"watch": False}}
    async with api_server(tmp_path, corpus=corpus) as served, served.client() as http:
        await until_indexed(http)
        for file in files:
            before = file.stat()
            file.write_text(file.read_text().replace("harbour", "hangars"))
            os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
        assert body_of(await http.post("/corpus/reindex", json=body), 202) == {"status": "queued", **body}
        expected = {each for each in ("notes.txt", "deep/notes.txt") if each.startswith(body.get("path", ""))}

        async def found() -> bool:
            hits = body_of(await http.get("/corpus/search", params={"query": "hangars"}))["hits"]
            return {hit["rel_path"] for hit in hits if "hangars" in hit["snippet"]} == expected

        await eventually(found, what="the new content is found")
        await eventually(lambda: served.calls("corpus_reindex"), what="the call is recorded")
        (record,) = served.calls("corpus_reindex")
        assert (record.outcome, record.path) == ("success", body.get("path"))


async def test_only_what_is_or_may_be_in_the_corpus_is_indexed_again(http: httpx.AsyncClient) -> None:
    assert code_of(await http.post("/corpus/reindex", json={"path": "absent"}), 404) == "FILE_NOT_FOUND"
    assert code_of(await http.post("/corpus/reindex", json={"path": ".env"}), 403) == "FORBIDDEN"
    assert code_of(await http.post("/corpus/reindex", json={"path": "/etc/passwd"}), 403) == "PATH_OUTSIDE_ROOT"


async def test_who_may_not_use_the_corpus_or_index_it_again_is_refused(
    http: httpx.AsyncClient, served: ApiServer
) -> None:
    async with served.client("ben") as ben, served.client("guest") as guest:
        assert (await ben.get("/corpus/troubles")).status_code == 200
        assert code_of(await ben.post("/corpus/reindex", json={}), 403) == "GROUP_REQUIRED"
        for path in ("/corpus/stats", "/corpus/troubles", "/corpus/files"):
            assert code_of(await guest.get(path), 403) == "GROUP_REQUIRED"


async def test_events_tell_of_progress_failures_and_changes_to_those_who_may_read(
    http: httpx.AsyncClient, served: ApiServer, tmp_path: Path
) -> None:
    wanted = {"index_progress", "file_failed", "file_changed"}
    seen: dict[str, Json] = {}
    async with served.client("ben") as ben, ben.stream("GET", "/events") as stream:
        lines = stream.aiter_lines()
        assert await anext(lines) == ": keep-alive"
        files = tmp_path / "lighthouse"
        (files / "new.txt").write_text("A gull sat on the rail.\n")
        (files / "new.pdf").write_bytes(b"%PDF-1.4 and nothing")
        async for name, data in events_of(lines):
            if name == "file_changed" and not any(each["rel_path"] == "new.txt" for each in data["files"]):
                continue
            seen.setdefault(name, data)
            if wanted <= set(seen):
                break
    assert seen["file_failed"]["files"] == [
        {
            "rel_path": "new.pdf",
            "code": "EXTRACT_FAILED",
            "message": "the PDF is damaged",
            "hint": "repair the file or remove its password, then index it again",
        }
    ]
    assert {"rel_path": "new.txt", "change": "indexed"} in seen["file_changed"]["files"]
    assert set(seen["index_progress"]) >= {"job_id", "running", "phase", "lexical", "vectors"}


async def test_the_document_of_the_api_is_valid_and_has_every_route(http: httpx.AsyncClient) -> None:
    document = body_of(await http.get("/openapi.json"))
    OpenAPIV31SpecValidator(document).validate()
    for path in ("search", "ask", "file", "files", "stats", "troubles", "reindex"):
        assert f"/api/corpus/{path}" in document["paths"]
    asked = document["paths"]["/api/corpus/ask"]["post"]["responses"]["200"]["content"]
    assert set(asked) == {"application/json", "text/event-stream"}
    assert "#/definitions" not in str(document)
