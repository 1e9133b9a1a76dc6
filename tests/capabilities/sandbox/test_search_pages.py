"""Search pages and output modes, coerced arguments, and the end of large files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from armarium.capabilities.sandbox.reads.file_content import ReadLimits, Window, read
from armarium.capabilities.sandbox.search import root_search
from armarium.foundation.concurrency.cancellation import Cancellation
from support.client import ToolClient, texts_of
from support.sandbox_server import Box
from support.trees import make_tree

TREE = {"a.txt": "hit 1\nno\nhit 2\n", "b/c.txt": "hit 3\n", "b/d.txt": "nothing\n", "e.txt": "hit 4\nhit 5\nhit 6\n"}


async def test_grep_lists_only_the_files_that_match(client: ToolClient, workspace: Path) -> None:
    make_tree(workspace, TREE)

    found = await client.call("grep", root="workspace", pattern="hit", output_mode="files", context_lines=3)

    assert found["files"] == ["a.txt", "b/c.txt", "e.txt"]
    assert found["matches"] == []
    assert (found["total_matches"], found["truncated"], found["files_searched"]) == (6, False, 4)
    assert "counts" not in found


async def test_grep_counts_the_lines_that_match_in_each_file(client: ToolClient, workspace: Path) -> None:
    make_tree(workspace, TREE | {"large.txt": "hit and a long line that fills buffers\n" * 100_000})

    found = await client.call("grep", root="workspace", pattern="hit", output_mode="count")

    counts = {entry["file"]: entry["count"] for entry in found["counts"]}
    assert counts == {"a.txt": 2, "b/c.txt": 1, "e.txt": 3, "large.txt": 100_000}
    assert found["total_matches"] == 100_006
    assert "files" not in found


@pytest.mark.parametrize(
    ("tool", "arguments", "results"),
    [
        ("grep", {"pattern": "hit"}, lambda found: [match["line_content"] for match in found["matches"]]),
        ("grep", {"pattern": "hit", "output_mode": "files"}, lambda found: found["files"]),
        ("grep", {"pattern": "hit", "output_mode": "count"}, lambda found: found["counts"]),
        ("glob", {"pattern": "**"}, lambda found: [match["path"] for match in found["matches"]]),
        ("glob", {"regex": "t", "type_filter": "file"}, lambda found: [match["path"] for match in found["matches"]]),
    ],
)
async def test_pages_together_are_the_whole_result(
    client: ToolClient, workspace: Path, tool: str, arguments: dict[str, Any], results: Any
) -> None:
    make_tree(workspace, TREE)
    whole = await client.call(tool, root="workspace", **arguments)
    assert whole["truncated"] is False
    assert "next_offset" not in whole
    for size in (1, 2, 3):
        together: list[Any] = []
        offset = 0
        while True:
            page = await client.call(tool, root="workspace", max_results=size, offset=offset, **arguments)
            together += results(page)
            if not page["truncated"]:
                break
            offset = page["next_offset"]
        assert together == results(whole)
    past = await client.call(tool, root="workspace", offset=1000, **arguments)
    assert results(past) == []


async def test_a_search_may_ask_for_more_results_than_the_server_gives_and_is_told(
    client: ToolClient, workspace: Path
) -> None:
    """FR-016 and FR-017 have no upper bound for max_results; ours clamps."""
    make_tree(workspace, {"a.txt": "x\n" * 100_003})

    found = await client.call("grep", root="workspace", pattern="x", max_results=5_000_000)
    rest = await client.call("grep", root="workspace", pattern="x", max_results=5_000_000, offset=found["next_offset"])

    assert (found["total_matches"], found["truncated"], found["next_offset"]) == (100_000, True, 100_000)
    assert str(root_search.MAX_RESULTS) in found["note"]
    assert (rest["total_matches"], rest["truncated"]) == (3, False)
    assert "note" not in rest


async def test_a_depth_of_zero_is_no_limit(client: ToolClient, workspace: Path) -> None:
    make_tree(workspace, TREE)
    for tool in ("grep", "glob"):
        pattern = {"grep": "hit", "glob": "**/*.txt"}[tool]
        everything = await client.call(tool, root="workspace", pattern=pattern)
        assert await client.call(tool, root="workspace", pattern=pattern, max_depth=0) == everything


async def test_numbers_and_truth_values_may_be_written_as_strings(client: ToolClient, workspace: Path) -> None:
    make_tree(workspace, TREE)

    read_lines = await client.call("read_file", root="workspace", path="a.txt", offset_lines="2", limit_lines=" 1 ")
    numbered = await client.call("read_file", root="workspace", path="a.txt", number_lines="True")
    found = await client.call("grep", root="workspace", pattern="HIT", case_insensitive="true", max_results="2")

    assert read_lines["content"] == "no\n"
    assert numbered["content"].startswith("     1\thit 1")
    assert found["total_matches"] == 2


@pytest.mark.parametrize(
    "arguments",
    [
        {"max_results": "two"},
        {"max_results": "2.5"},
        {"max_results": "-1"},
        {"max_results": "1" * 40},
        {"max_results": ""},
        {"max_results": "1_000"},
        {"max_results": "\u0662"},
        {"case_insensitive": "yes"},
        {"case_insensitive": 1},
        {"max_results": True},
    ],
)
async def test_what_only_looks_like_a_number_or_a_truth_value_is_refused(
    client: ToolClient, workspace: Path, arguments: dict[str, Any]
) -> None:
    error = await client.fails("grep", root="workspace", pattern="x", **arguments)
    assert error["code"] == "INVALID_ARGUMENT"
    assert error["details"]["field"] in arguments


async def test_a_string_stays_one_where_a_string_is_wanted(client: ToolClient, workspace: Path) -> None:
    await client.call("write_file", root="workspace", path="2", content="true")
    assert (workspace / "2").read_text() == "true"


async def test_the_text_of_list_roots_is_an_array(client: ToolClient, roots: Box) -> None:
    """FR-003."""
    result = await client.result("list_roots", {})
    (text,) = texts_of(result)
    listed = json.loads(text)
    assert isinstance(listed, list)
    assert {"name", "allowed_tools"} <= listed[0].keys()
    assert listed == result.structured_content["roots"]


@pytest.mark.parametrize(
    ("tool", "arguments", "says"),
    [
        ("create_folder", {"path": "a.txt"}, "exists as a file"),
        ("read_file", {"path": "a\0b"}, "null"),
        ("write_file", {"path": "a.txt", "content": "", "mode": "truncate"}, "invalid write mode: truncate"),
        ("grep", {"pattern": "[a"}, "invalid regex"),
        ("glob", {"regex": "(a"}, "invalid regex"),
        ("patch_file", {"path": "a.txt", "patch": "nothing to see\n"}, "no hunks"),
    ],
)
async def test_errors_use_the_words_that_clients_look_for(
    client: ToolClient, workspace: Path, tool: str, arguments: dict[str, Any], says: str
) -> None:
    make_tree(workspace, TREE)
    error = await client.fails(tool, root="workspace", **arguments)
    assert says in error["message"]


LIMITS = ReadLimits(1 << 20, 8 << 20)


@pytest.mark.parametrize("ending", ["\n", ""])
@pytest.mark.parametrize("wanted", [1, 3, 5000, 400_000])
def test_the_last_lines_of_a_large_file_are_those_of_the_whole(tmp_path: Path, wanted: int, ending: str) -> None:
    lines = [f"line {number} of many, which is long enough to fill a large file\n" for number in range(300_000)]
    content = "".join(lines).removesuffix("\n") + ending
    (tmp_path / "a").write_text(content)
    with (tmp_path / "a").open("rb") as file:
        window = Window(tail_lines=wanted)
        limits = ReadLimits(1 << 20, 64 << 20)
        answer = read(file.fileno(), len(content), window, limits, Cancellation(), number_lines=False)
    assert answer["content"] == "".join(lines[-wanted:]).removesuffix("\n") + ending
    assert (answer["truncated"], answer["size"]) == (False, len(content))
    assert "lines_total" not in answer


def test_a_tail_larger_than_an_answer_is_cut_at_its_beginning_to_whole_lines(tmp_path: Path) -> None:
    line = "é" * 50 + "\n"
    content = (line * 200_000).encode()
    (tmp_path / "a").write_bytes(content)
    with (tmp_path / "a").open("rb") as file:
        limits = ReadLimits(1 << 20, 1_000_000)
        answer = read(
            file.fileno(), len(content), Window(tail_lines=100_000), limits, Cancellation(), number_lines=False
        )
    assert answer["truncated"] is True
    assert answer["content"] == line * (len(answer["content"]) // len(line))
    assert 999_000 < len(answer["content"].encode()) <= 1_000_000


def test_the_end_of_a_huge_file_is_read_without_the_rest(tmp_path: Path) -> None:
    with (tmp_path / "a").open("wb") as file:
        file.truncate(1 << 42)
        file.seek(0, 2)
        file.write(b"\nlast but one\nlast\n")
    with (tmp_path / "a").open("rb") as file:
        size = (tmp_path / "a").stat().st_size
        answer = read(file.fileno(), size, Window(tail_lines=2), LIMITS, Cancellation(), number_lines=False)
    assert answer["content"] == "last but one\nlast\n"
