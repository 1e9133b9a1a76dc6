"""Symbolic links are handled as links, and FIFOs, sockets and devices never block a call."""

from __future__ import annotations

import os
import socket
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest

from support.client import ToolClient
from support.sandbox_server import CANARY, Box
from support.trees import make_tree, picture

AT_ONCE_S = 5


def within(source: str, dest: str) -> dict[str, str]:
    return {"source_root": "workspace", "source_path": source, "dest_root": "workspace", "dest_path": dest}


def across(source: str, dest: str) -> dict[str, str]:
    return {"source_root": "source", "source_path": source, "dest_root": "dest", "dest_path": dest}


def make_links(roots: Box, directory: Path) -> None:
    """A link of every kind: to a file and a folder inside, to the outside, to nothing, to itself."""
    make_tree(directory, {"file.txt": "content", "folder/inner.txt": "inner"})
    for name, target in {
        "to-file": "file.txt",
        "to-folder": "folder",
        "to-outside": str(roots.outside / "secret.txt"),
        "to-outside-folder": str(roots.outside),
        "to-nothing": "gone.txt",
        "to-itself": "to-itself",
    }.items():
        (directory / name).symlink_to(target)


LINKS = ["to-file", "to-folder", "to-outside", "to-outside-folder", "to-nothing", "to-itself"]


@pytest.mark.parametrize("link", LINKS)
async def test_removing_a_link_removes_the_link_alone(
    client: ToolClient, roots: Box, workspace: Path, link: str
) -> None:
    make_links(roots, workspace)
    before = picture(workspace)

    await client.call("remove_file", root="workspace", path=link)

    assert picture(workspace) == {name: entry for name, entry in before.items() if name != link}


@pytest.mark.parametrize("link", LINKS)
async def test_moving_a_link_moves_the_link_itself(client: ToolClient, roots: Box, workspace: Path, link: str) -> None:
    make_links(roots, workspace)
    before = picture(workspace)

    await client.call("move", **within(link, "moved"))

    assert picture(workspace) == {("moved" if name == link else name): entry for name, entry in before.items()}


@pytest.mark.parametrize("link", LINKS)
async def test_a_link_is_not_a_folder_to_remove(client: ToolClient, roots: Box, workspace: Path, link: str) -> None:
    make_links(roots, workspace)
    before = picture(workspace)

    error = await client.fails("remove_folder", root="workspace", path=link)

    assert error["code"] == "NOT_A_DIRECTORY"
    assert "link" in error["message"]
    assert picture(workspace) == before


async def test_moving_over_a_link_replaces_the_link(client: ToolClient, roots: Box, workspace: Path) -> None:
    make_links(roots, workspace)
    make_tree(workspace, {"new.txt": "new", "other.txt": "other"})

    await client.call("move", **within("new.txt", "to-nothing"))
    await client.call("move", **within("other.txt", "to-file"))

    assert (workspace / "to-nothing").read_text() == "new"
    assert not (workspace / "to-nothing").is_symlink()
    assert (workspace / "file.txt").read_text() == "content"
    assert not (workspace / "to-file").is_symlink()


async def test_a_link_is_described_with_what_it_leads_to(client: ToolClient, roots: Box, workspace: Path) -> None:
    make_links(roots, workspace)

    found = {link: await client.call("stat_file", root="workspace", path=link) for link in LINKS}

    assert all(each["is_symlink"] and each["type"] == "symlink" for each in found.values())
    assert {link: each["target"]["type"] for link, each in found.items()} == {
        "to-file": "file",
        "to-folder": "directory",
        "to-outside": "external",
        "to-outside-folder": "external",
        "to-nothing": "missing",
        "to-itself": "missing",
    }
    assert found["to-folder"]["target"]["is_directory"] is True
    assert found["to-folder"]["target"]["path"] == "folder"
    for link in ("to-outside", "to-outside-folder", "to-nothing", "to-itself"):
        assert set(found[link]["target"]) == {"type"}, "nothing is told about what is not inside"


async def test_the_permissions_told_are_the_links_own(client: ToolClient, roots: Box, workspace: Path) -> None:
    make_links(roots, workspace)

    for link in LINKS:
        found = await client.call("permissions_file", root="workspace", path=link)
        assert found["mode_string"] == "lrwxrwxrwx"


async def test_writing_through_a_link_changes_what_it_leads_to(client: ToolClient, roots: Box, workspace: Path) -> None:
    make_links(roots, workspace)

    await client.call("write_file", root="workspace", path="to-file", content="changed")
    await client.call("write_file", root="workspace", path="to-folder/new.txt", content="new")

    assert (workspace / "to-file").is_symlink()
    assert (workspace / "file.txt").read_text() == "changed"
    assert (workspace / "folder/new.txt").read_text() == "new"


@pytest.mark.parametrize("link", ["to-outside", "to-outside-folder", "to-nothing", "to-itself"])
@pytest.mark.parametrize("mode", ["overwrite", "append", "create_only"])
async def test_writing_through_a_link_that_leads_nowhere_inside_is_refused(
    client: ToolClient, roots: Box, workspace: Path, link: str, mode: str
) -> None:
    make_links(roots, workspace)
    before = picture(workspace)

    error = await client.fails("write_file", root="workspace", path=link, content="x", mode=mode)

    assert error["code"] in ("PATH_ESCAPES_ROOT", "NOT_FOUND", "ALREADY_EXISTS")
    assert (error["code"] == "PATH_ESCAPES_ROOT") == link.startswith("to-outside")
    assert picture(workspace) == before


async def test_copying_a_link_copies_what_it_leads_to(client: ToolClient, roots: Box, workspace: Path) -> None:
    make_links(roots, workspace)

    file = await client.call("copy", **within("to-file", "copied.txt"))
    folder = await client.call("copy", **within("to-folder", "copied"))
    refused = [await client.fails("copy", **within(link, "refused")) for link in LINKS[2:]]

    assert (file["is_directory"], folder["is_directory"]) == (False, True)
    assert not (workspace / "copied.txt").is_symlink()
    assert (workspace / "copied.txt").read_text() == "content"
    assert (workspace / "copied/inner.txt").read_text() == "inner"
    assert [error["code"] for error in refused] == ["PATH_ESCAPES_ROOT"] * 2 + ["NOT_FOUND"] * 2
    assert not (workspace / "refused").exists()


async def test_a_copied_folder_keeps_inside_links_and_leaves_out_those_that_lead_out(
    client: ToolClient, roots: Box
) -> None:
    make_links(roots, roots.root("source") / "tree")

    copied = await client.call("copy", **across("tree", "tree"))

    tree = roots.root("dest") / "tree"
    assert os.readlink(tree / "to-file") == "file.txt"
    assert os.readlink(tree / "to-folder") == "folder"
    assert os.readlink(tree / "to-nothing") == "gone.txt"
    assert sorted(copied["skipped"]) == ["tree/to-outside", "tree/to-outside-folder"]
    assert not os.path.lexists(tree / "to-outside")
    assert CANARY not in "".join(path.read_text() for path in tree.rglob("*.txt"))


@pytest.mark.parametrize("link", ["to-outside", "to-outside-folder"])
async def test_a_link_that_leads_out_is_not_carried_to_another_root(client: ToolClient, roots: Box, link: str) -> None:
    make_links(roots, roots.root("source"))
    before = picture(roots.root("source"))

    error = await client.fails("move", **across(link, "new/place"))

    assert error["code"] == "PATH_ESCAPES_ROOT"
    assert picture(roots.root("source")) == before
    assert picture(roots.root("dest")) == {}


@pytest.mark.parametrize("lost", ["to-outside", "fifo"])
async def test_a_folder_is_not_moved_to_another_root_when_something_in_it_would_be_lost(
    client: ToolClient, roots: Box, lost: str
) -> None:
    make_tree(roots.root("source"), {"tree/a.txt": "a", "tree/z/z.txt": "z"})
    if lost == "fifo":
        os.mkfifo(roots.root("source") / "tree/z/fifo")
    else:
        (roots.root("source") / "tree/z/link").symlink_to(roots.outside)
    before = picture(roots.root("source"))

    error = await client.fails("move", **across("tree", "new/tree"))

    assert error["code"] == ("NOT_A_REGULAR_FILE" if lost == "fifo" else "PATH_ESCAPES_ROOT")
    entry = {"root": "source", "path": f"tree/z/{'fifo' if lost == 'fifo' else 'link'}"}
    assert error["details"] == entry
    roots.server.wait_for_log(lambda line: line.get("code") == error["code"] and entry.items() <= line.items())
    assert picture(roots.root("source")) == before
    assert picture(roots.root("dest")) == {}


@pytest.mark.parametrize("tool", ["copy", "move"])
@pytest.mark.parametrize("dest", ["tree/inside", "tree/sub/deeper", "way/inside"])
async def test_a_folder_is_not_put_into_itself(client: ToolClient, workspace: Path, tool: str, dest: str) -> None:
    make_tree(workspace, {"tree/sub/a.txt": "a"})
    (workspace / "way").symlink_to("tree")
    before = picture(workspace)

    error = await client.fails(tool, **within("tree", dest))

    assert error["code"] == "INVALID_ARGUMENT"
    assert picture(workspace) == before


async def test_a_file_copied_onto_itself_stays_whole(client: ToolClient, workspace: Path) -> None:
    make_tree(workspace, {"a.txt": "precious"})
    (workspace / "link").symlink_to("a.txt")

    for dest in ("a.txt", "link", "./a.txt"):
        error = await client.fails("copy", **within("a.txt", dest))
        assert error["code"] == "INVALID_ARGUMENT"
    assert (workspace / "a.txt").read_text() == "precious"


# FIFOs, sockets and devices


def make_fifo(path: Path) -> None:
    os.mkfifo(path)


def make_socket(path: Path) -> None:
    # A socket's path may be 108 bytes long at most, so it is bound where we stand.
    here = os.getcwd()
    os.chdir(path.parent)
    try:
        with socket.socket(socket.AF_UNIX) as server:
            server.bind(path.name)
    finally:
        os.chdir(here)


def make_device(path: Path) -> None:
    try:
        os.mknod(path, 0o666 | stat.S_IFCHR, os.makedev(1, 5))  # /dev/zero, which never ends
    except PermissionError:
        pytest.skip("only root can make devices")


SPECIAL = [make_fifo, make_socket, make_device]

REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "read_file": ({"root": "workspace", "path": "PATH"}, "NOT_A_REGULAR_FILE"),
    "write_file": ({"root": "workspace", "path": "PATH", "content": "x"}, "NOT_A_REGULAR_FILE"),
    "patch_file": (
        {"root": "workspace", "path": "PATH", "patch": "--- a\n+++ a\n@@ -0,0 +1 @@\n+x\n"},
        "NOT_A_REGULAR_FILE",
    ),
    "hash_file": ({"root": "workspace", "path": "PATH", "algorithm": "sha256"}, "NOT_A_REGULAR_FILE"),
    "copy": (within("PATH", "copied"), "NOT_A_REGULAR_FILE"),
    "list_folder": ({"root": "workspace", "path": "PATH"}, "NOT_A_DIRECTORY"),
    "create_folder": ({"root": "workspace", "path": "PATH"}, "NOT_A_DIRECTORY"),
    "remove_folder": ({"root": "workspace", "path": "PATH"}, "NOT_A_DIRECTORY"),
}


@pytest.mark.parametrize("make", SPECIAL)
@pytest.mark.parametrize("way", ["direct", "link"])
@pytest.mark.parametrize("tool", REFUSED)
async def test_what_is_no_regular_file_is_refused_at_once(
    client: ToolClient, workspace: Path, make: Callable[[Path], None], way: str, tool: str
) -> None:
    make(workspace / "special")
    (workspace / "link").symlink_to("special")
    before = picture(workspace)
    arguments, code = REFUSED[tool]
    path = "special" if way == "direct" else "link"

    with anyio.fail_after(AT_ONCE_S):
        error = await client.fails(tool, **(arguments | ({"source_path": path} if tool == "copy" else {"path": path})))

    assert error["code"] == code
    assert error["retryable"] is False
    assert picture(workspace) == before


@pytest.mark.parametrize("make", SPECIAL)
async def test_what_is_no_regular_file_can_be_described_renamed_and_removed(
    client: ToolClient, workspace: Path, make: Callable[[Path], None]
) -> None:
    make(workspace / "special")

    with anyio.fail_after(AT_ONCE_S):
        stat_answer = await client.call("stat_file", root="workspace", path="special", include_sha256=True)
        permissions = await client.call("permissions_file", root="workspace", path="special")
        listed = await client.call("list_folder", root="workspace", path="")
        several = await client.call("read_files", root="workspace", paths=["special"])
        for tool in ("remove_file", "move"):
            target = within("special", "x") if tool == "move" else {"root": "workspace", "path": "special"}
            conflict = await client.fails(tool, **target, if_match="0" * 64)
            assert conflict["code"] == "CONFLICT"
        if make is make_device:
            # Landlock takes renaming a device for making one, which nobody here may.
            moved = await client.result("move", within("special", "renamed"))
            if moved.is_error:
                assert moved.structured_content["error"]["code"] == "PERMISSION_DENIED"
                os.rename(workspace / "special", workspace / "renamed")
        else:
            await client.call("move", **within("special", "renamed"))
        await client.call("remove_file", root="workspace", path="renamed")

    assert stat_answer["type"] == "other"
    assert "sha256" not in stat_answer
    assert permissions["mode_string"][0] in "psc"
    assert listed["entries"][0]["type"] == "other"
    assert several["files"][0]["error"]["code"] == "NOT_A_REGULAR_FILE"
    assert picture(workspace) == {}


@pytest.mark.parametrize("make", SPECIAL)
async def test_a_search_passes_by_what_is_no_regular_file(
    client: ToolClient, workspace: Path, make: Callable[[Path], None]
) -> None:
    make_tree(workspace, {"a.txt": "needle\n", "z.txt": "needle\n"})
    make(workspace / "m.txt")

    with anyio.fail_after(AT_ONCE_S):
        found = await client.call("grep", root="workspace", pattern="needle")
        named = await client.call("glob", root="workspace", pattern="*.txt")
        direct = await client.result("grep", {"root": "workspace", "pattern": "needle", "path": "m.txt"})

    assert [match["file"] for match in found["matches"]] == ["a.txt", "z.txt"]
    assert [(match["path"], match["type"]) for match in named["matches"]] == [
        ("a.txt", "file"),
        ("m.txt", "other"),
        ("z.txt", "file"),
    ]
    if direct.is_error:
        assert direct.structured_content["error"]["code"] in ("NOT_A_REGULAR_FILE", "NOT_A_DIRECTORY")
    else:
        assert direct.structured_content["matches"] == []


@pytest.mark.parametrize("make", SPECIAL)
async def test_a_copied_folder_leaves_out_what_is_no_regular_file(
    client: ToolClient, workspace: Path, make: Callable[[Path], None]
) -> None:
    make_tree(workspace, {"tree/a.txt": "a"})
    make(workspace / "tree/special")

    with anyio.fail_after(AT_ONCE_S):
        copied = await client.call("copy", **within("tree", "copied"))
        removed = await client.call("remove_folder", root="workspace", path="tree")

    assert copied["skipped"] == ["tree/special"]
    assert copied["files_copied"] == 1
    assert os.listdir(workspace / "copied") == ["a.txt"]
    assert removed["entries_removed"] == 3
