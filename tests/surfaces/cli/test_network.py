"""`network: off` on a server whose settings name every kind of address."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

import support.counted_connections
from support.client import ToolClient, connected
from support.command_line import InThisProcess
from support.server import ServerProcess
from support.waiting import eventually

MODELS, RERANKER, UPSTREAM, TRACES = "models.invalid", "reranker.invalid", "upstream.invalid", "traces.invalid"
EVERYWHERE = {MODELS, RERANKER, UPSTREAM, TRACES}


@pytest.fixture
def settings(project: Path) -> Path:
    """Settings that name a host for every purpose."""
    for name in ("lamp", "tower", "keeper"):
        (project / f"{name}.md").write_text(f"# {name}\n\nThe lamp of the {name} is lit at dusk.\n")
    servers = project / "servers" / "overrides"
    servers.mkdir(parents=True)
    (servers / "mcp.json").write_text(json.dumps({"elsewhere": {"url": f"http://{UPSTREAM}/mcp"}}))
    openai = {"base_url": f"http://{MODELS}/v1", "embed_text_model": "e", "chat_model": "c"}
    corpus: dict[str, Any] = {"root": str(project), "openai": openai, "rerank": {"base_url": f"http://{RERANKER}"}}
    corpus |= {"embedding": {"provider": "openai"}, "chat": {"provider": "openai"}}
    file = project.parent / "armarium.yaml"
    whole = {"server": {"port": 0}, "security": {"auth": "none"}, "corpus": corpus}
    whole["gateway"] = {"config_dir": str(project / "servers")}
    whole["telemetry"] = {"otlp_endpoint": f"http://{TRACES}/v1/traces"}
    file.write_text(yaml.safe_dump(whole))
    return file


async def finds_all(client: ToolClient) -> bool:
    results = await client.mcp.call_tool("dir2mcp.search", {"query": "lamp"})
    assert results.structured_content is not None
    return len(results.structured_content["hits"]) == 3


async def hosts_used(settings: Path, record: Path, network: str, expected: set[str]) -> set[str]:
    """The hosts that a server looks up while it indexes, searches, answers, and lists the tools of its upstream."""
    child = [sys.executable, support.counted_connections.__file__, str(record), "serve", "--config", str(settings)]

    def used() -> set[str]:
        return set(record.read_text().split())

    with ServerProcess(child, environ={**os.environ, "ARMARIUM_NETWORK": network}) as server:
        async with connected(server.url) as client:
            await eventually(lambda: finds_all(client), what="all documents are found")
            await client.mcp.call_tool("dir2mcp.ask", {"question": "When is the lamp lit?"})
            await client.mcp.call_tool("rag_get_raw_results", {"query": "lamp"})
        await eventually(lambda: expected <= used(), what=f"all of {expected}")
    return used()


async def test_off_makes_no_connection_and_the_documents_are_still_found(settings: Path, tmp_path: Path) -> None:
    # The counter counts: with the network on, each address is used.
    assert await hosts_used(settings, tmp_path / "on", "on", EVERYWHERE) == EVERYWHERE
    assert await hosts_used(settings, tmp_path / "off", "off", set()) == set()
    assert await hosts_used(settings, tmp_path / "list", MODELS, {MODELS}) == {MODELS}


def test_doctor_shows_what_is_not_used(quick: InThisProcess, settings: Path) -> None:
    def network(**environ: str) -> dict[str, Any]:
        found = quick("doctor", "--config", settings, "--json", **environ).json["findings"]
        return next(each for each in found if each["subject"] == "network")

    assert all(host in network()["message"] for host in EVERYWHERE)
    excluded = network(ARMARIUM_NETWORK="off")
    assert excluded["state"] == "warn"
    assert excluded["message"].startswith("Text stays on this machine. Not used")
