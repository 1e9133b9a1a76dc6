"""The store's JSON API: every route says its tool, and errors have the status that fits them."""

from __future__ import annotations

import secrets
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.applications import Starlette

from armarium.capabilities.store import errors
from armarium.capabilities.store.database.transactions import StoreDatabase
from armarium.capabilities.store.route_tools import raw_files, routes_to, tools_for_routes
from armarium.capabilities.store.tools import TOOLS
from armarium.foundation.events import Events
from armarium.foundation.security.access import Access
from armarium.foundation.security.identity import Authenticator, Principal, key_hash
from armarium.foundation.telemetry import Metrics
from armarium.foundation.tools import bind_tools
from armarium.surfaces.dispatch import Dispatcher
from armarium.surfaces.gate import Gate
from armarium.surfaces.web.app import JsonApi
from armarium.surfaces.web.endpoint import status_of
from support.client import connected
from support.store_calls import Files, stored_chunk
from support.store_server import StoreUser, start_store

FILE, FILES = "/api/store/p/file", "/api/store/p/files"


@dataclass
class Served:
    """A caller's store, by its API and from behind."""

    http: httpx.AsyncClient
    files: Files

    async def put(self, path: str, content: str, **conditions: Any) -> httpx.Response:
        return await self.http.put(FILE, params={"path": path}, json={"content": content} | conditions)


@pytest.fixture
async def served(database: StoreDatabase, request: pytest.FixtureRequest) -> AsyncGenerator[Served]:
    """A store of its own, with settings as a test gives them."""
    key = secrets.token_urlsafe(16)
    files = Files(database, key_hash(key), getattr(request, "param", None))
    tools, metrics = bind_tools(TOOLS, files.store), Metrics()
    tools += tools_for_routes(files.store, Access("store"), tools)
    dispatcher = Dispatcher(
        [("store", tool) for tool in tools], metrics=metrics, audit=None, default_deadline_s=None, check_answers=True
    )
    gate = Gate(
        Authenticator((Principal("someone", (), key_hash(key)),)),
        loopback_only=True,
        max_body_bytes=100_000,
        metrics=metrics,
    )
    api = JsonApi([("store", routes_to(tools))], dispatcher, gate, Events())
    app = Starlette(routes=[*api.routes])
    headers = {"authorization": f"Bearer {key}"}
    transport = httpx.ASGITransport(app)
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1", headers=headers) as http:
        yield Served(http, files)


async def test_every_tool_has_a_route(database: StoreDatabase, tenant: str) -> None:
    store = Files(database, tenant).store
    tools = bind_tools(TOOLS, store)
    further = {tool.name for tool in tools_for_routes(store, Access("store"), tools)}
    # These three are routes of tools that can do more.
    extended = {"file_stat": "file_stat_indexed", "file_read": "file_read_version", "file_list": "file_list_page"}
    over_http = {route.tool.name for route in routes_to([*tools, *tools_for_routes(store, Access("store"), tools)])}
    assert {extended.get(tool.name, tool.name) for tool in tools} <= over_http
    assert over_http == {extended.get(tool.name, tool.name) for tool in tools} | further - {"file_send"}


async def test_a_tool_that_is_not_offered_has_no_route(database: StoreDatabase, tenant: str) -> None:
    store = Files(database, tenant).store
    tools = [tool for tool in bind_tools(TOOLS, store) if tool.name != "file_read"]
    tools += tools_for_routes(store, Access("store"), tools)
    routes = {(route.method, route.path) for route in routes_to(tools)}
    assert ("GET", "/{project}/file") not in routes
    assert ("GET", "/{project}/files") in routes
    assert raw_files(tools) is None


async def test_a_change_with_a_request_id_is_made_once(served: Served) -> None:
    for _ in range(2):
        added = await served.http.patch(FILE, params={"path": "/a.md"}, json={"content": "tea", "request_id": "r1"})
        assert (added.status_code, added.json()) == (200, {"bytes_written": 3, "version": 1, "size": 3})
    other = await served.http.patch(FILE, params={"path": "/a.md"}, json={"content": "milk", "request_id": "r1"})
    assert (other.status_code, other.json()["code"]) == (400, "INVALID_QUERY")
    for _ in range(2):
        deleted = await served.http.delete(FILE, params={"path": "/a.md", "request_id": "r2"})
        assert (deleted.status_code, deleted.json()) == (200, {"deleted_count": 1})


async def test_a_file_is_written_whole_however_often_it_is_put(served: Served) -> None:
    for version in (1, 2):
        written = await served.put("/a.md", "tea")
        assert (written.status_code, written.json()) == (200, {"bytes_written": 3, "version": version, "size": 3})
    assert await served.files.text("/a.md") == "tea"


async def test_a_file_is_read_in_parts_and_changed_in_parts(served: Served) -> None:
    await served.put("/a.md", "green tea")
    at = {"path": "/a.md"}
    assert (await served.http.patch(FILE, params=at, json={"content": "!"})).json()["size"] == 10
    replaced = {"content": "black", "mode": "OVERWRITE", "offset": 0}
    assert (await served.http.patch(FILE, params=at, json=replaced)).status_code == 200
    part = (await served.http.get(FILE, params=at | {"offset": "6", "length": "3"})).json()
    assert (part["content"], part["offset"], part["end"], part["size"]) == ("tea", 6, 9, 10)
    stat = (await served.http.get("/api/store/p/stat", params=at)).json()
    assert (stat["exists"], stat["type"], stat["size"]) == (True, "FILE", 10)


async def test_no_file_lies_below_a_file(served: Served) -> None:
    await served.put("/a", "x")
    refused = await served.put("/a/b", "x")
    assert (refused.status_code, refused.json()["code"]) == (409, "NOT_DIRECTORY")


async def test_behind_the_end_however_far_there_is_nothing(served: Served) -> None:
    await served.put("/a", "x")
    behind = await served.http.get(FILE, params={"path": "/a", "offset": "9" * 30})
    assert (behind.status_code, behind.json()["content"]) == (200, "")


async def test_files_are_listed_renamed_and_deleted(served: Served) -> None:
    for path in ("/d/a", "/d/b", "/e"):
        await served.put(path, "x")
    listed = (await served.http.get(FILES, params={"depth": "9", "limit": "2"})).json()
    assert ([entry["path"] for entry in listed["entries"]], listed["has_more"]) == (["/d", "/d/a"], True)
    rest = (await served.http.get(FILES, params={"depth": "9", "cursor": listed["next_cursor"]})).json()
    assert ([entry["path"] for entry in rest["entries"]], "next_cursor" in rest) == (["/d/b", "/e"], False)
    moved = await served.http.post("/api/store/p/rename", json={"from_path": "/d", "to_path": "/f"})
    assert (moved.status_code, moved.json()) == (200, {"moved_count": 2})
    assert (await served.http.delete(FILE, params={"path": "/f"})).status_code == 409
    gone = await served.http.delete(FILE, params={"path": "/f", "recursive": "true"})
    assert (gone.status_code, gone.json()) == (200, {"deleted_count": 2})
    assert await served.files.paths() == ["/e"]


async def test_an_earlier_version_is_found_and_brought_back(served: Served) -> None:
    await served.put("/a", "first")
    await served.put("/a", "second")
    kept = (await served.http.get("/api/store/p/history", params={"path": "/a"})).json()["versions"]
    assert [version["version"] for version in kept] == [2, 1]
    back = await served.http.post("/api/store/p/restore", json={"path": "/a", "version": 1})
    assert (back.status_code, await served.files.text("/a")) == (200, "first")


async def test_chunks_are_found_in_one_project_or_in_all(served: Served) -> None:
    served.files.search.found = [stored_chunk("p", "/a", 0, 3, "tea", 0.5)]
    found = await served.http.get("/api/store/*/search", params={"query": "tea", "limit": "3"})
    assert (found.status_code, found.json()["chunks"][0]["chunk_content"]) == (200, "tea")
    assert served.files.search.asked[0][1:5] == ("*", "tea", "", 3)


@pytest.mark.parametrize(
    ("method", "path", "params", "status", "code"),
    [
        ("GET", FILE, {"path": "/none"}, 404, "NOT_FOUND"),
        ("GET", FILE, {"path": "/d"}, 409, "IS_DIRECTORY"),
        ("GET", FILES, {"path": "/a/b"}, 404, "NOT_FOUND"),
        ("GET", FILE, {"path": "a"}, 400, "INVALID_PATH"),
        ("GET", FILE, {}, 400, "INVALID_PATH"),
        ("GET", FILE, {"path": ["/a", "/a"]}, 400, "INVALID_PATH"),
        ("GET", FILE, {"path": "/a", "offset": "first"}, 400, "INVALID_OFFSET"),
        ("GET", FILE, {"path": "/a", "offset": "-1"}, 400, "INVALID_OFFSET"),
        ("GET", FILES, {"lmit": "1"}, 400, "INVALID_QUERY"),
        ("GET", "/api/store/a b/files", {}, 400, "INVALID_PATH"),
        ("GET", "/api/store/%FF/files", {}, 400, "INVALID_PATH"),
        ("DELETE", FILE, {"path": "/d"}, 409, "NOT_EMPTY"),
        ("DELETE", FILE, {"path": "/a", "if_version": "99"}, 409, "CONFLICT"),
        ("DELETE", FILE, {"path": "", "recursive": "true"}, 403, "PERMISSION_DENIED"),
    ],
)
async def test_an_error_is_the_contracts_envelope_under_a_status_that_fits(
    served: Served, method: str, path: str, params: dict[str, Any], status: int, code: str
) -> None:
    await served.files.put("/a", "/d/b")
    refused = await served.http.request(method, path, params=params)
    told = refused.json()
    assert (refused.status_code, told["code"], set(told)) == (status, code, {"code", "message", "retryable"})


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        ({"content": "x", "create_only": True}, 409, "ALREADY_EXISTS"),
        ({"content": "x", "if_version": 7}, 409, "CONFLICT"),
        ({"content": "x" * 50}, 413, "PAYLOAD_TOO_LARGE"),
        ({"content": "x" * 25}, 413, "QUOTA_EXCEEDED"),
        ({"content": "x", "mode": "APPEND"}, 400, "INVALID_QUERY"),
        ({"content": "x", "path": "/b"}, 400, "INVALID_PATH"),
        ({}, 400, "INVALID_QUERY"),
        ([], 400, "INVALID_QUERY"),
    ],
)
@pytest.mark.parametrize("served", [{"max_payload_bytes": 40, "max_project_bytes": 20}], indirect=True)
async def test_a_write_that_cannot_be_is_told_with_its_status(
    served: Served, body: object, status: int, code: str
) -> None:
    await served.put("/a", "x")
    refused = await served.http.put(FILE, params={"path": "/a"}, json=body)
    assert (refused.status_code, refused.json()["code"]) == (status, code)
    assert await served.files.text("/a") == "x"


@pytest.mark.parametrize("served", [{"rate": {"calls_per_second": 0.4, "burst": 1}}], indirect=True)
async def test_too_many_calls_are_429_with_the_seconds_to_wait(served: Served) -> None:
    await served.http.get(FILES)
    refused = await served.http.get(FILES)
    assert (refused.status_code, refused.json()["code"]) == (429, "RATE_LIMITED")
    assert refused.headers["retry-after"] in ("2", "3")


@pytest.mark.contract("S3-5")
def test_no_error_of_the_contract_looks_like_a_fault_of_ours() -> None:
    contract = [kind for kind in errors.StoreError.__subclasses__() if kind.__module__ == errors.__name__]
    statuses = {kind.code: status_of(kind("x")) for kind in contract}
    assert {code for code, status in statuses.items() if status >= 500} == {"RESOURCE_BUSY", "SEARCH_BACKEND_ERROR"}
    assert statuses["RESOURCE_BUSY"] == 503


async def test_a_served_store_is_one_store_whatever_the_way_in(store_dsn: str, tmp_path: Path) -> None:
    user, other = StoreUser("ann"), StoreUser("ben")
    with start_store(tmp_path, {"dsn": store_dsn, "search": {"enabled": False}}, [user, other]) as server:
        by_key = [{"authorization": f"Bearer {each.key}"} for each in (user, other)]
        async with httpx.AsyncClient(base_url=server.url, headers=by_key[0]) as http:
            written = await http.put(FILE, params={"path": "/a"}, json={"content": "tea"})
            assert written.status_code == 200
            described = (await http.get("/api/openapi.json")).json()
            strange = await http.get(FILE, params={"path": "/a"}, headers=by_key[1])
        async with connected(server.url, key=user.key) as client:
            read = await client.result("file_read", {"project": "p", "path": "/a"})
    assert read.structured_content["content"] == "tea"
    assert strange.status_code == 404
    assert "/api/store/{project}/file" in described["paths"]
