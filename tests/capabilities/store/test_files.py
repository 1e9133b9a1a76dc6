"""Files are written, read, looked at and deleted as the contract says, rule by rule."""

from __future__ import annotations

import secrets

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from armarium.capabilities.store.database.transactions import StoreDatabase
from armarium.capabilities.store.files.reads import whole_characters
from support.store_calls import Files

NO_TIME = "0001-01-01T00:00:00Z"


@pytest.fixture
def files(database: StoreDatabase, tenant: str) -> Files:
    return Files(database, tenant)


@pytest.mark.contract("S3.2-1", "S9.1-1")
async def test_a_stat_of_nothing_succeeds(files: Files) -> None:
    nothing = {"exists": False, "type": "", "size": 0, "created_at": NO_TIME, "updated_at": NO_TIME}
    assert await files.ok("stat", path="/a") == nothing
    assert await files.ok("stat", path="") == nothing


@pytest.mark.contract("S3-3", "S3.1-1", "S3.1-3", "S3.2-1", "S9.1-2", "S9.1-4", "S9.3-7")
async def test_a_stat_tells_of_files_and_of_the_directories_they_imply(files: Files) -> None:
    await files.put("/docs/a.txt", content="hä")
    await files.put("/docs/sub/b.txt")
    file = await files.ok("stat", path="/docs/a.txt")
    assert (file["type"], file["size"], file["version"]) == ("FILE", 3, 1)
    assert file["created_at"] == file["updated_at"] > "2020"
    newest = (await files.ok("stat", path="/docs/sub/b.txt"))["updated_at"]
    for directory in ("/docs", "/docs/sub", ""):
        assert await files.ok("stat", path=directory) == {
            "exists": True, "type": "DIRECTORY", "size": 0, "created_at": NO_TIME, "updated_at": newest,
        }  # fmt: skip
    assert not (await files.ok("stat", path="/doc"))["exists"]
    assert not (await files.ok("stat", path="/docs/a"))["exists"]


@pytest.mark.contract("S3-3", "S9.1-3")
async def test_the_root_is_gone_with_its_last_file(files: Files) -> None:
    await files.put("/a")
    await files.ok("delete", path="/a")
    assert not (await files.ok("stat", path=""))["exists"]


async def test_a_write_changes_the_time_of_the_last_change_only(files: Files) -> None:
    await files.put("/a")
    before = await files.ok("stat", path="/a")
    await files.ok("write", path="/a", content="y")
    after = await files.ok("stat", path="/a")
    assert after["created_at"] == before["created_at"]
    assert after["updated_at"] > before["updated_at"]
    assert after["version"] > before["version"]


@pytest.mark.contract("S3.2-3")
@pytest.mark.parametrize("mode", ["APPEND", "OVERWRITE"])
async def test_a_write_of_nothing_to_a_file_that_is_there_makes_no_version(files: Files, mode: str) -> None:
    await files.put("/a", content="x")
    before = await files.ok("stat", path="/a")
    written = await files.ok("write", path="/a", content="", mode=mode)
    assert written == {"bytes_written": 0, "version": before["version"], "size": 1}
    assert await files.ok("stat", path="/a") == before


@pytest.mark.parametrize("mode", ["APPEND", "OVERWRITE", "TRUNCATE"])
async def test_a_write_of_nothing_makes_an_empty_file_where_there_is_none(files: Files, mode: str) -> None:
    await files.ok("write", path="/a", content="", mode=mode)
    assert (await files.ok("stat", path="/a"))["size"] == 0


@pytest.mark.contract("S3.2-2", "S9-1")
async def test_a_read_gives_the_text_and_which_bytes_it_is(files: Files) -> None:
    await files.put("/a", content="0123456789")
    assert await files.ok("read", path="/a", offset=2, length=3) == {
        "content": "234", "content_encoding": "utf-8", "offset": 2, "end": 5, "size": 10, "version": 1,
    }  # fmt: skip


@pytest.mark.contract("S9.2-1", "S9.2-2")
@pytest.mark.parametrize(
    ("offset", "length", "content"),
    [
        (0, -1, "0123456789"),
        (0, 0, ""),
        (9, 5, "9"),
        (10, 1, ""),
        (11, -1, ""),
        (2**31, 1, ""),
        (2**63, -1, ""),
        (2**64 + 1, 2**64, ""),
        (5, 2**63, "56789"),
        (3, -1, "3456789"),
    ],
)
async def test_a_slice_ends_where_the_file_ends(files: Files, offset: int, length: int, content: str) -> None:
    await files.put("/a", content="0123456789")
    answer = await files.ok("read", path="/a", offset=offset, length=length)
    assert answer["content"] == content
    assert 0 <= answer["offset"] <= answer["end"] <= 10
    assert answer["end"] - answer["offset"] == len(content)


@pytest.mark.contract("S9-1")
async def test_a_slice_leaves_out_half_characters_and_says_where_to_read_on(files: Files) -> None:
    text = "aä€😀z"
    await files.put("/a", content=text)
    whole, position = "", 0
    while position < len(text.encode()):
        answer = await files.ok("read", path="/a", offset=position, length=2)
        assert answer["offset"] == position
        assert answer["end"] > position
        whole, position = whole + answer["content"], answer["end"]
    assert whole == text
    inside = await files.ok("read", path="/a", offset=2, length=5)
    assert (inside["content"], inside["offset"], inside["end"]) == ("€", 3, 6)


@example("é", 0, 1)
@given(st.text(max_size=12), st.integers(0, 40), st.integers(0, 40))
def test_any_slice_is_whole_characters_and_all_slices_are_the_file(text: str, start: int, length: int) -> None:
    content = text.encode()
    window = content[start : start + length + 4]
    first, last = whole_characters(window, length)
    part = window[first:last].decode()
    assert part in text
    assert part or last > 0 or not length or start >= len(content)
    position, read = 0, ""
    while length and position < len(content):
        window = content[position : position + length + 4]
        first, last = whole_characters(window, length)
        read, position = read + window[first:last].decode(), position + last
        assert first == 0
    assert read == text or not length


@pytest.mark.contract("S9.2-4")
async def test_only_files_can_be_read(files: Files) -> None:
    assert await files.code("read", path="/a") == "NOT_FOUND"
    assert await files.code("read", path="") == "NOT_FOUND"
    await files.put("/a/b")
    assert await files.code("read", path="/a") == "IS_DIRECTORY"
    assert await files.code("read", path="") == "IS_DIRECTORY"
    assert await files.code("read", path="/a/b/c") == "NOT_FOUND"
    assert await files.code("read", path="/a/b", offset=-1) == "INVALID_OFFSET"
    assert await files.code("read", path="/a/b", length=-2) == "INVALID_OFFSET"


@pytest.mark.contract("S3.1-2", "S3.2-3", "S9.3-1")
async def test_append_is_the_default_and_does_not_look_at_the_offset(files: Files) -> None:
    assert (await files.ok("write", path="/a", content="hä"))["bytes_written"] == 3
    answer = await files.ok("write", path="/a", content="!", offset=99)
    assert answer == {"bytes_written": 1, "version": 2, "size": 4}
    assert await files.text("/a") == "hä!"


@pytest.mark.contract("S3.1-2", "S9.3-2")
async def test_truncate_replaces_everything_and_begins_at_0(files: Files) -> None:
    await files.put("/a", content="long content")
    await files.ok("write", path="/a", content="new", mode="TRUNCATE", offset=0)
    assert await files.text("/a") == "new"
    assert await files.code("write", path="/a", content="x", mode="TRUNCATE", offset=1) == "INVALID_OFFSET"
    assert await files.code("write", path="/b", content="x", mode="TRUNCATE", offset=1) == "INVALID_OFFSET"
    assert await files.text("/a") == "new"


@pytest.mark.contract("S3.1-2", "S9.3-3", "S9.3-5")
@pytest.mark.parametrize(
    ("offset", "content", "result"),
    [(0, "AB", "ABcd"), (1, "X", "aXcd"), (3, "XYZ", "abcXYZ"), (4, "e", "abcde"), (2, "", "abcd"), (4, "", "abcd")],
)
async def test_overwrite_keeps_what_is_behind(files: Files, offset: int, content: str, result: str) -> None:
    await files.put("/a", content="abcd")
    answer = await files.ok("write", path="/a", content=content, mode="OVERWRITE", offset=offset)
    assert answer["bytes_written"] == len(content)
    assert answer["size"] == len(result)
    assert await files.text("/a") == result


@pytest.mark.contract("S9.3-5")
@pytest.mark.parametrize("offset", [5, 2**31, 2**63, 2**70])
async def test_overwrite_behind_the_end_is_refused(files: Files, offset: int) -> None:
    await files.put("/a", content="abcd")
    assert await files.code("write", path="/a", content="x", mode="OVERWRITE", offset=offset) == "INVALID_OFFSET"
    assert await files.code("write", path="/new", content="x", mode="OVERWRITE", offset=offset) == "INVALID_OFFSET"
    assert await files.paths() == ["/a"]


@pytest.mark.contract("S9.3-7")
async def test_overwrite_makes_a_new_file_at_offset_0(files: Files) -> None:
    await files.ok("write", path="/a", content="x", mode="OVERWRITE")
    assert await files.text("/a") == "x"


@pytest.mark.contract("S9.3-4")
@pytest.mark.parametrize("mode", ["APPEND", "OVERWRITE", "TRUNCATE"])
async def test_a_negative_offset_is_refused_in_every_mode(files: Files, mode: str) -> None:
    assert await files.code("write", path="/a", content="x", mode=mode, offset=-1) == "INVALID_OFFSET"


@pytest.mark.parametrize(("offset", "content"), [(2, "x"), (1, "x"), (0, "xy"), (3, "xx")])
async def test_overwrite_does_not_cut_a_character(files: Files, offset: int, content: str) -> None:
    await files.put("/a", content="aä€")
    assert await files.code("write", path="/a", content=content, mode="OVERWRITE", offset=offset) == "INVALID_OFFSET"
    assert await files.text("/a") == "aä€"


async def test_overwrite_of_whole_characters_is_fine(files: Files) -> None:
    await files.put("/a", content="aä€")
    await files.ok("write", path="/a", content="ö", mode="OVERWRITE", offset=1)
    await files.ok("write", path="/a", content="😀", mode="OVERWRITE", offset=3)
    await files.ok("write", path="/a", content="", mode="OVERWRITE", offset=2)
    assert await files.text("/a") == "aö😀"


@pytest.mark.contract("S9.3-6")
async def test_a_file_and_a_directory_cannot_have_the_same_path(files: Files) -> None:
    await files.put("/a/b/c")
    assert await files.code("write", path="/a", content="x") == "IS_DIRECTORY"
    assert await files.code("write", path="/a/b", content="x") == "IS_DIRECTORY"
    assert await files.code("write", path="/a/b/c/d", content="x") == "NOT_DIRECTORY"
    assert await files.code("write", path="/a/b/c/d/e", content="x") == "NOT_DIRECTORY"
    assert await files.code("write", path="", content="x") == "INVALID_PATH"
    await files.put("/a-b", "/a.b", "/a/b0", "/a/b/c-d")
    assert len(await files.paths()) == 7


async def test_create_only_never_replaces(files: Files) -> None:
    await files.ok("write", path="/a", content="first", create_only=True)
    assert await files.code("write", path="/a", content="second", create_only=True) == "ALREADY_EXISTS"
    assert await files.text("/a") == "first"
    await files.ok("delete", path="/a")
    await files.ok("write", path="/a", content="third", create_only=True)


async def test_if_version_notices_every_change_in_between(files: Files) -> None:
    version = (await files.ok("write", path="/a", content="1"))["version"]
    newer = (await files.ok("write", path="/a", content="2", if_version=version))["version"]
    assert await files.code("write", path="/a", content="3", if_version=version) == "CONFLICT"
    await files.ok("delete", path="/a", if_version=newer)
    assert await files.code("write", path="/a", content="3", if_version=newer) == "CONFLICT"
    await files.put("/a")
    assert await files.code("delete", path="/a", if_version=newer) == "CONFLICT"
    assert await files.code("write", path="/a", content="3", if_version=2**80) == "CONFLICT"
    assert await files.text("/a") == "x"
    assert await files.code("write", path="/a", content="", create_only=True, if_version=1) == "INVALID_QUERY"
    await files.put("/d/e")
    assert await files.code("delete", path="/d", recursive=True, if_version=1) == "IS_DIRECTORY"


@pytest.mark.contract("S3.2-4", "S7-3", "S9.4-1", "S9.4-2")
async def test_a_delete_takes_a_file_or_a_whole_directory(files: Files) -> None:
    await files.put("/a", "/d/1", "/d/e/2", "/d-3", "/d.4", "/d0")
    assert await files.code("delete", path="/nothing") == "NOT_FOUND"
    assert await files.code("delete", path="/nothing", recursive=True) == "NOT_FOUND"
    assert await files.code("delete", path="/d") == "NOT_EMPTY"
    assert await files.ok("delete", path="/a", recursive=True) == {"deleted_count": 1}
    assert await files.ok("delete", path="/d", recursive=True) == {"deleted_count": 2}
    assert await files.paths() == ["/d-3", "/d.4", "/d0"]
    assert await files.code("delete", path="/a") == "NOT_FOUND"
    [deleted] = await files.rows("SELECT count(*) AS n FROM mcp_files WHERE deleted AND deleted_at IS NOT NULL")
    assert deleted["n"] == 3


@pytest.mark.contract("S9.4-3", "S9.4-4")
async def test_a_root_is_wiped_only_where_that_is_allowed(files: Files, database: StoreDatabase) -> None:
    await files.put("/a", "/b/c")
    assert await files.code("delete", path="") == "INVALID_PATH"
    assert await files.code("delete", path="", recursive=True) == "PERMISSION_DENIED"
    allowed = Files(database, files.tenant, {"allow_root_wipe": True})
    assert await allowed.code("delete", path="") == "INVALID_PATH"
    await allowed.put("/c", project="other")
    assert await allowed.ok("delete", path="", recursive=True) == {"deleted_count": 2}
    assert await allowed.paths() == []
    assert await allowed.code("delete", path="", recursive=True) == "NOT_FOUND"
    assert await allowed.text("/c", project="other") == "x"


@pytest.mark.contract("S3-1", "S6.2-3")
async def test_no_tenant_and_no_project_sees_another(files: Files, database: StoreDatabase) -> None:
    await files.put("/a/b")
    stranger = Files(database, secrets.token_hex(32))
    for other, project in ((stranger, "p"), (files, "q")):
        assert not (await other.ok("stat", project=project, path="/a/b"))["exists"]
        assert await other.code("read", project=project, path="/a/b") == "NOT_FOUND"
        assert await other.paths(project=project) == []
        assert await other.code("delete", project=project, path="/a", recursive=True) == "NOT_FOUND"
        assert await other.code("rename", project=project, from_path="/a", to_path="/c") == "NOT_FOUND"
        assert await other.code("history", project=project, path="/a/b") == "NOT_FOUND"
        assert await other.code("restore", project=project, path="/a/b", version=1) == "NOT_FOUND"
        await other.put("/a", project=project, content="mine")
    assert await files.text("/a/b") == "x"
    assert await stranger.counted_and_real_bytes() == (4, 4)


@pytest.mark.contract("S4-1", "S9.3-10", "S9.4-5", "S11.1-1")
async def test_a_write_and_its_job_commit_together(files: Files) -> None:
    await files.put("/a", "/d/b")
    await files.ok("delete", path="/d", recursive=True)
    assert await files.code("write", path="/a/x", content="") == "NOT_DIRECTORY"
    assert await files.jobs() == [("UPSERT", "/a", None), ("UPSERT", "/d/b", None), ("DELETE", "/d/b", None)]
    assert files.wake_ups == 3
    assert files.mutations == [
        ("file_write", "ok"), ("file_write", "ok"), ("file_delete", "ok"), ("file_write", "NOT_DIRECTORY"),
    ]  # fmt: skip
    [row] = await files.rows(
        "SELECT bool_and(jobs.file_updated_at = files.updated_at) AS same FROM mcp_file_index_jobs AS jobs "
        "JOIN mcp_files AS files ON files.path = jobs.file_path AND NOT files.deleted"
    )
    assert row["same"]


async def test_without_search_nothing_is_queued_and_no_key_laid_aside(database: StoreDatabase, tenant: str) -> None:
    files = Files(database, tenant, {"search": {"enabled": False}}, key="sk-secret")
    await files.put("/a")
    await files.ok("rename", from_path="/a", to_path="/b")
    await files.ok("delete", path="/b")
    assert await files.jobs() == []
    assert (files.kept, files.wake_ups) == ([], 0)
    assert await files.code("search", query="x") == "SEARCH_BACKEND_ERROR"


async def test_a_write_lays_the_callers_key_aside_for_its_job(database: StoreDatabase, tenant: str) -> None:
    files = Files(database, tenant, key="sk-secret")
    await files.put("/a")
    assert await files.jobs() == [("UPSERT", "/a", "reference-1")]
    assert [key for key, _ in files.kept] == ["sk-secret"]
    assert await files.code("write", path="bad", content="") == "INVALID_PATH"
    assert len(files.kept) == 1


async def test_the_key_of_a_change_that_is_refused_is_given_up(database: StoreDatabase, tenant: str) -> None:
    files = Files(database, tenant, key="sk-secret")
    await files.put("/a", content="x")
    assert files.discarded == []
    assert await files.code("write", path="/a/b", content="x") == "NOT_DIRECTORY"
    assert await files.code("write", path="/a", content="x", create_only=True) == "ALREADY_EXISTS"
    assert await files.code("write", path="/a", content="x", if_version=99) == "CONFLICT"
    assert await files.code("rename", from_path="/none", to_path="/b") == "NOT_FOUND"
    assert await files.code("restore", path="/none", version=7) == "NOT_FOUND"
    assert len(files.discarded) == len(files.kept) - 1 == 5


@pytest.mark.contract("S9.3-9")
async def test_a_bad_path_is_told_before_anything_about_the_content(database: StoreDatabase, tenant: str) -> None:
    files = Files(database, tenant)
    for rest in ({"content": "x" * 3_000_000}, {"content": "x", "content_encoding": "latin-1"}):
        assert await files.code("write", path="bad", **rest) == "INVALID_PATH"
