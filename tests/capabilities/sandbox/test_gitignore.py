"""Searches that respect .gitignore files."""

from __future__ import annotations

from pathlib import Path

from support.client import ToolClient
from support.trees import make_tree


def config(root: Path, **more: object) -> dict[str, object]:
    return {"host": "127.0.0.1", "roots": [{"name": "workspace", "path": str(root), "allowed_tools": ["*"]}], **more}


async def test_what_git_ignores_is_left_out_when_asked(client: ToolClient, workspace: Path) -> None:
    make_tree(
        workspace,
        {
            ".gitignore": "*.log\nbuild/\n!keep.log\n",
            ".git/config": "needle\n",
            "a.txt": "needle\n",
            "a.log": "needle\n",
            "keep.log": "needle\n",
            "build/out.txt": "needle\n",
            "sub/.gitignore": "local.txt\n",
            "sub/local.txt": "needle\n",
            "sub/other.txt": "needle\n",
            "local.txt": "needle\n",
        },
    )
    visible = ["a.txt", "keep.log", "local.txt", "sub/other.txt"]

    found = await client.call("grep", root="workspace", pattern="needle", respect_gitignore=True)
    named = await client.call("glob", root="workspace", pattern="**/*.*", type_filter="file", respect_gitignore=True)
    below = await client.call("grep", root="workspace", pattern="needle", path="sub", respect_gitignore=True)
    everything = await client.call("grep", root="workspace", pattern="needle")

    assert [match["file"] for match in found["matches"]] == visible
    assert [match["path"] for match in named["matches"]] == [".gitignore", *visible[:3], "sub/.gitignore", visible[3]]
    assert [match["file"] for match in below["matches"]] == ["sub/other.txt"]
    assert everything["total_matches"] == 8
