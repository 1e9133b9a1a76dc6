"""Reading files: tails, line numbers, several files at once, encodings, limits."""

from __future__ import annotations

import base64
import hashlib
import re
from pathlib import Path

import pytest

from support.client import ToolClient, connected
from support.sandbox_server import Box
from support.server import ServerProcess
from support.trees import make_tree


def sha256(content: str | bytes) -> str:
    return hashlib.sha256(content.encode() if isinstance(content, str) else content).hexdigest()


def config(root: Path, **more: object) -> dict[str, object]:
    return {"host": "127.0.0.1", "roots": [{"name": "workspace", "path": str(root), "allowed_tools": ["*"]}], **more}


@pytest.mark.parametrize(
    ("content", "tail", "expected", "lines"),
    [
        ("1\n2\n3\n4\n5\n", 2, "4\n5\n", (4, 5)),
        ("1\n2\n3\n4\n5", 2, "4\n5", (4, 5)),
        ("1\n2\n3\n", 10, "1\n2\n3\n", (1, 3)),
        ("\n\n\n", 1, "\n", (3, 3)),
        ("", 3, "", None),
    ],
)
async def test_the_last_lines_are_read(
    client: ToolClient, workspace: Path, content: str, tail: int, expected: str, lines: tuple[int, int] | None
) -> None:
    make_tree(workspace, {"a.log": content})

    read = await client.call("read_file", root="workspace", path="a.log", tail_lines=tail)

    assert read["content"] == expected
    assert (read["start_line"], read["end_line"]) == lines if lines else "start_line" not in read
    assert read["lines_total"] == len(content.splitlines())


async def test_the_last_lines_of_a_file_far_over_the_threshold_are_read(client: ToolClient, workspace: Path) -> None:
    make_tree(workspace, {"big.log": b"".join(b"line %d\n" % number for number in range(1, 500_001))})

    read = await client.call("read_file", root="workspace", path="big.log", tail_lines=2)

    assert read["content"] == "line 499999\nline 500000\n"
    assert read["lines_total"] == 500_000


@pytest.mark.parametrize("other", ["offset_lines", "limit_lines", "offset_bytes", "limit_bytes"])
async def test_a_tail_excludes_other_windows(client: ToolClient, workspace: Path, other: str) -> None:
    make_tree(workspace, {"a.txt": "x\n"})

    error = await client.fails("read_file", root="workspace", path="a.txt", tail_lines=1, **{other: 1})

    assert error["code"] == "INVALID_ARGUMENT"


async def test_lines_are_numbered_when_asked(client: ToolClient, workspace: Path) -> None:
    make_tree(workspace, {"a.txt": "".join(f"text {number}\n" for number in range(1, 21)) + "unfinished"})

    whole = await client.call("read_file", root="workspace", path="a.txt", number_lines=True)
    part = await client.call(
        "read_file", root="workspace", path="a.txt", number_lines=True, offset_lines=9, limit_lines=2
    )
    tail = await client.call("read_file", root="workspace", path="a.txt", number_lines=True, tail_lines=1)

    numbers = [int(number) for number in re.findall(r"^ *(\d+)\t", whole["content"], re.MULTILINE)]
    assert numbers == list(range(1, 22))
    assert re.findall(r"^ *(\d+)\t(.*)$", part["content"], re.MULTILINE) == [("9", "text 9"), ("10", "text 10")]
    assert tail["content"].split("\t") == ["    21", "unfinished"]


async def test_several_files_are_read_at_once_and_one_that_fails_does_not_spoil_the_rest(
    client: ToolClient, roots: Box, workspace: Path
) -> None:
    make_tree(workspace, {"b.txt": "b", "a.txt": "a", "folder": None})
    (workspace / "out").symlink_to(roots.outside)

    answer = await client.call(
        "read_files", root="workspace", paths=["b.txt", "gone.txt", "a.txt", "folder", "out/secret.txt", "b.txt"]
    )

    assert [file.get("content") for file in answer["files"]] == ["b", None, "a", None, None, "b"]
    codes = [file["error"]["code"] for file in answer["files"] if "error" in file]
    assert codes == ["NOT_FOUND", "IS_A_DIRECTORY", "PATH_ESCAPES_ROOT"]
    assert answer["files"][0]["sha256"] == sha256("b")
    assert answer["files"][1]["path"] == "gone.txt"
    assert answer["count"] == 6


async def test_reading_several_files_goes_by_the_permission_to_read_one(client: ToolClient, roots: Box) -> None:
    make_tree(roots.root("readonly"), {"a.txt": "a"})

    allowed = await client.call("read_files", root="readonly", paths=["a.txt"])
    refused = await client.fails("read_files", root="restricted", paths=["a.txt"])

    assert allowed["files"][0]["content"] == "a"
    assert refused["message"] == "tool read_file not allowed on root restricted"


@pytest.mark.parametrize("paths", [[], ["a.txt"] * 101])
async def test_none_or_too_many_files_at_once_are_refused(client: ToolClient, paths: list[str]) -> None:
    error = await client.fails("read_files", root="workspace", paths=paths)

    assert error["code"] == "INVALID_ARGUMENT"
    assert "`paths`" in error["message"]


async def test_text_that_is_no_utf8_is_read_with_replacement_and_bytes_exactly(
    client: ToolClient, workspace: Path
) -> None:
    latin = "naïve café\nsecond\n".encode("latin-1")
    make_tree(workspace, {"latin.txt": latin})

    whole = await client.call("read_file", root="workspace", path="latin.txt")
    lines = await client.call("read_file", root="workspace", path="latin.txt", offset_lines=1, limit_lines=1)
    exact = await client.call("read_file", root="workspace", path="latin.txt", offset_bytes=0, limit_bytes=10)

    assert whole["content"] == "na\ufffdve caf\ufffd\nsecond\n"
    assert whole["encoding"] == "utf-8-replaced"
    assert whole["sha256"] == sha256(latin)
    assert lines["encoding"] == "utf-8-replaced"
    assert exact["encoding"] == "base64"
    assert exact["binary"] is True
    assert base64.b64decode(exact["content"]) == latin[:10]


async def test_binary_content_survives_as_base64(client: ToolClient, workspace: Path) -> None:
    content = bytes(range(256)) * 4
    make_tree(workspace, {"a.bin": content})

    whole = await client.call("read_file", root="workspace", path="a.bin")
    part = await client.call("read_file", root="workspace", path="a.bin", offset_bytes=100, limit_bytes=300)

    assert base64.b64decode(whole["content"]) == content
    assert (whole["binary"], whole["encoding"]) == (True, "base64")
    assert base64.b64decode(part["content"]) == content[100:400]


async def test_a_huge_limit_costs_no_memory(client: ToolClient, roots: Box, workspace: Path) -> None:
    """A limit of 10 GB is a bound, not an order: on a small file and on a sparse one of 20 GB."""
    make_tree(workspace, {"small.txt": "small"})
    with (workspace / "sparse.bin").open("wb") as file:
        file.truncate(20_000_000_000)
        file.seek(19_999_999_995)
        file.write(b"end\0\n")

    with roots.server.peak_memory() as growth:
        small = await client.call("read_file", root="workspace", path="small.txt", limit_bytes=10_000_000_000)
        end = await client.call(
            "read_file", root="workspace", path="sparse.bin", offset_bytes=19_999_999_990, limit_bytes=10_000_000_000
        )
        whole = await client.fails("read_file", root="workspace", path="sparse.bin")
    with roots.server.peak_memory() as bounded:
        part = await client.call("read_file", root="workspace", path="sparse.bin", limit_bytes=10_000_000_000)

    assert small["content"] == "small"
    assert base64.b64decode(end["content"]) == b"\0\0\0\0\0end\0\n"
    assert whole["code"] == "FILE_TOO_LARGE"
    assert growth.bytes < 16_000_000
    assert part["truncated"] is True
    assert 0 < len(base64.b64decode(part["content"])) <= 8 * 1024 * 1024
    assert bounded.bytes < 200_000_000


async def test_reading_past_the_end_says_how_long_the_file_is(tmp_path: Path) -> None:
    (tmp_path / "root").mkdir()
    (tmp_path / "root" / "short.txt").write_text("1\n2\n3\n4\n5\n")
    with ServerProcess.mcp_filesystem(tmp_path, config(tmp_path / "root")) as server:
        async with connected(server.url) as client:
            answer = await client.call("read_file", root="workspace", path="short.txt", offset_lines=100)
            assert answer["content"] == ""
            assert "5 lines" in answer["note"]


async def test_one_large_file_too_many_does_not_spoil_small_ones(tmp_path: Path) -> None:
    root = tmp_path / "root"
    root.mkdir()
    for number in range(17):
        (root / f"large{number}").write_text("x" * 1_048_000)
    (root / "small").write_text("s")
    with ServerProcess.mcp_filesystem(tmp_path, config(root)) as server:
        async with connected(server.url) as client:
            paths = [f"large{number}" for number in range(17)] + ["small"]
            files = (await client.call("read_files", root="workspace", paths=paths))["files"]
    assert files[16]["error"]["code"] == "FILE_TOO_LARGE"
    assert files[17]["content"] == "s"
