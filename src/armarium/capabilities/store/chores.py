"""What an operator does with a store besides serving it: indexing for servers, a new index, archives."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import anyio
from prometheus_client import CollectorRegistry

from armarium.capabilities.store.database.pool import Pool, connect
from armarium.capabilities.store.index.reindex import (
    QueuedJobs,
    ReindexPlan,
    ReindexProgress,
    begin_reindex,
    plan_reindex,
    reindex_progress,
)
from armarium.capabilities.store.lifespan import (
    build_store,
    database_address,
    effective_pooler,
    needs_callers_keys,
    open_resources,
)
from armarium.capabilities.store.settings import RateSettings, StoreSettings
from armarium.capabilities.store.transfer import Exported, Import, Imported, Skipped, export_files
from armarium.foundation.errors import ConfigError
from armarium.foundation.tools import Call

_LOOK_S = 0.5
_CONNECTIONS = 2
_NEVER_TOO_OFTEN = RateSettings(calls_per_second=1e9, burst=10**9)


@dataclass(frozen=True, slots=True)
class Reindexed:
    """How a new index came out."""

    queued: int
    failed: int
    complete: bool
    """Whether every queued file was looked at; otherwise servers and workers go on."""


class StoreChores:
    """The store of some settings, for as long as a command runs."""

    def __init__(self, settings: StoreSettings, state_dir: Path) -> None:
        self._settings = settings
        self._state_dir = state_dir

    @property
    def index_workers(self) -> int:
        """Files indexed at once, unless somebody says otherwise."""
        return self._settings.index.workers or 1

    @property
    def waits_for_callers(self) -> bool:
        """Whether a file can only be indexed with the key that comes with a write."""
        return needs_callers_keys(self._settings)

    def finds_key_of(self, call: Call) -> bool:
        """Whether what is written in this process, for this call, can be indexed by another."""
        if not self.waits_for_callers:
            return True
        return call.credential is not None and self._settings.redis_url is not None

    async def work(self, workers: int, *, registry: CollectorRegistry, on_ready: Callable[[], None]) -> None:
        """Index for the servers on the same database, until cancelled; what is not finished then goes back.

        How it goes is counted in `registry`.
        """
        if not self._settings.search.enabled:
            raise ConfigError("store.search.enabled is false, so there is nothing to index")
        if self.waits_for_callers and self._settings.redis_url is None:
            raise ConfigError(
                "files are embedded with callers' keys, which a worker only finds in Redis",
                hint="set store.redis_url, for the servers as well",
            )
        async with (
            open_resources(self._settings, self._state_dir, registry) as resources,
            anyio.create_task_group() as tasks,
        ):
            tasks.start_soon(resources.wake_up.listen)
            tasks.start_soon(resources.run_workers, workers)
            on_ready()

    async def plan_reindex(self) -> ReindexPlan:
        """What a new index would mean; nothing changes."""
        async with database_address(self._settings, self._state_dir) as dsn:
            pool = await self._pool(dsn)
            try:
                return await plan_reindex(pool, dimensions=self._settings.dimensions)
            finally:
                await pool.close()

    async def reindex(self, *, wait: bool, on_progress: Callable[[int, int], None]) -> Reindexed:
        """Forget all vectors and queue all files; with `wait`, index here, too, until all of them are done.

        Where callers' keys are needed nothing is queued: a job without a key would only fail.
        """
        queue = self._settings.search.enabled and not self.waits_for_callers
        async with database_address(self._settings, self._state_dir) as dsn:
            pool = await self._pool(dsn)
            try:
                queued = await begin_reindex(pool, dimensions=self._settings.dimensions, queue=queue)
            finally:
                await pool.close()
            if wait and queued.jobs:
                return await self._until_indexed(queued, on_progress)
        return Reindexed(queued.jobs, failed=0, complete=not queued.jobs)

    async def _pool(self, dsn: str) -> Pool:
        timeout_s = self._settings.database_timeout_ms / 1000
        return await connect(dsn, size=_CONNECTIONS, timeout_s=timeout_s, pooler=effective_pooler(self._settings))

    async def _until_indexed(self, queued: QueuedJobs, on_progress: Callable[[int, int], None]) -> Reindexed:
        now = ReindexProgress(open=queued.jobs, failed=0)
        async with (
            open_resources(self._settings, self._state_dir, CollectorRegistry()) as resources,
            anyio.create_task_group() as tasks,
        ):
            tasks.start_soon(resources.run_workers, self.index_workers)
            while now.open:
                await anyio.sleep(_LOOK_S)
                now = await reindex_progress(resources.database, queued)
                on_progress(queued.jobs - now.open, queued.jobs)
            tasks.cancel_scope.cancel()
        return Reindexed(queued.jobs, now.failed, complete=True)

    async def export_files(self, tenant: str, project: str, out: BinaryIO) -> Exported:
        """Write a caller's files into a tar archive, of one project or with "*" of all."""
        async with open_resources(self._settings, self._state_dir, CollectorRegistry()) as resources:
            return await export_files(resources.database, tenant, project, out)

    async def import_files(
        self,
        call: Call,
        source: BinaryIO,
        *,
        project: str | None,
        overwrite: bool,
        on_skipped: Callable[[Skipped], None],
    ) -> Imported:
        """Take a tar archive in for a caller; servers and workers index it."""
        largest = self._settings.max_file_bytes
        # A member is one write, however large a file may be, and an operator need not wait for their own limit.
        settings = self._settings.model_copy(update={"max_payload_bytes": largest, "rate": _NEVER_TOO_OFTEN})
        done = Imported()
        async with (
            open_resources(settings, self._state_dir, CollectorRegistry()) as resources,
            anyio.create_task_group() as tasks,
        ):
            tasks.start_soon(resources.wake_up.notify_others)
            taking_in = Import(
                build_store(resources),
                resources.database,
                call,
                project=project,
                overwrite=overwrite,
                max_file_bytes=largest,
                on_skipped=on_skipped,
            )
            done = await taking_in.run(source)
            tasks.cancel_scope.cancel()
        return done
