"""The table of events. An event is written in the transaction of the change that it describes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal, NamedTuple

import orjson

from armarium.capabilities.registry.model import EventKind, Happened, Page
from armarium.capabilities.registry.storage.columns import page_of, to_json
from armarium.capabilities.registry.storage.database import Reader, Writer

EventType = Literal[
    "finding_created", "finding_updated", "finding_closed", "association_created", "file_metadata_update"
]

_KINDS: dict[EventType, EventKind] = {
    "finding_created": "finding",
    "finding_updated": "finding",
    "finding_closed": "finding",
    "association_created": "association",
    "file_metadata_update": "file_metadata_update",
}


class NewEvent(NamedTuple):
    file_no: int
    type: EventType
    source_id: str
    data: dict[str, Any]


def append(writer: Writer, events: Iterable[NewEvent]) -> None:
    rows = ((no, _KINDS[type_], type_, writer.now, source_id, to_json(data)) for no, type_, source_id, data in events)
    writer.many("put_event", rows)


def page(reader: Reader, file_no: int, kind: EventKind | None, limit: int, offset: int) -> Page[Happened]:
    """A page of a file's timeline, newest first."""
    asked = {"file_no": file_no, "kind": kind}
    [(total,)] = reader.rows("count_events", asked)
    rows = reader.rows("list_events", asked | {"limit": limit, "offset": offset})
    events: list[Happened] = [
        {"id": f"event-{seq}", "type": type_, "timestamp": at, "source_id": source_id, "data": orjson.loads(data)}
        for seq, type_, at, source_id, data in rows
    ]
    return page_of(events, total, limit, offset)
