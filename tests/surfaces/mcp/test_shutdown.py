"""Stopping: calls in flight finish, streams end, nothing hangs, the exit code is 0."""

from __future__ import annotations

import signal
import socket
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import httpx
import pytest
from mcp.shared.exceptions import MCPError

from armarium.foundation.audit import AuditFilter, read_records
from support.mcp_messages import calling, http_client, official_client, open_session, server_command
from support.mcp_test_server import ALICE_KEY
from support.server import ServerProcess
from support.waiting import eventually

LONG_GRACE_S = 100.0
"""A server that ends earlier did not wait for its grace period, however busy the machine is."""
PROMISED_S = 60.0

pytestmark = pytest.mark.alone


class Stoppable(ServerProcess):
    """A server that is told to stop and watched while it does."""

    def signal(self, number: signal.Signals) -> None:
        """Tell it."""
        self._process.send_signal(number)

    async def ended(self) -> tuple[int, float]:
        """Its exit code, and how long it took from now."""
        since = time.monotonic()
        code = await anyio.to_thread.run_sync(self._process.wait, 110)
        return code, time.monotonic() - since


@asynccontextmanager
async def running(*options: str) -> AsyncGenerator[tuple[Stoppable, httpx.AsyncClient, dict[str, str]]]:
    """A server in a process of its own, Alice's connection to it, and her session."""
    with Stoppable(server_command("http", *options)) as server:
        async with http_client(server.url) as client:
            yield server, client, await open_session(client)


async def begun(client: httpx.AsyncClient, session: dict[str, str], moment: str) -> None:
    """Wait until a call has begun, as it says itself."""
    answer = await client.post("/mcp", json=calling("wait_for", id="b", moment=moment), headers=session)
    assert answer.json()["result"]["structuredContent"] == {"text": moment}


def refuses_connections(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except ConnectionRefusedError:
        return True
    return False


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_on_a_signal_calls_in_flight_finish_and_streams_end_and_the_exit_code_is_0(
    number: signal.Signals, tmp_path: Path
) -> None:
    trail = tmp_path / "audit.sqlite"
    answers: list[httpx.Response] = []
    async with running("--grace", f"{LONG_GRACE_S:g}", "--audit", str(trail)) as (server, client, session):

        async def stay() -> None:
            call = calling("linger", moment="inside", seconds=1.0)
            answers.append(await client.post("/mcp", json=call, headers=session))

        async with client.stream("GET", "/mcp", headers=session) as stream, anyio.create_task_group() as tasks:
            tasks.start_soon(stay)
            await begun(client, session, "inside")
            server.signal(number)
            code, took_s = await server.ended()
            assert await stream.aread() == b"", "the stream ended in good order"
    assert answers[0].json()["result"]["structuredContent"] == {"text": "stayed"}
    assert code == 0
    assert 0.5 < took_s < LONG_GRACE_S, "the stream did not hold it up until the end of the grace period"
    assert server.other_output == []
    assert [line["msg"] for line in server.log if line["level"] != "INFO"] == []
    assert {record.tool for _, record in read_records(trail, AuditFilter(), last=9)} == {"linger", "wait_for"}


async def test_an_idle_server_stops_at_once() -> None:
    async with running("--grace", f"{LONG_GRACE_S:g}") as (server, _, _):
        server.signal(signal.SIGTERM)
        code, took_s = await server.ended()
    assert code == 0
    assert took_s < LONG_GRACE_S


@pytest.mark.parametrize(("tool", "grace"), [("wait_for", "1"), ("work_until", "1"), ("wait_for", "0")])
async def test_a_call_that_does_not_end_is_cut_short_told_so_and_on_record(
    tool: str, grace: str, tmp_path: Path
) -> None:
    trail = tmp_path / "audit.sqlite"
    answers: list[httpx.Response] = []
    async with running("--grace", grace, "--audit", str(trail)) as (server, client, session):

        async def hang() -> None:
            answers.append(await client.post("/mcp", json=calling(tool, moment="never"), headers=session))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(hang)
            await begun(client, session, "never awaited" if tool == "wait_for" else "never begun")
            server.signal(signal.SIGTERM)
            code, took_s = await server.ended()
    assert code == 0
    if grace != "0":
        assert took_s > 0.5, "the call had time to end"
    assert answers[0].json()["error"]["message"] == "Request cancelled"
    records = [record for _, record in read_records(trail, AuditFilter(), last=9)]
    assert (records[-1].tool, records[-1].path, records[-1].outcome) == (tool, None, "error")


async def test_a_call_without_a_session_that_does_not_end_is_cut_short_as_well(tmp_path: Path) -> None:
    trail = tmp_path / "audit.sqlite"
    async with running("--grace", "1", "--audit", str(trail)) as (server, client, session):
        failures: list[Any] = []

        async def hang() -> None:
            async with official_client(f"{server.url}/mcp", mode="2026-07-28") as other:
                with pytest.raises(MCPError) as failure:
                    await other.call_tool("wait_for", {"moment": "never"})
                failures.append(failure.value)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(hang)
            await begun(client, session, "never awaited")
            server.signal(signal.SIGTERM)
            code, _ = await server.ended()
    assert code == 0
    assert len(failures) == 1
    records = [record for _, record in read_records(trail, AuditFilter(), last=9)]
    assert (records[-1].tool, records[-1].outcome) == ("wait_for", "error")


async def test_a_second_signal_waits_for_nobody() -> None:
    async with running("--grace", f"{LONG_GRACE_S:g}") as (server, client, session):

        async def hang() -> None:
            answer = await client.post("/mcp", json=calling("wait_for", moment="never"), headers=session)
            assert answer.status_code == 500

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(hang)
            await begun(client, session, "never awaited")
            server.signal(signal.SIGTERM)
            await eventually(lambda: refuses_connections(server.port))
            server.signal(signal.SIGTERM)
            code, took_s = await server.ended()
    assert code == 0
    assert took_s < LONG_GRACE_S


async def test_a_request_that_never_arrives_whole_does_not_hold_the_server_up() -> None:
    async with running("--grace", "1") as (server, _, _):
        head = f"POST /mcp HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {ALICE_KEY}\r\n"
        halves = [head.encode(), (head + "Content-Type: application/json\r\nContent-Length: 9\r\n\r\n{").encode()]
        streams = [socket.create_connection(("127.0.0.1", server.port)) for _ in halves]
        for stream, half in zip(streams, halves, strict=True):
            stream.sendall(half)
        server.signal(signal.SIGTERM)
        code, _ = await server.ended()
        for stream in streams:
            stream.close()
    assert code == 0


async def test_a_trace_collector_that_is_away_does_not_hold_the_server_up() -> None:
    async with running("--otlp", "http://127.0.0.1:9/v1/traces") as (server, client, session):
        for _ in range(20):
            await client.post("/mcp", json=calling("echo", text="hi"), headers=session)
        server.signal(signal.SIGTERM)
        code, took_s = await server.ended()
    assert code == 0
    assert took_s < PROMISED_S
