"""The example server of the documentation works behind the gateway."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

import jwt
import pytest

from armarium.capabilities.gateway.config.files import parse_entries
from armarium.capabilities.gateway.contract import DISCOVER, RAW_RESULTS, SYNTHESIZED
from armarium.capabilities.gateway.tokens.capability_tokens import CapabilityTokens, server_key
from armarium.foundation.security.identity import LOCAL
from armarium.server import open_server
from armarium.settings import Settings
from armarium.surfaces.dispatch import Caller

PAGE = (Path(__file__).parents[3] / "docs/how-to/write-a-rag-server.md").read_text()


SERVER, CHECK = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
(ENTRY,) = re.findall(r"```json\n(.*?)```", PAGE, re.DOTALL)
SECRET = b"the secret of the gateway, long enough"


@pytest.mark.contract("G10-2", "G10-4")
async def test_the_server_of_the_page_is_discovered_searched_and_answered_from(tmp_path: Path) -> None:
    (tmp_path / "server.py").write_text(SERVER)
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
    async with open_server(settings, check_answers=True) as armarium:
        caller = Caller(LOCAL, "test")
        told = (await armarium.dispatcher.outcome(caller, DISCOVER, {})).result
        assert [each["id"] for each in told["structuredContent"]["results"]["resources"]] == ["mine:notes"]
        asked = {"query": "horn", "sources": ["notes"]}
        found = (await armarium.dispatcher.outcome(caller, RAW_RESULTS, asked)).result
        assert [each["id"] for each in found["structuredContent"]["results"]["hits"]] == ["horn"]
        answer = (await armarium.dispatcher.outcome(caller, SYNTHESIZED, asked)).result
        assert "every two minutes. [1]" in answer["structuredContent"]["results"]["answer"]


def test_the_check_of_the_page_accepts_a_token_of_the_gateway_and_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "lawRag.key").write_text(server_key(SECRET, "lawRag") + "\n")
    monkeypatch.chdir(tmp_path)
    page: dict[str, Any] = {}
    exec(CHECK, page)
    tokens = CapabilityTokens(SECRET)
    token, _ = tokens.issue("lawRag", "lex", ["cases"])
    page["check"](token, "lex", ["cases"])
    for username, sources in (("anna", ["cases"]), ("lex", ["cases", "secret"])):
        with pytest.raises(PermissionError):
            page["check"](token, username, sources)
    expired, _ = CapabilityTokens(SECRET, clock=lambda: 0.0).issue("lawRag", "lex", ["cases"])
    unsigned = jwt.encode({"aud": "lawRag", "sub": "lex", "src": ["cases"], "exp": 2**40}, None, "none")
    for wrong in (tokens.issue("other", "lex", ["cases"])[0], expired, unsigned, "arc1.x.y"):
        with pytest.raises(jwt.InvalidTokenError):
            page["check"](wrong, "lex", ["cases"])


def test_the_entry_of_the_page_is_a_valid_one() -> None:
    entries = parse_entries(ENTRY.encode(), source="page")
    assert entries["docsRag"].args == ("rag-server", "./docs")
