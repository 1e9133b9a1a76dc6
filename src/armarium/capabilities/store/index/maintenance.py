"""Maintenance: purges expired rows and the index of deleted files, and queues files that were never indexed."""

from __future__ import annotations

import logging
import random
from dataclasses import KW_ONLY, asdict, dataclass, field

import anyio

from armarium.capabilities.store.database.transactions import ALL_TENANTS, RECOVERABLE_ERRORS, StoreDatabase
from armarium.foundation.sql import queries

_SQL = queries("armarium.capabilities.store.database.sql", "maintenance.sql")
_LOCK = 0x75706B656570
_QUEUE_LOCK = 0x7175657565
# A transaction lock: a session lock would stay on a connection that others use next.
_TRY_LOCK = "SELECT pg_try_advisory_xact_lock($1)"
_DAY_S = 86_400.0
_DONE_JOBS_KEPT_S = 3_600.0
_FAILED_JOBS_KEPT_S = 7 * _DAY_S
_REQUESTS_KEPT_S = _DAY_S
# Longer than any worker processes a file that is deleted in the meantime.
_RECENT_S = 3_600.0

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Purged:
    files: int = 0
    versions: int = 0
    jobs: int = 0
    requests: int = 0


@dataclass(slots=True, eq=False)
class Maintenance:
    """Purges in small transactions. Only one process does so at a time; the others skip it."""

    database: StoreDatabase
    _: KW_ONLY
    delete_retention_days: float
    history_days: float
    queues_unindexed: bool = False
    """Whether files that were never indexed are queued at the start."""
    interval_s: float = 60.0
    batch: int = 500
    _swept_deleted: bool = field(default=False, init=False)
    """Whether the index of all deleted files was removed; later only that of recently deleted ones is."""

    async def run(self) -> None:
        """Purge about once per interval, until cancelled. First, once, queue files that were never indexed."""
        queued_unindexed = not self.queues_unindexed
        while True:
            queued_unindexed = queued_unindexed or await self._try_queue_unindexed()
            # Random, so that servers started together do not purge at the same time.
            await anyio.sleep(self.interval_s * random.uniform(0.5, 1.5))  # noqa: S311 only spreads the load
            try:
                purged = await self.run_once()
            except RECOVERABLE_ERRORS as error:
                _log.warning("purging failed", extra={"error": type(error).__name__})
                continue
            if purged != Purged():
                _log.info("purged expired rows", extra=asdict(purged))

    async def queue_unindexed(self) -> int:
        """Queue the files whose current version is not indexed and that have no open job. Returns their number. Servers
        that start together take turns, so that no file is queued twice."""
        async with self.database.read_transaction(ALL_TENANTS) as connection:
            last: int = await connection.fetchval(_SQL["last_file"], ALL_TENANTS)
        queued = 0
        for first in range(1, last + 1, self.batch):
            async with self.database.write_transaction(ALL_TENANTS) as connection:
                await connection.execute(f"SELECT pg_advisory_xact_lock({_QUEUE_LOCK})")
                queued += await connection.fetchval(_SQL["queue_unindexed"], ALL_TENANTS, first, first + self.batch - 1)
        return queued

    async def run_once(self) -> Purged:
        await self._delete_indexed_of_deleted()
        return Purged(
            files=await self._purge("files", self.delete_retention_days * _DAY_S),
            versions=await self._purge("versions", self.history_days * _DAY_S),
            jobs=await self._purge("jobs", _DONE_JOBS_KEPT_S, "done")
            + await self._purge("jobs", _FAILED_JOBS_KEPT_S, "failed"),
            requests=await self._purge("requests", _REQUESTS_KEPT_S),
        )

    async def _try_queue_unindexed(self) -> bool:
        try:
            queued = await self.queue_unindexed()
        except RECOVERABLE_ERRORS as error:
            _log.warning("searching for unindexed files failed", extra={"error": type(error).__name__})
            return False
        if queued:
            _log.info("queued unindexed files", extra={"files": queued})
        return True

    async def _delete_indexed_of_deleted(self) -> None:
        """Remove index rows of deleted files: all of them in the first run, then recent ones.

        The BM25 statistics of a project must not count deleted files. Checking each file in every search would double
        the time of a search.
        """
        async with self.database.write_transaction(ALL_TENANTS) as connection:
            if not await connection.fetchval(_TRY_LOCK, _LOCK):
                return
            since_s = _RECENT_S + (0.0 if self._swept_deleted else self.delete_retention_days * _DAY_S)
            await connection.execute(_SQL["delete_indexed_of_deleted"], ALL_TENANTS, since_s)
        self._swept_deleted = True

    async def _purge(self, kind: str, kept_s: float, *status: str) -> int:
        gone = 0
        while True:
            async with self.database.write_transaction(ALL_TENANTS) as connection:
                if not await connection.fetchval(_TRY_LOCK, _LOCK):
                    return gone
                batch: int = await connection.fetchval(_SQL[f"purge_{kind}"], kept_s, self.batch, *status)
            gone += batch
            if batch < self.batch:
                return gone
