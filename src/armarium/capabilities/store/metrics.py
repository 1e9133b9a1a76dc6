"""Metrics of the store, with the names of its contract."""

from __future__ import annotations

from functools import partial

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

_MS_BUCKETS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000)
_LAG_BUCKETS_MS = (50, 100, 200, 500, 1000, 2000, 5000, 10_000, 30_000, 60_000, 300_000)


class StoreMetrics:
    """Metrics of one open store. Times are in milliseconds."""

    def __init__(self, registry: CollectorRegistry, *, slo_p95_seconds: float) -> None:
        counter, histogram = partial(Counter, registry=registry), partial(Histogram, registry=registry)
        self._mutations = counter("mcp_files_mutation", "Changes by tool and status.", ["tool", "status"])
        self._lock_wait = histogram("mcp_files_lock_wait_ms", "Wait for the lock of a project.", buckets=_MS_BUCKETS)
        self._queue_depth = Gauge("mcp_files_index_queue_depth", "Pending index jobs.", registry=registry)
        self._job_latency = histogram(
            "mcp_files_index_job_latency_ms", "The last stage of one job.", buckets=_LAG_BUCKETS_MS
        )
        self._search_latency = histogram("mcp_files_search_latency_ms", "One search.", buckets=_MS_BUCKETS)
        self._rerank_failures = counter("mcp_files_search_rerank_fail", "Searches whose reranker failed.")
        self._visibility_lag = histogram(
            "mcp_files_index_visibility_lag_ms",
            "Time from the commit of a change until lexical search finds it.",
            buckets=_LAG_BUCKETS_MS,
        )
        Gauge("mcp_files_index_slo_p95_seconds", "Target of the p95 lag.", registry=registry).set(slo_p95_seconds)

    def changed(self, tool: str, status: str) -> None:
        """A change ended: `ok`, or the code of its error."""
        self._mutations.labels(tool, status).inc()

    def waited_for_lock(self, seconds: float) -> None:
        self._lock_wait.observe(seconds * 1000)

    def queued(self, jobs: int) -> None:
        self._queue_depth.set(jobs)

    def indexed(self, seconds: float) -> None:
        self._job_latency.observe(seconds * 1000)

    def visible_after(self, seconds: float) -> None:
        self._visibility_lag.observe(seconds * 1000)

    def searched(self, seconds: float) -> None:
        self._search_latency.observe(seconds * 1000)

    def did_without_reranker(self) -> None:
        self._rerank_failures.inc()
