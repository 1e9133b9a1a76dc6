"""MCP over standard input and output, as seen by a client that starts the server."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import anyio.abc
import mcp
import pytest
from anyio.streams.buffered import BufferedByteReceiveStream
from mcp.client.stdio import StdioServerParameters

from support.mcp_messages import DEADLINE_S, calling, opening, request, server_command
from support.waiting import eventually

MAX_BYTES = 300_000


class Child:
    """The server as our child process, spoken to line by line."""

    def __init__(self, process: anyio.abc.Process, log: Path) -> None:
        self.process = process
        self._log = log
        assert process.stdout is not None
        self._lines = BufferedByteReceiveStream(process.stdout)

    async def write(self, data: bytes) -> None:
        """Send these very bytes."""
        assert self.process.stdin is not None
        await self.process.stdin.send(data)

    async def send(self, *messages: dict[str, Any]) -> None:
        """Send messages, one a line."""
        for message in messages:
            await self.write(json.dumps(message).encode() + b"\n")

    async def receive(self) -> dict[str, Any]:
        """The next message; every line must be one."""
        with anyio.fail_after(DEADLINE_S):
            line = await self._lines.receive_until(b"\n", 64 * 1024 * 1024)
        message = json.loads(line)
        assert message["jsonrpc"] == "2.0"
        return message

    async def answers(self, count: int) -> dict[Any, dict[str, Any]]:
        """The next messages by their ids."""
        messages = [await self.receive() for _ in range(count)]
        return {message["id"]: message for message in messages}

    async def leave(self) -> int:
        """Close its standard input and wait for its end."""
        assert self.process.stdin is not None
        await self.process.stdin.aclose()
        with anyio.fail_after(DEADLINE_S):
            return await self.process.wait()

    def log(self) -> str:
        """What it wrote to standard error."""
        return self._log.read_text()


def sessionless(message: dict[str, Any]) -> dict[str, Any]:
    """The request as clients word it from 2026-07-28 on."""
    meta = {"io.modelcontextprotocol/protocolVersion": "2026-07-28", "io.modelcontextprotocol/clientCapabilities": {}}
    return message | {"params": message["params"] | {"_meta": meta}}


@asynccontextmanager
async def child(tmp_path: Path, *options: str, handshake: bool = True) -> AsyncGenerator[Child]:
    """A started server, past the handshake if there is one."""
    log = tmp_path / "log"
    command = server_command("stdio", "--max-bytes", str(MAX_BYTES), *options)
    with log.open("wb") as errors:
        async with await anyio.open_process(command, stderr=errors) as process:
            try:
                server = Child(process, log)
                if handshake:
                    await server.send(opening(), {"jsonrpc": "2.0", "method": "notifications/initialized"})
                    assert (await server.receive())["result"]["protocolVersion"] == "2025-11-25"
                yield server
            finally:
                if process.returncode is None:
                    process.kill()


@pytest.fixture(scope="module")
async def server(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Child]:
    """One that all tests speak to which leave it as it was; it must have survived them."""
    async with child(tmp_path_factory.mktemp("shared")) as started:
        yield started
        assert await started.leave() == 0


@pytest.fixture
async def own_server(tmp_path: Path) -> AsyncGenerator[Child]:
    """One for a test that ends it."""
    async with child(tmp_path) as started:
        yield started


@pytest.mark.parametrize("mode", ["legacy", "auto", "2026-07-28"])
async def test_the_official_client_lists_and_calls_tools(mode: str) -> None:
    program, *arguments = server_command("stdio")
    started = StdioServerParameters(command=program, args=arguments)
    async with mcp.Client(started, mode=mode, read_timeout_seconds=DEADLINE_S) as client:
        assert {"echo", "answer"} <= {tool.name for tool in (await client.list_tools()).tools}
        result = await client.call_tool("whoami", {})
        assert result.structured_content["username"] == "local"
        assert "credential_sha256" not in result.structured_content
        failed = await client.call_tool("echo", {"text": 1})
        assert failed.structured_content["error"]["code"] == "INVALID_ARGUMENT"


async def test_an_unpaired_surrogate_is_refused_under_the_id_of_its_request(server: Child) -> None:
    await server.send(calling("echo", id="cut", text="half \ud83d"), calling("echo", id="whole", text="\U0001f600"))
    answers = await server.answers(2)
    assert answers["cut"]["result"]["structuredContent"]["error"]["details"] == {"field": "text"}
    assert answers["whole"]["result"]["structuredContent"] == {"text": "\U0001f600"}


async def test_a_crash_leaks_nothing_over_stdio_either(server: Child) -> None:
    await server.send(calling("crash"))
    answer = await server.receive()
    assert answer["result"]["structuredContent"]["error"]["code"] == "INTERNAL"
    assert "hunter2" not in json.dumps(answer)
    assert answer["result"]["structuredContent"]["error"]["details"]["incident"] in server.log()


async def test_an_unknown_tool_is_an_error_of_the_protocol(server: Child) -> None:
    await server.send(calling("no_such_tool"))
    assert (await server.receive())["error"]["code"] == -32602


@pytest.mark.parametrize(
    ("line", "code"),
    [
        (b"hello\n", -32700),
        (b'{"jsonrpc": "2.0", "id": 1\n', -32700),
        (b"\xff\xfe\x00\n", -32700),
        (b'["a batch"]\n', -32600),
        (b'{"jsonrpc": "1.0", "id": 1, "method": "ping"}\n', -32600),
        (b"7\n", -32600),
    ],
)
async def test_a_line_that_is_no_message_is_complained_about_and_survived(
    server: Child, line: bytes, code: int
) -> None:
    await server.write(line)
    complaint = await server.receive()
    assert (complaint["id"], complaint["error"]["code"]) == (None, code)
    await server.send(calling("echo", text="still here"))
    assert (await server.receive())["result"]["structuredContent"] == {"text": "still here"}


async def test_empty_lines_are_nothing(server: Child) -> None:
    await server.write(b"\n\r\n  \n")
    await server.send(calling("echo", text="hi"))
    assert (await server.receive())["id"] == 1


async def test_a_line_that_is_too_long_is_skipped_to_its_end_and_no_further(server: Child) -> None:
    smuggled = json.dumps(calling("echo", id="smuggled", text="x")).encode()
    for length in (MAX_BYTES + 1, 5 * MAX_BYTES + 17):
        await server.write(b'{"jsonrpc":"2.0","id":9,"method":"' + b"x" * length + smuggled + b"\n")
        complaint = await server.receive()
        assert complaint["error"]["message"] == "the message is too long"
        await server.send(calling("echo", id=length, text="hi"))
        assert (await server.receive())["id"] == length


async def test_a_long_line_below_the_limit_is_read(server: Child) -> None:
    await server.send(calling("keep", path="a", content="x" * (MAX_BYTES - 1000)))
    assert (await server.receive())["result"]["structuredContent"] == {"size": MAX_BYTES - 1000}


async def test_answers_of_megabytes_arrive_whole_and_one_after_the_other(server: Child) -> None:
    await server.send(*(calling("fill", id=number, size=1_000_000 + number) for number in range(5)))
    answers = await server.answers(5)
    for number in range(5):
        assert len(answers[number]["result"]["structuredContent"]["text"]) == 1_000_000 + number


async def test_calls_run_at_the_same_time_and_answer_when_they_are_done(server: Child) -> None:
    await server.send(
        calling("wait_for", id="first", moment="noon"),
        calling("wait_for", id="second", moment="noon awaited"),
        calling("echo", id="third", text="hi"),
    )
    assert set(await server.answers(2)) == {"second", "third"}
    await server.send(calling("reach", id="fourth", moment="noon"))
    assert set(await server.answers(2)) == {"first", "fourth"}


async def test_a_cancelled_request_is_stopped_and_not_answered(server: Child) -> None:
    await server.send(calling("work_until", id=5, moment="cancelled"))
    await server.send(calling("wait_for", id=6, moment="cancelled begun"))
    assert (await server.receive())["id"] == 6
    await server.send({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 5}})
    await server.send(calling("wait_for", id=7, moment="cancelled stopped"))
    assert (await server.receive())["id"] == 7


@pytest.mark.parametrize("era", ["with a session", "without"])
async def test_a_call_cancelled_while_its_answer_is_on_the_way_leaves_no_half_line(era: str, tmp_path: Path) -> None:
    worded = sessionless if era == "without" else lambda message: message
    async with child(tmp_path, handshake=era != "without") as server:
        # Larger than the pipe, and nobody reads yet: the answer is stuck half way when it is cancelled.
        await server.send(worded(calling("fill", id=1, size=3_000_000)))
        await eventually(lambda: '"tool":"fill"' in server.log())
        await server.send(worded(calling("linger", id=2, moment="m", seconds=0.3)))
        await server.send({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}})
        await server.send(worded(calling("wait_for", id=3, moment="m")))
        await eventually(lambda: '"tool":"wait_for"' in server.log())
        seen = await server.answers(3)
        assert set(seen) == {1, 2, 3}, "what had begun was sent to its end"
        assert len(seen[1]["result"]["structuredContent"]["text"]) == 3_000_000
        assert await server.leave() == 0


async def test_what_is_printed_by_mistake_does_not_end_up_in_the_protocol(server: Child) -> None:
    await server.send(calling("shout", text="boo!"))
    assert (await server.receive())["result"]["structuredContent"] == {"text": "boo!"}
    await server.send(request("ping", id=2))
    assert (await server.receive())["result"] == {}
    assert server.log().count("boo!") >= 2


async def test_progress_is_told_over_stdio(server: Child) -> None:
    await server.send(calling("work_until", id=1, token="mine", moment="enough"))
    told = [await server.receive() for _ in range(2)]
    assert [message["params"]["progressToken"] for message in told] == ["mine", "mine"]
    assert told[0]["params"]["progress"] < told[1]["params"]["progress"]
    await server.send(calling("reach", id=2, moment="enough"))
    seen: set[Any] = set()
    while seen != {1, 2}:
        message = await server.receive()
        if "id" in message:
            seen.add(message["id"])


async def test_a_client_with_a_session_is_told_that_its_tools_have_changed(tmp_path: Path) -> None:
    async with child(tmp_path, "--tool-provider") as server:
        await server.send(calling("stock", id=1, name="all.say"))
        told = [await server.receive() for _ in range(2)]
        assert {"jsonrpc": "2.0", "method": "notifications/tools/list_changed"} in told
        await server.send(calling("all.say", id=2, word="tea"))
        assert (await server.receive())["result"]["structuredContent"] == {"given": {"word": "tea"}}
        assert await server.leave() == 0


async def test_nothing_is_told_before_the_end_of_the_handshake(tmp_path: Path) -> None:
    async with child(tmp_path, "--tool-provider", handshake=False) as server:
        await server.send(opening())
        assert (await server.receive())["result"]["capabilities"]["tools"] == {"listChanged": True}
        await server.send(calling("stock", id=1, name="all.say"))
        assert (await server.receive())["id"] == 1
        await server.send({"jsonrpc": "2.0", "method": "notifications/initialized"})
        assert (await server.receive())["method"] == "notifications/tools/list_changed"


async def test_a_client_without_a_session_subscribes_to_changes(tmp_path: Path) -> None:
    async with child(tmp_path, "--tool-provider", handshake=False) as server:
        wish = request("subscriptions/listen", {"notifications": {"toolsListChanged": True}}, id="listen")
        await server.send(sessionless(wish))
        assert (await server.receive())["method"] == "notifications/subscriptions/acknowledged"
        await server.send(sessionless(calling("stock", id=1, name="all.say")))
        told = [await server.receive() for _ in range(2)]
        assert {message.get("method", message.get("id")) for message in told} == {
            "notifications/tools/list_changed",
            1,
        }
        assert await server.leave() == 0
        ending = await server.receive()
        assert (ending["id"], "result" in ending) == ("listen", True), "the subscription has a final response"


async def test_when_the_client_leaves_the_server_exits_with_0(own_server: Child) -> None:
    assert await own_server.leave() == 0


async def test_a_client_that_leaves_at_once_is_no_error() -> None:
    command = server_command("stdio")
    ended = await anyio.run_process(command, input=b"", check=False)
    assert (ended.returncode, ended.stdout) == (0, b"")


async def test_requests_that_came_before_the_client_left_are_answered() -> None:
    messages = [opening(), *(calling("echo", id=number, text="hi") for number in range(5))]
    lines = b"\n".join(json.dumps(message).encode() for message in messages)  # and no newline at the end
    ended = await anyio.run_process(server_command("stdio"), input=lines, check=True)
    answers = [json.loads(line) for line in ended.stdout.splitlines()]
    assert [answer["id"] for answer in answers] == ["opening", 0, 1, 2, 3, 4]
    assert all("result" in answer for answer in answers)


async def test_a_call_that_does_not_end_does_not_keep_the_server_after_the_client_left(own_server: Child) -> None:
    await own_server.send(calling("work_until", id=1, moment="never"), calling("wait_for", id=2, moment="never begun"))
    assert (await own_server.receive())["id"] == 2
    with anyio.fail_after(10):
        assert await own_server.leave() == 0


async def test_a_client_that_stops_reading_does_not_keep_the_server_either(own_server: Child) -> None:
    await own_server.send(calling("fill", id=1, size=8_000_000), calling("echo", id=2, text="hi"))
    with anyio.fail_after(15):
        assert await own_server.leave() == 0


async def test_a_client_that_vanished_is_no_error(tmp_path: Path) -> None:
    async with child(tmp_path) as server:
        assert server.process.stdout is not None
        await server.process.stdout.aclose()
        await server.send(calling("fill", size=1_000_000))
        assert await server.leave() == 0
        assert "Traceback" not in server.log()


async def test_every_call_over_stdio_is_in_the_log_as_the_local_callers(server: Child) -> None:
    await server.send(calling("echo", text="hi", times=77))
    await server.receive()

    def lines() -> list[str]:
        return [line for line in server.log().splitlines() if '"times":77' in line]

    await eventually(lambda: len(lines()) == 1)
    line = json.loads(lines()[0])
    assert (line["msg"], line["surface"], line["principal"], line["tool"]) == ("call", "stdio", "local", "echo")


async def test_a_client_of_the_new_protocol_that_sends_nonsense_is_survived() -> None:
    call = sessionless(calling("echo", id="new", text="hi"))
    messages = [call, {"jsonrpc": "2.0", "id": 9}, {"jsonrpc": "2.0", "id": 9, "result": 1}, call | {"id": "again"}]
    lines = b"".join(json.dumps(message).encode() + b"\n" for message in messages)
    ended = await anyio.run_process(server_command("stdio"), input=lines + b"hello\n", check=True)
    answers = {message["id"]: message for message in map(json.loads, ended.stdout.splitlines())}
    assert answers["new"]["result"]["structuredContent"] == {"text": "hi"}
    assert "result" in answers["again"]
    assert answers[None]["error"]["code"] == -32700


async def test_requests_may_come_from_a_file(tmp_path: Path) -> None:
    requests = tmp_path / "requests.jsonl"
    requests.write_text(json.dumps(opening()) + "\n" + json.dumps(calling("echo", text="hi")) + "\n")
    with requests.open("rb") as file:
        ended = await anyio.run_process(server_command("stdio"), stdin=file, check=True)
    assert [json.loads(line)["id"] for line in ended.stdout.splitlines()] == ["opening", 1]


async def test_a_signal_ends_the_server_as_if_the_client_had_left(tmp_path: Path) -> None:
    async with child(tmp_path) as server:
        server.process.terminate()
        with anyio.fail_after(DEADLINE_S):
            assert await server.process.wait() == 0


def test_a_terminal_shared_with_the_server_is_left_as_it_was() -> None:
    look = (
        "import os, subprocess, sys; subprocess.run(sys.argv[1:], check=True); os.write(2, b'%d' % os.get_blocking(1))"
    )
    command = [sys.executable, "-c", look, *server_command("stdio")]
    ended = subprocess.run(command, input=b"\n", capture_output=True, timeout=DEADLINE_S, check=True)
    assert ended.stderr.endswith(b"1")
