"""Every tool receives the caller's name under the name that it declares, and under no other."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import pytest

from armarium.capabilities.gateway.config.files import ServerSpec
from armarium.capabilities.gateway.contract import DISCOVER, RAW_RESULTS
from armarium.capabilities.gateway.servers.identity import rag_identity
from support.client import connected
from support.gateway_server import GatewayServer, rag_entry, started
from support.waiting import eventually

CLOSED = {"additionalProperties": False}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Generator[GatewayServer]:
    with started(tmp_path_factory.mktemp("server"), watch=False) as running:
        yield running


def serve(server: GatewayServer, rag: dict[str, Any], generic: dict[str, Any]) -> None:
    server.write("rag-mcp.json", rag)
    server.write("mcp.json", generic)
    with server.api("root") as admin:
        assert admin.post("/admin/mcp/reload").status_code == 200


@pytest.mark.contract("G5.4-1")
@pytest.mark.parametrize("options", [(), ("--closed",)])
@pytest.mark.parametrize(
    ("identity", "more"),
    [("username", {}), ("_atlas_user", {}), ("onBehalfOf", {"usernameParameter": "onBehalfOf"})],
)
async def test_a_rag_server_gets_the_name_as_it_declares_it_and_no_other_argument(
    server: GatewayServer, identity: str, more: dict[str, Any], options: tuple[str, ...]
) -> None:
    serve(server, {"named": rag_entry("a", f"--identity={identity}", *options, **more)}, {})
    async with connected(server.process.url, key="key-of-anna") as client:
        listed = await client.mcp.call_tool(DISCOVER, {"username": "root"})
        assert not listed.is_error, listed
        found = await client.mcp.call_tool(
            RAW_RESULTS, {"username": "root", "query": "q", "sources": ["named:a"], "top_k": 1}
        )
    assert found.structured_content is not None
    (hit,) = found.structured_content["results"]["hits"]
    names = {"username", "_atlas_user", "onBehalfOf"}
    told = hit["provenance"]["called_with"]
    assert {name: told[name] for name in names & told.keys()} == {identity: "anna"}


@pytest.mark.contract("G5.4-1", "G12-1")
async def test_a_generic_tool_gets_the_name_as_it_declares_it_whatever_the_model_says(server: GatewayServer) -> None:
    serve(server, {}, {"atlas": rag_entry("a", "--identity=_atlas_user")})
    await server.tools_become("anna", lambda names: "atlas.rag_get_raw_results" in names)
    asked = {"query": "q", "sources": ["a"]}
    async with connected(server.process.url, key="key-of-anna") as client:
        for said in ({}, {"_atlas_user": "root"}):
            found = await client.mcp.call_tool("atlas.rag_get_raw_results", {**asked, **said})
            assert found.structured_content is not None, found
            (hit,) = found.structured_content["results"]["hits"]
            assert hit["provenance"]["called_with"] == {**asked, "_atlas_user": "anna"}


@pytest.mark.contract("G9-5")
async def test_a_rag_server_whose_tool_fails_is_failing_and_its_health_says_why(server: GatewayServer) -> None:
    serve(server, {"gone": rag_entry("a", "--failing")}, {})
    async with connected(server.process.url, key="key-of-anna") as client:
        await client.mcp.call_tool(DISCOVER, {})

    def health() -> dict[str, Any]:
        with server.api("root") as admin:
            (described,) = admin.get("/admin/mcp").json()["servers"]
        return described["health"]

    found = await eventually(lambda: found if (found := health())["state"] == "failing" else None)
    assert found["last_tool_error"] == f"{DISCOVER}: the index is gone"
    assert (found["failures"], found["tool_errors"]) == (1, 1)


@pytest.mark.parametrize(
    ("schema", "sent"),
    [
        ({}, {"username"}),
        ({"properties": {"username": {}}}, {"username"}),
        ({"properties": {"_atlas_user": {}}}, {"_atlas_user"}),
        ({"properties": {"_atlas_user": {}, "username": {}}} | CLOSED, {"username", "_atlas_user"}),
        (CLOSED, set()),
        ({"allOf": [{"properties": {"query": {}}}], "unevaluatedProperties": False}, set()),
        ({"$ref": "#/$defs/Asked", "$defs": {"Asked": CLOSED}}, set()),
    ],
)
def test_what_a_schema_does_not_declare_is_sent_only_where_it_may_be(schema: dict[str, Any], sent: set[str]) -> None:
    assert rag_identity(ServerSpec("one", "rag"), schema, "anna") == dict.fromkeys(sent, "anna")
