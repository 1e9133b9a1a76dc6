"""The configuration changes repeatedly while callers search; unchanged servers are not disturbed."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import httpx
import pytest

from armarium.capabilities.gateway.contract import RAW_RESULTS
from support.client import ToolClient, connected
from support.gateway_server import HOSTILE, TIMEOUT_S, GatewayServer, Json, headers_of, rag_entry, started
from support.upstreams import is_running
from support.waiting import eventually

STEADY = {"steady": rag_entry("kept")}
STEADY_TOOLS = {"tool": HOSTILE}
PASSING = [
    {"passing": rag_entry("brief")},
    {"passing": rag_entry("brief", description="the same process, told of in other words")},
    {"passing": rag_entry("brief", "more")},
    {"passing": rag_entry("brief", enabled=False)},
    {"other": rag_entry("brief")},
    {},
]
"""What comes, changes and goes beside those that stay."""
BROKEN = ["", "{", '{"steady": {"comand": "x"}}', '{"steady": []}', '{"passing": {"command": "x", "url": "http://x"}}']
ABSENT = {"invalid_source", "backend_unavailable"}
"""What may be said of a source whose server is gone, or on its way."""
ROUNDS = 2


@pytest.fixture
def server(tmp_path: Path) -> Generator[GatewayServer]:
    with started(tmp_path) as running:
        yield running


class Callers:
    """Callers that call again and again, and what they were told."""

    def __init__(self) -> None:
        self.calls: Counter[str] = Counter()
        self.processes: dict[str, set[str]] = {"steady": set(), "tool": set()}
        self.said_of_others: set[str] = set()
        self.failures: list[Any] = []
        self.enough = False

    async def keep(self, name: str, call: Callable[[], Awaitable[None]]) -> None:
        """Call until it is enough; whatever fails is kept for the test to see."""
        while not self.enough:
            try:
                await call()
            except Exception as failure:  # noqa: BLE001 whatever it is, it must not have happened
                self.failures.append(failure)
            self.calls[name] += 1

    async def all_called_again(self) -> None:
        """Wait until every caller has begun a call and ended it since."""
        wanted = {name: count + 2 for name, count in self.calls.items()}
        await eventually(lambda: all(self.calls[name] >= count for name, count in wanted.items()))

    def search(self, api: httpx.AsyncClient, *others: str) -> Callable[[], Awaitable[None]]:
        """Searches what stays, and others beside it that may be gone."""

        async def call() -> None:
            answer = await api.post("/rag/search", json={"query": "q", "sources": ["steady:kept", *others]})
            assert answer.status_code == 200, answer.text
            told = answer.json()
            (found,) = [hit for hit in told["results"]["hits"] if hit["server"] == "steady"]
            self.processes["steady"].add(found["title"])
            errors = told["meta_data"].get("errors", [])
            assert {error["source"] for error in errors} <= set(others), errors
            self.said_of_others |= {error["code"] for error in errors}

        return call

    def use_tool(self, client: ToolClient) -> Callable[[], Awaitable[None]]:
        """Calls a tool of the generic server that stays."""

        async def call() -> None:
            result = await client.mcp.call_tool("tool.facts", {})
            assert not result.is_error, result.structured_content
            assert result.structured_content is not None
            self.processes["tool"].add(str(result.structured_content["pid"]))

        return call


@asynccontextmanager
async def calling(server: GatewayServer) -> AsyncGenerator[Callers]:
    """Callers of both ways in, for as long as the block runs."""
    callers = Callers()
    url, headers = f"{server.process.url}/api", headers_of("anna")
    async with (
        httpx.AsyncClient(base_url=url, headers=headers, timeout=TIMEOUT_S) as api,
        connected(server.process.url, key="key-of-anna") as client,
        connected(server.process.url, key="key-of-anna") as another,
        anyio.create_task_group() as tasks,
    ):
        calls = {
            "search": callers.search(api),
            "search again": callers.search(api),
            "search with others": callers.search(api, "passing:brief", "other:brief"),
            "tool": callers.use_tool(client),
            "tool again": callers.use_tool(another),
        }
        for name, call in calls.items():
            callers.calls[name] = 0
            tasks.start_soon(callers.keep, name, call)
        try:
            yield callers
        finally:
            # Each ends its call: one that is cut off would leave its client in disorder.
            callers.enough = True


async def asked(server: GatewayServer, method: str, path: str) -> httpx.Response:
    async with httpx.AsyncClient(headers=headers_of("root"), timeout=TIMEOUT_S) as admin:
        return await admin.request(method, f"{server.process.url}/api/admin/mcp{path}")


async def health_of(server: GatewayServer) -> dict[str, Json]:
    """How each server is that is used, by name."""
    seen = (await asked(server, "GET", "")).json()
    return {each["name"]: each["health"] for each in seen["servers"] if each["health"] is not None}


async def reloaded(server: GatewayServer) -> Json:
    answer = await asked(server, "POST", "/reload")
    assert answer.status_code == 200, answer.text
    return answer.json()


@pytest.mark.contract("G8-1")
async def test_whoever_uses_a_server_that_stays_notices_no_change_of_the_files(server: GatewayServer) -> None:
    server.write("rag-mcp.json", STEADY)
    server.write("mcp.json", STEADY_TOOLS)
    await reloaded(server)
    await server.tools_become("anna", lambda names: "tool.facts" in names)
    changes: Counter[str] = Counter()
    async with calling(server) as callers:
        for _ in range(ROUNDS):
            for number, passing in enumerate(PASSING):
                server.write("rag-mcp.json", {**STEADY, **passing})
                server.write("mcp.json", {**STEADY_TOOLS, **{f"{name}Tools": each for name, each in passing.items()}})
                told = await reloaded(server)
                changes.update(kind for kind in ("added", "removed", "changed") if told[kind])
                await callers.all_called_again()
                before = await health_of(server)
                server.write("rag-mcp.json", BROKEN[number % len(BROKEN)])
                refused = await asked(server, "POST", "/reload")
                assert refused.status_code == 422
                problems = refused.json()["error"]["details"]["problems"]
                assert all("rag-mcp.json" in problem for problem in problems)
                assert (await asked(server, "GET", "")).json()["problems"] == problems
                assert (await health_of(server)).keys() == before.keys(), "a broken file changes nothing"
                await callers.all_called_again()
    assert not callers.failures
    assert callers.said_of_others <= ABSENT
    assert {server: len(pids) for server, pids in callers.processes.items()} == {"steady": 1, "tool": 1}
    after = await health_of(server)
    assert {name: (after[name]["connections"], after[name]["failures"]) for name in ("steady", "tool")} == {
        "steady": (1, 0),
        "tool": (1, 0),
    }
    assert set(changes) == {"added", "removed", "changed"}, "there was something to notice"


async def test_calls_on_a_server_that_goes_end_or_are_told_that_it_is_gone(
    server: GatewayServer, tmp_path: Path
) -> None:
    sources = {"ending": "in time", "stuck": "never"}
    moments = {name: tmp_path / moment for name, moment in sources.items()}
    server.write("rag-mcp.json", {name: rag_entry("files") for name in sources})
    server.write("mcp.json", {f"{name}Tools": rag_entry("files") for name in sources})
    await reloaded(server)
    await server.tools_become("anna", lambda names: {f"{name}Tools.{RAW_RESULTS}" for name in sources} <= names)
    answers: dict[str, httpx.Response] = {}
    results: dict[str, Any] = {}
    url, headers = f"{server.process.url}/api", headers_of("anna")

    async with (
        httpx.AsyncClient(base_url=url, headers=headers, timeout=TIMEOUT_S) as api,
        connected(server.process.url, key="key-of-anna") as client,
        anyio.create_task_group() as tasks,
    ):

        async def search(name: str) -> None:
            question = {"query": f"until {moments[name]}", "sources": [f"{name}:files"]}
            answers[name] = await api.post("/rag/search", json=question)

        async def call(name: str) -> None:
            question = {"query": f"until {moments[name]}", "sources": ["files"]}
            results[name] = await client.mcp.call_tool(f"{name}Tools.{RAW_RESULTS}", question)

        # Both servers have told their sources now: the next call of each is the search itself.
        named = [f"{name}:files" for name in sources]
        assert (await api.post("/rag/search", json={"query": "q", "sources": named})).status_code == 200
        for name in sources:
            tasks.start_soon(search, name)
            tasks.start_soon(call, name)

        async def all_in_flight() -> bool:
            return [each["in_flight"] for each in (await health_of(server)).values()] == [1, 1, 1, 1]

        await eventually(all_in_flight)
        server.write("rag-mcp.json", {})
        server.write("mcp.json", {})
        assert set((await reloaded(server))["removed"]) == {"ending", "stuck", "endingTools", "stuckTools"}
        late = await api.post("/rag/search", json={"query": "q", "sources": ["ending:files"]})
        assert late.json()["results"]["error"]["code"] == "invalid_source"
        moments["ending"].touch()
    assert answers["ending"].status_code == 200
    finder = int(answers["ending"].json()["results"]["hits"][0]["title"])
    caller = int(results["ending"].structured_content["results"]["hits"][0]["title"])
    await eventually(lambda: not is_running(finder) and not is_running(caller))
    assert answers["stuck"].status_code == 503
    assert answers["stuck"].json()["results"]["error"]["code"] == "backend_unavailable"
    assert results["stuck"].is_error
    assert results["stuck"].structured_content["error"]["code"] == "backend_unavailable"
