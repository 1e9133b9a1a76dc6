"""The contract's cases about searching: E2E-048 … E2E-060, E2E-076, E2E-079."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from support.client import ToolClient
from support.sandbox_server import CANARY, Box
from support.trees import make_tree, picture


def lines_with_todo_at(number: int, total: int = 20) -> str:
    return "".join("// TODO: fix this\n" if line == number else f"line {line}\n" for line in range(1, total + 1))


def hits(found: dict[str, Any]) -> list[tuple[str, int]]:
    return [(match["file"], match["line_number"]) for match in found["matches"]]


def paths(found: dict[str, Any]) -> list[str]:
    return [match["path"] for match in found["matches"]]


async def test_a_match_comes_with_its_line_and_context(client: ToolClient, workspace: Path) -> None:
    """E2E-048: grep - regex match with context lines."""
    make_tree(workspace, {"code.go": lines_with_todo_at(10)})

    found = await client.call("grep", root="workspace", pattern="TODO", context_lines=2)

    assert found["matches"] == [
        {
            "file": "code.go",
            "line_number": 10,
            "line_content": "// TODO: fix this",
            "context_before": ["line 8", "line 9"],
            "context_after": ["line 11", "line 12"],
        }
    ]
    assert found["total_matches"] == 1
    assert found["truncated"] is False
    assert found["timed_out"] is False


async def test_context_ends_where_the_file_does(client: ToolClient, workspace: Path) -> None:
    """FR-016: context lines at the first and the last line of a file."""
    make_tree(workspace, {"first.txt": lines_with_todo_at(1, 3), "last.txt": lines_with_todo_at(3, 3)})

    found = await client.call("grep", root="workspace", pattern="TODO", context_lines=5)

    first, last = found["matches"]
    assert (first["context_before"], first["context_after"]) == ([], ["line 2", "line 3"])
    assert (last["context_before"], last["context_after"]) == (["line 1", "line 2"], [])


async def test_case_is_ignored_when_asked(client: ToolClient, workspace: Path) -> None:
    """E2E-049: grep - case insensitive (and sensitive by default)."""
    make_tree(workspace, {"a.log": "Error\n", "b.log": "error\n", "c.log": "ERROR\n", "d.log": "fine\n"})

    ignoring = await client.call("grep", root="workspace", pattern="error", case_insensitive=True)
    exact = await client.call("grep", root="workspace", pattern="error")

    assert hits(ignoring) == [("a.log", 1), ("b.log", 1), ("c.log", 1)]
    assert hits(exact) == [("b.log", 1)]


async def test_files_are_filtered_by_name(client: ToolClient, workspace: Path) -> None:
    """E2E-050: grep - file type filter."""
    make_tree(workspace, {"file.go": "TODO\n", "file.py": "TODO\n", "deep/er/more.go": "TODO\n"})

    found = await client.call("grep", root="workspace", pattern="TODO", glob_filter="*.go")

    assert hits(found) == [("deep/er/more.go", 1), ("file.go", 1)]


async def test_a_search_may_be_narrowed_to_a_directory_and_depth(client: ToolClient, workspace: Path) -> None:
    """FR-016, FR-017: `path` and `max_depth`; results stay relative to the root."""
    make_tree(workspace, {"top.txt": "hit\n", "in/one.txt": "hit\n", "in/deep/two.txt": "hit\n"})

    inside = await client.call("grep", root="workspace", pattern="hit", path="in")
    shallow = await client.call("grep", root="workspace", pattern="hit", path="in", max_depth=1)
    named = await client.call("glob", root="workspace", pattern="**/*.txt", path="in")
    near = await client.call("glob", root="workspace", pattern="**/*.txt", max_depth=2)

    assert hits(inside) == [("in/deep/two.txt", 1), ("in/one.txt", 1)]
    assert hits(shallow) == [("in/one.txt", 1)]
    assert paths(named) == ["in/deep/two.txt", "in/one.txt"]
    assert paths(near) == ["in/one.txt", "top.txt"]


async def test_nothing_found_is_an_empty_answer(client: ToolClient, workspace: Path) -> None:
    """E2E-051: grep - no matches."""
    make_tree(workspace, {"a.txt": "some text\n", "b.txt": "other text\n"})

    found = await client.call("grep", root="workspace", pattern="ZZZZUNIQUEZZZZZ")

    assert found["total_matches"] == 0
    assert found["matches"] == []
    assert found["truncated"] is False
    assert found["files_searched"] == 2


async def test_results_are_cut_at_the_maximum(client: ToolClient, workspace: Path) -> None:
    """E2E-053: grep - max results truncation: always the first ones in path order."""
    make_tree(workspace, {f"files/{number:03}.txt": "one match here\n" for number in range(210)})

    found = await client.call("grep", root="workspace", pattern="match", max_results=5)
    default = await client.call("grep", root="workspace", pattern="match")
    everything = await client.call("grep", root="workspace", pattern="match", max_results=1000)

    assert hits(found) == [(f"files/{number:03}.txt", 1) for number in range(5)]
    assert found["truncated"] is True
    assert len(default["matches"]) == 100
    assert default["truncated"] is True
    assert len(everything["matches"]) == everything["total_matches"] == 210
    assert everything["truncated"] is False


async def test_exactly_as_many_results_as_allowed_are_not_truncated(client: ToolClient, workspace: Path) -> None:
    make_tree(workspace, {f"{number}.txt": "match\n" for number in range(5)})

    texts = await client.call("grep", root="workspace", pattern="match", max_results=5)
    names = await client.call("glob", root="workspace", pattern="*.txt", max_results=5)

    assert (texts["total_matches"], names["total_matches"]) == (5, 5)
    assert (texts["truncated"], names["truncated"]) == (False, False)


async def test_binary_files_are_skipped(client: ToolClient, workspace: Path) -> None:
    """E2E-054: grep - binary file skipped."""
    make_tree(workspace, {"data.bin": b"needle\0needle\n", "text.txt": "a needle here\n"})

    found = await client.call("grep", root="workspace", pattern="needle")

    assert hits(found) == [("text.txt", 1)]


async def test_files_are_found_by_glob(client: ToolClient, workspace: Path) -> None:
    """E2E-055: glob - glob pattern match."""
    make_tree(workspace, {"b.go": "bb", "a.go": "a", "c.txt": "c", "sub/d.go": "d"})
    os.utime(workspace / "a.go", ns=(0, 1_700_000_000_000_000_000))

    found = await client.call("glob", root="workspace", pattern="*.go")

    assert paths(found) == ["a.go", "b.go"]
    assert found["matches"][0] == {
        "path": "a.go",
        "type": "file",
        "size": 1,
        "modified_at": "2023-11-14T22:13:20.000000Z",
    }
    assert found["total_matches"] == 2
    assert found["truncated"] is False
    assert found["timed_out"] is False


async def test_files_are_found_by_regex(client: ToolClient, workspace: Path) -> None:
    """E2E-056: glob - regex pattern match."""
    make_tree(workspace, {"test_1.go": "", "test_2.go": "", "main.go": ""})

    found = await client.call("glob", root="workspace", regex="test_\\d+\\.go")

    assert paths(found) == ["test_1.go", "test_2.go"]


async def test_two_stars_reach_every_depth(client: ToolClient, workspace: Path) -> None:
    """E2E-057: glob - doublestar recursive."""
    make_tree(workspace, {"src/a.go": "", "src/pkg/b.go": "", "src/pkg/sub/c.go": "", "src/pkg/d.txt": ""})

    found = await client.call("glob", root="workspace", pattern="**/*.go")

    assert paths(found) == ["src/a.go", "src/pkg/b.go", "src/pkg/sub/c.go"]


@pytest.mark.parametrize(
    ("type_filter", "expected"),
    [
        pytest.param("file", ["file.txt"], id="E2E-058: glob - type filter (files only)"),
        ("directory", ["folder"]),
        ("symlink", ["link"]),
        ("all", ["file.txt", "folder", "link"]),
        (None, ["file.txt", "folder", "link"]),
    ],
)
async def test_results_are_filtered_by_type(
    client: ToolClient, workspace: Path, type_filter: str | None, expected: list[str]
) -> None:
    make_tree(workspace, {"file.txt": "", "folder": None})
    (workspace / "link").symlink_to("file.txt")

    found = await client.call(
        "glob", root="workspace", pattern="*", **({"type_filter": type_filter} if type_filter else {})
    )

    assert paths(found) == expected


async def test_no_name_matching_is_an_empty_answer(client: ToolClient, workspace: Path) -> None:
    """E2E-059: glob - no matches."""
    make_tree(workspace, {"a.txt": ""})

    found = await client.call("glob", root="workspace", pattern="*.xyz")

    assert found["total_matches"] == 0
    assert found["matches"] == []


async def test_names_are_cut_at_the_maximum_in_path_order(client: ToolClient, workspace: Path) -> None:
    """FR-017: max_results stops the search; results are sorted by path."""
    make_tree(workspace, {f"{letter}/{number}.txt": "" for letter in "cab" for number in range(9)})

    found = await client.call("glob", root="workspace", pattern="**/*.txt", max_results=10)
    default = await client.call("glob", root="workspace", pattern="**")

    assert paths(found) == [f"a/{number}.txt" for number in range(9)] + ["b/0.txt"]
    assert found["truncated"] is True
    assert paths(default) == sorted(paths(default))


@pytest.mark.parametrize(
    ("tool", "arguments", "code", "says"),
    [
        pytest.param("grep", {"pattern": "[invalid"}, "INVALID_PATTERN", "invalid pattern: ",
                     id="E2E-052: grep - invalid regex"),
        pytest.param("glob", {"pattern": "*.go", "regex": ".*\\.go"}, "INVALID_ARGUMENT",
                     "exactly one of `pattern` or `regex` must be provided",
                     id="E2E-060: glob - both pattern and regex rejected"),
        pytest.param("glob", {}, "INVALID_ARGUMENT", "exactly one of `pattern` or `regex` must be provided",
                     id="FR-017: glob - neither pattern nor regex rejected"),
        pytest.param("glob", {"regex": "[unclosed"}, "INVALID_PATTERN", "invalid pattern: ",
                     id="E2E-076: glob - invalid regex syntax"),
        pytest.param("glob", {"pattern": "[unclosed"}, "INVALID_PATTERN", "invalid pattern: ",
                     id="E2E-076: glob - invalid glob syntax"),
        pytest.param("glob", {"pattern": "*", "type_filter": "socket"}, "INVALID_ARGUMENT",
                     "unsupported type filter: socket; supported: file, directory, symlink, all",
                     id="FR-017: glob - unknown type filter"),
        pytest.param("grep", {"pattern": "x", "path": "gone"}, "NOT_FOUND", "directory not found: gone",
                     id="FR-016: grep - directory not found"),
    ],
)  # fmt: skip
async def test_a_search_that_cannot_be_understood_says_why(
    client: ToolClient, workspace: Path, tool: str, arguments: dict[str, Any], code: str, says: str
) -> None:
    make_tree(workspace, {"a.go": "x"})

    error = await client.fails(tool, root="workspace", **arguments)

    assert error["code"] == code
    assert says in error["message"]
    if code == "INVALID_PATTERN":
        assert len(error["message"]) > len(says), "what is wrong with the pattern follows"


async def test_no_search_follows_a_link_out_of_the_root(client: ToolClient, roots: Box, workspace: Path) -> None:
    """NFR-009: every path met on the way is validated."""
    make_tree(workspace, {"inside.txt": "canary is sought\n"})
    (workspace / "out").symlink_to(roots.outside)
    (workspace / "out.txt").symlink_to(roots.outside / "secret.txt")

    texts = await client.call("grep", root="workspace", pattern="canary")
    names = await client.call("glob", root="workspace", pattern="**")
    refused = [
        await client.fails("grep", root="workspace", pattern="canary", path="out"),
        await client.fails("glob", root="workspace", pattern="**", path="out"),
    ]

    assert hits(texts) == [("inside.txt", 1)]
    assert [(match["path"], match["type"]) for match in names["matches"]] == [
        ("inside.txt", "file"),
        ("out", "symlink"),
        ("out.txt", "symlink"),
    ]
    assert [error["code"] for error in refused] == ["PATH_ESCAPES_ROOT"] * 2
    assert CANARY not in str(refused)


async def test_a_search_out_of_time_returns_what_it_found(client: ToolClient, workspace: Path) -> None:
    """E2E-079: grep timeout returns partial results.

    Names cost nothing and the text is read anew under each of them, so that hundreds of hard links to one file are
    tens of gigabytes to search: far more than any machine reads in a second.
    """
    make_tree(workspace, {"a-first.txt": "a common word\n" * 3, "b-second.txt": "a common word\n"})
    big = workspace / "tree/0000.txt"
    make_tree(workspace, {"tree/0000.txt": b"plain text with nothing to be found in it, line after line\n" * 1_000_000})
    for number in range(1, 1000):
        os.link(big, workspace / f"tree/{number:04}.txt")

    found = await client.call("grep", root="workspace", pattern="comm[nop]n wor.", timeout_seconds=1)
    complete = await client.call("grep", root="workspace", pattern="comm[nop]n wor.", glob_filter="?-*.txt")

    assert found["timed_out"] is True
    assert hits(found) == [("a-first.txt", 1), ("a-first.txt", 2), ("a-first.txt", 3), ("b-second.txt", 1)]
    assert 2 <= found["files_searched"] < 1002
    assert complete["timed_out"] is False
    assert hits(complete) == hits(found)


async def test_searching_changes_nothing(client: ToolClient, workspace: Path) -> None:
    make_tree(workspace, {"a/b.txt": "text\n", ".gitignore": "b.txt\n"})
    before = picture(workspace)

    await client.call("grep", root="workspace", pattern="t", respect_gitignore=True)
    await client.call("glob", root="workspace", pattern="**", respect_gitignore=True)

    assert picture(workspace) == before
