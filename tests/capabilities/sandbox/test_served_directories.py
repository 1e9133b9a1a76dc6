"""Which directories a server can serve under Landlock."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.client import connected
from support.server import ServerProcess


def config(root: Path, **more: object) -> dict[str, object]:
    return {"host": "127.0.0.1", "roots": [{"name": "workspace", "path": str(root), "allowed_tools": ["*"]}], **more}


async def test_a_home_directory_root_and_a_host_name_work_under_landlock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "a.txt").write_text("here\n")
    with ServerProcess.mcp_filesystem(tmp_path, config(Path("~/work"), host="localhost")) as server:
        async with connected(server.url) as client:
            assert (await client.call("read_file", root="workspace", path="a.txt"))["content"] == "here\n"
