"""Read-only roots cannot be changed, and paths on the ignore list are hidden from every tool."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from armarium.foundation.audit import AuditFilter, read_records
from armarium.foundation.files.ignore import IgnoreRules
from armarium.foundation.files.own_files import lines_hiding
from support.client import ToolClient, connected
from support.sandbox_server import Box
from support.server import ServerProcess
from support.trees import make_tree, picture

PATCH = "--- a.txt\n+++ a.txt\n@@ -1 +1 @@\n-old\n+new\n"

READ_ONLY_REFUSES: dict[str, dict[str, Any]] = {
    "write_file": {"root": "guarded", "path": "a.txt", "content": "x"},
    "patch_file": {"root": "guarded", "path": "a.txt", "patch": PATCH},
    "remove_file": {"root": "guarded", "path": "a.txt"},
    "create_folder": {"root": "guarded", "path": "new"},
    "remove_folder": {"root": "guarded", "path": "folder"},
    "copy": {"source_root": "source", "source_path": "a.txt", "dest_root": "guarded", "dest_path": "b.txt"},
    "move": {"source_root": "guarded", "source_path": "a.txt", "dest_root": "dest", "dest_path": "a.txt"},
}


@pytest.mark.parametrize("tool", READ_ONLY_REFUSES)
async def test_a_read_only_root_is_not_changed(client: ToolClient, roots: Box, tool: str) -> None:
    make_tree(roots.root("guarded"), {"a.txt": "old\n", "folder/b.txt": "b"})
    make_tree(roots.root("source"), {"a.txt": "x"})
    before = picture(roots.root("guarded"))

    error = await client.fails(tool, **READ_ONLY_REFUSES[tool])

    assert error["code"] == "READ_ONLY_ROOT"
    assert "guarded" in error["message"]
    assert picture(roots.root("guarded")) == before
    assert picture(roots.root("dest")) == {}


async def test_a_read_only_root_can_be_read_searched_and_copied_from(client: ToolClient, roots: Box) -> None:
    make_tree(roots.root("guarded"), {"a.txt": "needle\n"})

    read = await client.call("read_file", root="guarded", path="a.txt")
    found = await client.call("grep", root="guarded", pattern="needle")
    await client.call("copy", source_root="guarded", source_path="a.txt", dest_root="dest", dest_path="a.txt")
    listed = await client.call("list_roots")

    assert read["content"] == "needle\n"
    assert found["total_matches"] == 1
    assert (roots.root("dest") / "a.txt").read_text() == "needle\n"
    guarded = next(root for root in listed["roots"] if root["name"] == "guarded")
    assert guarded["read_only"] is True
    assert not set(guarded["allowed_tools"]) & {"write_file", "patch_file", "remove_file", "move"}


HIDDEN_PATHS = ["a.secret", "deep/b.secret", "private/c.txt", "only-here.txt"]


def make_hidden(roots: Box) -> Path:
    hiding = roots.root("hiding")
    make_tree(hiding, dict.fromkeys(HIDDEN_PATHS, "needle in hiding\n"))
    make_tree(hiding, {"seen.txt": "needle seen\n", "deep/only-here.txt": "needle seen\n"})
    for number, path in enumerate(HIDDEN_PATHS):
        (hiding / f"link-{number}").symlink_to(path)
    (hiding / "way").symlink_to("private")
    return hiding


async def test_hidden_paths_are_not_listed_found_or_searched(client: ToolClient, roots: Box) -> None:
    make_hidden(roots)

    listed = await client.call("list_folder", root="hiding", path="")
    deep = await client.call("list_folder", root="hiding", path="deep")
    named = await client.call("glob", root="hiding", pattern="**", type_filter="file")
    by_regex = await client.call("glob", root="hiding", regex="secret|private|only")
    found = await client.call("grep", root="hiding", pattern="needle")

    links = [f"link-{number}" for number in range(4)]
    assert [entry["name"] for entry in listed["entries"]] == ["deep", *links, "seen.txt", "way"]
    assert listed["total"] == 7
    assert [entry["name"] for entry in deep["entries"]] == ["only-here.txt"]
    assert [match["path"] for match in named["matches"]] == ["deep/only-here.txt", "seen.txt"]
    assert [match["path"] for match in by_regex["matches"]] == ["deep/only-here.txt"]
    assert [match["file"] for match in found["matches"]] == ["deep/only-here.txt", "seen.txt"]


HIDDEN_CALLS: dict[str, Callable[[str], dict[str, Any]]] = {
    "read_file": lambda path: {"root": "hiding", "path": path},
    "stat_file": lambda path: {"root": "hiding", "path": path},
    "hash_file": lambda path: {"root": "hiding", "path": path, "algorithm": "md5"},
    "permissions_file": lambda path: {"root": "hiding", "path": path},
    "write_file": lambda path: {"root": "hiding", "path": path, "content": "new"},
    "patch_file": lambda path: {"root": "hiding", "path": path, "patch": "--- a\n+++ a\n@@ -0,0 +1 @@\n+new\n"},
    "remove_file": lambda path: {"root": "hiding", "path": path},
    "create_folder": lambda path: {"root": "hiding", "path": path},
    "grep": lambda path: {"root": "hiding", "path": path, "pattern": "needle"},
    "copy": lambda path: {
        "source_root": "hiding", "source_path": path, "dest_root": "dest", "dest_path": "taken.txt",
    },
    "move": lambda path: {
        "source_root": "hiding", "source_path": path, "dest_root": "dest", "dest_path": "taken.txt",
    },
}  # fmt: skip


@pytest.mark.parametrize("tool", HIDDEN_CALLS)
@pytest.mark.parametrize(
    "path", [*HIDDEN_PATHS, "deep/../a.secret", "new.secret", "/private/new.txt", "./only-here.txt"]
)
async def test_a_hidden_path_is_refused_by_every_tool(client: ToolClient, roots: Box, tool: str, path: str) -> None:
    hiding = make_hidden(roots)
    before = picture(hiding)

    error = await client.fails(tool, **HIDDEN_CALLS[tool](path))

    assert error["code"] == "PATH_IGNORED"
    assert "needle" not in str(error)
    assert picture(hiding) == before
    assert picture(roots.root("dest")) == {}


@pytest.mark.parametrize("tool", ["read_file", "hash_file", "write_file", "patch_file", "copy", "grep"])
@pytest.mark.parametrize("path", ["link-0", "link-1", "link-2", "link-3", "way/c.txt", "way/new/new.txt"])
async def test_a_hidden_path_is_not_reached_through_a_link(
    client: ToolClient, roots: Box, tool: str, path: str
) -> None:
    hiding = make_hidden(roots)
    before = picture(hiding)

    error = await client.fails(tool, **HIDDEN_CALLS[tool](path))

    assert error["code"] == "PATH_IGNORED" or (error["code"] == "NOT_FOUND" and path == "way/new/new.txt")
    assert picture(hiding) == before
    assert picture(roots.root("dest")) == {}


async def test_a_link_to_a_hidden_file_tells_nothing_about_it(client: ToolClient, roots: Box) -> None:
    make_hidden(roots)

    result = await client.result("stat_file", {"root": "hiding", "path": "link-0", "include_sha256": True})
    listed = await client.call("list_folder", root="hiding", path="")

    said = str(result.structured_content)
    assert hashlib.sha256(b"needle in hiding\n").hexdigest() not in said
    if not result.is_error:
        assert result.structured_content["target"].get("size") is None
    assert next(entry for entry in listed["entries"] if entry["name"] == "link-0")["target_type"] in (
        "missing",
        "external",
    )


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("remove_folder", {"root": "hiding", "path": "deep"}),
        ("remove_folder", {"root": "hiding", "path": "private"}),
        ("list_folder", {"root": "hiding", "path": "private"}),
        ("list_folder", {"root": "hiding", "path": "way"}),
        ("glob", {"root": "hiding", "path": "private", "pattern": "*"}),
        ("glob", {"root": "hiding", "path": "way", "pattern": "*"}),
        ("move", {"source_root": "hiding", "source_path": "deep", "dest_root": "hiding", "dest_path": "moved"}),
        ("move", {"source_root": "hiding", "source_path": "deep", "dest_root": "dest", "dest_path": "moved"}),
        ("move", {"source_root": "hiding", "source_path": "seen.txt", "dest_root": "hiding", "dest_path": "x.secret"}),
        ("copy", {"source_root": "hiding", "source_path": "seen.txt", "dest_root": "hiding", "dest_path": "x.secret"}),
        ("copy", {"source_root": "hiding", "source_path": "seen.txt", "dest_root": "hiding", "dest_path": "private/x"}),
        ("copy", {"source_root": "hiding", "source_path": "seen.txt", "dest_root": "hiding", "dest_path": "way/new/x"}),
        ("copy", {"source_root": "source", "source_path": "tree", "dest_root": "hiding", "dest_path": "way/new"}),
        ("copy", {"source_root": "source", "source_path": "tree", "dest_root": "hiding", "dest_path": "way"}),
        ("move", {"source_root": "source", "source_path": "tree", "dest_root": "hiding", "dest_path": "way/new"}),
        ("move", {"source_root": "hiding", "source_path": "seen.txt", "dest_root": "hiding", "dest_path": "way/new/x"}),
        ("create_folder", {"root": "hiding", "path": "way/new"}),
    ],
)
async def test_folders_with_hidden_files_are_neither_removed_nor_moved_and_nothing_is_put_among_them(
    client: ToolClient, roots: Box, tool: str, arguments: dict[str, Any]
) -> None:
    hiding = make_hidden(roots)
    make_tree(roots.root("source"), {"tree/a.txt": "a"})
    before = picture(hiding)

    error = await client.fails(tool, **arguments)

    assert error["code"] == "PATH_IGNORED"
    assert picture(hiding) == before
    assert picture(roots.root("dest")) == {}


async def test_copying_a_folder_leaves_hidden_files_behind(client: ToolClient, roots: Box) -> None:
    make_hidden(roots)

    await client.call("copy", source_root="hiding", source_path="", dest_root="dest", dest_path="all")

    names = set(picture(roots.root("dest") / "all"))
    assert {"seen.txt", "deep", "deep/only-here.txt"} <= names
    assert not names & {*HIDDEN_PATHS, "private"}
    assert "in hiding" not in "".join(path.read_text() for path in (roots.root("dest") / "all").rglob("*.txt"))


@pytest.mark.parametrize("tool", ["copy", "move"])
async def test_a_folder_brought_in_cannot_overwrite_hidden_files(client: ToolClient, roots: Box, tool: str) -> None:
    hiding = make_hidden(roots)
    make_tree(roots.root("source"), {"deep/b.secret": "forged", "deep/more.txt": "more"})

    await client.result(tool, {"source_root": "source", "source_path": "deep", "dest_root": "hiding", "dest_path": ""})

    assert (hiding / "deep/b.secret").read_text() == "needle in hiding\n"


@pytest.mark.parametrize("name", ["state", "my [st] *a?te\\ ", "#notes", "!important"])
def test_the_servers_own_files_are_hidden_whatever_their_directory_is_called(tmp_path: Path, name: str) -> None:
    hidden = IgnoreRules.from_lines(lines_hiding([tmp_path / name], str(tmp_path)))
    assert hidden.hides(f"{name}/secret.token", False)
    assert not hidden.hides("other/secret.token", False)


async def test_an_audit_trail_inside_a_root_is_nobody_elses(tmp_path: Path) -> None:
    (tmp_path / "root").mkdir()
    config = {
        "host": "127.0.0.1",
        "roots": [{"name": "root", "path": str(tmp_path / "root"), "allowed_tools": ["*"]}],
        "audit": {"enabled": True, "file": str(tmp_path / "root/logs/trail.sqlite")},
    }
    with ServerProcess.mcp_filesystem(tmp_path, config) as server:
        async with connected(server.url) as client:
            listed = await client.call("list_folder", root="root", path="logs")
            found = await client.call("glob", root="root", path="", pattern="**/*")
            codes = [
                (await client.fails(tool, root="root", path=f"logs/trail.sqlite{ending}", **more))["code"]
                for ending in ("", "-wal", "-shm", "-journal")
                for tool, more in (
                    ("read_file", {}),
                    ("write_file", {"content": "mine"}),
                    ("write_file", {"content": "mine", "mode": "append"}),
                    ("remove_file", {}),
                )
            ]
            kept = await client.fails("remove_folder", root="root", path="logs")

    assert listed["entries"] == []
    assert [match["path"] for match in found["matches"]] == ["logs"]
    assert codes == ["PATH_IGNORED"] * 16
    assert kept["code"] == "PATH_IGNORED"
    assert read_records(tmp_path / "root/logs/trail.sqlite", AuditFilter(), last=1)
