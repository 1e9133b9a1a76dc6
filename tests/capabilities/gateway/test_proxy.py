"""Tools of generic servers: called in the caller's name, and listed while their server is visible."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Literal, cast

import anyio
import pytest

from armarium.capabilities.gateway.config.files import ServerSpec
from armarium.capabilities.gateway.errors import UpstreamUnavailable
from armarium.capabilities.gateway.servers.live_servers import LiveServers
from armarium.capabilities.gateway.servers.proxy import ProxyToolProvider
from armarium.capabilities.gateway.upstreams.types import UpstreamTool
from armarium.capabilities.gateway.upstreams.upstream_set import ServerChanges
from armarium.foundation.concurrency.cancellation import Cancellation
from armarium.foundation.tools import Call, ToolSpec
from support.client import connected
from support.gateway_server import HOSTILE, GatewayServer, rag_entry, started
from support.rag_fakes import ANNA
from support.waiting import eventually

CANARY = "canary-proxy-40be-never-said-back"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Generator[GatewayServer]:
    with started(tmp_path_factory.mktemp("server"), watch=False) as running:
        yield running


def reload(server: GatewayServer) -> None:
    with server.api("root") as admin:
        assert admin.post("/admin/mcp/reload").status_code == 200


async def serve_hostile(server: GatewayServer) -> None:
    """Serve the hostile server as `odd`, until its tools are listed."""
    server.write("mcp.json", {"odd": HOSTILE})
    reload(server)
    await server.tools_become("anna", lambda names: "odd.echo" in names)


@pytest.mark.contract("G7-1")
async def test_a_caller_cannot_go_by_another_name_even_where_the_schema_takes_anything(server: GatewayServer) -> None:
    await serve_hostile(server)
    async with connected(server.process.url, key="key-of-anna") as client:
        said = await client.mcp.call_tool("odd.echo", {"username": "root", "other": 1})
        assert said.structured_content == {"username": "anna", "other": 1}
        nameless = await client.mcp.call_tool("odd.echo", {"other": 1})
        assert nameless.structured_content == {"other": 1}, "who is not asked for is not told"


async def test_a_name_that_a_tool_requires_need_not_be_said(server: GatewayServer) -> None:
    server.write("rag-mcp.json", {})
    server.write("mcp.json", {"named": rag_entry("a")})
    reload(server)
    await server.tools_become("anna", lambda names: "named.rag_discover_resources" in names)
    async with connected(server.process.url, key="key-of-anna") as client:
        listed = (await client.mcp.list_tools()).tools
        (tool,) = [each for each in listed if each.name == "named.rag_discover_resources"]
        assert tool.input_schema["required"] == ["username"]
        assert not (await client.mcp.call_tool(tool.name, {})).is_error


@pytest.mark.parametrize("secret", [CANARY, "abc"])
async def test_what_a_failed_tool_says_does_not_say_a_secret_back(server: GatewayServer, secret: str) -> None:
    await serve_hostile(server)
    async with connected(server.process.url, key="key-of-anna") as client:
        failed = await client.mcp.call_tool("odd.fail", {"bearer": secret})
    assert failed.is_error
    assert failed.structured_content == {"wrong": {"bearer": "[removed]"}}
    assert CANARY not in failed.model_dump_json()


async def test_a_server_that_becomes_a_rag_server_takes_its_tools_with_it(server: GatewayServer) -> None:
    moved = rag_entry("a", dataSources=[{"id": "a", "groups": ["legal"]}])
    server.write("rag-mcp.json", {})
    server.write("mcp.json", {"moving": rag_entry("a")})
    reload(server)
    await server.tools_become("anna", lambda names: "moving.rag_get_raw_results" in names)
    async with connected(server.process.url, key="key-of-anna") as client:
        server.write("mcp.json", {})
        server.write("rag-mcp.json", {"moving": moved})
        reload(server)
        assert not any(name.startswith("moving.") for name in await server.tools("anna"))
        asked = {"username": "anna", "query": "q", "sources": ["a"]}
        with pytest.raises(Exception, match="unknown tool"):
            await client.mcp.call_tool("moving.rag_get_raw_results", asked)


def test_an_unpaired_surrogate_in_a_question_is_refused_and_the_server_asked_keeps_its_process(
    server: GatewayServer,
) -> None:
    server.write("mcp.json", {})
    server.write("rag-mcp.json", {"lamp": rag_entry("a")})
    reload(server)
    with server.api("anna") as anna:

        def asked(query: str) -> tuple[int, str]:
            body = f'{{"query": "{query}", "sources": ["lamp:a"]}}'.encode()
            answer = anna.post("/rag/search", content=body, headers={"content-type": "application/json"})
            told = answer.json()["results"]
            return answer.status_code, str(told.get("hits", told))

        status, first = asked("horn")
        assert status == 200
        for _ in range(4):
            status, refusal = asked("\\ud800")
            assert status == 400
            assert "`query` contains an unpaired surrogate" in refusal
        assert asked("horn") == (200, first), "the hits name the process that found them"


async def test_how_far_a_tool_is_reaches_whoever_called_it(server: GatewayServer) -> None:
    await serve_hostile(server)
    heard: list[tuple[float, float | None, str | None]] = []

    async def note(progress: float, total: float | None, message: str | None) -> None:
        heard.append((progress, total, message))

    async with connected(server.process.url, key="key-of-anna") as client:
        assert not (await client.mcp.call_tool("odd.progress", {}, progress_callback=note)).is_error
        await eventually(lambda: len(heard) == 2)
    assert heard == [(1, 2, "step 1"), (2, 2, "step 2")]


@dataclass
class Server:
    """One that tells its tools when the test lets it."""

    kind: Literal["rag", "generic"]
    may_tell: anyio.Event = field(default_factory=anyio.Event)
    is_asked: bool = False
    name: str = "one"
    groups: tuple[str, ...] = ()

    @property
    def spec(self) -> ServerSpec:
        return ServerSpec(self.name, self.kind, None, groups=self.groups)

    async def tools(self) -> list[UpstreamTool]:
        self.is_asked = True
        await self.may_tell.wait()
        return [UpstreamTool("look", "", {"type": "object"})]


class Servers:
    """The one server there is, and who wants to know when it is another."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.upstreams = self
        self.listener: Callable[[ServerChanges], None] = lambda changes: None

    def get(self, name: str) -> Server | None:
        return self.server if name == self.server.name else None

    def on_reload(self, listener: Callable[[ServerChanges], None]) -> None:
        self.listener = listener

    def become(self, server: Server) -> None:
        self.server = server
        self.listener(ServerChanges(changed=(server.name,)))


@asynccontextmanager
async def provided(servers: Servers) -> AsyncGenerator[ProxyToolProvider]:
    """The tools of the one server, kept current."""
    tool_provider = ProxyToolProvider(cast(LiveServers, servers))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(tool_provider.keep_current)
        yield tool_provider
        tasks.cancel_scope.cancel()


async def listed_tool(servers: Servers, tool_provider: ProxyToolProvider) -> ToolSpec:
    """The one tool, once it is listed."""
    servers.server.may_tell.set()
    servers.become(servers.server)
    await eventually(lambda: bool(tool_provider.tools_for(ANNA)))
    (tool,) = tool_provider.tools_for(ANNA)
    return tool


async def test_tools_that_are_told_when_another_has_the_name_are_not_taken_for_its_own() -> None:
    first, second = Server("generic"), Server("generic")
    servers = Servers(first)
    async with provided(servers) as tool_provider:
        servers.become(first)
        await eventually(lambda: first.is_asked)
        servers.become(second)
        first.may_tell.set()
        await eventually(lambda: second.is_asked)
        assert tool_provider.tools_for(ANNA) == []
        second.may_tell.set()
        await eventually(lambda: [tool.name for tool in tool_provider.tools_for(ANNA)] == ["one.look"])


async def test_a_tool_that_was_listed_a_moment_ago_is_not_called_on_what_is_a_rag_server_now() -> None:
    servers = Servers(Server("generic"))
    async with provided(servers) as tool_provider:
        tool = await listed_tool(servers, tool_provider)
        servers.server = Server("rag")
        assert tool_provider.tools_for(ANNA) == []
        with pytest.raises(UpstreamUnavailable, match="no longer served"):
            await tool.run(Call(ANNA, Cancellation(None)), {})
        servers.become(servers.server)
        servers.server = Server("generic")
        assert tool_provider.tools_for(ANNA) == [], "they were dropped, not hidden"


async def test_a_tool_that_was_listed_a_moment_ago_is_not_called_by_whoever_may_not_see_its_server_now() -> None:
    servers = Servers(Server("generic"))
    async with provided(servers) as tool_provider:
        tool = await listed_tool(servers, tool_provider)
        servers.server.groups = ("legal",)
        with pytest.raises(UpstreamUnavailable, match="no longer served"):
            await tool.run(Call(ANNA, Cancellation(None)), {})


async def test_whoever_shows_the_tools_is_told_when_they_come_and_when_they_go() -> None:
    server = Server("generic")
    server.may_tell.set()
    servers = Servers(server)
    async with provided(servers) as tool_provider:
        seen: list[list[str]] = []
        stop_listening = tool_provider.on_change(
            lambda: seen.append([tool.name for tool in tool_provider.tools_for(ANNA)])
        )
        servers.become(server)
        await eventually(lambda: seen[-1:] == [["one.look"]])
        servers.become(Server("rag"))
        assert seen[-1] == []
        stop_listening()
        told = len(seen)
        servers.become(server)
        await eventually(lambda: bool(tool_provider.tools_for(ANNA)))
        assert len(seen) == told
