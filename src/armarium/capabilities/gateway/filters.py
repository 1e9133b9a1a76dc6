"""What a search is narrowed down by, and what becomes of a wish that a source cannot judge: one rule for all."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

from armarium.foundation.errors import InvalidArgument

DATES: Final = ("date_from", "date_to")
FILTERS: Final = (*DATES, "tags", "owners")
"""The contract's. A source that cannot judge one gives no hits at all, rather than some that nobody asked for."""


def wishes(filters: Mapping[str, Any] | None) -> list[str]:
    """The filters that ask for something; an empty list asks for nothing."""
    return [name for name, wish in (filters or {}).items() if wish]


def check_filters(filters: Mapping[str, Any] | None) -> None:
    """Refuse a date that is none."""
    for name in DATES:
        if (said := (filters or {}).get(name)) is not None:
            try:
                datetime.fromisoformat(said)
            except ValueError:
                raise InvalidArgument(
                    f"`filters.{name}` must be a date of ISO 8601",
                    hint="such as 2024-05-31 or 2024-05-31T12:00:00Z",
                    field=f"filters.{name}",
                ) from None
