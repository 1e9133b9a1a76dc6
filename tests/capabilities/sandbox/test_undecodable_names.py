"""Names that are not UTF-8, in every tool."""

from __future__ import annotations

import os
from pathlib import Path

from support.client import ToolClient
from support.sandbox_server import Box
from support.trees import make_tree

NO_UTF8_NAME = os.fsdecode(b"caf\xe9.txt")


def across(source: str, dest: str) -> dict[str, str]:
    return {"source_root": "source", "source_path": source, "dest_root": "dest", "dest_path": dest}


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
