"""Edges that a careful reader of the contract would try: denials inside answers, budgets, moves onto something."""

from __future__ import annotations

from pathlib import Path

import anyio
import pytest

from support.client import connected
from support.server import ServerProcess

pytestmark = pytest.mark.anyio


def config(root: Path, **more: object) -> dict[str, object]:
    return {"host": "127.0.0.1", "roots": [{"name": "workspace", "path": str(root), "allowed_tools": ["*"]}], **more}


async def test_every_tool_says_that_it_needs_a_root(tmp_path: Path) -> None:
    (tmp_path / "root").mkdir()
    with ServerProcess.mcp_filesystem(tmp_path, config(tmp_path / "root")) as server:
        async with connected(server.url) as client:
            manuals = {tool.name: tool.description or "" for tool in (await client.mcp.list_tools()).tools}
    del manuals["list_roots"]
    assert all("list_roots" in manual and "root`" in manual for manual in manuals.values())


async def test_a_home_directory_root_and_a_host_name_work_under_landlock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "a.txt").write_text("here\n")
    with ServerProcess.mcp_filesystem(tmp_path, config(Path("~/work"), host="localhost")) as server:
        async with connected(server.url) as client:
            assert (await client.call("read_file", root="workspace", path="a.txt"))["content"] == "here\n"


async def test_a_denial_inside_read_files_is_on_record(tmp_path: Path) -> None:
    (tmp_path / "root").mkdir()
    with ServerProcess.mcp_filesystem(tmp_path, config(tmp_path / "root")) as server:
        async with connected(server.url) as client:
            answer = await client.call("read_files", root="workspace", paths=["../../etc/passwd"])
            assert answer["files"][0]["error"]["code"] == "PATH_ESCAPES_ROOT"
        with anyio.fail_after(10):
            line = server.wait_for_log(lambda line: line.get("msg") == "denied")
    assert line["level"] == "WARN"
    assert line["attempted_path"] == "../../etc/passwd"


async def test_a_denial_at_the_destination_names_the_destination(tmp_path: Path) -> None:
    (tmp_path / "root").mkdir()
    (tmp_path / "root" / "a.txt").write_text("a")
    with ServerProcess.mcp_filesystem(tmp_path, config(tmp_path / "root")) as server:
        async with connected(server.url) as client:
            places = {"source_root": "workspace", "source_path": "a.txt", "dest_root": "workspace"}
            error = await client.fails("copy", **places, dest_path="../b.txt")
            assert error["code"] == "PATH_ESCAPES_ROOT"
        line = server.wait_for_log(lambda line: line.get("msg") == "denied")
    assert line["attempted_path"] == "../b.txt"
    assert line["resolved_path"] == str(tmp_path / "b.txt")


async def test_a_grep_with_much_context_stays_within_its_budget(tmp_path: Path) -> None:
    (tmp_path / "root").mkdir()
    (tmp_path / "root" / "many.txt").write_text("match this line of text please\n" * 20_000)
    with ServerProcess.mcp_filesystem(tmp_path, config(tmp_path / "root")) as server:
        async with connected(server.url) as client:
            found = await client.call("grep", root="workspace", pattern="match", max_results=20_000, context_lines=1000)
            assert found["truncated"]
            assert 0 < found["total_matches"] < 1000


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


async def test_a_directory_is_not_merged_into_another_by_a_move_between_roots(tmp_path: Path) -> None:
    for place in ("one/d", "two/d"):
        (tmp_path / place).mkdir(parents=True)
        (tmp_path / place / "f").write_text(place)
    roots = [{"name": name, "path": str(tmp_path / name), "allowed_tools": ["*"]} for name in ("one", "two")]
    with ServerProcess.mcp_filesystem(tmp_path, {"host": "127.0.0.1", "roots": roots}) as server:
        async with connected(server.url) as client:
            error = await client.fails("move", source_root="one", source_path="d", dest_root="two", dest_path=".")
    assert error["code"] == "ALREADY_EXISTS"
    assert (tmp_path / "one/d/f").read_text() == "one/d"
    assert (tmp_path / "two/d/f").read_text() == "two/d"


async def test_the_servers_own_token_is_never_served(tmp_path: Path) -> None:
    more = {"security": {"auth": "auto"}, "state_dir": str(tmp_path / "root" / "state")}
    (tmp_path / "root").mkdir()
    with ServerProcess.mcp_filesystem(tmp_path, config(tmp_path / "root", **more)) as server:
        key = (tmp_path / "root/state/secret.token").read_text().strip()
        async with connected(server.url, key=key) as client:
            error = await client.fails("read_file", root="workspace", path="state/secret.token")
            listed = await client.call("list_folder", root="workspace", path=".")
    assert error["code"] == "PATH_IGNORED"
    assert listed["entries"] == []


async def test_moving_a_file_onto_itself_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "root").mkdir()
    (tmp_path / "root" / "a").write_text("a")
    with ServerProcess.mcp_filesystem(tmp_path, config(tmp_path / "root")) as server:
        async with connected(server.url) as client:
            places = {"source_root": "workspace", "dest_root": "workspace"}
            error = await client.fails("move", **places, source_path="a", dest_path="./a")
    assert error["code"] == "INVALID_ARGUMENT"
