"""Files and directories are renamed as the contract says: all or nothing, and never onto something else."""

from __future__ import annotations

import pytest

from armarium.capabilities.store.database.transactions import StoreDatabase
from support.store_calls import Files


@pytest.fixture
def files(database: StoreDatabase, tenant: str) -> Files:
    return Files(database, tenant)


async def moved(files: Files, source: str, target: str, **more: bool) -> int:
    return (await files.ok("rename", from_path=source, to_path=target, **more))["moved_count"]


async def refusal(files: Files, source: str, target: str, **more: bool) -> str:
    return await files.code("rename", from_path=source, to_path=target, **more)


@pytest.mark.contract("S3.2-5", "S9.5-1", "S9.5-11")
async def test_a_file_gets_a_new_path_and_a_new_time(files: Files) -> None:
    await files.put("/a", content="text")
    before = await files.ok("stat", path="/a")
    assert await moved(files, "/a", "/deep/er/b") == 1
    after = await files.ok("stat", path="/deep/er/b")
    assert await files.text("/deep/er/b") == "text"
    assert not (await files.ok("stat", path="/a"))["exists"]
    assert after["created_at"] == before["created_at"]
    assert after["updated_at"] > before["updated_at"]
    assert after["version"] > before["version"]


@pytest.mark.contract("S9.5-1")
async def test_a_directory_moves_with_everything_in_it_and_nothing_beside_it(files: Files) -> None:
    await files.put("/d/1", "/d/e/2", "/d-x", "/d.x", "/d0", "/dx/1")
    assert await moved(files, "/d", "/new/place") == 2
    assert await files.paths() == [
        "/d-x", "/d.x", "/d0", "/dx/", "/dx/1", "/new/", "/new/place/", "/new/place/1", "/new/place/e/",
        "/new/place/e/2",
    ]  # fmt: skip


@pytest.mark.contract("S9.5-10")
async def test_a_name_repeated_in_the_path_is_replaced_only_at_the_front(files: Files) -> None:
    await files.put("/d/d/d")
    assert await moved(files, "/d", "/x") == 1
    assert await files.paths() == ["/x/", "/x/d/", "/x/d/d"]


async def test_every_file_of_a_moved_directory_has_a_version_of_its_own(files: Files) -> None:
    await files.put("/d/1", "/d/2", "/d/3")
    await moved(files, "/d", "/e")
    versions = [entry["version"] for entry in (await files.ok("list", path="/e"))["entries"]]
    assert versions == [4, 5, 6]
    assert (await files.ok("write", path="/f", content=""))["version"] == 7


@pytest.mark.contract("S3.2-5", "S9.5-4")
async def test_the_same_path_is_no_move(files: Files) -> None:
    assert await moved(files, "/nothing", "/nothing") == 0


@pytest.mark.contract("S9.5-2")
async def test_the_root_is_neither_source_nor_target(files: Files) -> None:
    await files.put("/a")
    assert await refusal(files, "", "/b") == "INVALID_PATH"
    assert await refusal(files, "/a", "") == "INVALID_PATH"
    assert await refusal(files, "", "") == "INVALID_PATH"
    assert await refusal(files, "/a", "b") == "INVALID_PATH"


@pytest.mark.contract("S9.5-3")
async def test_what_is_not_there_cannot_be_moved(files: Files) -> None:
    await files.put("/a")
    assert await refusal(files, "/b", "/c") == "NOT_FOUND"
    assert await refusal(files, "/b", "/a/c") == "NOT_FOUND"


@pytest.mark.contract("S9.5-6")
async def test_a_directory_does_not_move_into_itself(files: Files) -> None:
    await files.put("/docs/a")
    assert await refusal(files, "/docs", "/docs/sub/new") == "INVALID_PATH"
    assert await refusal(files, "/docs", "/docs/a/b") == "INVALID_PATH"
    assert await moved(files, "/docs", "/docs-2") == 1


@pytest.mark.contract("S9.5-5")
async def test_nothing_moves_below_a_file(files: Files) -> None:
    await files.put("/a", "/b", "/d/c")
    assert await refusal(files, "/b", "/a/x") == "NOT_DIRECTORY"
    assert await refusal(files, "/d", "/a/x/y") == "NOT_DIRECTORY"
    assert await refusal(files, "/a", "/a/b") == "NOT_DIRECTORY"


@pytest.mark.contract("S9.5-9")
@pytest.mark.parametrize("overwrite", [False, True])
async def test_a_directory_is_never_a_free_place(files: Files, overwrite: bool) -> None:
    await files.put("/a", "/d/b", "/e/c")
    assert await refusal(files, "/a", "/d", overwrite=overwrite) == "ALREADY_EXISTS"
    assert await refusal(files, "/e", "/d", overwrite=overwrite) == "ALREADY_EXISTS"
    assert await refusal(files, "/e", "/a", overwrite=overwrite) == "ALREADY_EXISTS"
    assert await refusal(files, "/d/b", "/d", overwrite=overwrite) == "ALREADY_EXISTS"
    await files.put("/d/x/y")
    assert await refusal(files, "/d/x", "/d", overwrite=overwrite) == "ALREADY_EXISTS"


@pytest.mark.contract("S9.5-7", "S9.5-8")
async def test_a_file_replaces_a_file_only_when_asked_to(files: Files) -> None:
    await files.put("/a", content="new")
    await files.put("/b", content="older")
    assert await refusal(files, "/a", "/b") == "ALREADY_EXISTS"
    assert await moved(files, "/a", "/b", overwrite=True) == 1
    assert await files.text("/b") == "new"
    assert await files.paths() == ["/b"]
    assert await files.counted_and_real_bytes() == (3, 3)
    [replaced] = await files.rows("SELECT content FROM mcp_files WHERE deleted")
    assert replaced["content"] == b"older"


async def test_no_path_gets_longer_than_a_path_may_be(files: Files) -> None:
    await files.put("/d/" + "x" * 400, "/d/y")
    assert await refusal(files, "/d", "/" + "z" * 200) == "INVALID_PATH"
    assert await moved(files, "/d", "/" + "z" * (512 - 402)) == 2


@pytest.mark.contract("S9.5-12")
async def test_a_rename_is_one_job_however_many_files_it_moves(database: StoreDatabase, tenant: str) -> None:
    files = Files(database, tenant, key="sk-secret")
    await files.put("/d/1", "/d/2", "/d/sub/3")
    assert await moved(files, "/d", "/e") == 3
    (job,) = (await files.jobs())[3:]
    assert job[:2] == ("MOVE", "/e")
    assert job[2] is not None, "the caller's key waits for the files that are not indexed yet"
    await moved(files, "/e/1", "/e/2", overwrite=True)
    (job,) = (await files.jobs())[4:]
    assert job[:2] == ("MOVE", "/e/2")


async def test_history_moves_along_and_stays_with_what_was_replaced(files: Files) -> None:
    await files.put("/a", content="one")
    await files.put("/a", content="two")
    await files.put("/b", content="replaced")
    await moved(files, "/a", "/b", overwrite=True)
    versions = (await files.ok("history", path="/b"))["versions"]
    assert [(version["version"], version["current"]) for version in versions] == [(5, True), (3, False), (1, False)]
    assert await files.code("history", path="/a") == "NOT_FOUND"
    await files.ok("restore", path="/b", version=3)
    assert await files.text("/b") == "replaced"
    await files.ok("restore", path="/b", version=1)
    assert await files.text("/b") == "one"


async def test_what_was_deleted_in_a_directory_does_not_move_with_it(files: Files) -> None:
    await files.put("/d/gone", "/d/here")
    await files.ok("delete", path="/d/gone")
    await moved(files, "/d", "/e")
    assert await files.code("history", path="/e/gone") == "NOT_FOUND"
    await files.ok("restore", path="/d/gone", version=1)
    assert await files.paths() == ["/d/", "/d/gone", "/e/", "/e/here"]
