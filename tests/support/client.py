"""The official MCP client for tests: calls that must succeed, and calls that must fail."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncGenerator, Generator, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import Any, Self

import httpx
import httpx2
import mcp
import mcp_types as types
from mcp.client.streamable_http import streamable_http_client

CONTRACT_PROTOCOL = "legacy"
"""The handshake that ends at protocol 2025-11-25, the version the contracts target."""

CALL_DEADLINE_S = 60.0

_SNAKE_CASE = re.compile(r"[a-z][a-z0-9]*(_[a-z0-9]+)*")


class ToolClient:
    """Calls tools, and checks what must hold for every answer."""

    def __init__(self, client: mcp.Client, never_said: Sequence[str]) -> None:
        self.mcp = client
        self._never_said = never_said

    async def call(self, tool: str, /, **arguments: Any) -> dict[str, Any]:
        """The structured answer of a call that must succeed."""
        result = await self.result(tool, arguments)
        assert not result.is_error, f"{tool} failed: {result.structured_content}"
        require_the_same_as_text(result)
        return result.structured_content

    async def fails(self, tool: str, /, **arguments: Any) -> dict[str, Any]:
        """The error of a call that must not succeed."""
        result = await self.result(tool, arguments)
        assert result.is_error, f"{tool} should have failed, but answered {result.structured_content}"
        error = result.structured_content["error"]
        (text,) = texts_of(result)
        assert text.startswith(error["message"])
        return error

    async def result(self, tool: str, arguments: dict[str, Any]) -> types.CallToolResult:
        """The result of a call, successful or not."""
        result = await self.mcp.call_tool(tool, arguments, read_timeout_seconds=CALL_DEADLINE_S)
        assert isinstance(result.structured_content, dict), "every answer is structured"
        require_snake_case(result.structured_content)
        require_silence_about(self._never_said, result.model_dump_json())
        return result


def texts_of(result: types.CallToolResult) -> list[str]:
    """The text blocks of a result, which are all it has."""
    blocks: list[str] = []
    for content in result.content:
        assert isinstance(content, types.TextContent)
        blocks.append(content.text)
    return blocks


def require_the_same_as_text(result: types.CallToolResult) -> None:
    """The text content equals the structured content: JSON, preceded by the plain file content if there is one."""
    *content, facts = texts_of(result)
    told = json.loads(facts)
    if isinstance(told, list):  # list_roots: an array, which structured content cannot be
        told = {"roots": told, "count": len(told)}
    if content:
        (told["content"],) = content
    assert told == result.structured_content


def require_snake_case(value: object) -> None:
    """Every key, at every depth, is snake_case."""
    if isinstance(value, dict):
        for key, inner in value.items():
            assert _SNAKE_CASE.fullmatch(key), f"{key!r} is not snake_case"
            require_snake_case(inner)
    elif isinstance(value, list):
        for inner in value:
            require_snake_case(inner)


def require_silence_about(secrets: Sequence[str], text: str) -> None:
    """None of the secrets is in the text."""
    for secret in ("Traceback", *secrets):
        assert secret not in text, f"an answer contains {secret!r}"


@asynccontextmanager
async def connected(
    url: str, *, never_said: Sequence[str] = (), protocol: str = CONTRACT_PROTOCOL, key: str | None = None
) -> AsyncGenerator[ToolClient]:
    """A client session with the server at the address."""
    headers = {"authorization": f"Bearer {key}"} if key else {}
    # The connection is not encrypted, and loading certificates would take longer than most tests.
    async with httpx2.AsyncClient(headers=headers, timeout=CALL_DEADLINE_S, verify=False) as http:
        transport = streamable_http_client(f"{url}/mcp", http_client=http)
        async with mcp.Client(transport, mode=protocol) as client:
            yield ToolClient(client, never_said)


class RawSession:
    """An MCP session over plain HTTP, for requests that no official client sends."""

    def __init__(self, http: httpx.Client, session_id: str) -> None:
        self._http = http
        self._headers = {"mcp-session-id": session_id}

    @classmethod
    @contextmanager
    def opened(cls, url: str, *, key: str | None = None) -> Generator[Self]:
        """A session, initialised as the protocol asks."""
        headers = {"accept": "application/json, text/event-stream", "content-type": "application/json"}
        if key is not None:
            headers["authorization"] = f"Bearer {key}"
        with httpx.Client(base_url=url, headers=headers, timeout=CALL_DEADLINE_S) as http:
            opening = {
                "protocolVersion": "2025-11-25",
                "capabilities": {},
                "clientInfo": {"name": "by-hand", "version": "0"},
            }
            request = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": opening}
            answer = http.post("/mcp", json=request)
            assert answer.status_code == 200, answer.text
            session = cls(http, answer.headers["mcp-session-id"])
            done = http.post(
                "/mcp", json={"jsonrpc": "2.0", "method": "notifications/initialized"}, headers=session._headers
            )
            assert done.status_code == 202, f"{done.status_code} {done.text}"
            yield session

    def post(self, body: bytes) -> httpx.Response:
        """Send exactly these bytes."""
        return self._http.post("/mcp", content=body, headers=self._headers)

    def call(self, tool: str, arguments_json: str) -> httpx.Response:
        """Call a tool with arguments written as JSON by the test itself."""
        name = json.dumps(tool)
        body = (
            f'{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{{"name":{name},"arguments":{arguments_json}}}}}'
        )
        return self.post(body.encode())
