"""Removes what was kept long enough: deleted files, earlier versions, and jobs that came to their end."""

from __future__ import annotations

import logging
import random
from dataclasses import dataclass

import anyio

from armarium.capabilities.store.database import ALL_TENANTS, Database
from armarium.capabilities.store.outbox import DATABASE_TROUBLE
from armarium.foundation.sql import queries

_SQL = queries("armarium.capabilities.store.sql", "upkeep.sql")
_LOCK = 0x75706B656570
_EVERY_S = 60.0
_BATCH = 500
_DAY_S = 86_400.0
_DONE_JOBS_KEPT_S = 3_600.0
_FAILED_JOBS_KEPT_S = 7 * _DAY_S

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Purged:
    """How many rows went."""

    files: int = 0
    versions: int = 0
    jobs: int = 0


class Upkeep:
    """Purges in small transactions. Of many processes one does it at a time; the others let it."""

    def __init__(self, database: Database, *, delete_retention_days: float, history_days: float) -> None:
        self._database = database
        self._delete_retention_s = delete_retention_days * _DAY_S
        self._history_s = history_days * _DAY_S

    async def run(self) -> None:
        """Purge about every minute, until cancelled."""
        while True:
            # By chance, so that servers started together do not all come together.
            await anyio.sleep(_EVERY_S * random.uniform(0.5, 1.5))  # noqa: S311 only spreads the load
            try:
                purged = await self.once()
            except DATABASE_TROUBLE as error:
                _log.warning("nothing could be purged", extra={"error": type(error).__name__})
                continue
            if purged != Purged():
                told = {"files": purged.files, "versions": purged.versions, "jobs": purged.jobs}
                _log.info("purged what was kept long enough", extra=told)

    async def once(self) -> Purged:
        """Remove everything that is too old now."""
        return Purged(
            files=await self._purge("files", self._delete_retention_s),
            versions=await self._purge("versions", self._history_s),
            jobs=await self._purge("done_jobs", _DONE_JOBS_KEPT_S)
            + await self._purge("failed_jobs", _FAILED_JOBS_KEPT_S),
        )

    async def _purge(self, kind: str, kept_s: float) -> int:
        gone = 0
        while True:
            async with self._database.writing(ALL_TENANTS) as connection:
                # For this transaction only: a lock of the session would stay with a connection that others use next.
                if not await connection.fetchval("SELECT pg_try_advisory_xact_lock($1)", _LOCK):
                    return gone
                batch: int = await connection.fetchval(_SQL[f"purge_{kind}"], kept_s, _BATCH)
            gone += batch
            if batch < _BATCH:
                return gone
