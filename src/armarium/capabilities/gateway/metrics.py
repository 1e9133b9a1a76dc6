"""What is counted of the servers behind the gateway."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Histogram

_BUCKETS = (0.005, 0.02, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)


class GatewayMetrics:
    """Calls by server, tool and how they ended. The registry bounds the names."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._calls = Counter(
            "armarium_gateway_calls", "Calls to servers behind the gateway", ("server", "tool", "outcome"),
            registry=registry,
        )  # fmt: skip
        self._seconds = Histogram(
            "armarium_gateway_call_seconds", "How long they took", ("server",), buckets=_BUCKETS, registry=registry
        )

    def asked(self, server: str, tool: str, outcome: str, seconds: float) -> None:
        """A server was asked, and answered, refused or failed."""
        self._calls.labels(server, tool, outcome).inc()
        self._seconds.labels(server).observe(seconds)
