"""A server in `mcp.json` whose entry describes sources is a RAG server like those in `rag-mcp.json`."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import pytest

from armarium.capabilities.gateway.contract import DISCOVER, RAW_RESULTS
from support.client import connected
from support.gateway_server import HOSTILE, GatewayServer, rag_entry, started

HINTS = [{"id": "a", "name": "Of A"}, {"id": "law", "groups": ["legal"], "authMode": "capability"}]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Generator[GatewayServer]:
    with started(tmp_path_factory.mktemp("server"), watch=False) as running:
        running.write("rag-mcp.json", {"wiki": rag_entry("b")})
        running.write(
            "mcp.json",
            {
                "docs": rag_entry("a", "law", dataSources=HINTS, ui={"order": 3}),
                "shown": rag_entry("c", ui={"displayName": "Shown", "icon": "book"}),
                "plain": rag_entry("d"),
                "odd": {**HOSTILE, "ui": {"icon": "bug"}, "description": "Misbehaves"},
                "locked": {**HOSTILE, "groups": ["legal"]},
            },
        )
        with running.api("root") as admin:
            assert admin.post("/admin/mcp/reload").status_code == 200
        yield running


async def wait_for_tools(server: GatewayServer) -> set[str]:
    return await server.tools_become("anna", lambda names: {"odd.echo", f"plain.{DISCOVER}"} <= names)


@pytest.mark.contract("G4-1")
async def test_its_sources_are_found_and_searched_with_those_of_all_others(server: GatewayServer) -> None:
    await wait_for_tools(server)
    async with connected(server.process.url, key="key-of-anna") as client:
        listed = (await client.mcp.call_tool(DISCOVER, {})).structured_content
        assert listed is not None
        resources = {each["id"]: each for each in listed["results"]["resources"]}
        assert {"docs:a", "shown:c", "wiki:b"} <= resources.keys()
        assert resources["docs:a"]["name"] == "Of A"
        assert not {"docs:law", "plain:d"} & resources.keys()
        assert not listed["meta_data"].get("errors")
        asked = {"query": "q", "sources": ["docs:a", "shown:c", "wiki:b"]}
        found = (await client.mcp.call_tool(RAW_RESULTS, asked)).structured_content
        assert found is not None
        assert {hit["server"] for hit in found["results"]["hits"]} == {"docs", "shown", "wiki"}


async def test_its_rag_tools_are_not_offered_besides_so_that_groups_of_sources_hold(server: GatewayServer) -> None:
    names = await wait_for_tools(server)
    assert not [name for name in names if name.startswith(("docs.", "shown."))]
    asked = {"query": "q", "sources": ["law"], "username": "lex"}
    async with connected(server.process.url, key="key-of-anna") as client:
        with pytest.raises(Exception, match="unknown tool"):
            await client.mcp.call_tool(f"docs.{RAW_RESULTS}", asked)
        refused = await client.mcp.call_tool(RAW_RESULTS, {"query": "q", "sources": ["docs:law"]})
        assert refused.is_error


@pytest.mark.contract("G5.2-1")
async def test_callers_list_every_server_they_may_use_and_nothing_that_only_operators_may_know(
    server: GatewayServer,
) -> None:
    await wait_for_tools(server)
    with server.api("anna") as anna:
        answer = anna.get("/gateway/servers")
    servers: dict[str, Any] = {each["server"]: each for each in answer.json()["servers"]}
    assert servers.keys() == {"armarium", "docs", "odd", "plain", "shown", "wiki"}
    kinds = {name: each["kind"] for name, each in servers.items()}
    assert kinds == {
        "armarium": "rag",
        "docs": "rag",
        "shown": "rag",
        "wiki": "rag",
        "odd": "generic",
        "plain": "generic",
    }
    assert servers["docs"]["authModes"] == ["capability", "none"]
    assert servers["odd"]["state"] == "ready"
    assert servers["odd"]["description"] == "Misbehaves"
    assert "odd.echo" in servers["odd"]["tools"]
    assert servers["shown"]["displayName"] == "Shown"
    for hidden in ("python", ".py", "command", "args", "url", "locked", "pid"):
        assert hidden not in answer.text
