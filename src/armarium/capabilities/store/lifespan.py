"""Opens the store and closes it again: database, models, credentials, workers, and the service."""

from __future__ import annotations

import logging
import time
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import anyio
from prometheus_client import CollectorRegistry
from pydantic import SecretStr

from armarium.capabilities.store.access import StoreAccess
from armarium.capabilities.store.database.pool import connect
from armarium.capabilities.store.database.schema import migrate
from armarium.capabilities.store.database.transactions import ALL_TENANTS, RECOVERABLE_ERRORS, StoreDatabase
from armarium.capabilities.store.index.credentials import Credentials, open_credentials
from armarium.capabilities.store.index.embedders import StoreModels
from armarium.capabilities.store.index.file_index import FileIndex
from armarium.capabilities.store.index.maintenance import Maintenance
from armarium.capabilities.store.index.outbox import Outbox
from armarium.capabilities.store.index.reindex import stale_embedding_model
from armarium.capabilities.store.index.wake_up import SharedWakeUp
from armarium.capabilities.store.index.worker import Observers, WorkerPool
from armarium.capabilities.store.metrics import StoreMetrics
from armarium.capabilities.store.postgres.embedded import embedded_postgres
from armarium.capabilities.store.postgres.home import data_directory
from armarium.capabilities.store.search.file_search import FileSearch
from armarium.capabilities.store.search.limits import statements_at_once
from armarium.capabilities.store.service import Store
from armarium.capabilities.store.settings import StoreSettings

_PROBE_INTERVAL_S = 2.0
_PROBE_TIMEOUT_S = 5.0

_log = logging.getLogger(__name__)


class Heartbeat:
    """Probes the database for the readiness probe, unless another statement succeeded recently."""

    def __init__(self) -> None:
        self.is_up = True

    async def run(self, database: StoreDatabase) -> None:
        """Keep `is_up` up to date until cancelled."""
        while True:
            await anyio.sleep(_PROBE_INTERVAL_S)
            is_up = time.monotonic() - database.answered_at < _PROBE_INTERVAL_S or await _answers(database)
            if is_up != self.is_up:
                _log.warning("the database answers again" if is_up else "the database does not answer")
            self.is_up = is_up


async def _answers(database: StoreDatabase) -> bool:
    try:
        with anyio.fail_after(_PROBE_TIMEOUT_S):
            await database.fetch_in_transaction(ALL_TENANTS, "SELECT 1")
    except (TimeoutError, *RECOVERABLE_ERRORS):
        return False
    return True


@dataclass(frozen=True, slots=True)
class StoreResources:
    """What the service, the workers and the maintenance share."""

    settings: StoreSettings
    dsn: str | SecretStr
    database: StoreDatabase
    models: StoreModels
    credentials: Credentials | None
    """None if no model needs callers' keys."""
    wake_up: SharedWakeUp
    metrics: StoreMetrics

    async def run_workers(self, workers: int) -> None:
        """Index written files, `workers` at a time, until cancelled."""
        index = self.settings.index
        outbox = Outbox(
            self.database,
            lease_s=index.lease_seconds,
            retry_max=index.retry_max,
            retry_backoff_s=index.retry_backoff_ms / 1000,
        )
        observers = Observers(
            job_latency_s=self.metrics.indexed,
            visibility_lag_s=self.metrics.visible_after,
            depth=lambda depth: self.metrics.queued(depth.pending),
        )
        files = FileIndex(self.database, self.models)
        pool = WorkerPool(outbox, files, self.credentials, self.wake_up, observers)
        await pool.run(workers=workers, batch=index.batch_size, poll_s=index.poll_seconds)

    async def run_maintenance(self) -> None:
        maintenance = Maintenance(
            self.database,
            delete_retention_days=self.settings.delete_retention_days,
            history_days=self.settings.history.days,
            # Where callers' keys are needed, files are indexed at their next write: a job without a key would fail.
            queues_unindexed=self.settings.search.enabled and not self.settings.needs_callers_keys,
        )
        await maintenance.run()


@asynccontextmanager
async def database_address(settings: StoreSettings, state_dir: Path) -> AsyncGenerator[str | SecretStr]:
    """The configured DSN, or that of an embedded PostgreSQL that runs while the block runs."""
    if settings.dsn is not None:
        yield settings.dsn
        return
    async with embedded_postgres(data_directory(settings.data_dir, state_dir)) as dsn:
        yield dsn


@asynccontextmanager
async def open_resources(
    settings: StoreSettings, state_dir: Path, registry: CollectorRegistry
) -> AsyncGenerator[StoreResources]:
    """Connect to the database, migrate its schema, and open everything else. No background task is started."""
    metrics = StoreMetrics(registry, slo_p95_seconds=settings.index.slo_p95_seconds)
    async with AsyncExitStack() as stack:
        dsn = await stack.enter_async_context(database_address(settings, state_dir))
        pool = await connect(
            dsn,
            size=settings.pool_size,
            timeout_s=settings.database_timeout_ms / 1000,
            wait_s=settings.database_wait_ms / 1000,
            pooler=settings.effective_pooler,
        )
        database = StoreDatabase(pool, lock_timeout_ms=settings.lock_timeout_ms, on_lock_wait=metrics.waited_for_lock)
        stack.push_async_callback(pool.aclose)
        await migrate(pool, dimensions=settings.dimensions)
        embedding, rerank = settings.embedding, settings.search.rerank
        models = StoreModels(
            hosted=embedding if embedding.provider != "local" else None, reranker=rerank if rerank.is_used else None
        )
        if rerank.is_used and settings.search.enabled:
            facts = {"host": urlsplit(rerank.endpoint).hostname}
            _log.info("a reranker gets queries, chunks and callers' keys", extra=facts)
        if others := settings.tools.of_other_servers:
            _log.info("flags of tools that this server does not have", extra={"tools": others})
        if settings.search.enabled and (other := await stale_embedding_model(pool, models.model)):
            facts = {"made_with": other, "model": models.model, "hint": "run: armarium store reindex"}
            _log.warning("the vectors of the index are from another model; semantic search ignores them", extra=facts)
        stack.push_async_callback(models.aclose)
        credentials = None
        if settings.needs_callers_keys:
            credentials = await stack.enter_async_context(open_credentials(settings.redis_url, settings.security))
        yield StoreResources(settings, dsn, database, models, credentials, SharedWakeUp(database, dsn), metrics)


def build_store(resources: StoreResources) -> Store:
    settings, metrics = resources.settings, resources.metrics
    search = FileSearch(
        resources.database,
        resources.models,
        settings.search,
        statements=statements_at_once(settings.pool_size),
        on_rerank_failure=metrics.did_without_reranker,
    )
    return Store(
        resources.database,
        settings,
        file_search=search if settings.search.enabled else None,
        credentials=resources.credentials,
        on_committed=resources.wake_up.wake_all,
        on_mutation=metrics.changed,
        on_search=metrics.searched,
        access=StoreAccess.of(settings),
    )


@asynccontextmanager
async def open_store(
    settings: StoreSettings, state_dir: Path, registry: CollectorRegistry, heartbeat: Heartbeat | None = None
) -> AsyncGenerator[Store]:
    """The service, with workers and maintenance in the background while the block runs."""
    async with open_resources(settings, state_dir, registry) as resources, anyio.create_task_group() as tasks:
        tasks.start_soon(resources.run_maintenance)
        if heartbeat is not None:
            tasks.start_soon(heartbeat.run, resources.database)
        if settings.search.enabled:
            tasks.start_soon(resources.wake_up.notify_others)
            tasks.start_soon(resources.wake_up.listen)
            tasks.start_soon(resources.run_workers, settings.index.workers)
        try:
            yield build_store(resources)
        finally:
            tasks.cancel_scope.cancel()
