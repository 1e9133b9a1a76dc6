"""The size limit of search results."""

from __future__ import annotations

from pathlib import Path

from support.client import connected
from support.server import ServerProcess


def config(root: Path, **more: object) -> dict[str, object]:
    return {"host": "127.0.0.1", "roots": [{"name": "workspace", "path": str(root), "allowed_tools": ["*"]}], **more}


async def test_a_grep_with_much_context_stays_within_its_budget(tmp_path: Path) -> None:
    (tmp_path / "root").mkdir()
    (tmp_path / "root" / "many.txt").write_text("match this line of text please\n" * 20_000)
    with ServerProcess.mcp_filesystem(tmp_path, config(tmp_path / "root")) as server:
        async with connected(server.url) as client:
            found = await client.call("grep", root="workspace", pattern="match", max_results=20_000, context_lines=1000)
            assert found["truncated"]
            assert 0 < found["total_matches"] < 1000
