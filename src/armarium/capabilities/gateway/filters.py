"""The search filters of the contract. A source that cannot apply a filter returns no hits."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

from armarium.foundation.errors import InvalidArgument

DATES: Final = ("date_from", "date_to")
FILTERS: Final = (*DATES, "tags", "owners")
"""The filters of the contract."""


def active_filters(filters: Mapping[str, Any] | None) -> list[str]:
    """The names of filters that have a value; an empty list is not a filter."""
    return [name for name, value in (filters or {}).items() if value]


def check_query(query: str) -> None:
    """Reject an empty query."""
    if not query.strip():
        raise InvalidArgument("`query` is empty", field="query")


def check_filters(filters: Mapping[str, Any] | None) -> None:
    """Reject invalid dates."""
    for name in DATES:
        if (date := (filters or {}).get(name)) is not None:
            try:
                datetime.fromisoformat(date)
            except ValueError:
                raise InvalidArgument(
                    f"`filters.{name}` must be an ISO 8601 date",
                    hint="such as 2024-05-31 or 2024-05-31T12:00:00Z",
                    field=f"filters.{name}",
                ) from None
