"""Opens the store and closes it again: database, models, credentials, workers, and the service."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import anyio
from prometheus_client import CollectorRegistry

from armarium.capabilities.store.database.heartbeat import Heartbeat
from armarium.capabilities.store.database.pool import connect
from armarium.capabilities.store.database.schema import migrate
from armarium.capabilities.store.database.transactions import StoreDatabase
from armarium.capabilities.store.index.credentials import Credentials, NoCredentials, open_credentials
from armarium.capabilities.store.index.embedders import HostedEmbedder, HostedReranker, StoreModels
from armarium.capabilities.store.index.file_index import FileIndex
from armarium.capabilities.store.index.maintenance import Maintenance
from armarium.capabilities.store.index.outbox import Outbox
from armarium.capabilities.store.index.reindex import stale_embedding_model
from armarium.capabilities.store.index.wake_up import SharedWakeUp
from armarium.capabilities.store.index.worker import Observers, work
from armarium.capabilities.store.metrics import StoreMetrics
from armarium.capabilities.store.postgres.embedded import embedded_postgres
from armarium.capabilities.store.postgres.home import data_directory
from armarium.capabilities.store.search.file_search import FileSearch, SearchRules
from armarium.capabilities.store.search.limits import SearchLimits, statements_at_once
from armarium.capabilities.store.service import Store, StoreRules
from armarium.capabilities.store.settings import Pooler, StoreSettings
from armarium.capabilities.store.validation import StoreLimits

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class StoreResources:
    """What the service, the workers and the maintenance share."""

    settings: StoreSettings
    dsn: str
    database: StoreDatabase
    models: StoreModels
    credentials: Credentials
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
        await work(
            outbox,
            FileIndex(self.database, self.models),
            self.credentials,
            self.wake_up,
            workers=workers,
            batch=index.batch_size,
            poll_s=index.poll_seconds,
            needs_key=needs_callers_keys(self.settings),
            observers=observers,
        )

    async def run_maintenance(self) -> None:
        """Purge expired data, until cancelled."""
        maintenance = Maintenance(
            self.database,
            delete_retention_days=self.settings.delete_retention_days,
            history_days=self.settings.history.days,
            # Where callers' keys are needed, files are indexed at their next write: a job without a key would fail.
            queue_unindexed=self.settings.search.enabled and not needs_callers_keys(self.settings),
        )
        await maintenance.run()


def needs_callers_keys(settings: StoreSettings) -> bool:
    """Whether files are embedded by an endpoint that needs the caller's key."""
    return settings.search.enabled and settings.embedding.provider != "local"


@asynccontextmanager
async def database_address(settings: StoreSettings, state_dir: Path) -> AsyncGenerator[str]:
    """The configured DSN, or that of an embedded PostgreSQL that runs while the block runs."""
    if settings.dsn is not None:
        yield settings.dsn.get_secret_value()
        return
    async with embedded_postgres(data_directory(settings.data_dir, state_dir)) as dsn:
        yield dsn


def effective_pooler(settings: StoreSettings) -> Pooler:
    """The configured pooler mode; an embedded PostgreSQL has no pooler."""
    return settings.pooler if settings.dsn is not None else "none"


def store_models(settings: StoreSettings) -> StoreModels:
    """The embedder and the reranker of the settings."""
    embedding, rerank = settings.embedding, settings.search.rerank
    return StoreModels(
        hosted=None
        if embedding.provider == "local"
        else HostedEmbedder(embedding.base_url, embedding.model, embedding.dimensions),
        reranker=HostedReranker(rerank.endpoint, rerank.model) if rerank.enabled else None,
    )


def store_rules(settings: StoreSettings) -> StoreRules:
    """The rules of the service, from the settings."""
    return StoreRules(
        StoreLimits(
            max_payload_bytes=settings.max_payload_bytes,
            max_file_bytes=settings.max_file_bytes,
            max_project_bytes=settings.max_project_bytes,
            versions_kept=settings.history.versions,
            searchable=settings.search.enabled,
        ),
        calls_per_second=settings.rate.calls_per_second,
        burst=settings.rate.burst,
        list_limit_default=settings.list_limit_default,
        list_limit_max=settings.list_limit_max,
        search_limit_default=settings.search.limit_default,
        search_limit_max=settings.search.limit_max,
        allow_root_wipe=settings.allow_root_wipe,
    )


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
            pooler=effective_pooler(settings),
        )
        database = StoreDatabase(pool, lock_timeout_ms=settings.lock_timeout_ms, on_lock_wait=metrics.waited_for_lock)
        stack.push_async_callback(database.aclose)
        await migrate(pool, dimensions=settings.dimensions)
        models = store_models(settings)
        if settings.search.rerank.is_forgotten:
            hint = "set store.search.rerank.enabled: true to use it, or false to confirm that it is off"
            _log.warning("a reranker is configured and off", extra={"hint": hint})
        if settings.search.enabled and (other := await stale_embedding_model(pool, models.model)):
            facts = {"made_with": other, "model": models.model, "hint": "run: armarium store reindex"}
            _log.warning("the vectors of the index are from another model; semantic search ignores them", extra=facts)
        stack.push_async_callback(models.aclose)
        security = settings.security
        credentials: Credentials = NoCredentials()
        if needs_callers_keys(settings):
            credentials = await stack.enter_async_context(
                open_credentials(
                    redis_url=settings.redis_url,
                    keks=security.encryption_keks,
                    prefix=security.credential_cache_prefix,
                    ttl_s=security.credential_cache_ttl_seconds,
                )
            )
        yield StoreResources(settings, dsn, database, models, credentials, SharedWakeUp(database, dsn), metrics)


def build_store(resources: StoreResources) -> Store:
    """The service on these resources."""
    settings, metrics = resources.settings, resources.metrics
    search = FileSearch(
        resources.database,
        resources.models,
        SearchRules(
            vector_candidates=settings.search.vector_candidates,
            bm25_candidates=settings.search.bm25_candidates,
            semantic_weight=settings.search.fallback.semantic_weight,
            lexical_weight=settings.search.fallback.lexical_weight,
            rerank_timeout_s=settings.search.rerank.timeout_ms / 1000,
            embed_timeout_s=settings.search.embed_timeout_ms / 1000,
        ),
        SearchLimits(
            concurrent_per_caller=settings.search.concurrent_per_caller,
            waiting_per_caller=settings.search.waiting_per_caller,
            wait_s=settings.search.wait_ms / 1000,
            statements=statements_at_once(settings.pool_size),
        ),
        on_rerank_failure=metrics.did_without_reranker,
    )
    return Store(
        resources.database,
        store_rules(settings),
        search=search if settings.search.enabled else None,
        credentials=resources.credentials,
        on_committed=resources.wake_up.wake_all,
        on_mutation=metrics.changed,
        on_search=metrics.searched,
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
