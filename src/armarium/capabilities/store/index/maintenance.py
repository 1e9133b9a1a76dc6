"""Removes what was kept long enough, and what is left of deleted files; at first, queues what nobody indexed."""

from __future__ import annotations

import logging
import random
from dataclasses import asdict, dataclass

import anyio

from armarium.capabilities.store.database.transactions import ALL_TENANTS, RECOVERABLE_ERRORS, StoreDatabase
from armarium.foundation.sql import queries

_SQL = queries("armarium.capabilities.store.database.sql", "maintenance.sql")
_LOCK = 0x75706B656570
_QUEUE_LOCK = 0x7175657565
# For one transaction only: a lock of the session would stay with a connection that others use next.
_TRY_LOCK = "SELECT pg_try_advisory_xact_lock($1)"
_EVERY_S = 60.0
_BATCH = 500
_DAY_S = 86_400.0
_DONE_JOBS_KEPT_S = 3_600.0
_FAILED_JOBS_KEPT_S = 7 * _DAY_S
_REQUESTS_KEPT_S = _DAY_S
# Longer than anybody works on a file that was deleted meanwhile.
_LATELY_S = 3_600.0

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Purged:
    """How many rows went."""

    files: int = 0
    versions: int = 0
    jobs: int = 0
    requests: int = 0


class Maintenance:
    """Purges in small transactions. Of many processes one does it at a time; the others let it."""

    def __init__(
        self,
        database: StoreDatabase,
        *,
        delete_retention_days: float,
        history_days: float,
        queue_unindexed: bool = False,
    ) -> None:
        self._database = database
        self._queue_unindexed = queue_unindexed
        self._forgotten_since_s = delete_retention_days * _DAY_S + _LATELY_S
        self._delete_retention_s = delete_retention_days * _DAY_S
        self._history_s = history_days * _DAY_S

    async def run(self) -> None:
        """Purge about every minute, until cancelled. Before, once, queue what was written while nobody indexed."""
        looked = not self._queue_unindexed
        while True:
            looked = looked or await self._look_for_unindexed()
            # By chance, so that servers started together do not all come together.
            await anyio.sleep(_EVERY_S * random.uniform(0.5, 1.5))  # noqa: S311 only spreads the load
            try:
                purged = await self.once()
            except RECOVERABLE_ERRORS as error:
                _log.warning("nothing could be purged", extra={"error": type(error).__name__})
                continue
            if purged != Purged():
                _log.info("purged what was kept long enough", extra=asdict(purged))

    async def queue_unindexed(self) -> int:
        """Queue the files that are not indexed as they are, and that no job is about; how many that were.

        Every file is looked at, a few at a time; servers that start together take turns, and queue nothing twice.
        """
        async with self._database.read_transaction(ALL_TENANTS) as connection:
            last: int = await connection.fetchval(_SQL["last_file"], ALL_TENANTS)
        queued = 0
        for first in range(1, last + 1, _BATCH):
            async with self._database.write_transaction(ALL_TENANTS) as connection:
                await connection.execute(f"SELECT pg_advisory_xact_lock({_QUEUE_LOCK})")
                queued += await connection.fetchval(_SQL["queue_unindexed"], ALL_TENANTS, first, first + _BATCH - 1)
        return queued

    async def once(self) -> Purged:
        """Remove everything that is too old now."""
        await self._forget_deleted()
        return Purged(
            files=await self._purge("files", self._delete_retention_s),
            versions=await self._purge("versions", self._history_s),
            jobs=await self._purge("done_jobs", _DONE_JOBS_KEPT_S)
            + await self._purge("failed_jobs", _FAILED_JOBS_KEPT_S),
            requests=await self._purge("requests", _REQUESTS_KEPT_S),
        )

    async def _look_for_unindexed(self) -> bool:
        try:
            queued = await self.queue_unindexed()
        except RECOVERABLE_ERRORS as error:
            _log.warning("files that are not indexed could not be looked for", extra={"error": type(error).__name__})
            return False
        if queued:
            _log.info("queued files that were not indexed", extra={"files": queued})
        return True

    async def _forget_deleted(self) -> None:
        """Sums over a project, as a search needs them, are over files that are there. Asking for each file at every
        search would double its time; so deleted ones are taken out, at first all, and then those of late."""
        async with self._database.write_transaction(ALL_TENANTS) as connection:
            if not await connection.fetchval(_TRY_LOCK, _LOCK):
                return
            await connection.execute(_SQL["delete_indexed_of_deleted"], ALL_TENANTS, self._forgotten_since_s)
        self._forgotten_since_s = _LATELY_S

    async def _purge(self, kind: str, kept_s: float) -> int:
        gone = 0
        while True:
            async with self._database.write_transaction(ALL_TENANTS) as connection:
                if not await connection.fetchval(_TRY_LOCK, _LOCK):
                    return gone
                batch: int = await connection.fetchval(_SQL[f"purge_{kind}"], kept_s, _BATCH)
            gone += batch
            if batch < _BATCH:
                return gone
