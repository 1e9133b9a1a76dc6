"""Events: delivery, order, and failing handlers."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from armarium.foundation.events import Events, FileChanged, PublicEvent
from armarium.foundation.refs import FileRef
from armarium.foundation.security.identity import LOCAL, Principal

CHANGED = FileChanged(FileRef("root", "workspace", "a.py"), "modified", is_directory=False, by=LOCAL)


@dataclass(frozen=True)
class Other:
    """An event nobody asked for."""


async def test_everyone_who_asked_is_told_in_the_order_they_asked() -> None:
    events, told = Events(), []

    async def first(event: FileChanged) -> None:
        told.append(("first", event))

    async def second(event: FileChanged) -> None:
        told.append(("second", event))

    events.subscribe(FileChanged, first)
    events.subscribe(FileChanged, second)
    await events.publish(CHANGED)
    assert told == [("first", CHANGED), ("second", CHANGED)]


async def test_only_events_of_the_kind_asked_for_are_told() -> None:
    events, told = Events(), []

    async def note(event: FileChanged) -> None:
        told.append(event)

    events.subscribe(FileChanged, note)
    await events.publish(Other())
    assert told == []


async def test_a_listener_that_fails_is_logged_and_keeps_nobody_from_hearing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    events, told = Events(), []

    async def fail(event: FileChanged) -> None:
        raise RuntimeError("deaf")

    async def note(event: FileChanged) -> None:
        told.append(event)

    events.subscribe(FileChanged, fail)
    events.subscribe(FileChanged, note)
    await events.publish(CHANGED)
    assert told == [CHANGED]
    (record,) = caplog.records
    assert (record.levelname, record.event) == ("ERROR", "FileChanged")


async def test_who_no_longer_wants_to_hear_is_not_told() -> None:
    events, told = Events(), []

    async def note(event: FileChanged) -> None:
        told.append(event)
        forget()

    forget = events.subscribe(FileChanged, note)
    await events.publish(CHANGED)
    await events.publish(CHANGED)
    assert told == [CHANGED]


async def test_whether_anybody_listens_can_be_asked() -> None:
    async def note(event: FileChanged) -> None:
        raise AssertionError("nothing happened")

    events = Events()
    assert not events.is_heard(FileChanged)
    forget = events.subscribe(FileChanged, note)
    assert events.is_heard(FileChanged)
    forget()
    assert not events.is_heard(FileChanged)


@pytest.mark.parametrize(
    ("groups", "may_hear"),
    [(None, True), (frozenset(), False), (frozenset({"staff", "admin"}), True), (frozenset({"admin"}), False)],
)
def test_a_public_event_is_for_its_groups_or_for_everybody(groups: frozenset[str] | None, may_hear: bool) -> None:
    assert PublicEvent("example", {}, groups).is_for(Principal("alice", ("staff",), "")) is may_hear


@pytest.mark.parametrize("name", ["", "Two words", "a\nb", "ä", "7"])
def test_a_public_event_has_a_plain_name(name: str) -> None:
    with pytest.raises(ValueError, match="name of an event"):
        PublicEvent(name, {})


def test_the_local_owner_receives_events_of_every_group() -> None:
    owner = Principal("owner", (), "", is_owner=True)
    assert PublicEvent("example", {}, frozenset({"staff"})).is_for(owner)
