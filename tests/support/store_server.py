"""Servers with a store, each a process of its own, their callers, and a look at what their database holds."""

from __future__ import annotations

import json
import secrets
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import asyncpg
import httpx

from armarium.capabilities.store.postgres.cluster import DATABASE, ROLE
from armarium.capabilities.store.postgres.home import Home
from armarium.foundation.security.identity import key_hash
from support.client import ToolClient
from support.server import START_DEADLINE_S, ServerProcess, installed_command, write_config

DEADLINE_S = 60.0
Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class StoreUser:
    """A caller with a key, and so a tenant."""

    username: str
    key: str = field(default_factory=lambda: f"sk-{secrets.token_urlsafe(24)}")

    @property
    def tenant(self) -> str:
        return key_hash(self.key)


def store_config(directory: Path, store: Mapping[str, Any], users: Sequence[StoreUser]) -> Path:
    """The file of settings of a server that keeps its state in the directory."""
    keys = [{"username": user.username, "groups": ["metrics"], "key_sha256": user.tenant} for user in users]
    return write_config(
        directory,
        {
            "state_dir": str(directory / "state"),
            "server": {"port": 0},
            "security": {"auth": "keys", "keys": keys},
            "store": dict(store),
        },
    )


def start_store(directory: Path, store: Mapping[str, Any], users: Sequence[StoreUser]) -> ServerProcess:
    """`armarium serve` with these settings, on a free port."""
    directory.mkdir(exist_ok=True, parents=True)
    return ServerProcess(
        [installed_command("armarium"), "serve", "--config", str(store_config(directory, store, users))]
    )


class WorkerProcess(ServerProcess):
    """`armarium store worker`, which indexes and does not listen."""

    def _wait_until_ready(self) -> None:
        self.wait_for_log(lambda line: line.get("msg") == "indexing", deadline_s=START_DEADLINE_S)


def start_worker(directory: Path, store: Mapping[str, Any]) -> WorkerProcess:
    """A worker with these settings."""
    directory.mkdir(exist_ok=True, parents=True)
    file = store_config(directory, store, [StoreUser("nobody")])
    return WorkerProcess([installed_command("armarium"), "store", "worker", "--config", str(file)])


def embedded_dsn(data_dir: Path) -> str:
    """The address of the database that servers started in the directory."""
    return f"postgresql://{ROLE}@/{DATABASE}?host={Home(data_dir).socket_directory()}"


@asynccontextmanager
async def looking_into(dsn: str, tenant: str = "*") -> AsyncGenerator[asyncpg.Connection]:
    """A connection beside the servers', which sees the rows of one tenant, or of all."""
    connection = await asyncpg.connect(dsn, timeout=int(DEADLINE_S), server_settings={"armarium.tenant": tenant})
    try:
        yield connection
    finally:
        connection.terminate()


async def refusal(client: ToolClient, tool: str, /, **arguments: Any) -> Json:
    """What a call that must fail answers: exactly the contract's envelope, and the same for who reads only text."""
    result = await client.result(tool, arguments)
    assert result.is_error is True, f"{tool} should have failed, but answered {result.structured_content}"
    envelope = result.structured_content
    assert isinstance(envelope, dict)
    assert set(envelope) - {"retry_after_ms"} == {"code", "message", "retryable"}
    assert isinstance(envelope["retryable"], bool)
    [text] = result.model_dump()["content"]
    assert json.loads(text["text"]).items() >= envelope.items()
    return envelope


def metrics_of(server: ServerProcess, user: StoreUser) -> str:
    """The page of metrics."""
    answer = httpx.get(f"{server.url}/metrics", headers={"authorization": f"Bearer {user.key}"}, timeout=DEADLINE_S)
    assert answer.status_code == 200, answer.text
    return answer.text


def metric(page: str, name: str) -> float:
    """The value of a metric, with its labels as the page writes them."""
    values = [line.rpartition(" ")[2] for line in page.splitlines() if line.rpartition(" ")[0] == name]
    assert len(values) == 1, f"{name} stands there {len(values)} times"
    return float(values[0])


class ServerLost(Exception):
    """The connection broke: whether the call was carried out is not known."""


class QuickClient:
    """Calls tools over HTTP by hand, so that a server which dies in the middle of a call is told at once."""

    def __init__(self, http: httpx.AsyncClient, session: str) -> None:
        self._http = http
        self._headers = {"mcp-session-id": session}

    @classmethod
    @asynccontextmanager
    async def opened(cls, url: str, key: str) -> AsyncGenerator[Self]:
        """A session with the server; raises `ServerLost` when there is no server."""
        headers = {"accept": "application/json, text/event-stream", "authorization": f"Bearer {key}"}
        identity = {"name": "by-hand", "version": "0"}
        params = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": identity}
        async with httpx.AsyncClient(base_url=url, headers=headers, timeout=DEADLINE_S, verify=False) as http:
            try:
                request = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params}
                answer = await http.post("/mcp", json=request)
                client = cls(http, answer.headers["mcp-session-id"])
                ready = {"jsonrpc": "2.0", "method": "notifications/initialized"}
                await http.post("/mcp", json=ready, headers=client._headers)
            except httpx.TransportError as error:
                raise ServerLost from error
            yield client

    async def result(self, tool: str, /, **arguments: Any) -> Json:
        """The answer of a tool, whatever it is: structured, with `code` when it is a refusal."""
        params = {"name": tool, "arguments": arguments}
        request = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
        try:
            answer = await self._http.post("/mcp", json=request, headers=self._headers)
        except httpx.TransportError as error:
            raise ServerLost from error
        assert answer.status_code == 200, answer.text
        result = json.loads(answer.text)["result"]
        assert result.get("isError", False) is ("code" in result["structuredContent"])
        return result["structuredContent"]

    async def call(self, tool: str, /, **arguments: Any) -> Json:
        """The answer of a call that must succeed."""
        answer = await self.result(tool, **arguments)
        assert "code" not in answer, f"{tool} failed: {answer}"
        return answer
