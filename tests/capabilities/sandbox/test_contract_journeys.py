"""The contract's core journeys (E2E-001 … E2E-003), over both protocol generations the endpoint speaks."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from support.client import CONTRACT_PROTOCOL, ToolClient, connected
from support.sandbox_server import Box
from support.trees import make_tree

GREETING_PATCH = """\
--- a/hello.txt
+++ b/hello.txt
@@ -1 +1 @@
-Hello World
+Hello Agent
"""

PARSE_GO = """\
package pkg

// TODO: handle empty input
func Parse(text string) int {
\treturn len(text)
}
"""

PARSE_PATCH = """\
--- a/src/pkg/parse.go
+++ b/src/pkg/parse.go
@@ -1,6 +1,8 @@
 package pkg
\x20
-// TODO: handle empty input
 func Parse(text string) int {
+\tif text == "" {
+\t\treturn 0
+\t}
 \treturn len(text)
 }
"""


@pytest.fixture(params=[CONTRACT_PROTOCOL, "2026-07-28"])
async def client(roots: Box, request: pytest.FixtureRequest) -> AsyncGenerator[ToolClient]:
    async with connected(roots.server.url, never_said=roots.never_said, protocol=request.param) as tools:
        yield tools


async def test_a_file_is_read_patched_and_verified(client: ToolClient, workspace: Path) -> None:
    """E2E-001: read, modify, verify file workflow."""
    make_tree(workspace, {"hello.txt": "Hello World\n"})

    before = await client.call("read_file", root="workspace", path="hello.txt")
    patched = await client.call("patch_file", root="workspace", path="hello.txt", patch=GREETING_PATCH)
    after = await client.call("read_file", root="workspace", path="hello.txt")
    hashed = await client.call("hash_file", root="workspace", path="hello.txt", algorithm="sha256")

    assert before["content"] == "Hello World\n"
    assert before["size"] == 12
    assert patched["hunks_applied"] == 1
    assert after["content"] == "Hello Agent\n"
    assert hashed["hash"] == hashlib.sha256(b"Hello Agent\n").hexdigest()


async def test_roots_are_discovered_and_a_file_is_copied_between_them(client: ToolClient, roots: Box) -> None:
    """E2E-002: multi-root discovery and cross-root copy."""
    listed = await client.call("list_roots")
    written = await client.call("write_file", root="source", path="data.txt", content="important data")
    copied = await client.call(
        "copy", source_root="source", source_path="data.txt", dest_root="dest", dest_path="data.txt"
    )
    read = await client.call("read_file", root="dest", path="data.txt")

    tools = {root["name"]: root["allowed_tools"] for root in listed["roots"]}
    assert "copy" in tools["source"]
    assert "copy" in tools["dest"]
    assert str(roots.base) not in str(listed)
    assert written["created"] is True
    assert copied["size"] == len("important data")
    assert read["content"] == "important data"
    assert (roots.root("source") / "data.txt").read_text() == "important data"


async def test_a_codebase_is_searched_and_what_was_found_is_patched(client: ToolClient, workspace: Path) -> None:
    """E2E-003: search codebase and patch file."""
    make_tree(
        workspace,
        {
            "main.go": "package main\n\n// TODO: parse flags\nfunc main() {}\n",
            "src/pkg/parse.go": PARSE_GO,
            "src/pkg/done.go": "package pkg\n",
            "notes.md": "TODO: not a Go file\n",
        },
    )

    async def todos() -> dict[str, object]:
        return await client.call("grep", root="workspace", pattern="TODO", glob_filter="*.go", context_lines=1)

    before = await todos()
    listed = await client.call("glob", root="workspace", pattern="**/*.go")
    patched = await client.call("patch_file", root="workspace", path="src/pkg/parse.go", patch=PARSE_PATCH)
    after = await todos()

    assert before["total_matches"] == 2
    assert before["matches"] == [
        {
            "file": "main.go",
            "line_number": 3,
            "line_content": "// TODO: parse flags",
            "context_before": [""],
            "context_after": ["func main() {}"],
        },
        {
            "file": "src/pkg/parse.go",
            "line_number": 3,
            "line_content": "// TODO: handle empty input",
            "context_before": [""],
            "context_after": ["func Parse(text string) int {"],
        },
    ]
    assert [match["path"] for match in listed["matches"]] == ["main.go", "src/pkg/done.go", "src/pkg/parse.go"]
    assert patched["hunks_applied"] == 1
    assert after["total_matches"] == 1
    assert [match["file"] for match in after["matches"]] == ["main.go"]
