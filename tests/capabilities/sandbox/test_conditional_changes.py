"""Changes that depend on the content a caller saw (`if_match`), and dry runs."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from support.client import ToolClient
from support.trees import make_tree, picture

WRONG_HASH = "0" * 64


PATCH = "--- a.txt\n+++ a.txt\n@@ -1 +1 @@\n-old\n+new\n"


def sha256(content: str | bytes) -> str:
    return hashlib.sha256(content.encode() if isinstance(content, str) else content).hexdigest()


def within(source: str, dest: str) -> dict[str, str]:
    return {"source_root": "workspace", "source_path": source, "dest_root": "workspace", "dest_path": dest}


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
