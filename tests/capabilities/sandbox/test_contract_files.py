"""The contract's cases about files and folders: E2E-004 … E2E-047, E2E-077, E2E-078."""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from support.client import ToolClient, connected
from support.sandbox_server import Box, contract_config
from support.server import ServerProcess
from support.trees import make_tree, picture

HUNDRED_LINES = "".join(f"line {number}\n" for number in range(1, 101))
EVERY_BYTE = bytes(range(256))
ISO_8601 = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z"


async def test_a_folder_is_listed_in_alphabetical_order(client: ToolClient, workspace: Path) -> None:
    """E2E-004: list_folder - happy path."""
    make_tree(workspace, {"b.txt": "bb", "sub": None, "a.txt": "a"})
    os.utime(workspace / "a.txt", ns=(0, 1_700_000_000_123_456_789))

    listed = await client.call("list_folder", root="workspace", path=".")

    entries = listed["entries"]
    assert [(entry["name"], entry["type"]) for entry in entries] == [
        ("a.txt", "file"),
        ("b.txt", "file"),
        ("sub", "directory"),
    ]
    assert [entry["size"] for entry in entries[:2]] == [1, 2]
    assert entries[0]["modified_at"] == "2023-11-14T22:13:20.123456Z"
    assert all(datetime.fromisoformat(entry["modified_at"]).tzinfo is UTC for entry in entries)
    assert listed["count"] == listed["total"] == 3


async def test_an_empty_folder_has_no_entries(client: ToolClient, workspace: Path) -> None:
    """E2E-005: list_folder - empty directory."""
    make_tree(workspace, {"empty": None})

    listed = await client.call("list_folder", root="workspace", path="empty")

    assert listed["entries"] == []
    assert listed["count"] == 0


async def test_a_small_file_is_read_whole(client: ToolClient, workspace: Path) -> None:
    """E2E-007: read_file - full read under threshold."""
    content = "0123456789" * 9 + "ten bytes\n"
    make_tree(workspace, {"small.txt": content})

    read = await client.call("read_file", root="workspace", path="small.txt")

    assert read["content"] == content
    assert read["size"] == 100
    assert read["truncated"] is False
    assert read["binary"] is False


async def test_a_file_over_the_configured_threshold_is_not_read_whole(tmp_path: Path) -> None:
    """E2E-008: read_file - full read exceeds threshold."""
    config = contract_config(tmp_path, max_full_read_size=100)
    make_tree(tmp_path, {"roots/workspace/large.txt": "x" * 500, "roots/workspace/fits.txt": "x" * 100})
    with ServerProcess.mcp_filesystem(tmp_path, config) as server:
        async with connected(server.url, never_said=[str(tmp_path)]) as client:
            error = await client.fails("read_file", root="workspace", path="large.txt")
            fits = await client.call("read_file", root="workspace", path="fits.txt")
            part = await client.call("read_file", root="workspace", path="large.txt", offset_bytes=0, limit_bytes=200)

    assert error["code"] == "FILE_TOO_LARGE"
    assert "500" in error["message"]
    assert "100" in error["message"]
    assert error["details"]["size"] == 500
    assert error["details"]["limit"] == 100
    assert fits["size"] == 100
    assert part["content"] == "x" * 200


async def test_a_too_large_file_is_told_in_the_words_of_the_contract(client: ToolClient, workspace: Path) -> None:
    """US-001 at the default threshold of FR-018: 1,048,576 bytes are read whole, and one more is not."""
    make_tree(workspace, {"exact.txt": b"x" * 1_048_576, "over.txt": b"x" * 1_048_577, "app.log": b"x" * 5_452_595})

    exact = await client.call("read_file", root="workspace", path="exact.txt")
    over = await client.fails("read_file", root="workspace", path="over.txt")
    error = await client.fails("read_file", root="workspace", path="app.log")

    assert len(exact["content"]) == 1_048_576
    assert over["code"] == "FILE_TOO_LARGE"
    wording = "file too large for full read (size: 5.2MB, limit: 1MB); use offset/limit parameters"
    assert wording in error["message"]


async def test_bytes_are_read_from_an_offset(client: ToolClient, workspace: Path) -> None:
    """E2E-009: read_file - byte-based partial read."""
    text = bytes(range(32, 127)) * 2 + b"\n" * 66
    make_tree(workspace, {"data.bin": text[:256]})

    read = await client.call("read_file", root="workspace", path="data.bin", offset_bytes=10, limit_bytes=20)

    assert read["content"].encode() == text[10:30]
    assert read["offset_bytes"] == 10
    assert read["size"] == 256
    assert read["truncated"] is True


async def test_lines_are_read_from_an_offset(client: ToolClient, workspace: Path) -> None:
    """E2E-010: read_file - line-based partial read (and US-002: with their numbers)."""
    make_tree(workspace, {"lines.txt": HUNDRED_LINES})

    read = await client.call("read_file", root="workspace", path="lines.txt", offset_lines=50, limit_lines=5)

    assert read["content"] == "line 50\nline 51\nline 52\nline 53\nline 54\n"
    assert (read["start_line"], read["end_line"], read["lines_total"]) == (50, 54, 100)
    assert read["truncated"] is True


async def test_lines_beyond_the_end_are_empty_and_the_total_is_told(client: ToolClient, workspace: Path) -> None:
    """E2E-012: read_file - offset beyond file end."""
    make_tree(workspace, {"short.txt": "1\n2\n3\n4\n5\n"})

    read = await client.call("read_file", root="workspace", path="short.txt", offset_lines=100, limit_lines=10)

    assert read["content"] == ""
    assert read["lines_total"] == 5
    assert read["truncated"] is False


async def test_a_file_with_a_null_byte_is_flagged_binary(client: ToolClient, workspace: Path) -> None:
    """E2E-013: read_file - binary file detection: a null byte among the first 8 KB, and only there."""
    make_tree(
        workspace,
        {
            "image.bin": b"\x89PNG\0\0" + EVERY_BYTE,
            "edge.bin": b"x" * 8191 + b"\0",
            "late.txt": b"x" * 8192 + b"\0",
        },
    )

    flags = {}
    for name in ("image.bin", "edge.bin", "late.txt"):
        read = await client.call("read_file", root="workspace", path=name, offset_bytes=0, limit_bytes=100)
        flags[name] = read["binary"]

    assert flags == {"image.bin": True, "edge.bin": True, "late.txt": False}


async def test_overwriting_replaces_the_content(client: ToolClient, workspace: Path) -> None:
    """E2E-014: write_file - overwrite mode."""
    make_tree(workspace, {"existing.txt": "old content"})

    written = await client.call(
        "write_file", root="workspace", path="existing.txt", content="new content", mode="overwrite"
    )
    read = await client.call("read_file", root="workspace", path="existing.txt")

    assert written["size"] == len("new content")
    assert written["mode"] == "overwrite"
    assert written["path"] == "existing.txt"
    assert written["created"] is False
    assert read["content"] == "new content"


async def test_appending_adds_to_the_end(client: ToolClient, workspace: Path) -> None:
    """E2E-015: write_file - append mode."""
    make_tree(workspace, {"log.txt": "line1\n"})

    written = await client.call("write_file", root="workspace", path="log.txt", content="line2\n", mode="append")
    read = await client.call("read_file", root="workspace", path="log.txt")

    assert written["size"] == len("line2\n")
    assert written["sha256"] == hashlib.sha256(b"line1\nline2\n").hexdigest()
    assert read["content"] == "line1\nline2\n"


@pytest.mark.parametrize("mode", ["overwrite", "append"])
async def test_a_missing_file_is_created(client: ToolClient, workspace: Path, mode: str) -> None:
    """FR-006: overwrite and append create the file if it does not exist."""
    written = await client.call("write_file", root="workspace", path="fresh.txt", content="first", mode=mode)

    assert written["created"] is True
    assert (workspace / "fresh.txt").read_text() == "first"


async def test_create_only_creates_a_file_that_is_absent(client: ToolClient, workspace: Path) -> None:
    """E2E-016: write_file - create_only mode, file absent."""
    written = await client.call("write_file", root="workspace", path="new.txt", content="created", mode="create_only")
    read = await client.call("read_file", root="workspace", path="new.txt")

    assert written["created"] is True
    assert written["mode"] == "create_only"
    assert read["content"] == "created"


async def test_writing_creates_the_parent_directories(client: ToolClient, workspace: Path) -> None:
    """E2E-018: write_file - auto-create parent directories; overwrite is the default mode."""
    written = await client.call("write_file", root="workspace", path="deep/nested/dir/file.txt", content="deep")
    read = await client.call("read_file", root="workspace", path="deep/nested/dir/file.txt")

    assert written["mode"] == "overwrite"
    assert read["content"] == "deep"
    assert (workspace / "deep/nested/dir").is_dir()


async def test_a_removed_file_is_gone(client: ToolClient, workspace: Path) -> None:
    """E2E-019: remove_file - happy path."""
    make_tree(workspace, {"to_delete.txt": "x", "kept.txt": "y"})

    removed = await client.call("remove_file", root="workspace", path="to_delete.txt")
    error = await client.fails("stat_file", root="workspace", path="to_delete.txt")

    assert removed["removed"] is True
    assert removed["path"] == "to_delete.txt"
    assert error["code"] == "NOT_FOUND"
    assert "file not found: to_delete.txt" in error["message"]
    assert [path.name for path in workspace.iterdir()] == ["kept.txt"]


GO_BEFORE = "package main\n\nfunc add(a, b int) int {\n\treturn a - b\n}\n\nfunc main() {\n\tprintln(add(1, 2))\n}\n"
GO_PATCH = """\
--- code.go
+++ code.go
@@ -1,5 +1,6 @@
 package main
\x20
+// add returns the sum.
 func add(a, b int) int {
-\treturn a - b
+\treturn a + b
 }
@@ -7,3 +8,3 @@
 func main() {
-\tprintln(add(1, 2))
+\tprintln(add(2, 2))
 }
"""


async def test_a_valid_diff_is_applied(client: ToolClient, workspace: Path) -> None:
    """E2E-022: patch_file - apply valid unified diff."""
    make_tree(workspace, {"code.go": GO_BEFORE})

    patched = await client.call("patch_file", root="workspace", path="code.go", patch=GO_PATCH)
    read = await client.call("read_file", root="workspace", path="code.go")

    expected = GO_BEFORE.replace("func add", "// add returns the sum.\nfunc add").replace("a - b", "a + b")
    expected = expected.replace("add(1, 2)", "add(2, 2)")
    assert patched["hunks_applied"] == 2
    assert patched["path"] == "code.go"
    assert read["content"] == expected
    assert patched["sha256"] == read["sha256"]


async def test_a_patch_creates_a_file_and_its_parents(client: ToolClient, workspace: Path) -> None:
    """E2E-024: patch_file - patch creates new file (FR-008: with missing parent directories)."""
    patch = "--- /dev/null\n+++ b/made/new_file.txt\n@@ -0,0 +1,2 @@\n+first\n+second\n"

    patched = await client.call("patch_file", root="workspace", path="made/new_file.txt", patch=patch)
    read = await client.call("read_file", root="workspace", path="made/new_file.txt")

    assert patched["created"] is True
    assert patched["hunks_applied"] == 1
    assert read["content"] == "first\nsecond\n"


async def test_a_folder_is_created_with_its_parents(client: ToolClient, workspace: Path) -> None:
    """E2E-025: create_folder - happy path with nested parents."""
    created = await client.call("create_folder", root="workspace", path="a/b/c")
    listed = await client.call("list_folder", root="workspace", path="a/b")

    assert created["created"] is True
    assert created["path"] == "a/b/c"
    assert [(entry["name"], entry["type"]) for entry in listed["entries"]] == [("c", "directory")]


async def test_creating_a_folder_that_exists_succeeds(client: ToolClient, workspace: Path) -> None:
    """E2E-026: create_folder - idempotent on existing directory."""
    make_tree(workspace, {"existing_dir/inside.txt": "kept"})

    created = await client.call("create_folder", root="workspace", path="existing_dir")

    assert created["created"] is True
    assert created["existed"] is True
    assert (workspace / "existing_dir/inside.txt").read_text() == "kept"


async def test_a_folder_is_removed_with_everything_in_it(client: ToolClient, workspace: Path) -> None:
    """E2E-028: remove_folder - recursive delete."""
    make_tree(workspace, {"dir/a.txt": "a", "dir/sub/deep/b.txt": "b", "dir/empty": None, "kept.txt": "k"})

    removed = await client.call("remove_folder", root="workspace", path="dir")
    error = await client.fails("stat_file", root="workspace", path="dir")

    assert removed["removed"] is True
    assert removed["entries_removed"] == 6
    assert error["code"] == "NOT_FOUND"
    assert "not found" in error["message"]
    assert [path.name for path in workspace.iterdir()] == ["kept.txt"]


async def test_a_files_metadata_is_told(client: ToolClient, workspace: Path) -> None:
    """E2E-032: stat_file - file metadata."""
    make_tree(workspace, {"sub/data.json": '{"a": 1}'})
    os.utime(workspace / "sub/data.json", ns=(0, 1_600_000_000_000_001_000))

    found = await client.call("stat_file", root="workspace", path="sub/data.json")

    assert found["name"] == "data.json"
    assert found["path"] == "sub/data.json"
    assert found["size"] == 8
    assert found["is_directory"] is False
    assert found["is_symlink"] is False
    assert found["modified_at"] == "2020-09-13T12:26:40.000001Z"
    if "created_at" in found:
        age = datetime.now(UTC) - datetime.fromisoformat(found["created_at"])
        assert 0 <= age.total_seconds() < 60


async def test_a_directorys_metadata_is_told(client: ToolClient, workspace: Path) -> None:
    """E2E-033: stat_file - directory metadata; the size is the system's, not the sum of the contents."""
    make_tree(workspace, {"subdir/big.txt": "x" * 100_000})

    found = await client.call("stat_file", root="workspace", path="subdir")

    assert found["is_directory"] is True
    assert found["is_symlink"] is False
    assert found["size"] == (workspace / "subdir").stat().st_size


async def test_a_symlinks_metadata_is_told_with_its_targets(client: ToolClient, workspace: Path) -> None:
    """E2E-034: stat_file - symlink metadata."""
    make_tree(workspace, {"target.txt": "the target"})
    (workspace / "link").symlink_to("target.txt")

    found = await client.call("stat_file", root="workspace", path="link")

    assert found["is_symlink"] is True
    assert found["is_directory"] is False
    assert found["size"] == len("target.txt")
    assert found["target"]["type"] == "file"
    assert found["target"]["path"] == "target.txt"
    assert found["target"]["size"] == len("the target")
    assert found["target"]["is_directory"] is False


@pytest.mark.parametrize(
    ("algorithm", "expected"),
    [
        pytest.param(
            "sha256",
            "a1fff0ffefb9eace7230c24e50731f0a91c62f9cefdfe77121c2f607125dffae",
            id="E2E-035: hash_file - sha256",
        ),
        pytest.param("md5", "d6eb32081c822ed572b70567826d9d9d", id="E2E-036: hash_file - md5"),
        pytest.param("sha1", "4fe2b8dd12cd9cd6a413ea960cd8c09c25f19527", id="E2E-036: hash_file - sha1"),
    ],
)
async def test_a_file_is_hashed(client: ToolClient, workspace: Path, algorithm: str, expected: str) -> None:
    make_tree(workspace, {"known.txt": "test content\n"})

    hashed = await client.call("hash_file", root="workspace", path="known.txt", algorithm=algorithm)

    assert hashed == {
        "root": "workspace",
        "path": "known.txt",
        "algorithm": algorithm,
        "hash": expected,
        "size": 13,
    }


async def test_a_files_permissions_are_told(client: ToolClient, workspace: Path) -> None:
    """E2E-039: permissions_file - file permissions."""
    make_tree(workspace, {"script.sh": "#!/bin/sh\n"})
    (workspace / "script.sh").chmod(0o755)

    found = await client.call("permissions_file", root="workspace", path="script.sh")

    assert found["mode"] == "0755"
    assert found["mode_string"] == "-rwxr-xr-x"
    assert found["owner"] == (workspace / "script.sh").owner()
    assert found["group"] == (workspace / "script.sh").group()


async def test_a_directorys_permissions_are_told(client: ToolClient, workspace: Path) -> None:
    """E2E-040: permissions_file - directory permissions."""
    make_tree(workspace, {"subdir": None})
    (workspace / "subdir").chmod(0o755)

    found = await client.call("permissions_file", root="workspace", path="subdir")

    assert found["mode"] == "0755"
    assert found["mode_string"] == "drwxr-xr-x"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file to an owner without a name")
async def test_an_owner_without_a_name_is_told_by_number(client: ToolClient, workspace: Path) -> None:
    """FR-013: numeric UID and GID where no name is known."""
    make_tree(workspace, {"orphan.txt": "x"})
    os.chown(workspace / "orphan.txt", 54321, 54322)

    found = await client.call("permissions_file", root="workspace", path="orphan.txt")

    assert (found["owner"], found["group"]) == ("54321", "54322")


async def test_a_file_is_copied_within_a_root(client: ToolClient, workspace: Path) -> None:
    """E2E-041: copy - same root."""
    make_tree(workspace, {"original.txt": "known content"})

    copied = await transfer(client, "copy", "workspace", "original.txt", "workspace", "duplicate.txt")
    original = await client.call("read_file", root="workspace", path="original.txt")
    duplicate = await client.call("read_file", root="workspace", path="duplicate.txt")

    assert copied["source"] == "root://workspace/original.txt"
    assert copied["destination"] == "root://workspace/duplicate.txt"
    assert copied["is_directory"] is False
    assert copied["size"] == len("known content")
    assert original["content"] == duplicate["content"] == "known content"


async def test_a_file_is_copied_to_another_root(client: ToolClient, roots: Box) -> None:
    """E2E-042: copy - cross-root (US-006: an existing file is overwritten, parents are created)."""
    make_tree(roots.root("source"), {"data/report.csv": "1,2,3\n"})
    make_tree(roots.root("dest"), {"taken.csv": "old"})

    await transfer(client, "copy", "source", "data/report.csv", "dest", "data/report.csv")
    await transfer(client, "copy", "source", "data/report.csv", "dest", "taken.csv")

    assert (roots.root("source") / "data/report.csv").read_text() == "1,2,3\n"
    assert (roots.root("dest") / "data/report.csv").read_text() == "1,2,3\n"
    assert (roots.root("dest") / "taken.csv").read_text() == "1,2,3\n"


async def test_a_directory_is_copied_with_everything_in_it(client: ToolClient, workspace: Path) -> None:
    """E2E-043: copy - directory recursive."""
    make_tree(workspace, {"project/a.txt": "a", "project/src/b.txt": "bb", "project/src/deep/c.txt": "ccc"})

    copied = await transfer(client, "copy", "workspace", "project", "workspace", "project-backup")
    found = await client.call("glob", root="workspace", pattern="project-backup/**/*")

    assert copied["is_directory"] is True
    assert copied["files_copied"] == 3
    assert [match["path"] for match in found["matches"] if match["type"] == "file"] == [
        "project-backup/a.txt",
        "project-backup/src/b.txt",
        "project-backup/src/deep/c.txt",
    ]
    assert picture(workspace / "project-backup") == picture(workspace / "project")


async def test_copying_onto_a_directory_copies_into_it(client: ToolClient, workspace: Path) -> None:
    """FR-014: if the destination exists and is a directory, the source is copied into it."""
    make_tree(workspace, {"a.txt": "a", "tree/b.txt": "b", "target": None})

    file = await transfer(client, "copy", "workspace", "a.txt", "workspace", "target")
    tree = await transfer(client, "copy", "workspace", "tree", "workspace", "target")

    assert file["destination"] == "root://workspace/target/a.txt"
    assert tree["destination"] == "root://workspace/target/tree"
    assert (workspace / "target/a.txt").read_text() == "a"
    assert (workspace / "target/tree/b.txt").read_text() == "b"


async def test_a_file_is_renamed_within_a_root(client: ToolClient, workspace: Path) -> None:
    """E2E-045: move - same root (rename)."""
    make_tree(workspace, {"old_name.txt": "known content"})
    inode = (workspace / "old_name.txt").stat().st_ino

    moved = await transfer(client, "move", "workspace", "old_name.txt", "workspace", "new_name.txt")
    error = await client.fails("stat_file", root="workspace", path="old_name.txt")
    read = await client.call("read_file", root="workspace", path="new_name.txt")

    assert moved == {"source": "root://workspace/old_name.txt", "destination": "root://workspace/new_name.txt"}
    assert error["code"] == "NOT_FOUND"
    assert read["content"] == "known content"
    assert (workspace / "new_name.txt").stat().st_ino == inode, "the same file, renamed in one step"


async def test_a_file_is_moved_to_another_root(client: ToolClient, roots: Box) -> None:
    """E2E-046: move - cross-root (FR-015: an existing file is overwritten)."""
    make_tree(roots.root("source"), {"file.txt": "moved", "other.txt": "newer"})
    make_tree(roots.root("dest"), {"other.txt": "older"})

    await transfer(client, "move", "source", "file.txt", "dest", "file.txt")
    await transfer(client, "move", "source", "other.txt", "dest", "other.txt")

    assert picture(roots.root("source")) == {}
    assert (roots.root("dest") / "file.txt").read_text() == "moved"
    assert (roots.root("dest") / "other.txt").read_text() == "newer"


async def test_a_directory_is_moved_to_another_root(client: ToolClient, roots: Box) -> None:
    """FR-015: directories too."""
    make_tree(roots.root("source"), {"tree/a.txt": "a", "tree/sub/b.txt": "b"})
    before = picture(roots.root("source"))

    await transfer(client, "move", "source", "tree", "dest", "tree")

    assert picture(roots.root("source")) == {}
    assert picture(roots.root("dest")) == before


@dataclass(frozen=True)
class Refusal:
    """A call that must fail, what stands in the root before, and what the error must say."""

    case: str
    tool: str
    arguments: dict[str, Any]
    code: str
    says: tuple[str, ...]
    given: dict[str, str | bytes | None] = field(default_factory=dict)


def _within(source: str, dest: str) -> dict[str, str]:
    return {"source_root": "workspace", "source_path": source, "dest_root": "workspace", "dest_path": dest}


def _at(path: str, **more: Any) -> dict[str, Any]:
    return {"root": "workspace", "path": path, **more}


MISMATCH = "--- a/code.go\n+++ b/code.go\n@@ -1,3 +1,3 @@\n line A\n-line X\n+line Y\n line C\n"
MISMATCH_AT_42 = "--- a/code.go\n+++ b/code.go\n@@ -42,1 +42,1 @@\n-line X\n+line Y\n"
SECOND_HUNK_FAILS = (
    "--- a/code.go\n+++ b/code.go\n@@ -1,1 +1,1 @@\n-line 1\n+LINE 1\n@@ -50,1 +50,1 @@\n-line X\n+line Y\n"
)

REFUSALS = [
    Refusal(
        "E2E-006: list_folder - path is a file",
        "list_folder", _at("data.txt"), "NOT_A_DIRECTORY", ("not a directory", "data.txt"), {"data.txt": "x"},
    ),
    Refusal("US-001: read_file - file not found", "read_file", _at("src/main.go"), "NOT_FOUND",
            ("file not found: src/main.go",)),
    Refusal(
        "E2E-011: read_file - mixed byte+line parameters rejected",
        "read_file", _at("file.txt", offset_bytes=0, offset_lines=1), "INVALID_ARGUMENT", ("mutually exclusive",),
        {"file.txt": "x"},
    ),
    Refusal(
        "E2E-017: write_file - create_only mode, file exists",
        "write_file", _at("config/app.yaml", content="nope", mode="create_only"), "ALREADY_EXISTS",
        ("file already exists: config/app.yaml; use overwrite mode to replace",), {"config/app.yaml": "kept: true\n"},
    ),
    Refusal("E2E-020: remove_file - file not found", "remove_file", _at("ghost.txt"), "NOT_FOUND",
            ("file not found: ghost.txt",)),
    Refusal("E2E-021: remove_file - target is directory", "remove_file", _at("mydir"), "IS_A_DIRECTORY",
            ("is a directory: mydir",), {"mydir": None}),
    Refusal(
        "E2E-023: patch_file - hunk mismatch fails atomically",
        "patch_file", _at("code.go", patch=MISMATCH), "PATCH_FAILED", ("patch failed: hunk 1 does not match at line",),
        {"code.go": "line A\nline B\nline C\n"},
    ),
    Refusal(
        "US-004: patch_file - the hunk and the line are named",
        "patch_file", _at("code.go", patch=MISMATCH_AT_42), "PATCH_FAILED",
        ("patch failed: hunk 1 does not match at line 42",), {"code.go": HUNDRED_LINES},
    ),
    Refusal(
        "NFR-015: patch_file - the first hunk is not written when the second fails",
        "patch_file", _at("code.go", patch=SECOND_HUNK_FAILS), "PATCH_FAILED",
        ("patch failed: hunk 2 does not match at line 50",), {"code.go": HUNDRED_LINES},
    ),
    Refusal("E2E-027: create_folder - conflict with existing file", "create_folder", _at("conflict"),
            "NOT_A_DIRECTORY", ("exists as a file", "conflict"), {"conflict": "x"}),
    *[
        Refusal(f"E2E-029: remove_folder - refuse root directory deletion, path {path!r}", "remove_folder", _at(path),
                "CANNOT_REMOVE_ROOT", ("cannot remove root directory",), {"kept.txt": "x"})
        for path in ("", ".", "/", "sub/..")
    ],
    Refusal("E2E-030: remove_folder - target not found", "remove_folder", _at("nonexistent"), "NOT_FOUND",
            ("directory not found", "nonexistent")),
    Refusal("E2E-031: remove_folder - target is a file", "remove_folder", _at("not_a_dir.txt"), "NOT_A_DIRECTORY",
            ("is a file, not a directory: not_a_dir.txt",), {"not_a_dir.txt": "x"}),
    Refusal("US-008: stat_file - file not found", "stat_file", _at("gone.json"), "NOT_FOUND",
            ("file not found: gone.json",)),
    Refusal("US-008: hash_file - file not found", "hash_file", _at("gone.json", algorithm="md5"), "NOT_FOUND",
            ("file not found: gone.json",)),
    Refusal(
        "E2E-037: hash_file - unsupported algorithm",
        "hash_file", _at("known.txt", algorithm="md4"), "INVALID_ARGUMENT",
        ("unsupported hash algorithm: md4; supported: md5, sha1, sha256",), {"known.txt": "x"},
    ),
    Refusal("E2E-038: hash_file - target is directory", "hash_file", _at("subdir", algorithm="sha256"),
            "IS_A_DIRECTORY", ("is a directory: subdir",), {"subdir": None}),
    Refusal("E2E-044: copy - source not found", "copy", _within("missing.txt", "copy.txt"), "NOT_FOUND",
            ("source file not found", "missing.txt")),
    Refusal("E2E-047: move - source not found", "move", _within("missing.txt", "moved.txt"), "NOT_FOUND",
            ("source file not found", "missing.txt")),
]  # fmt: skip


@pytest.mark.parametrize("refusal", REFUSALS, ids=lambda refusal: refusal.case)
async def test_a_call_that_cannot_be_done_says_why_and_changes_nothing(
    client: ToolClient, workspace: Path, refusal: Refusal
) -> None:
    make_tree(workspace, refusal.given)
    before = picture(workspace)

    error = await client.fails(refusal.tool, **refusal.arguments)

    assert error["code"] == refusal.code
    for words in refusal.says:
        assert words in error["message"]
    if error["code"] != "INVALID_ARGUMENT":
        # NFR-011: the root and the path, besides the reason.
        assert "workspace" in error["message"]
        assert error["details"]["root"] == "workspace"
        assert error["details"]["path"] in (refusal.arguments.get("path"), refusal.arguments.get("source_path"))
    assert picture(workspace) == before


async def test_a_refusal_of_the_operating_system_is_told_with_its_reason(tmp_path: Path) -> None:
    """US-003: parent directory creation fails at OS level: error with OS message."""
    config = {"host": "127.0.0.1", "roots": [{"name": "kernel", "path": "/sys/kernel", "allowed_tools": ["*"]}]}
    with ServerProcess.mcp_filesystem(tmp_path, config) as server:
        async with connected(server.url) as client:
            error = await client.fails("write_file", root="kernel", path="config-dir/app.yaml", content="a: 1")

    assert error["code"] == "PERMISSION_DENIED"
    reasons = ("permission denied", "operation not permitted", "read-only file system")
    assert any(reason in error["message"] for reason in reasons)
    assert "config-dir/app.yaml" in error["message"]


async def test_a_large_directory_is_listed_completely(client: ToolClient, workspace: Path) -> None:
    """E2E-077: large directory listing (1000+ entries)."""
    make_tree(workspace, {f"big/file-{number:04}.txt": "" for number in range(1500)})

    listed = await client.call("list_folder", root="workspace", path="big")

    assert listed["count"] == listed["total"] == 1500
    assert [entry["name"] for entry in listed["entries"]] == [f"file-{number:04}.txt" for number in range(1500)]


async def test_a_large_file_is_hashed_without_being_held_in_memory(
    client: ToolClient, workspace: Path, roots: Box
) -> None:
    """E2E-078: hash of large file (streaming, not OOM)."""
    block = os.urandom(1024 * 1024)
    with (workspace / "large.bin").open("wb") as file:
        for _ in range(50):
            file.write(block)
    await client.call("hash_file", root="workspace", path="large.bin", algorithm="md5")

    with roots.server.peak_memory() as growth:
        hashed = await client.call("hash_file", root="workspace", path="large.bin", algorithm="sha256")

    assert hashed["hash"] == hashlib.sha256(block * 50).hexdigest()
    assert hashed["size"] == 50 * 1024 * 1024
    assert growth.bytes < 10 * 1024 * 1024


async def transfer(
    client: ToolClient, tool: str, source_root: str, source: str, dest_root: str, dest: str
) -> dict[str, Any]:
    return await client.call(tool, source_root=source_root, source_path=source, dest_root=dest_root, dest_path=dest)
