"""Several servers on one directory: one leads, the others follow, and one of them takes over."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from support.client import ToolClient, connected
from support.server import ServerProcess, installed_command
from support.waiting import eventually

DEADLINE_S = 60.0


def serve(tmp_path: Path, name: str) -> ServerProcess:
    """`armarium serve` with the sandbox and the corpus over the same directory."""
    root = str(tmp_path / "root")
    settings: dict[str, Any] = {
        "state_dir": str(tmp_path / name),
        "server": {"port": 0},
        "security": {"auth": "none"},
        "sandbox": {"roots": [{"name": "workspace", "path": root, "allowed_tools": ["*"]}]},
        "corpus": {"root": root},
    }
    file = tmp_path / f"{name}.yaml"
    file.write_text(yaml.safe_dump(settings))
    return ServerProcess([installed_command("armarium"), "serve", "--config", str(file)])


async def until_found(client: ToolClient, word: str, path: str) -> None:
    async def is_found() -> bool:
        result = await client.result("dir2mcp.search", {"query": word, "k": 3})
        hits = (result.structured_content or {}).get("hits", ())
        return any(hit["rel_path"] == path and word in hit["snippet"] for hit in hits)

    await eventually(is_found, what=f"{word} is found in {path}")


async def test_a_second_server_follows_the_first_and_takes_over_when_it_ends(tmp_path: Path) -> None:
    root = tmp_path / "root"
    root.mkdir()
    (root / "a.md").write_text("The first page speaks of walnuts.\n")
    first = serve(tmp_path, "first")
    with serve(tmp_path, "second") as second:
        try:
            async with connected(first.url) as one, connected(second.url) as other:
                await until_found(one, "walnuts", "a.md")
                await until_found(other, "walnuts", "a.md")
                (root / "b.md").write_text("The second page speaks of hazelnuts.\n")
                await until_found(one, "hazelnuts", "b.md")
                await until_found(other, "hazelnuts", "b.md")
        finally:
            first.kill()
        async with connected(second.url) as other:
            (root / "c.md").write_text("The third page speaks of chestnuts.\n")
            await until_found(other, "chestnuts", "c.md")


async def test_what_an_agent_writes_through_the_sandbox_can_be_asked_for(tmp_path: Path) -> None:
    (tmp_path / "root").mkdir()
    with serve(tmp_path, "state") as server:
        async with connected(server.url) as client:
            await client.call("write_file", root="workspace", path="new.md", content="Pears ripen on the wall.\n")
            await until_found(client, "Pears", "new.md")
            moved = {
                "source_root": "workspace",
                "source_path": "new.md",
                "dest_root": "workspace",
                "dest_path": "old.md",
            }
            await client.call("move", **moved)
            await until_found(client, "Pears", "old.md")


async def test_the_sandbox_does_not_show_the_index(tmp_path: Path) -> None:
    (tmp_path / "root").mkdir()
    with serve(tmp_path, "state") as server:
        async with connected(server.url) as client:
            listed = await client.call("list_folder", root="workspace", path="/")
            assert listed["entries"] == []
            refused = await client.fails("read_file", root="workspace", path=".dir2mcp/corpus.json")
            assert refused["code"] == "PATH_IGNORED"
