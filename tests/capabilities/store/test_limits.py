"""How much and how often: payloads, files, projects and calls, each with its code, and counted exactly."""

from __future__ import annotations

import random

import pytest

from armarium.capabilities.store.database.transactions import StoreDatabase
from support.store_calls import Files


@pytest.mark.contract("S8.3-2")
async def test_a_payload_has_a_limit_in_bytes(database: StoreDatabase, tenant: str) -> None:
    files = Files(database, tenant, {"max_payload_bytes": 4})
    await files.ok("write", path="/a", content="ää")
    assert await files.code("write", path="/a", content="äää") == "PAYLOAD_TOO_LARGE"
    assert await files.code("write", path="/a", content="x" * 1_000_000) == "PAYLOAD_TOO_LARGE"
    assert await files.text("/a") == "ää"


@pytest.mark.contract("S8.3-2")
async def test_a_file_has_a_limit_whatever_makes_it_grow(database: StoreDatabase, tenant: str) -> None:
    files = Files(database, tenant, {"max_file_bytes": 4})
    await files.ok("write", path="/a", content="abcd")
    assert await files.code("write", path="/a", content="e") == "PAYLOAD_TOO_LARGE"
    assert await files.code("write", path="/a", content="xyz", mode="OVERWRITE", offset=2) == "PAYLOAD_TOO_LARGE"
    assert await files.code("write", path="/b", content="abcde", mode="TRUNCATE") == "PAYLOAD_TOO_LARGE"
    await files.ok("write", path="/a", content="xy", mode="OVERWRITE", offset=2)
    assert await files.paths() == ["/a"]


@pytest.mark.contract("S6.2-5", "S8.3-3")
async def test_a_project_has_a_limit_over_all_its_files(database: StoreDatabase, tenant: str) -> None:
    files = Files(database, tenant, {"max_project_bytes": 10, "history": {"versions": 0}})
    await files.put("/a", content="123456")
    await files.put("/b", content="1234")
    assert await files.code("write", path="/c", content="1") == "QUOTA_EXCEEDED"
    assert await files.code("write", path="/a", content="1") == "QUOTA_EXCEEDED"
    await files.ok("write", path="/c", content="")
    await files.put("/a", content="12345")
    await files.ok("write", path="/c", content="1")
    await files.ok("delete", path="/b")
    await files.ok("purge", path="/b")
    await files.ok("write", path="/c", content="2345")
    assert await files.code("write", path="/c", content="6") == "QUOTA_EXCEEDED"
    await files.ok("rename", from_path="/c", to_path="/a", overwrite=True)
    assert await files.counted_and_real_bytes() == (5, 5)
    await files.put("/c", project="other", content="1234567890")


@pytest.mark.contract("S9.3-8")
async def test_a_file_too_large_is_told_before_a_project_too_full(database: StoreDatabase, tenant: str) -> None:
    files = Files(database, tenant, {"max_file_bytes": 2, "max_project_bytes": 2})
    assert await files.code("write", path="/a", content="123") == "PAYLOAD_TOO_LARGE"


@pytest.mark.contract("S7-5")
async def test_the_counter_of_bytes_is_right_after_any_changes(database: StoreDatabase, tenant: str) -> None:
    files = Files(database, tenant, {"max_project_bytes": 300, "history": {"versions": 2}})
    chance = random.Random(7)
    paths = ["/a", "/b", "/d/1", "/d/2", "/d/e/3"]
    for _ in range(150):
        path, other = chance.choice([*paths, "/d"]), chance.choice([*paths, "/f", "/g/d"])
        content, mode = "ä" * chance.randrange(30), chance.choice(["APPEND", "TRUNCATE", "OVERWRITE"])
        match chance.randrange(6):
            case 5:
                await files.ok("purge", path="")
            case 0:
                await files.result("delete", path=path, recursive=chance.random() < 0.5)
            case 1:
                await files.result("rename", from_path=path, to_path=other, overwrite=chance.random() < 0.5)
            case 2:
                await files.result("restore", path=path, version=chance.randrange(1, 40))
            case _:
                await files.result("write", path=path, content=content, mode=mode)
        counted, real = await files.counted_and_real_bytes()
        assert counted == real <= 300
    codes = {code for _, code in files.mutations}
    assert {"ok", "QUOTA_EXCEEDED", "ALREADY_EXISTS", "NOT_FOUND"} <= codes


@pytest.mark.contract("S13-2")
async def test_too_many_calls_are_told_when_to_come_back(database: StoreDatabase, tenant: str) -> None:
    files = Files(database, tenant, {"rate": {"calls_per_second": 0.001, "burst": 3}})
    await files.put("/a")
    await files.text("/a")
    await files.ok("search", query="x")
    refused = (await files.result("write", path="/a", content="y"))["structuredContent"]
    assert (refused["code"], refused["retryable"]) == ("RATE_LIMITED", True)
    assert 0 < refused["retry_after_ms"] <= 1_000_000
    for tool, arguments in (
        ("stat", {"path": ""}),
        ("list", {}),
        ("search", {"query": "x"}),
        ("delete", {"path": "/a"}),
    ):
        assert await files.code(tool, **arguments) == "RATE_LIMITED"
    assert files.mutations[-1] == ("file_delete", "RATE_LIMITED")
