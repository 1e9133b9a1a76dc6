"""Names that are not UTF-8: every tool takes the spelling that listings show, and answers in that spelling alone."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from support.client import ToolClient
from support.sandbox_server import Box

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
