"""What happened to files, written once in the transaction in which it happened."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal, NamedTuple

import orjson

from armarium.capabilities.registry.model import EventKind, Page, TimelineEvent
from armarium.capabilities.registry.storage.columns import to_json
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
    """An event on its way into the timeline."""

    file_no: int
    type: EventType
    source_id: str
    data: dict[str, Any]


def append(writer: Writer, news: Iterable[NewEvent]) -> None:
    """Add events, in this order."""
    writer.many(
        "put_event",
        ((each.file_no, _KINDS[each.type], each.type, writer.now, each.source_id, to_json(each.data)) for each in news),
    )


def page(reader: Reader, file_no: int, kind: EventKind | None, limit: int, offset: int) -> Page[TimelineEvent]:
    """A part of a file's timeline, newest first."""
    asked = {"file_no": file_no, "kind": kind}
    [(total,)] = reader.rows("count_events", asked)
    rows = reader.rows("list_events", asked | {"limit": limit, "offset": offset})
    events = [
        TimelineEvent(f"event-{seq}", kind, at, source_id, orjson.loads(data))
        for seq, kind, at, source_id, data in rows
    ]
    return Page(events, total, limit, offset)
