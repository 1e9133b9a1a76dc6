"""Names that are not UTF-8: every tool accepts and returns their escaped form."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from support.client import ToolClient
from support.sandbox_server import Box
from support.trees import make_tree

DIRECTORY, FILE = "d\\xff", "d\\xff/f\\xfe.txt"
PATCH = "--- a\n+++ b\n@@ -1 +1 @@\n-needle\n+other\n"

ANSWERED: list[tuple[str, dict[str, Any]]] = [
    ("list_folder", {"path": DIRECTORY}),
    ("read_file", {"path": FILE}),
    ("read_files", {"paths": [FILE, "d\\xff/none\\xfe"]}),
    ("write_file", {"path": FILE, "content": "x"}),
    ("write_file", {"path": FILE, "content": "x", "mode": "append"}),
    ("write_file", {"path": "new\\xfd/f\\xfe", "content": "x", "mode": "create_only"}),
    ("patch_file", {"path": FILE, "patch": PATCH}),
    ("patch_file", {"path": FILE, "patch": PATCH, "dry_run": True}),
    ("remove_file", {"path": FILE}),
    ("create_folder", {"path": "new\\xfd"}),
    ("remove_folder", {"path": DIRECTORY}),
    ("stat_file", {"path": FILE}),
    ("stat_file", {"path": DIRECTORY}),
    ("stat_file", {"path": "link\\xfd"}),
    ("hash_file", {"path": FILE, "algorithm": "sha256"}),
    ("permissions_file", {"path": FILE}),
    ("grep", {"path": DIRECTORY, "pattern": "needle"}),
    ("grep", {"path": FILE, "pattern": "needle", "output_mode": "count"}),
    ("glob", {"path": DIRECTORY, "pattern": "*"}),
]
REFUSED: list[tuple[str, dict[str, Any], str]] = [
    ("list_folder", {"path": FILE}, "NOT_A_DIRECTORY"),
    ("read_file", {"path": DIRECTORY}, "IS_A_DIRECTORY"),
    ("read_file", {"path": "d\\xff/none\\xfe"}, "NOT_FOUND"),
    ("write_file", {"path": DIRECTORY, "content": "x"}, "IS_A_DIRECTORY"),
    ("write_file", {"path": f"{FILE}/x\\xfe", "content": "x"}, "NOT_A_DIRECTORY"),
    ("write_file", {"path": FILE, "content": "x", "mode": "create_only"}, "ALREADY_EXISTS"),
    ("write_file", {"path": FILE, "content": "x", "if_match": "0" * 64}, "CONFLICT"),
    ("write_file", {"path": "broken\\xfd", "content": "x"}, "NOT_FOUND"),
    ("patch_file", {"path": FILE, "patch": PATCH.replace("needle", "no")}, "PATCH_FAILED"),
    ("remove_file", {"path": DIRECTORY}, "IS_A_DIRECTORY"),
    ("create_folder", {"path": FILE}, "NOT_A_DIRECTORY"),
    ("create_folder", {"path": f"{FILE}/x\\xfe"}, "NOT_A_DIRECTORY"),
    ("remove_folder", {"path": FILE}, "NOT_A_DIRECTORY"),
    ("stat_file", {"path": "d\\xff/none\\xfe"}, "NOT_FOUND"),
    ("hash_file", {"path": "fifo\\xfd", "algorithm": "md5"}, "NOT_A_REGULAR_FILE"),
    ("permissions_file", {"path": "none\\xfe"}, "NOT_FOUND"),
    ("grep", {"path": "fifo\\xfd", "pattern": "x"}, "NOT_A_REGULAR_FILE"),
    ("glob", {"path": FILE, "pattern": "*"}, "NOT_A_DIRECTORY"),
    ("read_file", {"path": "out\\xfd/x"}, "PATH_ESCAPES_ROOT"),
]


def _furnish(root: Path) -> None:
    top = os.fsencode(root)
    os.mkdir(top + b"/d\xff")
    Path(os.fsdecode(top + b"/d\xff/f\xfe.txt")).write_text("needle\n")
    os.symlink(b"d\xff/f\xfe.txt", top + b"/link\xfd")
    os.symlink(b"nowhere\xff", top + b"/broken\xfd")
    os.symlink(b"/", top + b"/out\xfd")
    os.mkfifo(top + b"/fifo\xfd")


def _require_readable(value: object) -> None:
    """Results lose no byte: they contain neither unpaired surrogates nor replacement characters."""
    if isinstance(value, dict):
        for inner in value.values():
            _require_readable(inner)
    elif isinstance(value, list):
        for inner in value:
            _require_readable(inner)
    elif isinstance(value, str):
        value.encode()
        assert not {"?", "\ufffd"} & set(value), value
        assert "udcf" not in value


@pytest.mark.parametrize(("tool", "arguments"), ANSWERED)
async def test_every_tool_takes_and_gives_names_that_are_not_utf8(
    client: ToolClient, workspace: Path, tool: str, arguments: dict[str, Any]
) -> None:
    _furnish(workspace)

    answer = await client.call(tool, root="workspace", **arguments)

    _require_readable(answer)
    if "path" in answer:
        assert answer["path"] == arguments["path"]
    if "name" in answer:
        assert answer["name"] == arguments["path"].rpartition("/")[2]


@pytest.mark.parametrize(("tool", "arguments", "code"), REFUSED)
async def test_errors_spell_such_names_as_the_caller_did(
    client: ToolClient, workspace: Path, tool: str, arguments: dict[str, Any], code: str
) -> None:
    _furnish(workspace)

    error = await client.fails(tool, root="workspace", **arguments)

    _require_readable(error)
    assert error["code"] == code
    assert error["details"]["path"] == arguments["path"]
    assert error["message"].count(arguments["path"]) == 1 or tool == "patch_file"


@pytest.mark.parametrize("tool", ["copy", "move"])
async def test_a_tree_of_such_names_goes_from_root_to_root(client: ToolClient, roots: Box, tool: str) -> None:
    _furnish(roots.root("source"))

    for source, wanted in (("d\\xff", "e\\xee"), ("link\\xfd", "l\\xee")):
        answer = await client.call(
            tool, source_root="source", source_path=source, dest_root="dest", dest_path=f"in\\xff/{wanted}"
        )
        _require_readable(answer)
    for source in ("out\\xfd", "fifo\\xfd", "none\\xff"):
        error = await client.fails(tool, source_root="source", source_path=source, dest_root="dest", dest_path="x\\xff")
        _require_readable(error)
        assert error["details"]["path"] == source
        assert error["details"]["root"] == "source"

    found = sorted(os.listdir(os.fsencode(roots.root("dest")) + b"/in\xff"))
    assert found == [b"e\xee", b"l\xee"]


async def test_a_directory_with_hidden_files_is_named_as_it_is_spelled(client: ToolClient, roots: Box) -> None:
    top = os.fsencode(roots.root("hiding"))
    os.mkdir(top + b"/d\xff")
    Path(os.fsdecode(top + b"/d\xff/x.secret")).touch()

    error = await client.fails("remove_folder", root="hiding", path="d\\xff")

    _require_readable(error)
    assert error["code"] == "PATH_IGNORED"
    assert error["message"].count("d\\xff") == 1


async def test_the_header_of_a_diff_holds_the_bytes_of_the_name(client: ToolClient, workspace: Path) -> None:
    _furnish(workspace)

    answer = await client.call("patch_file", root="workspace", path=FILE, patch=PATCH, dry_run=True)

    assert answer["diff"].startswith('--- "a/d\\377/f\\376.txt"\n+++ "b/d\\377/f\\376.txt"\n')


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
