"""End to end: `armarium serve` with `armarium rag-server` behind it over stdio and HTTP, and real clients."""

from __future__ import annotations

import base64
import json
from collections.abc import Generator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import mcp
import pytest
from mcp.client.stdio import StdioServerParameters, stdio_client

from armarium.capabilities.gateway.contract import DISCOVER, RAW_RESULTS, SYNTHESIZED
from armarium.capabilities.gateway.tokens.capability_tokens import CapabilityTokens, CapabilityVerifier, server_key
from armarium.foundation.security.identity import key_hash
from support.client import connected
from support.server import ServerProcess, installed_command, write_config
from support.waiting import DEADLINE_S as TIMEOUT_S
from support.waiting import eventually

Json = dict[str, Any]
CANARY = "canary-e2e-51d0-never-written-down"
SECRET = "the secret that the gateway alone has"
LAMP = "# Lamp\n\nThe lamp is lit at dusk by the keeper. Its lens turns once in thirty seconds.\n"
HORN = "# Fog\n\nIn fog the horn sounds every two minutes. It runs on compressed air from the cellar.\n"
CASES = "# Cases\n\nThe case of the stolen lamp was settled in May.\n"
USERS = {"anna": ["users"], "lex": ["users", "legal"], "guest": []}


@dataclass(frozen=True)
class Lighthouse:
    """The server in front, and where it keeps what it keeps."""

    process: ServerProcess
    state: Path

    def api(self, user: str) -> httpx.Client:
        headers = {"authorization": f"Bearer key-of-{user}"}
        return httpx.Client(base_url=self.process.url, headers=headers, timeout=TIMEOUT_S)


def _rag_server(directory: Path, *options: str) -> Json:
    return {"command": installed_command("armarium"), "args": ["rag-server", str(directory), *options]}


@pytest.fixture(scope="module")
def lighthouse(tmp_path_factory: pytest.TempPathFactory) -> Generator[Lighthouse]:
    """A corpus of its own in front, one directory for all users behind it, and one for lawyers with tokens."""
    base = tmp_path_factory.mktemp("lighthouse")
    for name, text in (("guide", LAMP), ("fog", HORN), ("cases", CASES)):
        (base / name).mkdir()
        (base / name / f"{name}.md").write_text(text)
    key_file = base / "lawRag.key"
    key_file.write_text(server_key(SECRET.encode(), "lawRag") + "\n")
    registry = {
        "fogRag": {"groups": ["users"], "ui": {"order": 5}, **_rag_server(base / "fog")},
        "lawRag": {
            "groups": ["users"],
            "dataSources": [{"id": "files", "name": "Cases", "groups": ["legal"], "authMode": "capability"}],
            **_rag_server(base / "cases", "--name", "lawRag", "--capability-key-file", str(key_file)),
        },
    }
    (base / "config/overrides").mkdir(parents=True)
    (base / "config/overrides/rag-mcp.json").write_text(json.dumps(registry))
    keys = [
        {"username": user, "groups": groups, "key_sha256": key_hash(f"key-of-{user}")} for user, groups in USERS.items()
    ]
    settings = {
        "state_dir": str(base / "state"),
        "server": {"port": 0},
        "security": {"auth": "keys", "keys": keys},
        "telemetry": {"log_level": "debug"},
        "corpus": {"root": str(base / "guide")},
        "gateway": {"config_dir": str(base / "config"), "tokens": {"secret": SECRET}},
    }
    command = [installed_command("armarium"), "serve", "--config", str(write_config(base, settings))]
    with ServerProcess(command) as process:
        yield Lighthouse(process, base)


async def _found(client: Any, query: str, *sources: str, **more: Any) -> Json:
    """The answer of a search, once everything it names has something indexed."""

    async def complete() -> Json | None:
        result = await client.call_tool(RAW_RESULTS, {"query": query, "sources": list(sources), **more})
        assert not result.is_error, result.structured_content
        servers = {hit["server"] for hit in result.structured_content["results"]["hits"]}
        return result.structured_content if servers == {source.partition(":")[0] for source in sources} else None

    found = await eventually(complete)
    assert found is not None
    return found


@pytest.mark.contract("G1-1")
async def test_a_caller_finds_over_all_servers_what_is_theirs(lighthouse: Lighthouse) -> None:
    async with connected(lighthouse.process.url, key="key-of-anna") as client:
        told = (await client.mcp.call_tool(DISCOVER, {"username": "lex"})).structured_content
        assert [each["id"] for each in told["results"]["resources"]] == ["armarium:corpus", "fogRag:files"]
        found = await _found(client.mcp, "lamp horn", "armarium:corpus", "fogRag:files")
        texts = {hit["server"]: hit["chunk"] for hit in found["results"]["hits"]}
        assert "lit at dusk" in texts["armarium"]
        assert "every two minutes" in texts["fogRag"]
        refused = await client.mcp.call_tool(RAW_RESULTS, {"query": "lamp", "sources": ["lawRag:files"]})
        assert refused.is_error
        assert refused.structured_content["results"]["error"]["code"] == "unauthorized_source"


@pytest.mark.contract("G5.6-3")
async def test_a_server_that_wants_capability_tokens_gets_them_from_the_gateway(lighthouse: Lighthouse) -> None:
    async with connected(lighthouse.process.url, key="key-of-lex") as client:
        found = await _found(client.mcp, "stolen lamp", "lawRag:files")
        assert "settled in May" in found["results"]["hits"][0]["chunk"]
        answered = await client.mcp.call_tool(SYNTHESIZED, {"query": "stolen lamp", "sources": ["lawRag:files"]})
        assert answered.structured_content["artifacts"][0]["server"] == "lawRag"
        with lighthouse.api("lex") as api:
            elsewhere = api.post("/api/rag/tokens", json={"source": "fogRag:files"}).json()["capability_token"]
        forged, _ = CapabilityTokens(b"not the secret of the gateway").issue("lawRag", "lex", ["files"])
        for wrong in (elsewhere, forged):
            refused = await client.mcp.call_tool(
                RAW_RESULTS, {"query": "lamp", "sources": ["lawRag:files"], "capability_token": wrong}
            )
            assert refused.structured_content["results"]["error"]["code"] == "token_expired"


async def test_an_answer_of_one_server_is_its_own_and_of_several_is_ours(lighthouse: Lighthouse) -> None:
    async with connected(lighthouse.process.url, key="key-of-anna") as client:
        await _found(client.mcp, "horn", "fogRag:files", "armarium:corpus")
        question = {"query": "How often does the horn sound in fog?"}
        one = await client.mcp.call_tool(SYNTHESIZED, {**question, "sources": ["fogRag:files"]})
        assert one.structured_content["meta_data"]["synthesized_by"] == "fogRag"
        assert "every two minutes" in one.structured_content["results"]["answer"]
        assert one.structured_content["results"]["citations"][0]["resourceId"] == "fogRag:files"
        report = one.structured_content["artifacts"][0]
        assert b"every two minutes" in base64.b64decode(report["b64"])
        assert one.structured_content["display"]["primary_file"] == report["name"]
        both = await client.mcp.call_tool(SYNTHESIZED, {**question, "sources": ["fogRag:files", "armarium:corpus"]})
        assert both.structured_content["meta_data"]["synthesized_by"] == "armarium"
        assert "every two minutes" in both.structured_content["results"]["answer"]


@pytest.mark.contract("G5.3-1", "G6-2")
def test_the_json_api_says_the_same(lighthouse: Lighthouse) -> None:
    with lighthouse.api("lex") as api:
        config = api.get("/api/config").json()
        assert config["authorized_servers"] == ["armarium", "lawRag", "fogRag"]
        assert [(each["server"], each["id"]) for each in config["data_sources"]] == [
            ("armarium", "corpus"),
            ("lawRag", "files"),
            ("fogRag", "files"),
        ]
        refused = api.post("/api/rag/search", json={"query": "lamp", "sources": ["files"]})
        assert (refused.status_code, refused.json()["results"]["error"]["code"]) == (404, "invalid_source")
        asked = api.post("/api/rag/synthesize", json={"query": "What about the lamp?", "sources": ["corpus"]})
        assert asked.status_code == 200
        issued = api.post("/api/rag/tokens", json={"source": "lawRag:files"})
        assert issued.status_code == 201
        law = CapabilityVerifier("lawRag", server_key(SECRET.encode(), "lawRag"))
        law.verify(issued.json()["capability_token"], "lex", ["files"])
    with lighthouse.api("guest") as api:
        assert api.get("/api/config").json()["authorized_servers"] == ["armarium"]
        assert api.post("/api/rag/search", json={"query": "lamp", "sources": ["fogRag:files"]}).status_code == 403


@pytest.mark.contract("G5.4-4", "G5.6-1", "G7-3")
def test_no_secret_is_in_the_log_or_in_any_file_of_the_server(lighthouse: Lighthouse) -> None:
    with lighthouse.api("lex") as api:
        kept = api.post("/api/rag/connections/lawRag", json={"kind": "capability_token", "token": CANARY})
        assert kept.status_code == 201
        refused = api.post("/api/rag/search", json={"query": "lamp", "sources": ["lawRag:files"]})
        assert refused.json()["results"]["error"]["code"] == "token_expired"
        assert CANARY not in kept.text + refused.text
        # The server called it expired, so it was let go already.
        assert api.delete("/api/rag/connections/lawRag").json()["forgotten"] is False
        direct = {"query": "lamp", "sources": ["lawRag:files"], "capability_token": CANARY}
        assert api.post("/api/rag/search", json=direct).status_code == 401
        assert api.post("/api/rag/search", json={**direct, "bearer": CANARY, "nonsense": CANARY}).status_code == 400
    line = lighthouse.process.wait_for_log(lambda line: line.get("code") == "token_expired")
    assert line["principal"] == "lex"
    assert CANARY not in lighthouse.process.said()
    written = b"".join(file.read_bytes() for file in lighthouse.state.rglob("*") if file.is_file())
    assert b"token_expired" in written, "the audit trail is among the files"
    assert CANARY.encode() not in written
    assert key_hash(CANARY).encode() not in written, "whoever guesses a secret must not find it confirmed"


@pytest.mark.contract("G2-2", "G2-3")
async def test_a_rag_server_alone_speaks_the_contract_over_stdio(tmp_path: Path) -> None:
    (tmp_path / "guide.md").write_text(LAMP)
    parameters = StdioServerParameters(**_rag_server(tmp_path))
    async with mcp.Client(stdio_client(parameters)) as client:
        listed = {tool.name: tool.input_schema for tool in (await client.list_tools()).tools}
        assert set(listed) == {DISCOVER, RAW_RESULTS, SYNTHESIZED}
        assert listed[RAW_RESULTS]["required"] == ["username", "query", "sources"]
        told = (await client.call_tool(DISCOVER, {"username": "anna"})).structured_content
        assert [(each["id"], each["authMode"]) for each in told["results"]["resources"]] == [("files", "none")]
        nameless = await client.call_tool(RAW_RESULTS, {"query": "lamp", "sources": ["files"]})
        assert nameless.is_error
        wrong = await client.call_tool(RAW_RESULTS, {"username": "anna", "query": "lamp", "sources": ["law"]})
        assert wrong.structured_content["results"]["error"]["code"] == "invalid_source"
        asked = {"username": "anna", "query": "When is the lamp lit?", "sources": ["files"]}

        async def hits() -> list[Json]:
            return (await client.call_tool(RAW_RESULTS, asked)).structured_content["results"]["hits"]

        assert (await eventually(hits))[0]["resourceId"] == "files"
        answer = (await client.call_tool(SYNTHESIZED, asked)).structured_content
        assert "lit at dusk" in answer["results"]["answer"]


async def test_a_rag_server_over_http_wants_its_token(tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs/guide.md").write_text(LAMP)
    token_file = tmp_path / "token"
    token_file.write_text("a token that is long enough\n")
    command = [installed_command("armarium"), "rag-server", str(tmp_path / "docs"), "--http", "0"]
    with ServerProcess([*command, "--auth", f"file:{token_file}"]) as process:
        assert httpx.post(f"{process.url}/mcp", json={}).status_code == 401
        async with connected(process.url, key=token_file.read_text().strip()) as client:
            told = await client.mcp.call_tool(DISCOVER, {"username": "anna"})
            assert told.structured_content["results"]["resources"][0]["name"] == "docs"
