"""Leaves a service alone for a caller for whom it keeps failing, and has one call try it again after a while."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Generator
from contextlib import contextmanager

import anyio

from armarium.foundation.circuit_breaker import Attempt, GuardedService

_FAILURES = 3
_LEFT_ALONE_S = 30.0
_CALLERS_REMEMBERED = 10_000


class CallerCircuitBreakers:
    """Counts failures in a row, caller by caller: a service is asked with the caller's own key and about the caller's
    own texts, so what fails for one may work for others."""

    def __init__(
        self, failures: int = _FAILURES, left_alone_s: float = _LEFT_ALONE_S, now: Callable[[], float] | None = None
    ) -> None:
        self._failures = failures
        self._left_alone_s = left_alone_s
        self._now = now or anyio.current_time
        self._services: OrderedDict[str, GuardedService] = OrderedDict()
        """As callers with calls under way or failures see the service; the latest last."""

    @contextmanager
    def attempt(self, tenant: str) -> Generator[Attempt]:
        """Ask the service within the block if the attempt is admitted, and mark it if it failed."""
        service = self._services.get(tenant) or GuardedService(self._failures, self._left_alone_s, self._now)
        self._remember(tenant, service)
        with service.attempt() as attempt:
            yield attempt
        if attempt.failed:
            self._remember(tenant, service)
        elif attempt.admitted:
            # A call that began before the break and is answered after it ends it: the service works again.
            self._services.pop(tenant, None)

    def _remember(self, tenant: str, service: GuardedService) -> None:
        self._services[tenant] = service
        self._services.move_to_end(tenant)
        if len(self._services) > _CALLERS_REMEMBERED:
            self._services.popitem(last=False)
