"""Streamable HTTP: response forms, streams, progress, cancellation, requests to the client, versions."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import httpx
import mcp
import mcp_types as types
import pytest
from mcp.shared.exceptions import MCPError

from armarium.foundation.concurrency import cancellation as limits
from armarium.foundation.security.identity import Authenticator
from support.mcp_messages import (
    DEADLINE_S,
    calling,
    events,
    gauge,
    http_client,
    official_client,
    open_session,
    opening,
    request,
    serving,
)
from support.mcp_test_server import ALICE, ALICE_KEY, Rig, build
from support.waiting import eventually

NOTICE = {"jsonrpc": "2.0", "method": "notifications/initialized"}
MODERN = "2026-07-28"


def cancelling(request_id: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": request_id}}


@pytest.fixture
def eager_progress(monkeypatch: pytest.MonkeyPatch) -> None:
    """Progress is told at every beat, not four times a second."""
    monkeypatch.setattr(limits, "PROGRESS_INTERVAL_S", 0.0)


async def test_an_answer_is_json_unless_there_is_more_to_say(http: httpx.AsyncClient, session: dict[str, str]) -> None:
    answer = await http.post("/mcp", json=calling("echo", text="hi", token="p"), headers=session)
    assert answer.headers["content-type"] == "application/json"
    assert answer.json() == {
        "jsonrpc": "2.0",
        "id": 1,
        "result": {"content": [{"type": "text", "text": '{"text":"hi"}'}], "structuredContent": {"text": "hi"}},
    }


@pytest.mark.parametrize("request_id", [0, -7, 2**53, "seven", ""])
async def test_the_answer_carries_the_id_of_the_request(
    http: httpx.AsyncClient, session: dict[str, str], request_id: int | str
) -> None:
    answer = await http.post("/mcp", json=calling("echo", id=request_id, text="hi"), headers=session)
    assert answer.json()["id"] == request_id


async def test_a_notification_is_accepted_with_202_and_nothing_more(
    http: httpx.AsyncClient, session: dict[str, str]
) -> None:
    for notice in (NOTICE, {"jsonrpc": "2.0", "method": "notifications/unheard_of", "params": {"a": 1}}):
        answer = await http.post("/mcp", json=notice, headers=session)
        assert (answer.status_code, answer.content) == (202, b"")


@pytest.mark.parametrize("outcome", [{"result": {}}, {"error": {"code": 1, "message": "no"}}])
async def test_an_answer_to_a_question_nobody_asked_is_accepted_with_202(
    http: httpx.AsyncClient, session: dict[str, str], outcome: dict[str, Any]
) -> None:
    answer = await http.post("/mcp", json={"jsonrpc": "2.0", "id": "armarium-1", **outcome}, headers=session)
    assert (answer.status_code, answer.content) == (202, b"")


async def test_an_unknown_method_is_answered_with_its_own_error(
    http: httpx.AsyncClient, session: dict[str, str]
) -> None:
    answer = await http.post("/mcp", json=request("tools/eat"), headers=session)
    assert (answer.status_code, answer.json()["error"]["code"]) == (200, -32601)


@pytest.mark.parametrize("params", [{}, {"name": 7}, {"name": "echo", "arguments": "hi"}])
async def test_a_call_that_is_none_is_answered_as_invalid_params(
    http: httpx.AsyncClient, session: dict[str, str], params: dict[str, Any]
) -> None:
    answer = await http.post("/mcp", json=request("tools/call", params), headers=session)
    assert (answer.status_code, answer.json()["error"]["code"]) == (200, -32602)


@pytest.mark.parametrize(("path", "tool"), [("/mcp", "no_such_tool"), ("/mcp/other", "echo"), ("/mcp", "x" * 500)])
@pytest.mark.parametrize("token", [None, "p"])
async def test_a_tool_that_is_not_served_here_is_an_error_of_the_protocol(
    http: httpx.AsyncClient, path: str, tool: str, token: str | None
) -> None:
    session = await open_session(http, path)
    answer = await http.post(path, json=calling(tool, token=token), headers=session)
    error = answer.json()["error"]
    assert error["code"] == -32602
    assert tool[:80] in error["message"]
    assert len(error["message"]) < 120


async def test_each_endpoint_lists_its_own_tools(http: httpx.AsyncClient) -> None:
    listed: dict[str, set[str]] = {}
    for path in ("/mcp", "/mcp/stage", "/mcp/other"):
        session = await open_session(http, path)
        answer = await http.post(path, json=request("tools/list"), headers=session)
        listed[path] = {tool["name"] for tool in answer.json()["result"]["tools"]}
    assert listed["/mcp/other"] == {"answer"}
    assert "echo" in listed["/mcp/stage"]
    assert listed["/mcp"] == listed["/mcp/stage"] | listed["/mcp/other"]
    assert (await http.post("/mcp/nothing", json=opening())).status_code == 404


async def test_progress_turns_the_answer_into_a_stream_of_events_in_order(
    rig: Rig, http: httpx.AsyncClient, session: dict[str, str], eager_progress: None
) -> None:
    wanted = calling("work_until", id="long", token="mine", moment="done")
    seen: list[dict[str, Any]] = []
    async with http.stream("POST", "/mcp", json=wanted, headers=session) as answer:
        assert answer.headers["content-type"] == "text/event-stream"
        assert answer.headers["mcp-session-id"] == session["mcp-session-id"]
        assert "no-cache" in answer.headers["cache-control"]
        async for message in events(answer):
            seen.append(message)
            if len(seen) == 5:
                rig.stage["done"].set()
    *progress, final = seen
    assert {message["method"] for message in progress} == {"notifications/progress"}
    assert {message["params"]["progressToken"] for message in progress} == {"mine"}
    done = [message["params"]["progress"] for message in progress]
    assert len(done) >= 5
    assert done == sorted(set(done)), "every report is further than the last"
    assert final["id"] == "long"
    assert final["result"]["structuredContent"]["text"].endswith("beats")


async def test_without_a_token_there_is_no_progress_and_no_stream(
    rig: Rig, http: httpx.AsyncClient, session: dict[str, str], eager_progress: None
) -> None:
    answer = await _worked(rig, http, session, token=None)
    assert answer.headers["content-type"] == "application/json"


async def test_a_client_that_takes_no_stream_gets_no_progress_but_its_answer(
    rig: Rig, http: httpx.AsyncClient, session: dict[str, str], eager_progress: None
) -> None:
    http.headers["accept"] = "application/json"
    answer = await _worked(rig, http, session, token="p")
    assert answer.headers["content-type"] == "application/json"
    assert answer.json()["result"]["structuredContent"]["text"].endswith("beats")


async def _worked(rig: Rig, http: httpx.AsyncClient, session: dict[str, str], token: str | None) -> httpx.Response:
    answers: list[httpx.Response] = []

    async def work() -> None:
        answers.append(await http.post("/mcp", json=calling("work_until", token=token, moment="m"), headers=session))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(work)
        await rig.stage.happens("m begun")
        await http.post("/mcp", json=request("ping", id=2), headers=session)
        rig.stage["m"].set()
    return answers[0]


async def test_the_official_client_is_told_progress(rig: Rig, address: str, eager_progress: None) -> None:
    told: list[float] = []

    async def note(progress: float, total: float | None, message: str | None) -> None:
        told.append(progress)
        if len(told) == 3:
            rig.stage["enough"].set()

    async with official_client(f"{address}/mcp") as client:
        result = await client.call_tool("work_until", {"moment": "enough"}, progress_callback=note)
    assert not result.is_error
    assert told[:3] == sorted(told[:3])


async def test_cancelling_a_request_stops_its_call_and_the_thread_that_works_for_it(
    rig: Rig, http: httpx.AsyncClient, session: dict[str, str]
) -> None:
    answers: list[httpx.Response] = []

    async def work() -> None:
        answers.append(await http.post("/mcp", json=calling("work_until", id=5, moment="never"), headers=session))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(work)
        await rig.stage.happens("never begun")
        assert (await http.post("/mcp", json=cancelling(5), headers=session)).status_code == 202
        await rig.stage.happens("never stopped")
    assert answers[0].json()["error"] == {"code": -32800, "message": "Request cancelled"}
    assert gauge(rig.metrics.exposition().decode(), "armarium_calls_in_flight") == 0


@pytest.mark.parametrize("request_id", [None, True, 1.5, [], {}, "1", 2])
async def test_cancelling_what_is_not_under_way_does_nothing(
    rig: Rig, http: httpx.AsyncClient, session: dict[str, str], request_id: Any
) -> None:
    answers: list[httpx.Response] = []

    async def wait() -> None:
        answers.append(await http.post("/mcp", json=calling("wait_for", id=1, moment="noon"), headers=session))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(wait)
        await rig.stage.happens("noon awaited")
        assert (await http.post("/mcp", json=cancelling(request_id), headers=session)).status_code == 202
        assert (await http.post("/mcp", json=request("ping", id=2), headers=session)).status_code == 200
        rig.stage["noon"].set()
    assert answers[0].json()["result"]["structuredContent"] == {"text": "noon"}


async def test_nobody_cancels_the_request_of_another_session(rig: Rig, http: httpx.AsyncClient) -> None:
    mine, other = await open_session(http), await open_session(http)
    answers: list[httpx.Response] = []

    async def wait() -> None:
        answers.append(await http.post("/mcp", json=calling("wait_for", id=1, moment="noon"), headers=mine))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(wait)
        await rig.stage.happens("noon awaited")
        await http.post("/mcp", json=cancelling(1), headers=other)
        rig.stage["noon"].set()
    assert "result" in answers[0].json()


async def test_the_official_client_cancels_by_giving_up(rig: Rig, address: str) -> None:
    async with official_client(f"{address}/mcp") as client:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(client.call_tool, "work_until", {"moment": "never"})
            await rig.stage.happens("never begun")
            tasks.cancel_scope.cancel()
        await rig.stage.happens("never stopped")
        assert not (await client.call_tool("echo", {"text": "still here"})).is_error


async def test_many_calls_of_one_session_run_at_the_same_time(rig: Rig, address: str) -> None:
    async with official_client(f"{address}/mcp") as client, anyio.create_task_group() as tasks:
        for number in range(20):
            tasks.start_soon(client.call_tool, "wait_for", {"moment": f"m{number}"})
        for number in range(20):
            await rig.stage.happens(f"m{number} awaited")
        for number in range(20):
            rig.stage[f"m{number}"].set()


async def test_a_session_listens_with_get_and_a_second_listener_is_refused(
    http: httpx.AsyncClient, session: dict[str, str]
) -> None:
    async with http.stream("GET", "/mcp", headers=session) as first:
        assert (first.status_code, first.headers["content-type"]) == (200, "text/event-stream")
        assert (await http.get("/mcp", headers=session)).status_code == 409
    with anyio.fail_after(DEADLINE_S):
        while True:  # the server notices in its own time that the first one left
            async with http.stream("GET", "/mcp", headers=session) as second:
                if second.status_code == 200:
                    break


async def test_a_listener_that_takes_no_stream_is_refused_with_406(
    http: httpx.AsyncClient, session: dict[str, str]
) -> None:
    assert (await http.get("/mcp", headers=session | {"accept": "application/json"})).status_code == 406


async def test_a_quiet_stream_is_kept_alive() -> None:
    async with serving(build(keep_alive_s=0.02).app) as url, http_client(url) as http:
        session = await open_session(http)
        async with http.stream("GET", "/mcp", headers=session) as stream:
            lines = stream.aiter_lines()
            comments = [line async for line in _first(lines, 4) if line]
    assert comments == [": keep-alive", ": keep-alive"]


async def test_a_listening_stream_ends_when_its_key_is_revoked() -> None:
    keys = [(ALICE.apikey_hash, ALICE)]
    rig = build(authenticator=Authenticator((), further=lambda: keys))
    async with serving(rig.app) as url, http_client(url) as http:
        session = await open_session(http)
        ours = rig.sessions.open_sessions[session["mcp-session-id"]]
        async with http.stream("GET", "/mcp", headers=session) as stream:
            keys.clear()
            await ours.connection.notify("notifications/message", {"level": "info", "data": "confidential"})
            with anyio.fail_after(DEADLINE_S):
                assert [message async for message in events(stream)] == []


async def _first(lines: Any, count: int) -> Any:
    for _ in range(count):
        yield await anext(lines)


async def test_what_the_server_says_on_its_own_reaches_the_listener_in_order(rig: Rig, address: str) -> None:
    async with http_client(address) as http:
        session = await open_session(http)
        ours = rig.sessions.open_sessions[session["mcp-session-id"]]
        await ours.connection.send_tool_list_changed()  # nobody listens yet: dropped
        async with http.stream("GET", "/mcp", headers=session) as stream:
            for number in range(3):
                await ours.connection.notify("notifications/message", {"level": "info", "data": number})
            said = [message async for message in _first(events(stream), 3)]
    assert [message["params"]["data"] for message in said] == [0, 1, 2]


Asking = Callable[[Any, dict[str, Any]], Awaitable[str]]


def add_asking_tool(rig: Rig, ask: Asking) -> None:
    """Add a tool to /mcp that asks the client something before it answers; no capability has one yet."""

    async def call_tool(context: Any, params: types.CallToolRequestParams) -> types.CallToolResult:
        said = await ask(context, params.arguments or {})
        return types.CallToolResult(content=[types.TextContent(text=said)])

    rig.servers["/mcp"].add_request_handler("tools/call", types.CallToolRequestParams, call_tool)


async def elicit(context: Any, arguments: dict[str, Any]) -> str:
    schema = {"type": "object", "properties": {"name": {"type": "string"}}}
    said = await context.session.elicit_form("Your name?", schema, related_request_id=context.request_id)
    return f"{said.action} {said.content}"


async def sample(context: Any, arguments: dict[str, Any]) -> str:
    message = types.SamplingMessage(role="user", content=types.TextContent(text="Say something"))
    asked = types.CreateMessageRequest(params=types.CreateMessageRequestParams(messages=[message], max_tokens=9))
    return (await context.session.send_request(asked, types.CreateMessageResult)).content.text


async def test_the_user_is_asked_over_the_stream_of_the_request(rig: Rig, address: str) -> None:
    async def answer(context: Any, params: types.ElicitRequestParams) -> types.ElicitResult:
        return types.ElicitResult(action="accept", content={"name": "Ada"})

    add_asking_tool(rig, elicit)
    async with official_client(f"{address}/mcp", elicitation_callback=answer) as client:
        result = await client.call_tool("ask", {})
    assert "accept {'name': 'Ada'}" in result.content[0].text


async def test_the_clients_model_is_asked_over_the_stream_of_the_request(rig: Rig, address: str) -> None:
    async def answer(context: Any, params: types.CreateMessageRequestParams) -> types.CreateMessageResult:
        return types.CreateMessageResult(role="assistant", content=types.TextContent(text="Something"), model="m")

    add_asking_tool(rig, sample)
    async with official_client(f"{address}/mcp", sampling_callback=answer) as client:
        result = await client.call_tool("ask", {})
    assert result.content[0].text == "Something"


async def test_a_client_that_cannot_be_asked_makes_that_call_fail_and_nothing_else(
    rig: Rig, http: httpx.AsyncClient
) -> None:
    add_asking_tool(rig, elicit)
    http.headers["accept"] = "application/json"
    session = await open_session(http)
    answer = await http.post("/mcp", json=calling("ask"), headers=session)
    assert "error" in answer.json()
    assert (await http.post("/mcp", json=request("ping"), headers=session)).json()["result"] == {}


async def test_a_surprise_in_a_handler_reaches_the_client_as_internal_error_without_its_text(
    rig: Rig, http: httpx.AsyncClient
) -> None:
    async def fail(context: Any, arguments: dict[str, Any]) -> str:
        raise RuntimeError("hunter2-canary")

    add_asking_tool(rig, fail)
    session = await open_session(http)
    answer = await http.post("/mcp", json=calling("ask"), headers=session)
    assert answer.json()["error"] == {"code": -32603, "message": "Internal error"}


@pytest.mark.parametrize("version", ["2025-11-25", "2025-06-18", "2025-03-26"])
async def test_the_handshake_agrees_on_the_version_the_client_asks_for(http: httpx.AsyncClient, version: str) -> None:
    answer = await http.post("/mcp", json=opening(version))
    assert answer.json()["result"]["protocolVersion"] == version
    session = {"mcp-session-id": answer.headers["mcp-session-id"], "mcp-protocol-version": version}
    assert (await http.post("/mcp", json=NOTICE, headers=session)).status_code == 202
    called = await http.post("/mcp", json=calling("echo", text="hi"), headers=session)
    assert called.json()["result"]["content"][0]["text"] == '{"text":"hi"}'


async def test_a_version_from_the_future_is_answered_with_ours(http: httpx.AsyncClient) -> None:
    answer = await http.post("/mcp", json=opening("2099-01-01"))
    assert answer.json()["result"]["protocolVersion"] == "2025-11-25"


async def test_a_version_header_nobody_knows_is_refused_with_400_and_the_versions_there_are(
    http: httpx.AsyncClient, session: dict[str, str]
) -> None:
    headers = session | {"mcp-protocol-version": "1999-01-01"}
    answer = await http.post("/mcp", json=calling("echo", text="hi"), headers=headers)
    assert answer.status_code == 400
    error = answer.json()["error"]
    assert error["data"]["code"] == "UNSUPPORTED_PROTOCOL_VERSION"
    assert error["data"]["requested"] == "1999-01-01"
    assert {"2025-11-25", "2025-06-18", "2025-03-26", MODERN} <= set(error["data"]["supported"])
    for version in error["data"]["supported"]:
        assert version in error["message"]


async def test_the_version_header_twice_is_no_version_either(http: httpx.AsyncClient) -> None:
    twice = [("mcp-protocol-version", MODERN)] * 2
    answer = await http.post("/mcp", json=request("tools/list"), headers=twice)
    assert (answer.status_code, "error" in answer.json()) == (400, True)


async def test_the_handshake_tells_name_version_and_instructions(http: httpx.AsyncClient) -> None:
    result = (await http.post("/mcp/other", json=opening())).json()["result"]
    assert result["serverInfo"]["name"] == "armarium-other"
    assert result["serverInfo"]["title"] == "Armarium"
    assert result["instructions"] == "Only other."
    assert "tools" in result["capabilities"]


@pytest.mark.parametrize("mode", [MODERN, "auto", "legacy"])
@pytest.mark.parametrize("path", ["/mcp", "/mcp/stage"])
async def test_the_official_client_works_with_and_without_sessions_on_the_same_endpoint(
    rig: Rig, address: str, mode: str, path: str
) -> None:
    async with official_client(f"{address}{path}", mode=mode) as client:
        assert client.protocol_version == ("2025-11-25" if mode == "legacy" else MODERN)
        assert "echo" in {tool.name for tool in (await client.list_tools()).tools}
        result = await client.call_tool("whoami", {})
        assert result.structured_content["username"] == "alice"
        assert result.structured_content["apikey_hash"] == result.structured_content["credential_sha256"]
        opened = gauge(rig.metrics.exposition().decode(), "armarium_sessions")
        assert opened == (1 if mode == "legacy" else 0)


async def test_without_a_session_the_gate_stands_all_the_same(address: str) -> None:
    async with http_client(address, "wrong", **{"mcp-protocol-version": MODERN}) as stranger:
        assert (await stranger.post("/mcp", json=request("tools/list"))).status_code == 401


async def test_without_a_session_tools_unknown_here_and_wrong_arguments_are_told_alike(address: str) -> None:
    async with official_client(f"{address}/mcp/other", mode=MODERN) as client:
        with pytest.raises(MCPError) as failure:
            await client.call_tool("echo", {"text": "hi"})
        assert failure.value.code == -32602
        result = await client.call_tool("answer", {"question": "what"})
        assert result.is_error
        assert result.structured_content["error"]["code"] == "INVALID_ARGUMENT"
        result = await client.call_tool("answer", {"number": 10**30})
        assert result.structured_content["error"]["message"] == "unknown argument `number`"


async def test_without_a_session_progress_streams_and_leaving_cancels(
    rig: Rig, address: str, eager_progress: None
) -> None:
    told: list[float] = []

    async def note(progress: float, total: float | None, message: str | None) -> None:
        told.append(progress)

    async def work(client: mcp.Client) -> None:
        await client.call_tool("work_until", {"moment": "never"}, progress_callback=note)

    async with official_client(f"{address}/mcp", mode=MODERN) as client, anyio.create_task_group() as tasks:
        tasks.start_soon(work, client)
        await rig.stage.happens("never begun")
        await eventually(lambda: len(told) >= 3)
        tasks.cancel_scope.cancel()
    await rig.stage.happens("never stopped")
    assert told == sorted(told)


async def test_an_answer_of_several_megabytes_arrives_whole(address: str) -> None:
    async with official_client(f"{address}/mcp") as client:
        result = await client.call_tool("fill", {"size": 4_000_000})
    assert len(result.structured_content["text"]) == 4_000_000
    assert json.loads(result.content[0].text) == result.structured_content


async def test_a_caller_who_hangs_up_costs_the_server_nothing_but_the_call(rig: Rig, address: str) -> None:
    async with http_client(address) as http:
        session = await open_session(http)
        async with anyio.create_task_group() as tasks:

            async def leave_early() -> None:
                async with http_client(address, ALICE_KEY) as other:
                    await other.post("/mcp", json=calling("wait_for", moment="noon"), headers=session)

            tasks.start_soon(leave_early)
            await rig.stage.happens("noon awaited")
            tasks.cancel_scope.cancel()
        assert gauge(rig.metrics.exposition().decode(), "armarium_calls_in_flight") == 1, "leaving is not cancelling"
        rig.stage["noon"].set()
        assert (await http.post("/mcp", json=calling("echo", text="hi"), headers=session)).status_code == 200
        await eventually(lambda: gauge(rig.metrics.exposition().decode(), "armarium_calls_in_flight") == 0)
