"""The server that the documentation shows how to write works behind the gateway as it stands there."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

from armarium.assembly import Settings, open_armarium
from armarium.capabilities.gateway.config.files import parse_entries
from armarium.capabilities.gateway.contract import DISCOVER, RAW_RESULTS, SYNTHESIZED
from armarium.foundation.identity import LOCAL
from armarium.surfaces.dispatch import Caller

PAGE = (Path(__file__).parents[3] / "docs/how-to/write-a-rag-server.md").read_text()


def _block(language: str) -> str:
    (block,) = re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)
    return block


async def test_the_server_of_the_page_is_discovered_searched_and_answered_from(tmp_path: Path) -> None:
    (tmp_path / "server.py").write_text(_block("python"))
    (tmp_path / "config/overrides").mkdir(parents=True)
    entry = {"command": sys.executable, "args": [str(tmp_path / "server.py")]}
    (tmp_path / "config/overrides/rag-mcp.json").write_text(json.dumps({"mine": entry}))
    settings = Settings.model_validate(
        {
            "state_dir": str(tmp_path / "state"),
            "audit": {"enabled": False},
            "gateway": {"config_dir": str(tmp_path / "config")},
        }
    )
    async with open_armarium(settings, check_answers=True) as armarium:
        caller = Caller(LOCAL, "test")
        told = await armarium.dispatcher.call(caller, DISCOVER, {})
        assert [each["id"] for each in told["structuredContent"]["results"]["resources"]] == ["mine:notes"]
        asked = {"query": "horn", "sources": ["notes"]}
        found = await armarium.dispatcher.call(caller, RAW_RESULTS, asked)
        assert [each["id"] for each in found["structuredContent"]["results"]["hits"]] == ["horn"]
        answer = await armarium.dispatcher.call(caller, SYNTHESIZED, asked)
        assert "every two minutes. [1]" in answer["structuredContent"]["results"]["answer"]


def test_the_entry_of_the_page_is_a_valid_one() -> None:
    entries = parse_entries(_block("json").encode(), source="page")
    assert entries["docsRag"].args == ("rag-server", "./docs")
