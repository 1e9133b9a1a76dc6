"""Moves onto existing entries."""

from __future__ import annotations

from pathlib import Path

from support.client import connected
from support.server import ServerProcess


def config(root: Path, **more: object) -> dict[str, object]:
    return {"host": "127.0.0.1", "roots": [{"name": "workspace", "path": str(root), "allowed_tools": ["*"]}], **more}


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


async def test_moving_a_file_onto_itself_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "root").mkdir()
    (tmp_path / "root" / "a").write_text("a")
    with ServerProcess.mcp_filesystem(tmp_path, config(tmp_path / "root")) as server:
        async with connected(server.url) as client:
            places = {"source_root": "workspace", "dest_root": "workspace"}
            error = await client.fails("move", **places, source_path="a", dest_path="./a")
    assert error["code"] == "INVALID_ARGUMENT"
