"""Writing files: content, mode and owner, and concurrent callers."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import anyio
import pytest

from support.client import ToolClient, connected
from support.sandbox_server import Box
from support.trees import make_tree

PATCH = "--- a.txt\n+++ a.txt\n@@ -1 +1 @@\n-old\n+new\n"


def sha256(content: str | bytes) -> str:
    return hashlib.sha256(content.encode() if isinstance(content, str) else content).hexdigest()


def within(source: str, dest: str) -> dict[str, str]:
    return {"source_root": "workspace", "source_path": source, "dest_root": "workspace", "dest_path": dest}


async def change(client: ToolClient, how: str) -> None:
    """Put `new` into a.txt of the workspace in one of the four ways."""
    match how:
        case "patch":
            await client.call("patch_file", root="workspace", path="a.txt", patch=PATCH)
        case "copy":
            await client.call("copy", **within("other.txt", "a.txt"))
        case _:
            await client.call("write_file", root="workspace", path="a.txt", content="new\n", mode=how)


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
