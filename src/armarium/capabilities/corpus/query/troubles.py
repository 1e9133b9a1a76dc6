"""Lists the documents that could not be indexed, with the reason and what to do about it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from armarium.capabilities.corpus.errors import InvalidField
from armarium.capabilities.corpus.storage.documents import Documents, Trouble

TroubleState = Literal["failed", "skipped"]

MOST_COUNTED: Final = 1000
_STATUS: Final[dict[TroubleState, str]] = {"failed": "error", "skipped": "skipped"}
_STATES: Final[tuple[TroubleState, ...]] = ("failed", "skipped")


@dataclass(frozen=True, slots=True)
class TroublePage:
    """Some of these documents, failed ones first."""

    rows: list[tuple[TroubleState, Trouble]]
    next: str | None
    """Where the next page begins."""
    counts: dict[TroubleState, int]
    """How many there are, counted up to `MOST_COUNTED`."""


def code_and_message(error: str | None) -> tuple[str, str]:
    """The parts of an error as documents store it."""
    code, mark, message = (error or "").partition(": ")
    return (code, message) if mark else ("INTERNAL", code)


def list_troubles(documents: Documents, state: TroubleState | None, limit: int, cursor: str | None) -> TroublePage:
    """The next documents in this state, or in any."""
    first, after = _position(cursor) if cursor is not None else (state or _STATES[0], "")
    if state not in (None, first):
        raise _invalid_cursor()
    rows: list[tuple[TroubleState, Trouble]] = []
    counts: dict[TroubleState, int] = {}
    for each in _STATES:
        counts[each] = documents.count_in_trouble(_STATUS[each], MOST_COUNTED)
        if state in (None, each) and _STATES.index(each) >= _STATES.index(first):
            begin = after if each == first else ""
            found = documents.in_trouble(_STATUS[each], begin, limit + 1 - len(rows))
            rows.extend((each, row) for row in found)
    if len(rows) <= limit:
        return TroublePage(rows, None, counts)
    last_state, last = rows[limit - 1]
    return TroublePage(rows[:limit], f"{last_state}:{last.rel_path}", counts)


def _position(cursor: str) -> tuple[TroubleState, str]:
    state, mark, path = cursor.partition(":")
    for each in _STATES:
        if state == each and mark:
            return each, path
    raise _invalid_cursor()


def _invalid_cursor() -> InvalidField:
    return InvalidField("`cursor` is not one of this list", hint="send `next` of a page")
