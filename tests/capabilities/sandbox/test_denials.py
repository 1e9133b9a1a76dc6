"""Denials: how they are recorded, and which path they name."""

from __future__ import annotations

from pathlib import Path

import anyio

from support.client import connected
from support.server import ServerProcess


def config(root: Path, **more: object) -> dict[str, object]:
    return {"host": "127.0.0.1", "roots": [{"name": "workspace", "path": str(root), "allowed_tools": ["*"]}], **more}


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
