"""The rate limit per caller covers all tools of the gateway together."""

from __future__ import annotations

from pathlib import Path

import pytest

from armarium.capabilities.gateway.contract import DISCOVER
from armarium.foundation.security.identity import Principal, key_hash
from armarium.server import open_server
from armarium.settings import Settings
from armarium.surfaces.dispatch import Caller
from support.client import connected
from support.gateway_server import HOSTILE, started

ANNA = Caller(Principal("anna", (), key_hash("anna")), "test")
LEX = Caller(Principal("lex", (), key_hash("lex")), "test")


@pytest.mark.contract("G9-6")
async def test_a_caller_who_asks_too_often_is_told_when_to_come_back_and_others_are_not_kept_waiting(
    tmp_path: Path,
) -> None:
    settings = Settings.model_validate(
        {
            "state_dir": str(tmp_path / "state"),
            "audit": {"enabled": False},
            "gateway": {"config_dir": str(tmp_path), "limits": {"rate_per_minute": 2}},
        }
    )
    async with open_server(settings) as armarium:
        for _ in range(2):
            assert "isError" not in (await armarium.dispatcher.outcome(ANNA, DISCOVER, {})).result
        refused = (await armarium.dispatcher.outcome(ANNA, DISCOVER, {})).result
        error = refused["structuredContent"]["results"]["error"]
        assert (error["code"], error["retryable"]) == ("rate_limited", True)
        assert error["hint"].startswith("try again in ")
        assert "isError" not in (await armarium.dispatcher.outcome(LEX, DISCOVER, {})).result


def test_the_json_api_counts_with_the_tools_and_says_429(tmp_path: Path) -> None:
    with started(tmp_path, limits={"rate_per_minute": 2}) as server, server.api("anna") as api:
        question = {"query": "q", "sources": ["armarium:corpus"]}
        said = [api.post(f"/rag/{what}", json=question).status_code for what in ("search", "synthesize")]
        assert 429 not in said
        refused = api.post("/rag/search", json=question)
        error = refused.json()["results"]["error"]
        assert (refused.status_code, error["code"]) == (429, "rate_limited")
        assert error["retry_after_ms"] > 0


def test_what_a_user_interface_asks_for_itself_uses_up_nobodys_searches(tmp_path: Path) -> None:
    with started(tmp_path, limits={"rate_per_minute": 1}) as server, server.api("anna") as api:
        for _ in range(3):
            assert api.get("/config").status_code == 200
            assert api.post("/rag/tokens", json={"source": "nowhere:a"}).status_code == 404
            assert api.delete("/rag/connections/nowhere").status_code == 200
        question = {"query": "q", "sources": ["armarium:corpus"]}
        assert [api.post("/rag/search", json=question).status_code for _ in range(2)] == [404, 429]
        assert api.get("/config").status_code == 200


async def test_tools_of_generic_servers_are_counted_with_the_others(tmp_path: Path) -> None:
    with started(tmp_path, limits={"rate_per_minute": 2}) as server:
        server.write("mcp.json", {"odd": HOSTILE})
        await server.tools_become("anna", lambda names: "odd.echo" in names)
        async with connected(server.process.url, key="key-of-anna") as client:
            told = [await client.mcp.call_tool("odd.echo", {"n": number}) for number in range(2)]
            assert [result.is_error for result in told] == [False, False]
            refused = (await client.mcp.call_tool("odd.echo", {"n": 3})).structured_content or {}
            assert refused["error"]["code"] == "rate_limited"
            assert refused["error"]["details"]["retry_after_ms"] > 0
            assert (await client.mcp.call_tool(DISCOVER, {})).is_error


async def opened_with(tmp_path: Path, rate_per_minute: int | None, calls: int) -> list[bool]:
    """Which of so many calls at once are answered."""
    settings = Settings.model_validate(
        {
            "state_dir": str(tmp_path / "state"),
            "audit": {"enabled": False},
            "gateway": {"config_dir": str(tmp_path), "limits": {"rate_per_minute": rate_per_minute}},
        }
    )
    async with open_server(settings) as armarium:
        return ["isError" not in (await armarium.dispatcher.outcome(ANNA, DISCOVER, {})).result for _ in range(calls)]


@pytest.mark.parametrize("rate", [1, 60])
async def test_a_minutes_worth_of_calls_may_come_at_once(tmp_path: Path, rate: int) -> None:
    assert all(await opened_with(tmp_path, rate, rate))


async def test_calls_are_unlimited_by_default(tmp_path: Path) -> None:
    assert all(await opened_with(tmp_path, None, 100))
