"""A whole server in the process of the test, and its JSON API over real HTTP."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
import httpx

from armarium.foundation.audit import AuditFilter, CallRecord, read_records
from armarium.foundation.security.authentication import open_authenticator
from armarium.foundation.security.identity import key_hash
from armarium.foundation.settings.loader import checked
from armarium.server import Server, open_server
from armarium.settings import Settings
from support.mcp_messages import serving
from support.waiting import eventually

Json = dict[str, Any]
DEADLINE_S = 60.0
STREAM = {"accept": "text/event-stream"}


@dataclass(frozen=True)
class ApiServer:
    """An open server and its address."""

    server: Server
    address: str
    state_dir: Path

    @asynccontextmanager
    async def client(self, user: str = "anna") -> AsyncGenerator[httpx.AsyncClient]:
        """The API for one of the users."""
        headers = {"authorization": f"Bearer key-of-{user}"}
        async with httpx.AsyncClient(base_url=f"{self.address}/api", headers=headers, timeout=DEADLINE_S) as http:
            yield http

    def calls(self, tool: str) -> list[CallRecord]:
        """The recorded calls of a tool."""
        return [record for _, record in read_records(self.state_dir / "audit.sqlite", AuditFilter(tool=tool), last=100)]


@asynccontextmanager
async def api_server(base: Path, **sections: Any) -> AsyncGenerator[ApiServer]:
    """Serve these sections of the settings to anna, ben and the guest, who is in no group."""
    groups = {"anna": ["users", "admin"], "ben": ["users"], "guest": []}
    keys = [
        {"username": user, "groups": of_user, "key_sha256": key_hash(f"key-of-{user}")}
        for user, of_user in groups.items()
    ]
    values = {
        "state_dir": str(base / "state"),
        "server": {"port": 0},
        "security": {"auth": "keys", "keys": keys},
        **sections,
    }
    settings = checked(Settings, values, source="the test")
    async with (
        open_server(settings, check_answers=True) as server,
        serving(server.http(open_authenticator(settings))) as address,
    ):
        yield ApiServer(server, address, base / "state")


async def until_indexed(http: httpx.AsyncClient) -> Json:
    """Wait until the whole corpus is indexed. Returns its status."""

    async def status() -> Json | None:
        found = (await http.get("/corpus/stats")).json()
        return found if found["indexing_complete"] else None

    found = await eventually(status, what="the corpus is indexed")
    assert found is not None
    return found


async def events_of(lines: AsyncIterator[str]) -> AsyncIterator[tuple[str, Json]]:
    """The events of a stream, until it ends."""
    name = ""
    async for line in lines:
        if line.startswith("event: "):
            name = line.removeprefix("event: ")
        elif line.startswith("data: "):
            yield name, json.loads(line.removeprefix("data: "))


async def streamed(http: httpx.AsyncClient, path: str, body: Json) -> list[tuple[str, Json]]:
    """All events of a streamed answer."""
    with anyio.fail_after(DEADLINE_S):
        async with http.stream("POST", path, json=body, headers=STREAM) as answer:
            assert answer.status_code == 200, await answer.aread()
            assert answer.headers["content-type"].startswith("text/event-stream")
            return [event async for event in events_of(answer.aiter_lines())]
