"""The server's own files inside an indexed directory are never indexed: token, keys, server definitions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anyio

from armarium.foundation.security.identity import LOCAL
from armarium.server import open_server
from armarium.settings import Settings
from armarium.surfaces.dispatch import Caller
from support.corpus_calls import write_lighthouse
from support.waiting import eventually

DEADLINE_S = 60.0


async def test_what_the_server_keeps_for_itself_in_the_root_is_no_document(tmp_path: Path) -> None:
    root = tmp_path / "root"
    write_lighthouse(root)
    for folder, kept in (("config/overrides", "rag-mcp.json"), ("state", "secret.token"), ("config/notes", "plan.md")):
        (root / folder).mkdir(parents=True)
        (root / folder / kept).write_text("{}")
    settings = Settings.model_validate(
        {
            "state_dir": str(root / "state"),
            "corpus": {"root": str(root), "embedding": {"provider": "local"}, "ingest": {"watch": False}},
            "gateway": {"config_dir": str(root / "config"), "watch": False},
        }
    )
    with anyio.fail_after(DEADLINE_S):
        async with open_server(settings) as server:

            async def call(tool: str, **arguments: str) -> dict[str, Any]:
                return (await server.dispatcher.outcome(Caller(LOCAL, "test"), f"dir2mcp.{tool}", arguments)).result

            async def is_indexed() -> bool:
                return not (await call("stats"))["structuredContent"]["indexing"]["running"]

            await eventually(is_indexed)
            listed = (await call("list_files"))["structuredContent"]["files"]
            assert [file["rel_path"] for file in listed] == [
                "config/notes/plan.md",
                "handbook.md",
                "lamp.py",
                "notes.txt",
            ]
            for path in ("config/overrides/rag-mcp.json", "state/secret.token"):
                assert (await call("open_file", rel_path=path))["isError"]
