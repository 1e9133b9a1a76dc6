"""Circuit breakers for the embedder and the reranker, one for each caller."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Generator
from contextlib import contextmanager

import anyio

from armarium.foundation.circuit_breaker import Attempt, GuardedService

_FAILURES = 3
_OPEN_S = 30.0
_MAX_CALLERS = 10_000


class CallerCircuitBreakers:
    """Counts consecutive failures of a service for each caller separately, since each caller sends their own key and
    texts: requests of one caller may fail while those of others succeed."""

    def __init__(self, now: Callable[[], float] = anyio.current_time) -> None:
        self._now = now
        self._services: OrderedDict[str, GuardedService] = OrderedDict()
        """State of the callers that have calls in progress or recent failures; the most recent caller comes last."""

    @contextmanager
    def attempt(self, tenant: str) -> Generator[Attempt]:
        """Call the service in the block if the attempt is admitted, and set `attempt.failed` if it fails."""
        service = self._services.get(tenant) or GuardedService(_FAILURES, _OPEN_S, self._now)
        self._remember(tenant, service)
        with service.attempt() as attempt:
            yield attempt
        if attempt.failed:
            self._remember(tenant, service)
        elif attempt.admitted:
            # A success closes the circuit, also that of a call that began before it opened.
            self._services.pop(tenant, None)

    def _remember(self, tenant: str, service: GuardedService) -> None:
        self._services[tenant] = service
        self._services.move_to_end(tenant)
        if len(self._services) > _MAX_CALLERS:
            self._services.popitem(last=False)
