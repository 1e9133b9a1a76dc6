"""Metrics of the store, with the names of its contract."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

_MS_BUCKETS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000)
_LAG_BUCKETS_MS = (50, 100, 200, 500, 1000, 2000, 5000, 10_000, 30_000, 60_000, 300_000)


class StoreMetrics:
    """Metrics of one open store: functions that count or observe. Metrics of times are in milliseconds."""

    def __init__(self, registry: CollectorRegistry, *, slo_p95_seconds: float) -> None:
        counter, histogram = partial(Counter, registry=registry), partial(Histogram, registry=registry)
        self._mutations = counter("mcp_files_mutation", "Changes by tool and status.", ["tool", "status"])
        lock_wait = histogram("mcp_files_lock_wait_ms", "Wait for the lock of a project.", buckets=_MS_BUCKETS)
        self.waited_for_lock = _in_seconds(lock_wait)
        self.queued = Gauge("mcp_files_index_queue_depth", "Pending index jobs.", registry=registry).set
        job_latency = histogram("mcp_files_index_job_latency_ms", "The last stage of one job.", buckets=_LAG_BUCKETS_MS)
        self.indexed = _in_seconds(job_latency)
        self.searched = _in_seconds(histogram("mcp_files_search_latency_ms", "One search.", buckets=_MS_BUCKETS))
        self.did_without_reranker = counter("mcp_files_search_rerank_fail", "Searches whose reranker failed.").inc
        visibility_lag = histogram(
            "mcp_files_index_visibility_lag_ms",
            "Time from the commit of a change until lexical search finds it.",
            buckets=_LAG_BUCKETS_MS,
        )
        self.visible_after = _in_seconds(visibility_lag)
        Gauge("mcp_files_index_slo_p95_seconds", "Target of the p95 lag.", registry=registry).set(slo_p95_seconds)

    def changed(self, tool: str, status: str) -> None:
        """A change ended: `ok`, or the code of its error."""
        self._mutations.labels(tool, status).inc()


def _in_seconds(histogram: Histogram) -> Callable[[float], None]:
    return lambda seconds: histogram.observe(seconds * 1000)
