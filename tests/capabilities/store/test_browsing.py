"""Browsing the store over HTTP: projects, pages of listings, versions, deleted files, the state of the index, bytes."""

from __future__ import annotations

import secrets
from collections.abc import AsyncGenerator, Iterator
from typing import Any

import anyio
import httpx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from armarium.capabilities.store.database.pool import connect
from armarium.capabilities.store.database.transactions import StoreDatabase
from armarium.capabilities.store.files.listings import list_entries
from armarium.capabilities.store.model import Scope
from armarium.capabilities.store.tools import TOOLS
from support.client import connected
from support.server import ServerProcess
from support.store_calls import Files
from support.store_server import StoreUser, start_store
from support.waiting import eventually

RAW = "/api/raw"
OTHER = StoreUser("ben")


@pytest.fixture(scope="module")
def served(store_dsn: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[ServerProcess, StoreUser]]:
    user, directory = StoreUser("ann"), tmp_path_factory.mktemp("served")
    quota = {"max_project_bytes": 1000, "list_limit_max": 500}
    with start_store(directory, {"dsn": store_dsn, **quota}, [user, OTHER]) as server:
        yield server, user


@pytest.fixture
async def http(served: tuple[ServerProcess, StoreUser]) -> AsyncGenerator[httpx.AsyncClient]:
    server, user = served
    headers = {"authorization": f"Bearer {user.key}"}
    async with httpx.AsyncClient(base_url=server.url, headers=headers, timeout=60) as client:
        yield client


async def put(http: httpx.AsyncClient, project: str, path: str, content: str) -> int:
    answer = await http.put(f"/api/store/{project}/file", params={"path": path}, json={"content": content})
    assert answer.status_code == 200, answer.text
    return answer.json()["version"]


async def get(http: httpx.AsyncClient, route: str, **params: Any) -> dict[str, Any]:
    answer = await http.get(f"/api/store{route}", params=params)
    assert answer.status_code == 200, answer.text
    return answer.json()


def extents(page: dict[str, Any]) -> list[tuple[str, int, int]]:
    return [(each["project"], each["files"], each["bytes"]) for each in page["projects"]]


async def test_projects_are_listed_with_their_extent_page_by_page(http: httpx.AsyncClient) -> None:
    for name in ("b1", "b2", "b3"):
        await put(http, name, "/a.md", "tea")
        await put(http, name, "/b.md", "milk")
    await put(http, "b2", "/a.md", "green tea")
    await http.delete("/api/store/b3/file", params={"path": "/a.md"})
    await http.delete("/api/store/b3/file", params={"path": "/b.md"})
    first = await get(http, "", limit=2, cursor="b0")
    assert [(each["project"], each["files"], each["bytes"]) for each in first["projects"]] == [
        ("b1", 2, 7),
        ("b2", 2, 13),
    ]
    assert first["projects"][1]["kept_bytes"] == 3
    assert {each["quota_bytes"] for each in first["projects"]} == {1000}
    assert first["projects"][0]["updated_at"] < first["projects"][1]["updated_at"]
    last = await get(http, "", cursor=first["next_cursor"], limit=1)
    assert extents(last) == [("b3", 0, 0)]
    server_key = {"authorization": f"Bearer {OTHER.key}"}
    assert (await http.get("/api/store", headers=server_key)).json() == {"projects": []}


async def test_a_new_file_waits_for_the_index_and_then_it_does_not(http: httpx.AsyncClient) -> None:
    await put(http, "indexed", "/a.md", "the harbour")
    seen: list[tuple[bool, bool]] = []

    async def is_indexed() -> bool:
        stat = await get(http, "/indexed/stat", path="/a.md")
        seen.append((stat["indexed"], stat["pending"]))
        return seen[-1] == (True, False)

    await eventually(is_indexed, what="the index")
    projects = (await get(http, "", cursor="indexec"))["projects"]
    assert (projects[0]["project"], projects[0]["pending"]) == ("indexed", 0)
    folder = await get(http, "/indexed/stat", path="")
    assert (folder["type"], "indexed" in folder) == ("DIRECTORY", False)


async def test_any_version_is_read_without_restoring_it(http: httpx.AsyncClient) -> None:
    old, new = await put(http, "v", "/a.md", "früher"), await put(http, "v", "/a.md", "later")
    at = {"path": "/a.md"}
    assert (await get(http, "/v/file", **at))["version"] == new
    read = await get(http, "/v/file", **at, version=old)
    assert (read["content"], read["version"], read["size"], read["end"]) == ("früher", old, 7, 7)
    part = await get(http, "/v/file", **at, version=old, offset=1, length=2)
    assert (part["content"], part["offset"], part["end"]) == ("r", 1, 2)
    assert (await get(http, "/v/file", **at, version=new))["content"] == "later"
    for version, status in ((99, 404), (0, 400), (2**70, 404)):
        answer = await http.get("/api/store/v/file", params=at | {"version": str(version)})
        assert answer.status_code == status, version
    assert (await get(http, "/v/file", **at))["content"] == "later"


async def test_deleted_files_are_found_and_restored(http: httpx.AsyncClient) -> None:
    for path in ("/d/a.md", "/d/b.md", "/d/c.md", "/e.md"):
        await put(http, "del", path, "first")
        await put(http, "del", path, "last")
    await http.delete("/api/store/del/file", params={"path": "/d", "recursive": "true"})
    await put(http, "del", "/d/b.md", "again")
    found = await get(http, "/del/deleted")
    assert [(each["path"], each["size"]) for each in found["files"]] == [("/d/a.md", 4), ("/d/c.md", 4)]
    page = await get(http, "/del/deleted", limit=1, path="/d")
    rest = await get(http, "/del/deleted", limit=1, path="/d", cursor=page["next_cursor"])
    assert [page["files"], rest["files"]] == [found["files"][:1], found["files"][1:]]
    assert "next_cursor" not in rest
    chosen = {"path": "/d/a.md", "version": found["files"][0]["version"]}
    assert (await http.post("/api/store/del/restore", json=chosen)).status_code == 200
    assert (await get(http, "/del/file", path="/d/a.md"))["content"] == "last"
    assert [each["path"] for each in (await get(http, "/del/deleted"))["files"]] == ["/d/c.md"]


async def test_a_path_that_was_deleted_often_is_listed_once(http: httpx.AsyncClient) -> None:
    for content in ("one", "three", "fourteen"):
        await put(http, "often", "/a.md", content)
        await http.delete("/api/store/often/file", params={"path": "/a.md"})
    [found] = (await get(http, "/often/deleted"))["files"]
    assert (found["path"], found["size"]) == ("/a.md", 8)
    short = await get(http, "/often/deleted", limit=1)
    assert [each["size"] for each in short["files"]] == [8]
    assert (await get(http, "/often/deleted", cursor=short["next_cursor"]))["files"] == []


async def test_more_entries_than_the_limit_come_by_cursor(
    http: httpx.AsyncClient, served: tuple[ServerProcess, StoreUser]
) -> None:
    for number in range(30):
        await put(http, "many", f"/{number:03d}.md", "")
    listed, cursor = list[str](), ""
    while True:
        page = await get(http, "/many/files", limit=7, **({"cursor": cursor} if cursor else {}))
        listed += [entry["path"] for entry in page["entries"]]
        assert page["has_more"] is ("next_cursor" in page)
        if (cursor := page.get("next_cursor", "")) == "":
            break
    assert listed == [f"/{number:03d}.md" for number in range(30)]


NAMES = st.text(st.sampled_from("a-.b"), min_size=1, max_size=4).filter(lambda name: name not in (".", ".."))
PATHS = st.lists(NAMES, min_size=1, max_size=3).map(lambda names: "/" + "/".join(names))


@given(paths=st.sets(PATHS, min_size=1, max_size=12), depth=st.integers(1, 3), limit=st.integers(1, 4))
@settings(max_examples=60)
def test_pages_are_the_listing_whatever_the_names(store_dsn: str, paths: set[str], depth: int, limit: int) -> None:
    """`-` and `.` sort before the slash, so a directory can be far from its files."""
    anyio.run(pages_are_the_listing, store_dsn, paths, depth, limit)


async def pages_are_the_listing(dsn: str, paths: set[str], depth: int, limit: int) -> None:
    database = StoreDatabase(await connect(dsn, size=1), lock_timeout_ms=5000, on_lock_wait=lambda seconds: None)
    try:
        tenant = secrets.token_hex(32)
        files = Files(database, tenant)
        for path in paths:
            await files.result("write", path=path, content="x", mode="TRUNCATE")  # some lie below others
        scope = Scope(tenant, "p")
        whole = await list_entries(database, scope, "", depth, 1000, limit_max=1000)
        pages, behind, more = list[str](), "", True
        while more:
            page = await list_entries(database, scope, "", depth, limit, limit_max=1000, behind=behind)
            pages += [entry["path"] for entry in page["entries"]]
            more = page["has_more"]
            behind = pages[-1]
        assert pages == [entry["path"] for entry in whole["entries"]]
    finally:
        await database.pool.aclose()


async def test_bytes_of_any_version_with_ranges(http: httpx.AsyncClient) -> None:
    old, new = await put(http, "raw", "/n/a.md", "0123456789"), await put(http, "raw", "/n/a.md", "later")
    ref = {"ref": "store://raw/n/a.md"}
    whole = await http.get(RAW, params=ref)
    assert (whole.text, whole.headers["etag"], whole.headers["content-type"]) == (
        "later",
        f'"v{new}"',
        "text/plain; charset=utf-8",
    )
    part = await http.get(RAW, params=ref | {"version": str(old)}, headers={"range": "bytes=-4"})
    assert (part.status_code, part.text, part.headers["content-range"]) == (206, "6789", "bytes 6-9/10")
    known = await http.get(RAW, params=ref, headers={"if-none-match": f'"v{new}"'})
    assert known.status_code == 304
    beyond = await http.get(RAW, params=ref, headers={"range": "bytes=5-"})
    assert (beyond.status_code, beyond.json()["code"]) == (416, "RANGE_NOT_SATISFIABLE")


@pytest.mark.parametrize(
    ("ref", "status", "code"),
    [
        ("store://raw/none.md", 404, "NOT_FOUND"),
        ("store://raw/../x", 400, "INVALID_PATH"),
        ("store://raw/a%00b", 400, "INVALID_PATH"),
        ("store://a%2Fb/x", 400, "INVALID_PATH"),
        ("store://raw/n%E9.md", 400, "INVALID_PATH"),
    ],
)
async def test_a_hostile_reference_reaches_nothing(http: httpx.AsyncClient, ref: str, status: int, code: str) -> None:
    answer = await http.get(RAW, params={"ref": ref})
    assert (answer.status_code, answer.json()["code"]) == (status, code)


async def test_nobody_gets_the_bytes_of_another_tenant_and_nobody_uploads(http: httpx.AsyncClient) -> None:
    await put(http, "own", "/a.md", "mine")
    ref = {"ref": "store://own/a.md"}
    assert (await http.get(RAW, params=ref, headers={"authorization": f"Bearer {OTHER.key}"})).status_code == 404
    refused = await http.put(RAW, params=ref, content=b"x")
    assert (refused.status_code, refused.headers["allow"]) == (405, "GET, HEAD")


async def test_the_tools_of_routes_are_described_and_not_offered_over_mcp(http: httpx.AsyncClient) -> None:
    document = (await http.get("/api/openapi.json")).json()
    described = {operation["operationId"] for path in document["paths"].values() for operation in path.values()}
    own = {"file_projects", "file_deleted", "file_read_version", "file_list_page", "file_stat_indexed"}
    assert own <= described
    async with connected(str(http.base_url), key=http.headers["authorization"].removeprefix("Bearer ")) as client:
        offered = {tool.name for tool in (await client.mcp.list_tools()).tools}
    assert offered >= {tool.spec.name for tool in TOOLS}
    assert not offered & (own | {"file_send"})


async def test_a_stored_file_is_described_by_its_reference(http: httpx.AsyncClient) -> None:
    version = await put(http, "described", "/n/a.md", "tea")
    answer = (await http.get("/api/files", params={"ref": "store://described/n/a.md"})).json()
    stored = answer["known"]["store"]
    assert (answer["name"], stored["path"], stored["version"], stored["size"]) == ("a.md", "/n/a.md", version, 3)
    gone = (await http.get("/api/files", params={"ref": "store://described/none"})).json()
    assert gone["known"] == {}
    hostile = await http.get("/api/files", params={"ref": "store://described/../x"})
    assert (hostile.status_code, hostile.json()["error"]["code"]) == (400, "INVALID_PATH")
