"""Prometheus metrics of the servers behind the gateway."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import get_args

from prometheus_client import CollectorRegistry, Counter, Histogram, Metric
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from armarium.capabilities.gateway.upstreams.types import HealthState, RequestKind, UpstreamHealth

_BUCKETS = (0.005, 0.02, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)


class GatewayMetrics(Collector):
    """Requests by server and outcome, their duration, and the state of each server. Label values are bounded, since
    server names come from the configuration."""

    def __init__(self, registry: CollectorRegistry, health: Callable[[], Iterable[UpstreamHealth]]) -> None:
        self._requests = Counter(
            "armarium_gateway_requests", "Requests to servers behind the gateway", ("server", "request", "outcome"),
            registry=registry,
        )  # fmt: skip
        self._seconds = Histogram(
            "armarium_gateway_request_seconds",
            "Duration of requests to servers behind the gateway",
            ("server",),
            buckets=_BUCKETS,
            registry=registry,
        )
        self._health = health
        registry.register(self)

    def record_request(self, server: str, kind: RequestKind, outcome: str, seconds: float) -> None:
        self._requests.labels(server, kind, outcome).inc()
        self._seconds.labels(server).observe(seconds)

    def collect(self) -> Iterable[Metric]:
        """The state of every current server, collected on scrape."""
        states = GaugeMetricFamily(
            "armarium_gateway_server_state", "1 for the current state of a server", labels=("server", "state")
        )
        for health in self._health():
            for state in get_args(HealthState):
                states.add_metric([health.server, state], float(state == health.state))
        yield states
