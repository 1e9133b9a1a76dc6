"""The contract's cases about roots, confinement and bad requests: E2E-061 … E2E-075."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from support.client import ToolClient
from support.sandbox_server import ALLOWED, CANARY, Box
from support.trees import make_tree, picture

ALL_TOOLS = [
    "list_folder", "read_file", "write_file", "remove_file", "patch_file", "create_folder", "remove_folder",
    "stat_file", "hash_file", "permissions_file", "copy", "move", "grep", "glob",
]  # fmt: skip
"""§7.2: what an allow-list may name."""

AT_A_PATH: dict[str, dict[str, Any]] = {
    "list_folder": {},
    "read_file": {},
    "write_file": {"content": "x"},
    "remove_file": {},
    "patch_file": {"patch": "--- a\n+++ b\n@@ -1 +1 @@\n-a\n+b\n"},
    "create_folder": {},
    "remove_folder": {},
    "stat_file": {},
    "hash_file": {"algorithm": "sha256"},
    "permissions_file": {},
    "grep": {"pattern": "x"},
    "glob": {"pattern": "*"},
}
"""Tools that take one root and one path, with what else they require."""


def arguments_for(tool: str, root: str, path: str) -> dict[str, Any]:
    """A complete call of the tool on the path; copy and move take from it."""
    if tool == "read_files":
        return {"root": root, "paths": [path]}
    if tool in ("copy", "move"):
        return {"source_root": root, "source_path": path, "dest_root": "dest", "dest_path": "copied"}
    return {"root": root, "path": path, **AT_A_PATH[tool]}


async def test_the_configured_roots_are_listed_with_their_tools(client: ToolClient) -> None:
    """E2E-061: list_roots - returns configured roots."""
    listed = await client.call("list_roots")

    tools = {root["name"]: root["allowed_tools"] for root in listed["roots"]}
    assert list(tools) == list(ALLOWED)
    assert tools["workspace"] == ALL_TOOLS
    assert tools["config"] == ["list_folder", "read_file", "stat_file"]
    assert tools["logs"] == ["list_folder", "read_file", "stat_file", "grep"]
    assert listed["count"] == len(ALLOWED)


async def test_the_list_of_roots_tells_no_host_path(client: ToolClient, roots: Box) -> None:
    """E2E-062: list_roots - does not expose host paths (NFR-008)."""
    listed = await client.result("list_roots", {})

    said = listed.model_dump_json()
    assert str(roots.base) not in said
    assert "/" not in said.replace("application/json", "")


async def test_list_roots_is_annotated_as_reading_and_no_tool_as_destructive(client: ToolClient) -> None:
    """FR-003 and §2.2: `readOnlyHint` on the meta-tool, `destructiveHint=false` on every tool."""
    listed = await client.mcp.list_tools()

    annotations = {tool.name: tool.annotations for tool in listed.tools}
    assert set(annotations) == {*ALL_TOOLS, "list_roots", "read_files"}
    assert annotations["list_roots"].read_only_hint is True
    assert all(hints.destructive_hint is False for hints in annotations.values())


async def test_every_tool_explains_itself_and_its_arguments(client: ToolClient) -> None:
    """NFR-012 and US-009: descriptions from which a model can use the tool, and a required `root`."""
    listed = await client.mcp.list_tools()

    for tool in listed.tools:
        assert tool.description
        assert len(tool.description) > 40
        properties = tool.input_schema.get("properties", {})
        for name, schema in properties.items():
            assert schema.get("description"), f"{tool.name}.{name} has no description"
        if tool.name != "list_roots":
            assert {"root", "source_root"} & set(tool.input_schema["required"])


@pytest.mark.parametrize("tool", [*ALL_TOOLS, "read_files"])
async def test_dots_never_lead_out_of_the_root(client: ToolClient, workspace: Path, tool: str) -> None:
    """E2E-063: path traversal via .. rejected, by every tool."""
    make_tree(workspace, {"kept.txt": "x"})

    for path in ("../../etc/passwd", "../outside/secret.txt", "kept.txt/../../x", "a/b/../../../c", ".."):
        if tool == "read_files":
            answer = await client.call(tool, **arguments_for(tool, "workspace", path))
            error = answer["files"][0]["error"]
        else:
            error = await client.fails(tool, **arguments_for(tool, "workspace", path))
        assert error["code"] == "PATH_ESCAPES_ROOT"
        assert "path resolves outside root boundary" in error["message"]


async def test_dots_that_stay_inside_are_fine(client: ToolClient, workspace: Path) -> None:
    """FR-001: `a/../b` is valid if `b` is within the root."""
    make_tree(workspace, {"b.txt": "b", "a": None})

    read = await client.call("read_file", root="workspace", path="a/../b.txt")
    through_nothing = await client.call("read_file", root="workspace", path="nowhere/../b.txt")
    absolute = await client.call("read_file", root="workspace", path="/b.txt")

    assert read["content"] == through_nothing["content"] == absolute["content"] == "b"
    assert read["path"] == "b.txt"


READS_LINK = [
    tool for tool in ALL_TOOLS if tool not in ("remove_file", "remove_folder", "stat_file", "permissions_file", "move")
]


@pytest.mark.parametrize("tool", READS_LINK)
@pytest.mark.parametrize("link", ["absolute", "relative", "chain"])
async def test_a_link_out_of_the_root_is_not_followed(
    client: ToolClient, roots: Box, workspace: Path, tool: str, link: str
) -> None:
    """E2E-064: symlink escape to outside root rejected, by every tool that would follow it (US-011)."""
    make_links_out(roots, workspace)

    error = await client.fails(tool, **arguments_for(tool, "workspace", link))

    assert error["code"] == "PATH_ESCAPES_ROOT"
    assert "path resolves outside root boundary" in error["message"]


@pytest.mark.parametrize("tool", ALL_TOOLS)
@pytest.mark.parametrize("path", ["absolute/secret.txt", "relative/sub/file.txt", "chain/new.txt", "chain/sub"])
async def test_a_path_through_a_link_out_of_the_root_is_refused(
    client: ToolClient, roots: Box, workspace: Path, tool: str, path: str
) -> None:
    """E2E-064: the same one level further down (US-011), where also the link's own tools would pass through."""
    make_links_out(roots, workspace)
    before = picture(workspace)

    error = await client.fails(tool, **arguments_for(tool, "workspace", path))

    assert error["code"] == "PATH_ESCAPES_ROOT"
    assert "path resolves outside root boundary" in error["message"]
    assert picture(workspace) == before


def make_links_out(roots: Box, workspace: Path) -> None:
    (workspace / "absolute").symlink_to(roots.outside)
    (workspace / "relative").symlink_to("../../outside")
    (workspace / "hop").symlink_to("relative")
    (workspace / "chain").symlink_to("hop")


async def test_a_link_that_stays_inside_is_followed(client: ToolClient, workspace: Path) -> None:
    """E2E-065: symlink within root followed successfully, relative or absolute."""
    make_tree(workspace, {"real.txt": "the real content", "folder/inner.txt": "inner"})
    (workspace / "link.txt").symlink_to("real.txt")
    (workspace / "absolute.txt").symlink_to(workspace / "real.txt")
    (workspace / "way").symlink_to("folder")

    for path, content in {
        "link.txt": "the real content",
        "absolute.txt": "the real content",
        "way/inner.txt": "inner",
    }.items():
        assert (await client.call("read_file", root="workspace", path=path))["content"] == content
    assert (await client.call("list_folder", root="workspace", path="way"))["entries"][0]["name"] == "inner.txt"


async def test_listed_links_tell_where_they_lead(client: ToolClient, roots: Box, workspace: Path) -> None:
    """FR-004: `target_type` of links; `external` for those that lead out, whether or not something is there."""
    make_tree(workspace, {"file.txt": "x", "folder": None})
    for name, target in {
        "to-file": "file.txt",
        "to-folder": "folder",
        "to-nothing": "gone",
        "to-outside": str(roots.outside),
        "to-nowhere-outside": "/does/not/exist",
    }.items():
        (workspace / name).symlink_to(target)

    listed = await client.call("list_folder", root="workspace", path="")

    links = {entry["name"]: entry["target_type"] for entry in listed["entries"] if entry["type"] == "symlink"}
    assert links == {
        "to-file": "file",
        "to-folder": "directory",
        "to-nothing": "missing",
        "to-outside": "external",
        "to-nowhere-outside": "external",
    }


@pytest.mark.parametrize("tool", ALL_TOOLS)
@pytest.mark.parametrize("root", ["readonly", "restricted", "config", "logs"])
async def test_a_tool_outside_the_allow_list_is_refused(client: ToolClient, roots: Box, tool: str, root: str) -> None:
    """E2E-066: tool not in allowlist rejected (US-010, FR-002), for every tool and every restricted root."""
    make_tree(roots.root(root), {"app.yaml": "a: 1\n", "folder": None})
    before = picture(roots.root(root))
    path = "folder" if "folder" in tool else "app.yaml"

    result = await client.result(tool, arguments_for(tool, root, path))

    if tool in ALLOWED[root]:
        assert not result.is_error
    else:
        error = result.structured_content["error"]
        assert error["code"] == "TOOL_NOT_ALLOWED"
        assert error["message"] == f"tool {tool} not allowed on root {root}"
    assert picture(roots.root(root)) == before


async def test_the_allow_list_is_asked_before_the_path(client: ToolClient) -> None:
    """FR-002: after root validation, before path validation."""
    error = await client.fails("write_file", root="readonly", path="../../etc/passwd", content="x")

    assert error["message"] == "tool write_file not allowed on root readonly"


@pytest.mark.parametrize("tool", ["copy", "move"])
@pytest.mark.parametrize(
    ("source", "dest", "refusing"),
    [
        pytest.param("restricted", "dest", "restricted", id="E2E-067: denied by source allowlist"),
        pytest.param("source", "readonly", "readonly", id="E2E-068: denied by dest allowlist"),
    ],
)
async def test_a_transfer_needs_the_permission_of_both_roots(
    client: ToolClient, roots: Box, tool: str, source: str, dest: str, refusing: str
) -> None:
    make_tree(roots.root(source), {"file.txt": "stays"})

    error = await client.fails(tool, source_root=source, source_path="file.txt", dest_root=dest, dest_path="file.txt")

    assert error["code"] == "TOOL_NOT_ALLOWED"
    assert error["message"] == f"tool {tool} not allowed on root {refusing}"
    assert (roots.root(source) / "file.txt").read_text() == "stays"
    assert picture(roots.root(dest)) == {}


async def test_removing_a_folder_removes_links_and_not_what_they_lead_to(
    client: ToolClient, roots: Box, workspace: Path
) -> None:
    """E2E-069: remove_folder with symlink to outside root."""
    make_tree(workspace, {"dir/file.txt": "x", "kept/file.txt": "kept"})
    (workspace / "dir/escape").symlink_to(roots.outside)
    (workspace / "dir/escape-file").symlink_to(roots.outside / "secret.txt")
    (workspace / "dir/inside").symlink_to(workspace / "kept")

    removed = await client.call("remove_folder", root="workspace", path="dir")

    assert removed["removed"] is True
    assert removed["entries_removed"] == 5
    assert not (workspace / "dir").exists()
    assert (workspace / "kept/file.txt").read_text() == "kept"
    assert (roots.outside / "secret.txt").read_text().startswith(CANARY)


@pytest.mark.parametrize("tool", ALL_TOOLS)
async def test_a_null_byte_in_a_path_is_refused(client: ToolClient, workspace: Path, tool: str) -> None:
    """E2E-070: null bytes in path rejected, by every tool."""
    make_tree(workspace, {"file": "x"})

    error = await client.fails(tool, **arguments_for(tool, "workspace", "file\x00.txt"))

    assert error["code"] == "INVALID_PATH"
    assert "null byte" in error["message"]


@pytest.mark.parametrize(
    "path",
    ["%2e%2e%2fetc%2fpasswd", "%2e%2e/%2e%2e/etc/passwd", "..%2f..%2fetc%2fpasswd", "%252e%252e%252f", "..%00/x"],
)
async def test_an_encoded_path_is_a_literal_name(client: ToolClient, workspace: Path, path: str) -> None:
    """E2E-071: double-encoded path traversal rejected: the percent signs stay percent signs."""
    missing = await client.fails("read_file", root="workspace", path=path)
    await client.call("write_file", root="workspace", path=path, content="inside")
    read = await client.call("read_file", root="workspace", path=path)

    assert missing["code"] == "NOT_FOUND"
    assert read["content"] == "inside"
    assert (workspace / path).read_text() == "inside"


@pytest.mark.parametrize("tool", [*ALL_TOOLS, "read_files"])
async def test_an_unknown_root_is_named(client: ToolClient, tool: str) -> None:
    """E2E-072: invalid root name, for every tool."""
    error = await client.fails(tool, **arguments_for(tool, "nonexistent", "a.txt"))

    assert error["code"] == "UNKNOWN_ROOT"
    assert error["message"] == "unknown root: nonexistent"


@pytest.mark.parametrize("tool", [*ALL_TOOLS, "read_files"])
async def test_a_missing_argument_is_named(client: ToolClient, workspace: Path, tool: str) -> None:
    """E2E-073: missing required parameters: `root`, `path`, and whatever else a tool requires."""
    make_tree(workspace, {"a.txt": "x"})
    complete = arguments_for(tool, "workspace", "a.txt")
    listed = await client.mcp.list_tools()
    required = next(listing.input_schema["required"] for listing in listed.tools if listing.name == tool)

    for name in required:
        error = await client.fails(tool, **{other: complete[other] for other in complete if other != name})
        assert error["code"] == "INVALID_ARGUMENT"
        assert error["message"] == f"`{name}` is required"
    assert ("root" in required and "path" in required) or tool in ("grep", "glob", "copy", "move", "read_files")


@pytest.mark.parametrize(
    ("tool", "argument", "says"),
    [
        pytest.param(
            "write_file", {"content": "x", "mode": "truncate"}, "supported: overwrite, append, create_only",
            id="E2E-074: invalid write mode",
        ),
        pytest.param(
            "hash_file", {"algorithm": "sha512"}, "unsupported hash algorithm: sha512; supported: md5, sha1, sha256",
            id="E2E-075: invalid hash algorithm",
        ),
    ],
)  # fmt: skip
async def test_an_unsupported_choice_lists_the_supported_ones(
    client: ToolClient, workspace: Path, tool: str, argument: dict[str, str], says: str
) -> None:
    make_tree(workspace, {"a.txt": "old"})

    error = await client.fails(tool, root="workspace", path="a.txt", **argument)

    assert error["code"] == "INVALID_ARGUMENT"
    assert says in error["message"]
    assert (workspace / "a.txt").read_text() == "old"
