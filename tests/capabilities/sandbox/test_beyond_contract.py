"""What the sandbox does beyond its contract: conditional writes, dry runs, pages, tails, hidden paths."""

from __future__ import annotations

import base64
import hashlib
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import jsonschema_rs
import pytest
from sandbox_server import Box

from armarium.capabilities.sandbox.reads.metadata import iso_time
from support.client import ToolClient, connected
from support.trees import make_tree, picture

WRONG_HASH = "0" * 64
PATCH = "--- a.txt\n+++ a.txt\n@@ -1 +1 @@\n-old\n+new\n"
NO_UTF8_NAME = os.fsdecode(b"caf\xe9.txt")


def sha256(content: str | bytes) -> str:
    return hashlib.sha256(content.encode() if isinstance(content, str) else content).hexdigest()


def within(source: str, dest: str) -> dict[str, str]:
    return {"source_root": "workspace", "source_path": source, "dest_root": "workspace", "dest_path": dest}


def across(source: str, dest: str) -> dict[str, str]:
    return {"source_root": "source", "source_path": source, "dest_root": "dest", "dest_path": dest}


# Reading


@pytest.mark.parametrize(
    ("content", "tail", "expected", "lines"),
    [
        ("1\n2\n3\n4\n5\n", 2, "4\n5\n", (4, 5)),
        ("1\n2\n3\n4\n5", 2, "4\n5", (4, 5)),
        ("1\n2\n3\n", 10, "1\n2\n3\n", (1, 3)),
        ("\n\n\n", 1, "\n", (3, 3)),
        ("", 3, "", None),
    ],
)
async def test_the_last_lines_are_read(
    client: ToolClient, workspace: Path, content: str, tail: int, expected: str, lines: tuple[int, int] | None
) -> None:
    make_tree(workspace, {"a.log": content})

    read = await client.call("read_file", root="workspace", path="a.log", tail_lines=tail)

    assert read["content"] == expected
    assert (read["start_line"], read["end_line"]) == lines if lines else "start_line" not in read
    assert read["lines_total"] == len(content.splitlines())


async def test_the_last_lines_of_a_file_far_over_the_threshold_are_read(client: ToolClient, workspace: Path) -> None:
    make_tree(workspace, {"big.log": b"".join(b"line %d\n" % number for number in range(1, 500_001))})

    read = await client.call("read_file", root="workspace", path="big.log", tail_lines=2)

    assert read["content"] == "line 499999\nline 500000\n"
    assert read["lines_total"] == 500_000


@pytest.mark.parametrize("other", ["offset_lines", "limit_lines", "offset_bytes", "limit_bytes"])
async def test_a_tail_excludes_other_windows(client: ToolClient, workspace: Path, other: str) -> None:
    make_tree(workspace, {"a.txt": "x\n"})

    error = await client.fails("read_file", root="workspace", path="a.txt", tail_lines=1, **{other: 1})

    assert error["code"] == "INVALID_ARGUMENT"


async def test_lines_are_numbered_when_asked(client: ToolClient, workspace: Path) -> None:
    make_tree(workspace, {"a.txt": "".join(f"text {number}\n" for number in range(1, 21)) + "unfinished"})

    whole = await client.call("read_file", root="workspace", path="a.txt", number_lines=True)
    part = await client.call(
        "read_file", root="workspace", path="a.txt", number_lines=True, offset_lines=9, limit_lines=2
    )
    tail = await client.call("read_file", root="workspace", path="a.txt", number_lines=True, tail_lines=1)

    numbers = [int(number) for number in re.findall(r"^ *(\d+)\t", whole["content"], re.MULTILINE)]
    assert numbers == list(range(1, 22))
    assert re.findall(r"^ *(\d+)\t(.*)$", part["content"], re.MULTILINE) == [("9", "text 9"), ("10", "text 10")]
    assert tail["content"].split("\t") == ["    21", "unfinished"]


async def test_several_files_are_read_at_once_and_one_that_fails_does_not_spoil_the_rest(
    client: ToolClient, roots: Box, workspace: Path
) -> None:
    make_tree(workspace, {"b.txt": "b", "a.txt": "a", "folder": None})
    (workspace / "out").symlink_to(roots.outside)

    answer = await client.call(
        "read_files", root="workspace", paths=["b.txt", "gone.txt", "a.txt", "folder", "out/secret.txt", "b.txt"]
    )

    assert [file.get("content") for file in answer["files"]] == ["b", None, "a", None, None, "b"]
    codes = [file["error"]["code"] for file in answer["files"] if "error" in file]
    assert codes == ["NOT_FOUND", "IS_A_DIRECTORY", "PATH_ESCAPES_ROOT"]
    assert answer["files"][0]["sha256"] == sha256("b")
    assert answer["files"][1]["path"] == "gone.txt"
    assert answer["count"] == 6


async def test_reading_several_files_goes_by_the_permission_to_read_one(client: ToolClient, roots: Box) -> None:
    make_tree(roots.root("readonly"), {"a.txt": "a"})

    allowed = await client.call("read_files", root="readonly", paths=["a.txt"])
    refused = await client.fails("read_files", root="restricted", paths=["a.txt"])

    assert allowed["files"][0]["content"] == "a"
    assert refused["message"] == "tool read_file not allowed on root restricted"


@pytest.mark.parametrize("paths", [[], ["a.txt"] * 101])
async def test_none_or_too_many_files_at_once_are_refused(client: ToolClient, paths: list[str]) -> None:
    error = await client.fails("read_files", root="workspace", paths=paths)

    assert error["code"] == "INVALID_ARGUMENT"
    assert "`paths`" in error["message"]


async def test_text_that_is_no_utf8_is_read_with_replacement_and_bytes_exactly(
    client: ToolClient, workspace: Path
) -> None:
    latin = "naïve café\nsecond\n".encode("latin-1")
    make_tree(workspace, {"latin.txt": latin})

    whole = await client.call("read_file", root="workspace", path="latin.txt")
    lines = await client.call("read_file", root="workspace", path="latin.txt", offset_lines=1, limit_lines=1)
    exact = await client.call("read_file", root="workspace", path="latin.txt", offset_bytes=0, limit_bytes=10)

    assert whole["content"] == "na\ufffdve caf\ufffd\nsecond\n"
    assert whole["encoding"] == "utf-8-replaced"
    assert whole["sha256"] == sha256(latin)
    assert lines["encoding"] == "utf-8-replaced"
    assert exact["encoding"] == "base64"
    assert exact["binary"] is True
    assert base64.b64decode(exact["content"]) == latin[:10]


async def test_binary_content_survives_as_base64(client: ToolClient, workspace: Path) -> None:
    content = bytes(range(256)) * 4
    make_tree(workspace, {"a.bin": content})

    whole = await client.call("read_file", root="workspace", path="a.bin")
    part = await client.call("read_file", root="workspace", path="a.bin", offset_bytes=100, limit_bytes=300)

    assert base64.b64decode(whole["content"]) == content
    assert (whole["binary"], whole["encoding"]) == (True, "base64")
    assert base64.b64decode(part["content"]) == content[100:400]


async def test_a_huge_limit_costs_no_memory(client: ToolClient, roots: Box, workspace: Path) -> None:
    """A limit of 10 GB is a bound, not an order: on a small file and on a sparse one of 20 GB."""
    make_tree(workspace, {"small.txt": "small"})
    with (workspace / "sparse.bin").open("wb") as file:
        file.truncate(20_000_000_000)
        file.seek(19_999_999_995)
        file.write(b"end\0\n")

    with roots.server.peak_memory() as growth:
        small = await client.call("read_file", root="workspace", path="small.txt", limit_bytes=10_000_000_000)
        end = await client.call(
            "read_file", root="workspace", path="sparse.bin", offset_bytes=19_999_999_990, limit_bytes=10_000_000_000
        )
        whole = await client.fails("read_file", root="workspace", path="sparse.bin")
    with roots.server.peak_memory() as bounded:
        part = await client.call("read_file", root="workspace", path="sparse.bin", limit_bytes=10_000_000_000)

    assert small["content"] == "small"
    assert base64.b64decode(end["content"]) == b"\0\0\0\0\0end\0\n"
    assert whole["code"] == "FILE_TOO_LARGE"
    assert growth.bytes < 16_000_000
    assert part["truncated"] is True
    assert 0 < len(base64.b64decode(part["content"])) <= 8 * 1024 * 1024
    assert bounded.bytes < 200_000_000


# Conditional and dry writes


CONDITIONAL: dict[str, dict[str, Any]] = {
    "write_file": {"root": "workspace", "path": "a.txt", "content": "new\n"},
    "patch_file": {"root": "workspace", "path": "a.txt", "patch": PATCH},
    "remove_file": {"root": "workspace", "path": "a.txt"},
    "move": within("a.txt", "new/b.txt"),
    "copy": within("a.txt", "new/b.txt"),
}


@pytest.mark.parametrize("tool", CONDITIONAL)
async def test_a_change_that_expects_another_content_is_a_conflict(
    client: ToolClient, workspace: Path, tool: str
) -> None:
    make_tree(workspace, {"a.txt": "old\n"})
    before = picture(workspace)

    error = await client.fails(tool, **CONDITIONAL[tool], if_match=WRONG_HASH)

    assert error["code"] == "CONFLICT"
    assert error["details"]["current_sha256"] == sha256("old\n")
    assert picture(workspace) == before


@pytest.mark.parametrize("tool", CONDITIONAL)
@pytest.mark.parametrize("spelling", [str.lower, str.upper])
async def test_a_change_that_expects_the_current_content_is_made(
    client: ToolClient, workspace: Path, tool: str, spelling: Callable[[str], str]
) -> None:
    make_tree(workspace, {"a.txt": "old\n"})
    before = picture(workspace)
    known = (await client.call("stat_file", root="workspace", path="a.txt", include_sha256=True))["sha256"]

    await client.call(tool, **CONDITIONAL[tool], if_match=spelling(known))

    assert known == sha256("old\n")
    assert picture(workspace) != before


@pytest.mark.parametrize("tool", ["write_file", "patch_file"])
@pytest.mark.parametrize("path", ["gone.txt", "no/such/folder/gone.txt"])
async def test_expecting_a_content_of_a_file_that_is_not_there_fails_and_creates_nothing(
    client: ToolClient, workspace: Path, tool: str, path: str
) -> None:
    error = await client.fails(tool, **CONDITIONAL[tool] | {"path": path}, if_match=WRONG_HASH)

    assert error["code"] in ("CONFLICT", "NOT_FOUND")
    assert "current_sha256" not in error.get("details", {})
    assert picture(workspace) == {}


async def test_a_hash_that_is_no_sha256_is_refused(client: ToolClient, workspace: Path) -> None:
    make_tree(workspace, {"a.txt": "old\n"})

    for wrong in ("", "abc", "g" * 64, "0" * 63, "0" * 65, "0" * 64 + "\n"):
        error = await client.fails("remove_file", root="workspace", path="a.txt", if_match=wrong)
        assert error["code"] == "INVALID_ARGUMENT"
    assert (workspace / "a.txt").exists()


@pytest.mark.parametrize("tool", ["copy", "move"])
async def test_a_directory_has_no_hash_to_expect(client: ToolClient, workspace: Path, tool: str) -> None:
    make_tree(workspace, {"folder/a.txt": "a"})

    error = await client.fails(tool, **within("folder", "other"), if_match=WRONG_HASH)

    assert error["code"] == "INVALID_ARGUMENT"
    assert sorted(os.listdir(workspace)) == ["folder"]


async def test_a_dry_run_shows_the_diff_and_writes_nothing(client: ToolClient, workspace: Path) -> None:
    make_tree(workspace, {"a.txt": "first\nold\nlast\n"})
    before = picture(workspace)
    shifted = "--- a.txt\n+++ a.txt\n@@ -1,3 +1,3 @@\n first\n-old\n+new\n last\n"

    dry = await client.call("patch_file", root="workspace", path="a.txt", patch=shifted, dry_run=True)
    fresh = await client.call(
        "patch_file",
        root="workspace",
        path="made/up.txt",
        dry_run=True,
        patch="--- /dev/null\n+++ b\n@@ -0,0 +1 @@\n+x\n",
    )
    unchanged = picture(workspace)
    applied = await client.call("patch_file", root="workspace", path="a.txt", patch=dry["diff"])

    assert dry["dry_run"] is True
    assert dry["hunks_applied"] == 1
    assert "-old\n+new\n" in dry["diff"]
    assert fresh["created"] is True
    assert unchanged == before
    assert applied["sha256"] == dry["sha256"] == sha256("first\nnew\nlast\n")
    assert "diff" not in applied


async def test_a_dry_run_of_a_patch_that_does_not_apply_fails_like_the_patch(
    client: ToolClient, workspace: Path
) -> None:
    make_tree(workspace, {"a.txt": "other\n"})

    dry = await client.fails("patch_file", root="workspace", path="a.txt", patch=PATCH, dry_run=True)
    real = await client.fails("patch_file", root="workspace", path="a.txt", patch=PATCH)

    assert dry == real
    assert dry["code"] == "PATCH_FAILED"


async def test_a_patch_that_fails_leaves_no_directories_behind(client: ToolClient, workspace: Path) -> None:
    error = await client.fails("patch_file", root="workspace", path="new/folder/a.txt", patch=PATCH)

    assert error["code"] == "PATCH_FAILED"
    assert picture(workspace) == {}


# Writing


async def test_empty_content_is_content(client: ToolClient, workspace: Path) -> None:
    make_tree(workspace, {"full.txt": "full", "log.txt": "kept"})

    created = await client.call("write_file", root="workspace", path="empty.txt", content="", mode="create_only")
    emptied = await client.call("write_file", root="workspace", path="full.txt", content="")
    appended = await client.call("write_file", root="workspace", path="log.txt", content="", mode="append")
    read = await client.call("read_file", root="workspace", path="empty.txt")

    assert (created["size"], emptied["size"], appended["size"]) == (0, 0, 0)
    assert created["sha256"] == emptied["sha256"] == sha256("")
    assert (workspace / "full.txt").read_text() == ""
    assert (workspace / "log.txt").read_text() == "kept"
    assert (read["content"], read["lines_total"], read["encoding"]) == ("", 0, "utf-8")


async def test_a_write_never_corrupts_bytes_that_are_no_utf8(client: ToolClient, workspace: Path) -> None:
    latin = "café\nold\n".encode("latin-1")
    make_tree(workspace, {"log.txt": latin, "code.txt": latin})
    patch = "--- code.txt\n+++ code.txt\n@@ -2 +2 @@\n-old\n+new é\n"

    await client.call("write_file", root="workspace", path="log.txt", content="über\n", mode="append")
    await client.call("patch_file", root="workspace", path="code.txt", patch=patch)

    assert (workspace / "log.txt").read_bytes() == latin + "über\n".encode()
    assert (workspace / "code.txt").read_bytes() == latin.replace(b"old", "new é".encode())


@pytest.mark.parametrize("mode", [0o640, 0o600, 0o755, 0o4755])
@pytest.mark.parametrize("how", ["overwrite", "append", "patch", "copy"])
async def test_a_changed_file_keeps_its_mode(client: ToolClient, workspace: Path, mode: int, how: str) -> None:
    make_tree(workspace, {"a.txt": "old\n", "other.txt": "new\n"})
    (workspace / "a.txt").chmod(mode)

    await change(client, how)

    assert (workspace / "a.txt").read_text().endswith("new\n")
    assert (workspace / "a.txt").stat().st_mode & 0o7777 == mode


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
@pytest.mark.parametrize("how", ["overwrite", "append", "patch", "copy"])
async def test_a_changed_file_keeps_its_owner(client: ToolClient, workspace: Path, how: str) -> None:
    make_tree(workspace, {"a.txt": "old\n", "other.txt": "new\n"})
    os.chown(workspace / "a.txt", 1234, 4321)
    (workspace / "a.txt").chmod(0o640)

    await change(client, how)

    status = (workspace / "a.txt").stat()
    assert (status.st_uid, status.st_gid, status.st_mode & 0o7777) == (1234, 4321, 0o640)


async def change(client: ToolClient, how: str) -> None:
    """Put `new` into a.txt of the workspace in one of the four ways."""
    match how:
        case "patch":
            await client.call("patch_file", root="workspace", path="a.txt", patch=PATCH)
        case "copy":
            await client.call("copy", **within("other.txt", "a.txt"))
        case _:
            await client.call("write_file", root="workspace", path="a.txt", content="new\n", mode=how)


async def test_a_copy_has_the_mode_of_its_source(client: ToolClient, workspace: Path) -> None:
    make_tree(workspace, {"run.sh": "#!/bin/sh\n", "tree/run.sh": "#!/bin/sh\n"})
    for name in ("run.sh", "tree/run.sh"):
        (workspace / name).chmod(0o750)

    await client.call("copy", **within("run.sh", "copied.sh"))
    await client.call("copy", **within("tree", "copied"))

    assert (workspace / "copied.sh").stat().st_mode & 0o777 == 0o750
    assert (workspace / "copied/run.sh").stat().st_mode & 0o777 == 0o750


@pytest.mark.parametrize("root", ["workspace", "hiding"])
async def test_concurrent_appends_lose_nothing(roots: Box, root: str) -> None:
    async def append(number: int) -> None:
        async with connected(roots.server.url) as client:
            for turn in range(15):
                line = f"client {number:02} turn {turn:02} {'x' * 1000}\n"
                await client.call("write_file", root=root, path="shared.log", content=line, mode="append")

    async with anyio.create_task_group() as clients:
        for number in range(20):
            clients.start_soon(append, number)

    lines = (roots.root(root) / "shared.log").read_text().splitlines()
    expected = [f"client {number:02} turn {turn:02} {'x' * 1000}" for number in range(20) for turn in range(15)]
    assert sorted(lines) == expected
    for number in range(20):
        turns = [line for line in lines if line.startswith(f"client {number:02}")]
        assert turns == sorted(turns), "each client's lines in its own order"
    assert os.listdir(roots.root(root)) == ["shared.log"]


@pytest.mark.parametrize("root", ["workspace", "hiding"])
async def test_a_file_being_replaced_is_read_whole_old_or_new(client: ToolClient, roots: Box, root: str) -> None:
    versions = [f"version {number}\n" * 2000 for number in range(60)]
    make_tree(roots.root(root), {"a.txt": versions[0]})
    (roots.root(root) / "link").symlink_to("a.txt")
    hashes = {sha256(version) for version in versions}
    seen: set[str] = set()
    writing = True

    async def watch(path: str) -> None:
        while writing:
            read = await client.call("read_file", root=root, path=path)
            hashed = await client.call("hash_file", root=root, path=path, algorithm="sha256")
            stat = await client.call("stat_file", root=root, path=path, include_sha256=True)
            await client.call("permissions_file", root=root, path=path)
            copied = {"source_root": root, "source_path": path, "dest_root": "dest", "dest_path": f"{path}-copied"}
            await client.call("copy", **copied)
            taken = sha256((roots.root("dest") / f"{path}-copied").read_bytes())
            seen.update([read["sha256"], hashed["hash"], stat["sha256"], taken])

    async with anyio.create_task_group() as tasks:
        for path in ("a.txt", "link"):
            tasks.start_soon(watch, path)
        for version in versions[1:]:
            await client.call("write_file", root=root, path="a.txt", content=version)
        writing = False

    assert seen <= hashes
    assert len(seen) > 2


async def test_of_concurrent_creators_exactly_one_creates(client: ToolClient, workspace: Path) -> None:
    outcomes: list[str] = []

    async def create(number: int) -> None:
        result = await client.result(
            "write_file",
            {"root": "workspace", "path": "one.txt", "content": f"by {number}", "mode": "create_only"},
        )
        outcomes.append(result.structured_content["error"]["code"] if result.is_error else f"by {number}")

    async with anyio.create_task_group() as tasks:
        for number in range(20):
            tasks.start_soon(create, number)

    winners = [outcome for outcome in outcomes if outcome != "ALREADY_EXISTS"]
    assert winners == [(workspace / "one.txt").read_text()]
    assert len(outcomes) == 20


async def test_fifty_calls_at_once_are_all_answered(client: ToolClient, workspace: Path) -> None:
    """NFR-005."""
    make_tree(workspace, {f"{number}.txt": f"content {number}" for number in range(50)})
    contents: dict[int, str] = {}

    async def read(number: int) -> None:
        contents[number] = (await client.call("read_file", root="workspace", path=f"{number}.txt"))["content"]

    async with anyio.create_task_group() as tasks:
        for number in range(50):
            tasks.start_soon(read, number)

    assert contents == {number: f"content {number}" for number in range(50)}


# Listing and searching


@pytest.mark.parametrize("limit", [1, 3, 5, 10, 11])
async def test_a_folder_is_listed_page_by_page(client: ToolClient, workspace: Path, limit: int) -> None:
    names = [f"{number:02}.txt" for number in range(10)]
    make_tree(workspace, dict.fromkeys(names, ""))

    pages: list[list[str]] = []
    cursor: dict[str, str] = {}
    while True:
        page = await client.call("list_folder", root="workspace", path="", limit=limit, **cursor)
        pages.append([entry["name"] for entry in page["entries"]])
        assert page["total"] == 10
        assert page["count"] == len(page["entries"]) <= limit
        if "next_cursor" not in page:
            break
        cursor = {"cursor": page["next_cursor"]}

    assert [name for page in pages for name in page] == names
    assert len(pages) == -(-10 // limit)


async def test_pages_neither_repeat_nor_skip_when_entries_come_and_go(client: ToolClient, workspace: Path) -> None:
    make_tree(workspace, dict.fromkeys(["b", "c", "d", "e"], ""))

    first = await client.call("list_folder", root="workspace", path="", limit=2)
    (workspace / "a").touch()
    (workspace / "c").unlink()
    rest = await client.call("list_folder", root="workspace", path="", limit=9, cursor=first["next_cursor"])

    assert [entry["name"] for entry in first["entries"]] == ["b", "c"]
    assert [entry["name"] for entry in rest["entries"]] == ["d", "e"]


async def test_names_that_are_no_utf8_are_shown_escaped_everywhere(client: ToolClient, workspace: Path) -> None:
    make_tree(workspace, {NO_UTF8_NAME: "needle\n", "zoë.txt": "needle\n"})
    (workspace / "link").symlink_to(NO_UTF8_NAME)

    listed = await client.call("list_folder", root="workspace", path="")
    page = await client.call("list_folder", root="workspace", path="", limit=1)
    rest = await client.call("list_folder", root="workspace", path="", cursor=page["next_cursor"])
    named = await client.call("glob", root="workspace", pattern="*.txt")
    found = await client.call("grep", root="workspace", pattern="needle")
    stat = await client.call("stat_file", root="workspace", path="link")
    read = await client.call("read_file", root="workspace", path="link")

    assert [entry["name"] for entry in listed["entries"]] == ["caf\\xe9.txt", "link", "zoë.txt"]
    assert [entry["name"] for entry in page["entries"] + rest["entries"]] == ["caf\\xe9.txt", "link", "zoë.txt"]
    assert [match["path"] for match in named["matches"]] == ["caf\\xe9.txt", "zoë.txt"]
    assert [match["file"] for match in found["matches"]] == ["caf\\xe9.txt", "zoë.txt"]
    assert stat["target"]["path"] == "caf\\xe9.txt"
    assert read["content"] == "needle\n"


async def test_a_name_that_is_no_utf8_can_be_used_as_it_is_shown(client: ToolClient, workspace: Path) -> None:
    make_tree(workspace, {NO_UTF8_NAME: "needle\n", "caf\\xe9.txt": "the look-alike\n"})
    at = {"root": "workspace"}

    listed = await client.call("list_folder", **at, path="")
    read = {entry["name"]: await client.call("read_file", **at, path=entry["name"]) for entry in listed["entries"]}
    await client.call("write_file", **at, path="caf\\xe9.txt", content="more\n", mode="append")
    appended = (workspace / NO_UTF8_NAME).read_text()
    await client.call(
        "move", source_root="workspace", source_path="caf\\xe9.txt", dest_root="workspace", dest_path="d\\xfc/\\xff"
    )
    moved = sorted(os.listdir(bytes(workspace)))
    inside = await client.call("grep", **at, path="d\\xfc", pattern="more")
    await client.call("remove_file", **at, path="d\\xfc/\\xff")
    refused = await client.fails("read_file", **at, path="\\xc3\\xa9")

    assert {name: content["content"] for name, content in read.items()} == {
        "caf\\xe9.txt": "needle\n",
        "caf\\x5cxe9.txt": "the look-alike\n",
    }
    assert all(content["path"] == name for name, content in read.items())
    assert appended == "needle\nmore\n"
    assert moved == [b"caf\\xe9.txt", b"d\xfc"]
    assert [match["file"] for match in inside["matches"]] == ["d\\xfc/\\xff"]
    assert os.listdir(bytes(workspace) + b"/d\xfc") == []
    assert refused["code"] == "INVALID_PATH"


async def test_trees_with_names_that_are_no_utf8_are_copied_moved_and_removed(client: ToolClient, roots: Box) -> None:
    folder = os.fsdecode(b"d\xfc")
    make_tree(roots.root("source"), {f"tree/{folder}/{NO_UTF8_NAME}": "x"})
    os.mkfifo(roots.root("source") / "tree" / os.fsdecode(b"fifo\xff"))
    (roots.root("source") / "way").symlink_to(f"tree/{folder}")

    copied = await client.call("copy", **across("tree", "tree"))
    refused = await client.fails("move", **across("tree", "moved"))
    into_link = await client.call("copy", **across("way", "from-link"))
    into = await client.call("copy", source_root="dest", source_path="from-link", dest_root="source", dest_path="way")
    removed = await client.call("remove_folder", root="dest", path="tree")

    assert copied["files_copied"] == 1
    assert copied["skipped"] == ["tree/fifo\\xff"]
    assert refused["code"] == "NOT_A_REGULAR_FILE"
    assert "fifo\\xff" in refused["message"]
    assert into_link["files_copied"] == 1
    assert into["destination"].startswith("root://source/tree/d")
    assert removed["entries_removed"] == 3


async def test_what_git_ignores_is_left_out_when_asked(client: ToolClient, workspace: Path) -> None:
    make_tree(
        workspace,
        {
            ".gitignore": "*.log\nbuild/\n!keep.log\n",
            ".git/config": "needle\n",
            "a.txt": "needle\n",
            "a.log": "needle\n",
            "keep.log": "needle\n",
            "build/out.txt": "needle\n",
            "sub/.gitignore": "local.txt\n",
            "sub/local.txt": "needle\n",
            "sub/other.txt": "needle\n",
            "local.txt": "needle\n",
        },
    )
    visible = ["a.txt", "keep.log", "local.txt", "sub/other.txt"]

    found = await client.call("grep", root="workspace", pattern="needle", respect_gitignore=True)
    named = await client.call("glob", root="workspace", pattern="**/*.*", type_filter="file", respect_gitignore=True)
    below = await client.call("grep", root="workspace", pattern="needle", path="sub", respect_gitignore=True)
    everything = await client.call("grep", root="workspace", pattern="needle")

    assert [match["file"] for match in found["matches"]] == visible
    assert [match["path"] for match in named["matches"]] == [".gitignore", *visible[:3], "sub/.gitignore", visible[3]]
    assert [match["file"] for match in below["matches"]] == ["sub/other.txt"]
    assert everything["total_matches"] == 8


@pytest.mark.parametrize(
    ("nanoseconds", "expected"),
    [
        (0, "1970-01-01T00:00:00.000000Z"),
        (-1_000, "1969-12-31T23:59:59.999999Z"),
        (951_782_400_000_000_000, "2000-02-29T00:00:00.000000Z"),
        (10**13 * 10**9, "9999-12-31T"),
        (-(10**13) * 10**9, "0001-01-01T"),
    ],
)
def test_any_time_a_file_system_stores_can_be_told(nanoseconds: int, expected: str) -> None:
    assert iso_time(nanoseconds).startswith(expected)


# Schemas


async def test_every_answer_fits_the_advertised_schema(client: ToolClient, roots: Box, workspace: Path) -> None:
    """`structuredContent` against `outputSchema`, for every tool, a success and an error each."""
    make_tree(workspace, {"a.txt": "old\nneedle\n", "b.bin": b"\0\1", "remove.txt": "x", "folder/c.txt": "c"})
    (workspace / "link").symlink_to("a.txt")
    (workspace / "out").symlink_to(roots.outside)
    successes: list[tuple[str, dict[str, Any]]] = [
        ("list_roots", {}),
        ("list_folder", {"root": "workspace", "path": "", "limit": 2}),
        ("list_folder", {"root": "workspace", "path": ""}),
        ("read_file", {"root": "workspace", "path": "a.txt"}),
        ("read_file", {"root": "workspace", "path": "b.bin"}),
        ("read_file", {"root": "workspace", "path": "a.txt", "tail_lines": 1}),
        ("read_file", {"root": "workspace", "path": "a.txt", "offset_bytes": 1}),
        ("read_files", {"root": "workspace", "paths": ["a.txt", "gone", "b.bin"]}),
        ("stat_file", {"root": "workspace", "path": "link", "include_sha256": True}),
        ("stat_file", {"root": "workspace", "path": "out"}),
        ("stat_file", {"root": "workspace", "path": "folder"}),
        ("hash_file", {"root": "workspace", "path": "a.txt", "algorithm": "md5"}),
        ("permissions_file", {"root": "workspace", "path": "a.txt"}),
        ("grep", {"root": "workspace", "pattern": "needle", "context_lines": 1}),
        ("glob", {"root": "workspace", "pattern": "**"}),
        ("patch_file", {"root": "workspace", "path": "a.txt", "patch": PATCH, "dry_run": True}),
        ("patch_file", {"root": "workspace", "path": "a.txt", "patch": PATCH}),
        ("write_file", {"root": "workspace", "path": "new.txt", "content": "new"}),
        ("create_folder", {"root": "workspace", "path": "new"}),
        ("copy", within("folder", "copied")),
        ("copy", within("a.txt", "copied.txt")),
        ("move", within("copied.txt", "moved.txt")),
        ("remove_file", {"root": "workspace", "path": "remove.txt"}),
        ("remove_folder", {"root": "workspace", "path": "folder"}),
    ]
    listed = await client.mcp.list_tools()
    validators = {tool.name: jsonschema_rs.validator_for(tool.output_schema) for tool in listed.tools}
    for tool in listed.tools:
        assert tool.output_schema["type"] == "object"

    for tool, arguments in successes:
        result = await client.result(tool, arguments)
        assert not result.is_error, result.structured_content
        validators[tool].validate(result.structured_content)
    for tool, validator in validators.items():
        result = await client.result(tool, {"no_such_argument": 1})
        assert result.is_error
        validator.validate(result.structured_content)
        assert not validator.is_valid({"something": "else"})
    assert {tool for tool, _ in successes} == set(validators)
