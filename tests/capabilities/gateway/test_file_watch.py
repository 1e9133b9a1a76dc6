"""The configuration files are watched: changes on disk are applied once, and changes through the API not again."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio

from armarium.capabilities.gateway.admin.service import Administration, PutServerArgs
from armarium.capabilities.gateway.servers.live_servers import LiveServers
from armarium.capabilities.gateway.upstreams.types import UpstreamLimits
from armarium.capabilities.gateway.upstreams.upstream_set import UpstreamSet
from armarium.foundation.events import Events, PublicEvent
from armarium.foundation.tools import Call
from support.rag_fakes import ANNA
from support.waiting import eventually

ENTRY = {"command": "never-started", "enabled": False}


class CountedServers(LiveServers):
    """Counts how often the files are checked."""

    checks = 0

    def signature(self) -> tuple[tuple[int, int, int] | None, ...]:
        self.checks += 1
        return super().signature()


class Watched:
    """Servers of a directory whose files are watched, and the events published."""

    def __init__(self, config_dir: Path, upstreams: UpstreamSet) -> None:
        events = Events()
        self.published: list[str] = []
        events.subscribe(PublicEvent, self._note)
        pauses = {"check_s": 0.01, "settle_s": 0.01}
        self.servers = CountedServers(config_dir, upstreams, events, admin_group="admin", **pauses)

    async def _note(self, event: PublicEvent) -> None:
        self.published.append(event.name)

    async def checked_again(self) -> None:
        """Wait until the watcher must have noticed any change."""
        checks = self.servers.checks
        await eventually(lambda: self.servers.checks >= checks + 6)


@asynccontextmanager
async def watched(config_dir: Path) -> AsyncGenerator[Watched]:
    async with UpstreamSet(UpstreamLimits()) as upstreams, anyio.create_task_group() as tasks:
        watcher = Watched(config_dir, upstreams)
        await watcher.servers.reload()
        watcher.published.clear()
        tasks.start_soon(watcher.servers.watch)
        yield watcher
        tasks.cancel_scope.cancel()


async def test_a_change_by_an_administrator_is_published_once(tmp_path: Path) -> None:
    async with watched(tmp_path) as watcher:
        administration = Administration(watcher.servers, [ENTRY["command"]])
        for number in (1, 2):
            entry = ENTRY | {"description": f"number {number}"}
            await administration.put_server(Call(ANNA), PutServerArgs(server="one", kind="generic", entry=entry))
            await watcher.checked_again()
            assert watcher.published.count("server_registry_updated") == number


async def test_a_change_of_a_file_is_published_once(tmp_path: Path) -> None:
    file = tmp_path / "overrides" / "mcp.json"
    file.parent.mkdir()
    async with watched(tmp_path) as watcher:
        file.write_text(json.dumps({"one": ENTRY}))
        await eventually(lambda: "one" in watcher.servers.config.servers)
        await watcher.checked_again()
        assert watcher.published.count("server_registry_updated") == 1


async def test_an_invalid_file_is_published_once(tmp_path: Path) -> None:
    file = tmp_path / "overrides" / "mcp.json"
    file.parent.mkdir()
    async with watched(tmp_path) as watcher:
        file.write_text(json.dumps({"one": {"comand": "x"}}))
        await eventually(lambda: watcher.servers.last_problem is not None)
        await watcher.checked_again()
        assert watcher.published == ["server_registry_refused"]
