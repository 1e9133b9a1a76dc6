"""What clients see of the tools: result schemas and descriptions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jsonschema_rs

from support.client import ToolClient, connected
from support.sandbox_server import Box
from support.server import ServerProcess
from support.trees import make_tree

PATCH = "--- a.txt\n+++ a.txt\n@@ -1 +1 @@\n-old\n+new\n"


def within(source: str, dest: str) -> dict[str, str]:
    return {"source_root": "workspace", "source_path": source, "dest_root": "workspace", "dest_path": dest}


def config(root: Path, **more: object) -> dict[str, object]:
    return {"host": "127.0.0.1", "roots": [{"name": "workspace", "path": str(root), "allowed_tools": ["*"]}], **more}


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


async def test_every_tool_says_that_it_needs_a_root(tmp_path: Path) -> None:
    (tmp_path / "root").mkdir()
    with ServerProcess.mcp_filesystem(tmp_path, config(tmp_path / "root")) as server:
        async with connected(server.url) as client:
            manuals = {tool.name: tool.description or "" for tool in (await client.mcp.list_tools()).tools}
    del manuals["list_roots"]
    assert all("list_roots" in manual and "root`" in manual for manual in manuals.values())
