"""Listings: depth, order, limit, and that they read no more than they show."""

from __future__ import annotations

import pytest

from armarium.capabilities.store.database.transactions import StoreDatabase
from armarium.capabilities.store.model import Scope
from armarium.foundation.sql import queries
from support.store_calls import Files

TREE = ("/a", "/b/1", "/b/c/2", "/b/c/d/3", "/b-x", "/b.x/y", "/z")


@pytest.fixture
async def files(database: StoreDatabase, tenant: str) -> Files:
    made = Files(database, tenant)
    await made.put(*TREE)
    return made


@pytest.mark.contract("S9.6-1", "S9.6-2", "S9.6-3", "S9.6-5")
@pytest.mark.parametrize(
    ("path", "depth", "listed"),
    [
        ("", 0, ["/"]),
        ("", 1, ["/a", "/b/", "/b-x", "/b.x/", "/z"]),
        ("/", 1, ["/a", "/b/", "/b-x", "/b.x/", "/z"]),
        ("/", 0, ["/"]),
        ("", 2, ["/a", "/b/", "/b-x", "/b.x/", "/b.x/y", "/b/1", "/b/c/", "/z"]),
        ("/b", 0, ["/b/"]),
        ("/b", 1, ["/b/1", "/b/c/"]),
        ("/b", 2, ["/b/1", "/b/c/", "/b/c/2", "/b/c/d/"]),
        ("/b", 3, ["/b/1", "/b/c/", "/b/c/2", "/b/c/d/", "/b/c/d/3"]),
        ("/b", 2**70, ["/b/1", "/b/c/", "/b/c/2", "/b/c/d/", "/b/c/d/3"]),
        ("/a", 0, ["/a"]),
    ],
)
async def test_a_listing_goes_as_deep_as_asked(files: Files, path: str, depth: int, listed: list[str]) -> None:
    assert await files.paths(path, depth) == listed


@pytest.mark.contract("S3.1-3", "S9.6-5")
async def test_an_entry_tells_what_a_stat_tells(files: Files) -> None:
    entries = (await files.ok("list", depth=9))["entries"] + (await files.ok("list", depth=0))["entries"]
    for entry in entries:
        stat = await files.ok("stat", path=entry["path"])
        assert stat.pop("exists")
        assert entry == {"name": entry["path"].rpartition("/")[2], "path": entry["path"]} | stat


@pytest.mark.contract("S3.2-6", "S9.6-3", "S9.6-4")
@pytest.mark.parametrize("depth", [1, 2, 9])
async def test_a_limit_cuts_the_sorted_list_and_says_so(files: Files, depth: int) -> None:
    everything = await files.paths("", depth)
    for limit in range(1, len(everything) + 2):
        listing = await files.ok("list", depth=depth, limit=limit)
        assert [entry["path"] for entry in listing["entries"]] == [path.rstrip("/") for path in everything][:limit]
        assert listing["has_more"] == (limit < len(everything))


async def test_a_directory_far_behind_its_place_is_still_listed_first(database: StoreDatabase, tenant: str) -> None:
    files = Files(database, tenant)
    await files.put(*(f"/a-{number}" for number in range(5)), "/a/x", "/a-.b/c", "/a-/d")
    assert await files.paths(depth=1, limit=2) == ["/a/", "/a-/"]
    assert await files.paths(depth=1) == ["/a/", "/a-/", "/a-.b/", "/a-0", "/a-1", "/a-2", "/a-3", "/a-4"]


async def test_without_a_limit_the_settings_decide(database: StoreDatabase, tenant: str) -> None:
    files = Files(database, tenant, {"list_limit_default": 2, "list_limit_max": 3})
    await files.put("/a", "/b", "/c", "/d")
    assert await files.paths() == ["/a", "/b"]
    assert await files.paths(limit=99) == ["/a", "/b", "/c"]
    assert (await files.ok("list", limit=99))["has_more"]


async def test_what_is_no_directory_is_said(files: Files) -> None:
    assert await files.code("list", path="/a") == "NOT_DIRECTORY"
    assert await files.code("list", path="/nothing") == "NOT_FOUND"
    assert await files.code("list", path="/nothing", depth=0) == "NOT_FOUND"
    assert await files.code("list", path="/b/") == "INVALID_PATH"
    assert await files.code("list", path="//") == "INVALID_PATH"
    assert await files.code("list", depth=-1) == "INVALID_OFFSET"
    assert await files.code("list", limit=0) == "INVALID_OFFSET"


async def test_an_empty_project_has_an_empty_root(database: StoreDatabase, tenant: str) -> None:
    files = Files(database, tenant)
    for depth in (0, 1, 9):
        assert await files.ok("list", depth=depth) == {"entries": [], "has_more": False}


async def test_a_directory_is_as_new_as_the_newest_file_in_it(files: Files) -> None:
    await files.ok("write", path="/b/c/2", content="!")
    newest = (await files.ok("stat", path="/b/c/2"))["updated_at"]
    entries = {entry["path"]: entry for entry in (await files.ok("list", depth=9))["entries"]}
    assert {entries[path]["updated_at"] for path in ("/b", "/b/c")} == {newest}
    assert entries["/b/c/d"]["updated_at"] < newest


async def test_a_listing_jumps_over_what_it_does_not_show(database: StoreDatabase, tenant: str) -> None:
    async with database.project_transaction(Scope(tenant, "p")) as connection:
        await connection.execute(
            "INSERT INTO mcp_files (apikey_hash, project, path, content, version) "
            "SELECT $1, 'p', '/' || dir || '/' || file, '', 1 FROM generate_series(10, 19) AS dir, "
            "generate_series(1, 2000) AS file",
            tenant,
        )
    statement = queries("armarium.capabilities.store.database.sql", "files.sql")["first_files"]
    for depth, rows in ((1, 10), (2, 100)):
        async with database.read_transaction(tenant) as connection:
            where = (tenant, "p", "", depth, rows, "/", "0")
            plan = [row[0] for row in await connection.fetch(f"EXPLAIN (ANALYZE, TIMING OFF) {statement}", *where)]
        scans = [number for number, line in enumerate(plan) if "Scan" in line and "mcp_files" in line]
        assert len(scans) == 2
        for scan in scans:
            assert "Index Scan using uq_mcp_files_active" in plan[scan]
            assert "path)::text >=" in plan[scan + 1], "the range must be found by the index, not filtered"
        assert not any("Rows Removed by Filter" in line for line in plan[scans[0] :][:3] + plan[scans[1] :][:3])
