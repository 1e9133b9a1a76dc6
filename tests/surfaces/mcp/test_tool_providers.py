"""Tools of a tool provider: who sees and calls them, who is notified of changes, what is recorded."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import anyio
import httpx
import mcp_types as types
import pytest
from mcp.client.subscriptions import ToolsListChanged
from mcp.shared.exceptions import MCPError

from armarium.foundation.audit import AuditFilter, AuditLog, read_records
from armarium.foundation.schema import SchemaCheck
from armarium.foundation.tools import ToolSpec
from armarium.surfaces import prepared_tool
from support.mcp_messages import (
    DEADLINE_S,
    calling,
    events,
    http_client,
    official_client,
    open_session,
    opening,
    request,
    serving,
)
from support.mcp_test_server import ALICE, BOB, BOB_KEY, Rig, build
from support.scripted_tool_provider import ANY_OBJECT, PICTURE, ScriptedToolProvider, Slow, failing, remote
from support.waiting import eventually

MODERN = "2026-07-28"
CHANGED = {"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}
ERAS = pytest.mark.parametrize("mode", ["legacy", MODERN])


@pytest.fixture
def tool_provider() -> ScriptedToolProvider:
    """An empty one."""
    return ScriptedToolProvider()


@pytest.fixture
async def rig(tool_provider: ScriptedToolProvider) -> Rig:
    """A server with that tool_provider."""
    return build(tool_provider=tool_provider)


async def names(client: Any) -> set[str]:
    """What the client is told there is, apart from the fixed tools."""
    tools = (await client.list_tools()).tools
    return {tool.name for tool in tools if "." in tool.name}


@ERAS
async def test_each_caller_sees_and_calls_only_their_own(
    tool_provider: ScriptedToolProvider, address: str, mode: str
) -> None:
    tool_provider.put(remote("all.say"))
    tool_provider.put(remote("hers.say"), only=ALICE)
    async with (
        official_client(f"{address}/mcp", mode=mode) as alice,
        official_client(f"{address}/mcp", key=BOB_KEY, mode=mode) as bob,
    ):
        assert await names(alice) == {"all.say", "hers.say"}
        assert await names(bob) == {"all.say"}
        result = await alice.call_tool("hers.say", {"word": "tea"})
        assert result.structured_content == {"given": {"word": "tea"}}
        with pytest.raises(MCPError, match="unknown tool"):
            await bob.call_tool("hers.say", {"word": "tea"})
        with pytest.raises(MCPError, match="unknown tool"):
            await bob.call_tool("nobodys.say", {"word": "tea"})


async def test_the_fixed_tools_are_still_there_and_go_first(tool_provider: ScriptedToolProvider, address: str) -> None:
    tool_provider.put(remote("echo"))
    async with official_client(f"{address}/mcp") as client:
        tools = [tool.name for tool in (await client.list_tools()).tools]
        assert tools.count("echo") == 1
        assert (await client.call_tool("echo", {"text": "hi"})).structured_content == {"text": "hi"}


async def test_an_endpoint_of_one_capability_has_the_tools_of_its_own_tool_provider(
    tool_provider: ScriptedToolProvider, address: str
) -> None:
    tool_provider.put(remote("all.say"))
    async with official_client(f"{address}/mcp/remote") as own, official_client(f"{address}/mcp/other") as other:
        assert await names(own) == {"all.say"}
        assert not (await own.call_tool("all.say", {"word": "tea"})).is_error
        assert await names(other) == set()
        with pytest.raises(MCPError, match="unknown tool"):
            await other.call_tool("all.say", {"word": "tea"})


@ERAS
async def test_schemas_and_results_of_others_pass_untouched(
    tool_provider: ScriptedToolProvider, address: str, mode: str
) -> None:
    answers = {"type": "object", "properties": {"given": {"type": "object"}}, "x-ours": [1]}
    tool_provider.put(remote("all.say", {**ANY_OBJECT, "x-theirs": {"a": None}}, output_schema=answers, title="Say"))
    async with official_client(f"{address}/mcp", mode=mode) as client:
        (tool,) = [tool for tool in (await client.list_tools()).tools if tool.name == "all.say"]
        assert (tool.input_schema, tool.output_schema) == ({**ANY_OBJECT, "x-theirs": {"a": None}}, answers)
        result = await client.call_tool("all.say", {"word": "tea", "more": None})
    assert result.structured_content == {"given": {"word": "tea", "more": None}}, "a null is a value for others"
    assert [block.model_dump(by_alias=True, exclude_none=True) for block in result.content] == [
        {"type": "text", "text": "all.say"},
        PICTURE,
    ]


async def test_arguments_that_do_not_fit_go_no_further(tool_provider: ScriptedToolProvider, address: str) -> None:
    tool_provider.put(remote("all.say"))
    async with official_client(f"{address}/mcp") as client:
        result = await client.call_tool("all.say", {"word": 7})
    assert result.is_error
    assert result.structured_content["error"]["code"] == "INVALID_ARGUMENT"


@pytest.mark.parametrize(
    "schema",
    [
        pytest.param({"type": "object", "properties": {"a": {"type": "banana"}}}, id="no schema"),
        pytest.param({"type": "object", "properties": {"a": {"$ref": "file:///etc/hostname"}}}, id="a file of ours"),
        pytest.param({"type": "object", "properties": {"a": {"$ref": "http://127.0.0.1:9/s"}}}, id="an address"),
        pytest.param({"type": "object", "$schema": "https://example.org/own"}, id="another language"),
    ],
)
async def test_a_schema_that_cannot_be_used_harms_nobody(
    tool_provider: ScriptedToolProvider, address: str, schema: dict[str, Any]
) -> None:
    tool_provider.put(remote("odd.say", schema))
    tool_provider.put(remote("all.say"))
    async with official_client(f"{address}/mcp") as client:
        assert await names(client) == {"odd.say", "all.say"}
        assert (await client.call_tool("odd.say", {"a": 1})).structured_content == {"given": {"a": 1}}
        assert not (await client.call_tool("all.say", {"word": "tea"})).is_error


@ERAS
@pytest.mark.parametrize(
    "odd",
    [
        remote("odd.say", {}),
        remote("odd.say", {"type": "string"}),
        remote("odd.say", output_schema={"type": "array"}),
        remote("odd.\ud800"),
    ],
    ids=["nothing", "not for arguments", "no object to answer", "half a name"],
)
async def test_a_tool_that_clients_cannot_read_is_left_out_and_the_list_is_whole(
    tool_provider: ScriptedToolProvider, address: str, odd: ToolSpec, mode: str
) -> None:
    tool_provider.put(odd)
    tool_provider.put(remote("all.say"))
    async with official_client(f"{address}/mcp", mode=mode) as client:
        assert await names(client) == {"all.say"}


async def test_a_schema_is_compiled_once_for_as_long_as_the_tool_is_the_same(
    tool_provider: ScriptedToolProvider, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiled: list[Any] = []

    class Counting(SchemaCheck):
        def __init__(self, schema: Any) -> None:
            compiled.append(schema)
            super().__init__(schema)

    monkeypatch.setattr(prepared_tool, "SchemaCheck", Counting)
    async with official_client(f"{address}/mcp") as client:
        for version in ({**ANY_OBJECT, "x": 1}, {**ANY_OBJECT, "x": 2}):
            tool_provider.put(remote("all.say", version))
            for _ in range(3):
                await client.call_tool("all.say", {"word": "tea"})
    assert [schema["x"] for schema in compiled] == [1, 2]


@ERAS
async def test_a_failure_elsewhere_is_told_as_it_is_and_ours_in_our_envelope(
    tool_provider: ScriptedToolProvider, address: str, mode: str
) -> None:
    tool_provider.put(failing("all.fail"))
    async with official_client(f"{address}/mcp", mode=mode) as client:
        theirs = await client.call_tool("all.fail", {"word": "x"})
        ours = await client.call_tool("all.fail", {"word": "gone"})
    assert theirs.is_error
    assert (theirs.content, theirs.structured_content) == ([types.TextContent(text="no such city")], None)
    assert ours.structured_content["error"]["code"] == "UNREACHABLE"


async def test_calls_are_on_record_and_counted_under_one_name(
    tool_provider: ScriptedToolProvider, tmp_path: Path
) -> None:
    trail = tmp_path / "audit.sqlite"
    audit = AuditLog(trail)
    rig = build(tool_provider=tool_provider, audit=audit)
    for name in ("one.say", "two.say"):
        tool_provider.put(remote(name))
    tool_provider.put(failing("two.fail"))
    async with serving(rig.app) as address, official_client(f"{address}/mcp") as client:
        for name in ("one.say", "two.say", "two.fail"):
            await client.call_tool(name, {"word": "tea"})
        await eventually(lambda: len(read_records(trail, AuditFilter(), last=9)) == 3)
    audit.close()
    records = {record.tool: record for _, record in read_records(trail, AuditFilter(), last=9)}
    assert {(tool, each.capability, each.code) for tool, each in records.items()} == {
        ("one.say", "remote", None),
        ("two.say", "remote", None),
        ("two.fail", "remote", "TOOL_FAILED"),
    }
    assert records["one.say"].response_bytes == len("one.say") + len(PICTURE["data"])
    told = rig.metrics.exposition().decode()
    assert 'armarium_calls_total{capability="remote",outcome="success",tool="dynamic"} 2.0' in told
    assert "one.say" not in told


async def test_the_handshake_says_whether_tools_may_change(address: str) -> None:
    plain = build()
    async with serving(plain.app) as without, http_client(without) as http:
        told = (await http.post("/mcp", json=opening())).json()["result"]["capabilities"]["tools"]
        assert told.get("listChanged") is not True
    async with http_client(address) as http:
        for path, may_change in (("/mcp", True), ("/mcp/remote", True), ("/mcp/other", False)):
            told = (await http.post(path, json=opening())).json()["result"]["capabilities"]["tools"]
            assert bool(told.get("listChanged")) is may_change


@pytest.fixture
async def bobs(address: str) -> AsyncGenerator[httpx.AsyncClient]:
    """Plain HTTP as Bob."""
    async with http_client(address, BOB_KEY) as client:
        yield client


async def test_who_listens_is_told_when_their_own_list_has_changed(
    tool_provider: ScriptedToolProvider, http: httpx.AsyncClient, bobs: httpx.AsyncClient
) -> None:
    hers, his = await open_session(http), await open_session(bobs)
    async with (
        http.stream("GET", "/mcp", headers=hers) as alice_hears,
        bobs.stream("GET", "/mcp", headers=his) as bob_hears,
    ):
        alice_told, bob_told = events(alice_hears), events(bob_hears)
        with anyio.fail_after(DEADLINE_S):
            tool_provider.put(remote("hers.say"), only=ALICE)
            assert await anext(alice_told) == CHANGED
            tool_provider.changed()  # nothing has
            tool_provider.put(remote("hers.say"), only=ALICE)  # another object, which looks the same
            tool_provider.put(remote("his.say"), only=BOB)
            assert await anext(bob_told) == CHANGED
            tool_provider.take("hers.say")
            assert await anext(alice_told) == CHANGED
            tool_provider.put(remote("all.say"))
            assert (await anext(alice_told), await anext(bob_told)) == (CHANGED, CHANGED)
            assert tool_provider.listeners == 1, "one for all who listen to a server"
    await eventually(lambda: tool_provider.listeners == 0)


async def test_changes_that_nobody_took_yet_are_told_as_one(tool_provider: ScriptedToolProvider, rig: Rig) -> None:
    changes = rig.servers["/mcp"].changes
    with changes.subscription(ALICE) as heard:
        for number in range(5):
            tool_provider.put(remote(f"all.say{number}"))
        assert heard.statistics().current_buffer_used == 1
    assert tool_provider.listeners == 0


async def test_the_official_client_of_a_session_is_told(tool_provider: ScriptedToolProvider, address: str) -> None:
    told: list[str] = []

    async def note(message: Any) -> None:
        if isinstance(message, types.ToolListChangedNotification):
            told.append(message.method)

    async with official_client(f"{address}/mcp", message_handler=note) as client:
        await eventually(lambda: tool_provider.listeners == 1)
        tool_provider.put(remote("all.say"))
        await eventually(lambda: bool(told))
        assert await names(client) == {"all.say"}


async def test_without_a_session_a_subscription_tells_of_ones_own_changes(
    tool_provider: ScriptedToolProvider, address: str
) -> None:
    async with (
        official_client(f"{address}/mcp", key=BOB_KEY, mode=MODERN) as client,
        client.listen(tools_list_changed=True) as heard,
    ):
        with anyio.fail_after(DEADLINE_S):
            tool_provider.put(remote("hers.say"), only=ALICE)
            tool_provider.put(remote("his.say"), only=BOB)
            assert await anext(aiter(heard)) == ToolsListChanged()
        assert await names(client) == {"his.say"}
    await eventually(lambda: tool_provider.listeners == 0)


async def test_a_server_that_stops_ends_subscriptions_in_good_order(
    rig: Rig, tool_provider: ScriptedToolProvider, address: str
) -> None:
    async with (
        official_client(f"{address}/mcp", mode=MODERN) as client,
        client.listen(tools_list_changed=True) as heard,
    ):
        rig.app.close_streams()
        with anyio.fail_after(DEADLINE_S):
            assert [change async for change in heard] == []


@ERAS
async def test_progress_is_relayed_with_total_and_message(
    tool_provider: ScriptedToolProvider, address: str, mode: str
) -> None:
    slow, told = Slow(), list[tuple[float, float | None, str | None]]()
    tool_provider.put(slow.tool("all.wait"))

    async def note(progress: float, total: float | None, message: str | None) -> None:
        told.append((progress, total, message))
        slow.let_go.set()

    async with official_client(f"{address}/mcp", mode=mode) as client:
        await client.call_tool("all.wait", {"word": "x"}, progress_callback=note)
        await eventually(lambda: len(told) == 3)
    assert told == [(1, 3, "step 1"), (2, 3, "step 2"), (3, 3, None)]
    assert slow.was_heard


async def test_who_did_not_ask_for_progress_has_none(tool_provider: ScriptedToolProvider, address: str) -> None:
    slow = Slow()
    slow.let_go.set()
    tool_provider.put(slow.tool("all.wait"))
    async with http_client(address) as http:
        session = await open_session(http)
        answer = await http.post("/mcp", json=calling("all.wait", word="x"), headers=session)
    assert answer.json()["result"] == {"content": []}
    assert slow.was_heard is False


@ERAS
async def test_taking_a_call_back_cancels_the_tool(
    tool_provider: ScriptedToolProvider, address: str, mode: str
) -> None:
    slow = Slow()
    tool_provider.put(slow.tool("all.wait"))
    async with official_client(f"{address}/mcp", mode=mode) as client:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(client.call_tool, "all.wait", {"word": "x"})
            with anyio.fail_after(DEADLINE_S):
                await slow.begun.wait()
            tasks.cancel_scope.cancel()
        with anyio.fail_after(DEADLINE_S):
            await slow.cancelled.wait()
        assert not (await client.call_tool("echo", {"text": "still here"})).is_error


async def test_a_removed_tool_finishes_the_call_it_is_in(tool_provider: ScriptedToolProvider, address: str) -> None:
    slow, results = Slow(), list[types.CallToolResult]()
    tool_provider.put(slow.tool("all.wait"))

    async def call(client: Any) -> None:
        results.append(await client.call_tool("all.wait", {"word": "x"}))

    async with official_client(f"{address}/mcp") as client:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(call, client)
            with anyio.fail_after(DEADLINE_S):
                await slow.begun.wait()
            tool_provider.take("all.wait")
            slow.let_go.set()
        assert not results[0].is_error
        with pytest.raises(MCPError, match="unknown tool"):
            await client.call_tool("all.wait", {"word": "x"})


async def test_a_plain_request_for_an_unknown_tool_is_an_error_of_the_protocol(address: str) -> None:
    async with http_client(address) as http:
        session = await open_session(http)
        answer = await http.post("/mcp", json=calling("no.such", word="x"), headers=session)
        assert answer.json()["error"]["code"] == types.INVALID_PARAMS
        assert (await http.post("/mcp", json=request("ping"), headers=session)).json()["result"] == {}
