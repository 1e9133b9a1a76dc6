"""The table of events. An event is written in the transaction of the change that it describes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal, NamedTuple, get_args

import orjson

from armarium.capabilities.registry.model import Page, TimelineEvent
from armarium.capabilities.registry.storage.columns import Row, page_of, to_json
from armarium.capabilities.registry.storage.database import Reader, Writer
from armarium.capabilities.registry.values import EventKind

EventType = Literal[
    "finding_created",
    "finding_updated",
    "finding_closed",
    "association_created",
    "association_removed",
    "file_metadata_update",
]

_KINDS: dict[EventType, EventKind] = {
    type_: next(kind for kind in get_args(EventKind) if type_.startswith(kind)) for type_ in get_args(EventType)
}


class NewEvent(NamedTuple):
    file_no: int
    type: EventType
    source_id: str
    data: dict[str, Any]


def append(writer: Writer, events: Iterable[NewEvent]) -> None:
    rows = ((no, _KINDS[type_], type_, writer.now, source_id, to_json(data)) for no, type_, source_id, data in events)
    writer.many("put_event", rows)


def page(reader: Reader, file_no: int, kind: EventKind | None, limit: int, offset: int) -> Page[TimelineEvent]:
    asked = {"file_no": file_no, "kind": kind}
    [(total,)] = reader.rows("count_events", asked)
    rows = reader.rows("list_events", asked | {"limit": limit, "offset": offset})
    return page_of([_event(row) for row in rows], total, limit, offset)


def of_finding(reader: Reader, file_no: int, finding_id: str, limit: int) -> list[TimelineEvent]:
    """The latest events of a finding, newest first."""
    return [_event(row) for row in reader.rows("events_of_finding", (file_no, finding_id, limit))]


def last(reader: Reader) -> tuple[int, str]:
    """The number and the time of the last event; it changes with everything that is listed."""
    row = reader.row("last_event")
    return (0, "") if row is None else (row[0], row[1])


def _event(row: Row) -> TimelineEvent:
    seq, type_, at, source_id, data = row
    return {"id": f"event-{seq}", "type": type_, "timestamp": at, "source_id": source_id, "data": orjson.loads(data)}
