"""The event that findings changed: after each change of anybody, together if they come fast."""

from __future__ import annotations

from pathlib import Path

import anyio

from armarium.capabilities.registry.events.publisher import publish_changes
from armarium.capabilities.registry.lifespan import open_registry
from armarium.capabilities.registry.service import Registry
from armarium.foundation.events import Events, PublicEvent
from support.registry_calls import found, scanned
from support.waiting import eventually


class Listener:
    def __init__(self, events: Events) -> None:
        self.heard: list[PublicEvent] = []
        events.subscribe(PublicEvent, self.receive)

    async def receive(self, event: PublicEvent) -> None:
        self.heard.append(event)

    async def hears(self, least: int = 1) -> None:
        async def has_heard() -> bool:
            return len(self.heard) >= least

        await eventually(has_heard, what="the event")


async def test_a_change_is_published_to_those_who_may_read_the_registry(registry: Registry) -> None:
    events = Events()
    listener = Listener(events)
    async with publish_changes(registry, events, poll_s=3600):
        await scanned(registry, found("a.py"))
        await listener.hears()
    assert listener.heard[0] == PublicEvent("findings_changed", {}, capability="registry")


async def test_changes_that_come_fast_are_one_event(registry: Registry) -> None:
    events = Events()
    listener = Listener(events)
    async with publish_changes(registry, events, interval_s=3600, poll_s=3600):
        await scanned(registry, found("a.py"))
        await listener.hears()
        for line in range(5):
            await scanned(registry, found("a.py", line=line))
    assert len(listener.heard) == 1


async def test_changes_of_another_process_are_published(registry: Registry, project: Path) -> None:
    events = Events()
    listener = Listener(events)
    async with publish_changes(registry, events, poll_s=0.01), open_registry(project) as other:
        await scanned(other, found("a.py"))
        await listener.hears()


async def test_nothing_is_published_while_nothing_changes(registry: Registry) -> None:
    events = Events()
    listener = Listener(events)
    await scanned(registry, found("a.py"))
    async with publish_changes(registry, events, poll_s=0.001):
        for _ in range(50):
            await registry.list_findings()
            await anyio.lowlevel.checkpoint()
    assert listener.heard == []
