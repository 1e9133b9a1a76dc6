"""Sessions over HTTP: ownership, timeouts, eviction, limits."""

from __future__ import annotations

import gc
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import anyio
import httpx
import pytest
from mcp.shared.exceptions import MCPError

from armarium.surfaces.mcp.session import Session
from support.mcp_messages import (
    calling,
    gauge,
    http_client,
    official_client,
    open_session,
    opening,
    request,
    server_command,
    serving,
)
from support.mcp_test_server import ALICE, ALICE_KEY, BOB, BOB_KEY, Rig, build
from support.server import ServerProcess
from support.waiting import eventually

EXPIRED = "x-mcp-session-expired"


class Clock:
    """Time as the sessions see it, moved by hand."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    """Time stands still unless a test moves it."""
    return Clock()


async def call_echo(client: httpx.AsyncClient, session: dict[str, str], path: str = "/mcp") -> httpx.Response:
    return await client.post(path, json=calling("echo", text="hi"), headers=session)


async def test_a_session_is_opened_by_initialize_and_used_by_its_id(http: httpx.AsyncClient) -> None:
    session = await open_session(http)
    answer = await call_echo(http, session)
    assert answer.json()["result"]["structuredContent"] == {"text": "hi"}
    assert answer.headers["mcp-session-id"] == session["mcp-session-id"]


async def test_ids_of_sessions_are_long_visible_and_never_the_same(http: httpx.AsyncClient) -> None:
    ids = {(await open_session(http))["mcp-session-id"] for _ in range(20)}
    assert len(ids) == 20
    assert all(len(name) >= 32 and name.isascii() and name.isprintable() for name in ids)


async def test_a_request_without_a_session_is_refused_with_400(http: httpx.AsyncClient) -> None:
    answer = await http.post("/mcp", json=calling("echo", text="hi"))
    assert answer.status_code == 400
    assert "Mcp-Session-Id" in answer.json()["error"]["message"]


@pytest.mark.parametrize("method", ["POST", "GET", "DELETE"])
async def test_an_unknown_session_is_404_without_a_reason(http: httpx.AsyncClient, method: str) -> None:
    body = calling("echo", text="hi") if method == "POST" else None
    answer = await http.request(method, "/mcp", json=body, headers={"mcp-session-id": "0" * 32})
    assert answer.status_code == 404
    assert EXPIRED not in answer.headers


async def test_a_handshake_that_fails_opens_no_session(rig: Rig, http: httpx.AsyncClient) -> None:
    answer = await http.post("/mcp", json=request("initialize", {"protocolVersion": 7}))
    assert answer.json()["error"]["code"] == -32602
    assert "mcp-session-id" not in answer.headers
    assert gauge(rig.metrics.exposition().decode(), "armarium_sessions") == 0


async def test_a_session_nobody_used_for_long_is_404_and_told_why(clock: Clock) -> None:
    async with serving(build(clock=clock, inactivity_timeout_s=3600).app) as url, http_client(url) as http:
        session = await open_session(http)
        clock.now += 3599
        assert (await call_echo(http, session)).status_code == 200, "every use starts the wait again"
        clock.now += 3599
        assert (await call_echo(http, session)).status_code == 200
        clock.now += 3601
        for _ in range(2):
            answer = await call_echo(http, session)
            assert answer.status_code == 404
            assert answer.headers[EXPIRED] == "inactivity"
        assert (await http.get("/mcp", headers=session)).headers[EXPIRED] == "inactivity"


async def test_a_session_that_grew_too_old_is_404_and_told_why_however_busy_it_was(clock: Clock) -> None:
    async with (
        serving(build(clock=clock, inactivity_timeout_s=None, max_lifetime_s=100).app) as url,
        http_client(url) as http,
    ):
        session = await open_session(http)
        for _ in range(2):
            clock.now += 49
            assert (await call_echo(http, session)).status_code == 200
        clock.now += 3
        answer = await call_echo(http, session)
        assert (answer.status_code, answer.headers[EXPIRED]) == (404, "max-lifetime")


async def test_with_both_timeouts_off_a_session_lasts(clock: Clock) -> None:
    async with serving(build(clock=clock, inactivity_timeout_s=None).app) as url, http_client(url) as http:
        session = await open_session(http)
        clock.now += 10**9
        assert (await call_echo(http, session)).status_code == 200


async def test_a_session_with_a_call_under_way_is_not_inactive(clock: Clock) -> None:
    rig = build(clock=clock, inactivity_timeout_s=0.2)
    async with serving(rig.app) as url, http_client(url) as http, anyio.create_task_group() as tasks:
        session = await open_session(http)
        answers: list[httpx.Response] = []

        async def wait() -> None:
            answers.append(await http.post("/mcp", json=calling("wait_for", moment="noon"), headers=session))

        tasks.start_soon(wait)
        await rig.stage.happens("noon awaited")
        clock.now += 1000
        other = await open_session(http)
        clock.now += 1000
        await eventually(lambda: gauge(rig.metrics.exposition().decode(), "armarium_sessions") == 1)
        assert (await call_echo(http, other)).headers[EXPIRED] == "inactivity", "the sweeper was there"
        rig.stage["noon"].set()
    assert answers[0].json()["result"]["structuredContent"] == {"text": "noon"}


async def test_a_listening_stream_keeps_a_session_from_being_inactive_but_not_from_growing_old(clock: Clock) -> None:
    rig = build(clock=clock, inactivity_timeout_s=0.2, max_lifetime_s=5000)
    async with serving(rig.app) as url, http_client(url) as http:
        session = await open_session(http)
        async with http.stream("GET", "/mcp", headers=session) as stream:
            assert stream.status_code == 200
            clock.now += 4000
            assert (await call_echo(http, session)).status_code == 200
            clock.now += 2000
            with anyio.fail_after(10):
                assert await stream.aread() == b"", "the sweeper ends the stream with the session"
        answer = await call_echo(http, session)
        assert answer.headers[EXPIRED] == "max-lifetime"


async def test_a_call_under_way_is_cut_short_when_its_session_grows_too_old(clock: Clock) -> None:
    rig = build(clock=clock, inactivity_timeout_s=None, max_lifetime_s=0.2)
    async with serving(rig.app) as url, http_client(url) as http, anyio.create_task_group() as tasks:
        session = await open_session(http)
        answers: list[httpx.Response] = []

        async def wait() -> None:
            answers.append(await http.post("/mcp", json=calling("wait_for", moment="dusk"), headers=session))

        tasks.start_soon(wait)
        await rig.stage.happens("dusk awaited")
        clock.now += 1
        await rig.stage.happens("dusk abandoned")
    assert answers[0].json()["error"]["code"] == -32800


async def test_another_callers_session_looks_like_none(rig: Rig, address: str) -> None:
    async with http_client(address, ALICE_KEY) as alice, http_client(address, BOB_KEY) as bob:
        session = await open_session(alice)
        for method in ("POST", "GET", "DELETE"):
            body = calling("echo", text="hi") if method == "POST" else None
            answer = await bob.request(method, "/mcp", json=body, headers=session)
            assert (answer.status_code, answer.json()["error"]["message"]) == (404, "no such session")
        assert (await call_echo(alice, session)).status_code == 200, "and it is still there for its owner"


async def test_why_a_session_ended_is_told_to_its_owner_alone(clock: Clock) -> None:
    async with (
        serving(build(clock=clock, inactivity_timeout_s=60).app) as url,
        http_client(url, ALICE_KEY) as alice,
        http_client(url, BOB_KEY) as bob,
    ):
        session = await open_session(alice)
        clock.now += 61
        assert EXPIRED not in (await call_echo(bob, session)).headers
        assert EXPIRED not in (await call_echo(alice, session, "/mcp/stage")).headers
        assert (await call_echo(alice, session)).headers[EXPIRED] == "inactivity"


async def test_the_session_of_another_endpoint_looks_like_none(http: httpx.AsyncClient) -> None:
    session = await open_session(http, "/mcp/stage")
    assert (await call_echo(http, session, "/mcp/stage")).status_code == 200
    assert (await call_echo(http, session, "/mcp")).status_code == 404
    assert (await call_echo(http, session, "/mcp/other")).status_code == 404


@asynccontextmanager
async def in_use(rig: Rig, http: httpx.AsyncClient, session: dict[str, str], moment: str) -> AsyncGenerator[None]:
    """While inside, a call of the session is under way."""
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(partial(http.post, "/mcp", json=calling("wait_for", moment=moment), headers=session))
        await rig.stage.happens(f"{moment} awaited")
        yield
        rig.stage[moment].set()


async def is_open(http: httpx.AsyncClient, session: dict[str, str]) -> bool:
    answer = await call_echo(http, session)
    if answer.status_code == 404:
        assert answer.headers[EXPIRED] == "evicted"
    return answer.status_code == 200


async def test_a_session_above_a_callers_limit_closes_their_longest_idle_one(clock: Clock) -> None:
    rig = build(clock=clock, max_sessions_per_caller=2)
    async with serving(rig.app) as url, http_client(url) as alice, http_client(url, BOB_KEY) as bob:
        of_bob, first, second = await open_session(bob), await open_session(alice), await open_session(alice)
        clock.now += 10
        assert await is_open(alice, first), "and used last"
        third = await open_session(alice)
        assert [await is_open(alice, each) for each in (first, second, third)] == [True, False, True]
        async with in_use(rig, alice, first, "noon"):
            fourth = await open_session(alice)
            assert [await is_open(alice, each) for each in (first, third, fourth)] == [True, False, True]
        assert await is_open(bob, of_bob)


async def test_a_session_nobody_finished_to_open_makes_room_before_any_other(clock: Clock) -> None:
    rig = build(clock=clock, max_sessions_per_caller=3)
    async with serving(rig.app) as url, http_client(url) as http:
        session = await open_session(http)
        clock.now += 1000
        for _ in range(20):
            assert (await http.post("/mcp", json=opening())).status_code == 200
            clock.now += 5
        assert await is_open(http, session)


async def test_sessions_that_are_opened_at_once_do_not_close_each_other(clock: Clock) -> None:
    rig = build(clock=clock, max_sessions_per_caller=3)
    async with serving(rig.app) as url, http_client(url) as http:
        old = [await open_session(http) for _ in range(3)]
        clock.now += 1000
        begun = [await http.post("/mcp", json=opening()) for _ in range(3)]
        headers = [
            session | {"mcp-session-id": answer.headers["mcp-session-id"]}
            for session, answer in zip(old, begun, strict=False)
        ]
        assert [await is_open(http, each) for each in headers] == [True] * 3


async def test_a_full_server_closes_a_session_of_whoever_has_the_most() -> None:
    rig = build(max_sessions=4, max_sessions_per_caller=10)
    async with serving(rig.app) as url, http_client(url) as alice, http_client(url, BOB_KEY) as bob:
        of_bob = await open_session(bob)
        of_alice = [await open_session(alice) for _ in range(20)]
        assert await is_open(bob, of_bob)
        assert [await is_open(alice, each) for each in of_alice[-3:]] == [True] * 3
        assert await is_open(bob, await open_session(bob))
        assert len(rig.sessions.open_sessions) == 4


async def test_when_no_session_is_idle_a_new_one_is_refused_until_one_is() -> None:
    rig = build(max_sessions=2, max_sessions_per_caller=1)
    async with serving(rig.app) as url, http_client(url) as alice, http_client(url, BOB_KEY) as bob:
        async with in_use(rig, alice, await open_session(alice), "noon"):
            refused = await alice.post("/mcp", json=opening())
            assert refused.status_code == 429
            assert int(refused.headers["retry-after"]) > 0
            data = refused.json()["error"]["data"]
            assert (data["code"], data["retryable"]) == ("TOO_MANY_SESSIONS", True)
            assert await is_open(bob, await open_session(bob))
        await open_session(alice)


async def test_when_every_session_of_the_server_is_in_use_a_new_one_is_refused_with_503() -> None:
    rig = build(max_sessions=1, max_sessions_per_caller=10)
    async with serving(rig.app) as url, http_client(url) as alice, http_client(url, BOB_KEY) as bob:
        async with in_use(rig, alice, await open_session(alice), "noon"):
            assert (await bob.post("/mcp", json=opening())).status_code == 503
        await open_session(bob)


async def test_delete_ends_a_session_and_what_is_under_way_in_it(rig: Rig, http: httpx.AsyncClient) -> None:
    session = await open_session(http)
    answers: list[httpx.Response] = []

    async def wait() -> None:
        answers.append(await http.post("/mcp", json=calling("wait_for", moment="dawn"), headers=session))

    async with anyio.create_task_group() as tasks, http.stream("GET", "/mcp", headers=session) as stream:
        tasks.start_soon(wait)
        await rig.stage.happens("dawn awaited")
        assert (await http.delete("/mcp", headers=session)).status_code == 200
        await rig.stage.happens("dawn abandoned")
        with anyio.fail_after(10):
            assert await stream.aread() == b""
    assert answers[0].json()["error"]["message"] == "Request cancelled"
    gone = await call_echo(http, session)
    assert gone.status_code == 404
    assert EXPIRED not in gone.headers, "it did not expire"
    assert (await http.delete("/mcp", headers=session)).status_code == 404


async def test_the_official_client_opens_one_session_and_ends_it_when_it_leaves(rig: Rig, address: str) -> None:
    def open_sessions() -> float:
        return gauge(rig.metrics.exposition().decode(), "armarium_sessions")

    async with official_client(f"{address}/mcp") as client:
        await client.list_tools()
        assert open_sessions() == 1
    assert open_sessions() == 0


async def test_a_question_to_the_client_ends_with_its_session(rig: Rig) -> None:
    async def unheard(message: Any) -> None:
        return

    session = await rig.sessions.start(rig.servers["/mcp"], ALICE, "caller")
    outcomes: list[int] = []

    async def ask() -> None:
        with pytest.raises(MCPError) as failure:
            await session.send_request(unheard, "roots/list", None, None)
        outcomes.append(failure.value.code)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(ask)
        await anyio.wait_all_tasks_blocked()
        await rig.sessions.end(session)
    assert outcomes == [-32000]


@pytest.mark.parametrize(
    ("said", "code"),
    [
        ({"error": {"code": -1, "message": "I would rather not"}}, -1),
        ({"error": "no"}, -32603),
        ({"error": {"code": "x"}}, -32603),
        ({"result": [1]}, -32603),
        ({}, -32603),
    ],
)
async def test_a_client_that_answers_a_question_with_nonsense_fails_that_question_alone(
    rig: Rig, said: dict[str, Any], code: int
) -> None:
    session = await rig.sessions.start(rig.servers["/mcp"], ALICE, "caller")

    async def answer_badly(message: dict[str, Any]) -> None:
        session.receive_response({"jsonrpc": "2.0", "id": "someone else's", "result": {}})
        session.receive_response({"jsonrpc": "2.0", "id": message["id"], **said})

    with pytest.raises(MCPError) as failure:
        await session.send_request(answer_badly, "roots/list", None, None)
    assert failure.value.code == code


async def test_a_question_that_is_not_answered_in_time_says_so(rig: Rig) -> None:
    async def unheard(message: Any) -> None:
        return

    session = await rig.sessions.start(rig.servers["/mcp"], BOB, "caller")
    with pytest.raises(MCPError, match="roots/list") as failure:
        await session.send_request(unheard, "roots/list", None, {"timeout": 0.01})
    assert failure.value.code == -32001


async def test_two_thousand_abandoned_sessions_are_evicted_and_nothing_of_them_is_kept(clock: Clock) -> None:
    rig = build(clock=clock, inactivity_timeout_s=0.4)

    def open_sessions() -> float:
        return gauge(rig.metrics.exposition().decode(), "armarium_sessions")

    async with rig.app.running():
        for _ in range(2000):
            await rig.sessions.start(rig.servers["/mcp"], ALICE, "caller")
        assert open_sessions() == 2000
        clock.now += 1
        await eventually(lambda: open_sessions() == 0)
        gc.collect()
        left = [kept for kept in gc.get_objects() if isinstance(kept, Session)]
        assert len(left) <= 1, "no more than the one the sweeper has just closed"


def test_memory_stays_flat_while_sessions_come_and_are_abandoned() -> None:
    headers = {"authorization": f"Bearer {ALICE_KEY}", "accept": "application/json"}
    with (
        ServerProcess(server_command("http", "--inactivity", "0.5")) as server,
        httpx.Client(base_url=server.url, headers=headers, timeout=20) as http,
    ):

        def abandon(sessions: int) -> None:
            for _ in range(sessions):
                assert http.post("/mcp", json=opening()).status_code == 200

        abandon(500)
        with server.peak_memory() as growth:
            abandon(2000)
        assert growth.bytes < 16 * 1024 * 1024, "a session costs a few kilobytes and is gone after half a second"


@pytest.mark.parametrize("where", ["capabilities", "name", "version", "protocol", "meta"])
async def test_a_handshake_of_any_length_is_answered_and_little_of_it_is_kept(
    rig: Rig, http: httpx.AsyncClient, where: str
) -> None:
    long = "x" * 200_000
    message = opening()
    params = message["params"]
    match where:
        case "capabilities":
            params["capabilities"] = {"experimental": {"a": {"b": long}}, "extensions": {"c": {"d": [[]] * 1000}}}
        case "name" | "version":
            params["clientInfo"][where] = long
        case "protocol":
            params["protocolVersion"] = long
        case _:
            params["_meta"] = {"a": long}
    answer = await http.post("/mcp", json=message)
    session = {"mcp-session-id": answer.headers["mcp-session-id"]}
    kept = rig.sessions.open_sessions[session["mcp-session-id"]].connection.client_params
    assert kept is not None
    assert len(kept.model_dump_json()) < 4096
    assert (await call_echo(http, session)).json()["result"]["structuredContent"] == {"text": "hi"}


async def test_what_a_client_says_of_itself_in_few_words_is_kept(rig: Rig, http: httpx.AsyncClient) -> None:
    answer = await http.post("/mcp", json=opening(sampling={}, experimental={"a": {"b": 1}}))
    kept = rig.sessions.open_sessions[answer.headers["mcp-session-id"]].connection.client_params
    assert kept is not None
    assert kept.capabilities.sampling is not None
    assert kept.capabilities.experimental == {"a": {"b": 1}}
