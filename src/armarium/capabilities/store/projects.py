"""Which projects of a caller have something to be found in them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from armarium.capabilities.store.database.transactions import StoreDatabase
from armarium.foundation.sql import queries

_SQL = queries("armarium.capabilities.store.database.sql", "search.sql")
_MOST = 1_000


@dataclass(frozen=True, slots=True)
class IndexedProject:
    """A project, and how much of it is indexed."""

    name: str
    files: int
    chunks: int
    indexed_at: datetime


class Projects:
    """Lists projects."""

    def __init__(self, database: StoreDatabase) -> None:
        self._database = database

    async def searched(self, tenant: str) -> list[IndexedProject]:
        """The tenant's projects that have chunks, by name; a thousand at most."""
        async with self._database.read_transaction(tenant) as connection:
            rows = await connection.fetch(_SQL["indexed_projects"], tenant, _MOST)
        return [IndexedProject(row["project"], row["files"], row["chunks"], row["indexed_at"]) for row in rows]
