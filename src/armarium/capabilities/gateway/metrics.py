"""What is counted of the servers behind the gateway."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import get_args

from prometheus_client import CollectorRegistry, Counter, Histogram, Metric
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from armarium.capabilities.gateway.upstreams.instrumentation import Request
from armarium.capabilities.gateway.upstreams.types import HealthState, UpstreamHealth

_BUCKETS = (0.005, 0.02, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)


class GatewayMetrics:
    """Requests by server and how they ended, and how each server is. The registry of servers bounds the names."""

    def __init__(self, registry: CollectorRegistry, health: Callable[[], Iterable[UpstreamHealth]]) -> None:
        self._requests = Counter(
            "armarium_gateway_requests", "Requests to servers behind the gateway", ("server", "request", "outcome"),
            registry=registry,
        )  # fmt: skip
        self._seconds = Histogram(
            "armarium_gateway_request_seconds", "How long they took", ("server",), buckets=_BUCKETS, registry=registry
        )
        registry.register(_States(health))

    def asked(self, server: str, request: Request, outcome: str, seconds: float) -> None:
        """A server was asked, and answered, refused or failed; or it was not even tried."""
        self._requests.labels(server, request, outcome).inc()
        self._seconds.labels(server).observe(seconds)


class _States(Collector):
    """The state of every server, looked at when somebody looks: a server that is gone has none."""

    def __init__(self, health: Callable[[], Iterable[UpstreamHealth]]) -> None:
        self._health = health

    def collect(self) -> Iterable[Metric]:
        states = GaugeMetricFamily(
            "armarium_gateway_server_state", "1 for the state that a server is in", labels=("server", "state")
        )
        for health in self._health():
            for state in get_args(HealthState):
                states.add_metric([health.server, state], float(state == health.state))
        yield states
