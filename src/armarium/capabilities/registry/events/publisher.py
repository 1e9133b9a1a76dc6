"""Publishes that findings or issues have changed, at most twice a second, whoever changed them."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import anyio
from anyio import to_thread

from armarium.capabilities.registry.service import Registry
from armarium.foundation.concurrency.tasks import background
from armarium.foundation.events import Events, PublicEvent

FINDINGS_CHANGED = "findings_changed"

_INTERVAL_S = 0.5
_POLL_S = 2.0
"""How often a change by another process, such as `armarium registry import`, is looked for."""


@asynccontextmanager
async def publish_changes(
    registry: Registry, events: Events, *, interval_s: float = _INTERVAL_S, poll_s: float = _POLL_S
) -> AsyncGenerator[None]:
    """Publish `findings_changed` during the block. Changes of this process are published at once, then at most every
    `interval_s`."""
    publisher = _Publisher(registry, events, interval_s, poll_s)
    await publisher.look()
    registry.on_change(publisher.wake_up)
    async with background(publisher.run):
        yield


class _Publisher:
    def __init__(self, registry: Registry, events: Events, interval_s: float, poll_s: float) -> None:
        self._registry, self._events = registry, events
        self._interval_s, self._poll_s = interval_s, poll_s
        self._changed = anyio.Event()
        self._published: object = None

    async def look(self) -> bool:
        """Whether there was a change since the last look."""
        before, self._published = self._published, await to_thread.run_sync(self._registry.last_change)
        return self._published != before

    def wake_up(self) -> None:
        self._changed.set()

    async def run(self) -> None:
        while True:
            with anyio.move_on_after(self._poll_s):
                await self._changed.wait()
            self._changed = anyio.Event()
            if self._events.is_heard(PublicEvent) and await self.look():
                await self._events.publish(PublicEvent(FINDINGS_CHANGED, {}, capability="registry"))
                await anyio.sleep(self._interval_s)
