"""Files of servers are looked at while the server runs: what somebody wrote is news, and what we wrote is not."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest

from armarium.capabilities.gateway.admin.service import Administration
from armarium.capabilities.gateway.servers import live_servers as live
from armarium.capabilities.gateway.servers.live_servers import LiveServers
from armarium.capabilities.gateway.upstreams.types import UpstreamLimits
from armarium.capabilities.gateway.upstreams.upstream_set import Upstreams
from armarium.foundation.events import Events, PublicEvent

PATIENCE_S = 30.0
ENTRY = {"command": "never-started", "enabled": False}


class Watched:
    """Servers of a directory, how often their files were looked at, and what was told."""

    def __init__(self, config_dir: Path, upstreams: Upstreams, patch: pytest.MonkeyPatch) -> None:
        self.events = Events()
        self.told: list[str] = []
        self.looks = 0
        self.events.subscribe(PublicEvent, self._hear)
        self.servers = LiveServers(config_dir, upstreams, self.events, admin_group="admin")
        signature = self.servers._signature

        def counted() -> object:
            self.looks += 1
            return signature()

        patch.setattr(self.servers, "_signature", counted)

    async def _hear(self, event: PublicEvent) -> None:
        self.told.append(event.name)

    async def until(self, condition: Callable[[], bool]) -> None:
        with anyio.fail_after(PATIENCE_S):
            while not condition():
                await anyio.sleep(0.005)

    async def looked_at_again(self) -> None:
        """Wait until the watcher must have noticed whatever there is to notice."""
        looks = self.looks
        await self.until(lambda: self.looks >= looks + 6)


@asynccontextmanager
async def watched(config_dir: Path, patch: pytest.MonkeyPatch) -> AsyncGenerator[Watched]:
    patch.setattr(live, "_LOOK_EVERY_S", 0.01)
    patch.setattr(live, "_SETTLED_AFTER_S", 0.01)
    async with Upstreams(UpstreamLimits()) as upstreams, anyio.create_task_group() as tasks:
        watching = Watched(config_dir, upstreams, patch)
        await watching.servers.reload()
        watching.told.clear()
        tasks.start_soon(watching.servers.watch)
        yield watching
        tasks.cancel_scope.cancel()


async def test_a_change_by_an_administrator_is_told_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with watched(tmp_path, monkeypatch) as watching:
        administration = Administration(watching.servers)
        for number in (1, 2):
            await administration.put_server("one", "generic", ENTRY | {"description": f"number {number}"})
            await watching.looked_at_again()
            assert watching.told.count("server_registry_updated") == number


async def test_a_change_of_a_file_is_told_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "overrides" / "mcp.json"
    file.parent.mkdir()
    async with watched(tmp_path, monkeypatch) as watching:
        file.write_text(json.dumps({"one": ENTRY}))
        await watching.until(lambda: "one" in watching.servers.registry.servers)
        await watching.looked_at_again()
        assert watching.told.count("server_registry_updated") == 1


async def test_a_broken_file_is_told_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "overrides" / "mcp.json"
    file.parent.mkdir()
    async with watched(tmp_path, monkeypatch) as watching:
        file.write_text(json.dumps({"one": {"comand": "x"}}))
        await watching.until(lambda: watching.servers.last_problem is not None)
        await watching.looked_at_again()
        assert watching.told == ["server_registry_refused"]
