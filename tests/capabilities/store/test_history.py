"""Earlier versions are kept as far as the settings say, and can be had back."""

from __future__ import annotations

from armarium.capabilities.store.database.transactions import StoreDatabase
from support.store_calls import Files


async def versions(files: Files, path: str = "/a") -> list[int]:
    return [version["version"] for version in (await files.ok("history", path=path))["versions"]]


async def test_every_write_leaves_the_version_before(database: StoreDatabase, tenant: str) -> None:
    files = Files(database, tenant)
    await files.ok("write", path="/a", content="one")
    await files.ok("write", path="/a", content="!")
    await files.ok("write", path="/a", content="O", mode="OVERWRITE")
    await files.ok("write", path="/a", content="two", mode="TRUNCATE")
    kept = (await files.ok("history", path="/a"))["versions"]
    assert [(version["version"], version["size"], version["current"]) for version in kept] == [
        (4, 3, True), (3, 4, False), (2, 4, False), (1, 3, False),
    ]  # fmt: skip
    assert [version.get("replaced_at") for version in kept[1:]] == [version["written_at"] for version in kept[:-1]]
    for version, text in ((1, "one"), (2, "one!"), (3, "One!"), (4, "two")):
        await files.ok("restore", path="/a", version=version)
        assert await files.text("/a") == text


async def test_only_the_newest_versions_stay(database: StoreDatabase, tenant: str) -> None:
    files = Files(database, tenant, {"history": {"versions": 2}})
    for _ in range(5):
        await files.put("/a")
    assert await versions(files) == [5, 4, 3]
    await files.put("/b")
    await files.ok("delete", path="/a")
    assert await versions(files) == [5, 4]
    assert await versions(files, "/b") == [6]


async def test_a_recursive_delete_keeps_the_newest_versions_of_each_file(database: StoreDatabase, tenant: str) -> None:
    files = Files(database, tenant, {"history": {"versions": 2}})
    await files.put("/d/a", "/d/a", "/d/a", "/d/b", "/d/c", "/d/c")
    await files.ok("delete", path="/d/b")
    await files.ok("delete", path="/d", recursive=True)
    assert [await versions(files, path) for path in ("/d/a", "/d/b", "/d/c")] == [[3, 2], [4], [6, 5]]


async def test_without_history_nothing_is_kept(database: StoreDatabase, tenant: str) -> None:
    files = Files(database, tenant, {"history": {"versions": 0}})
    await files.put("/a", "/a")
    assert await versions(files) == [2]
    assert await files.code("restore", path="/a", version=1) == "NOT_FOUND"
    await files.ok("delete", path="/a")
    assert await files.code("history", path="/a") == "NOT_FOUND"


async def test_a_deleted_file_comes_back_as_a_new_version(database: StoreDatabase, tenant: str) -> None:
    files = Files(database, tenant)
    await files.put("/a", content="text")
    await files.ok("delete", path="/a")
    assert [version["current"] for version in (await files.ok("history", path="/a"))["versions"]] == [False]
    assert await files.ok("restore", path="/a", version=1) == {"bytes_written": 4, "version": 3, "size": 4}
    assert await files.text("/a") == "text"
    assert await files.counted_and_real_bytes() == (4, 4)
    assert (await files.jobs())[-1] == ("UPSERT", "/a", None)


async def test_restoring_the_current_version_changes_nothing(database: StoreDatabase, tenant: str) -> None:
    files = Files(database, tenant)
    await files.put("/a")
    assert await files.ok("restore", path="/a", version=1) == {"bytes_written": 0, "version": 1, "size": 1}
    assert await versions(files) == [1]


async def test_a_restore_is_bound_by_the_rules_of_a_write(database: StoreDatabase, tenant: str) -> None:
    files = Files(database, tenant)
    await files.put("/a", content="long text")
    await files.ok("delete", path="/a")
    await files.put("/a/b")
    assert await files.code("restore", path="/a", version=1) == "IS_DIRECTORY"
    await files.ok("delete", path="/a/b")
    small = Files(database, tenant, {"max_file_bytes": 8})
    assert await small.code("restore", path="/a", version=1) == "PAYLOAD_TOO_LARGE"
    full = Files(database, tenant, {"max_project_bytes": 8})
    assert await full.code("restore", path="/a", version=1) == "QUOTA_EXCEEDED"
    await files.ok("restore", path="/a", version=1)
    assert await files.code("restore", path="/a/b", version=3) == "NOT_DIRECTORY"


async def test_what_has_no_versions_is_said(database: StoreDatabase, tenant: str) -> None:
    files = Files(database, tenant)
    await files.put("/d/a")
    assert await files.code("history", path="/d") == "IS_DIRECTORY"
    assert await files.code("history", path="/x") == "NOT_FOUND"
    assert await files.code("history", path="") == "INVALID_PATH"
    assert await files.code("restore", path="", version=1) == "INVALID_PATH"
    assert await files.code("restore", path="/d/a", version=0) == "INVALID_OFFSET"
    assert await files.code("restore", path="/d/a", version=2**70) == "NOT_FOUND"
    assert await files.code("restore", path="/d/a") == "INVALID_OFFSET"
