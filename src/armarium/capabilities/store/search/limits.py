"""Limits of searches: how many run at once, and circuit breakers for the models of each caller."""

from __future__ import annotations

import sys
from collections import OrderedDict
from collections.abc import Callable, Generator
from contextlib import AbstractAsyncContextManager, contextmanager

import anyio

from armarium.capabilities.store.errors import RateLimited, ResourceBusy
from armarium.capabilities.store.index.fair_semaphore import FairSemaphore
from armarium.capabilities.store.settings import SearchSettings
from armarium.foundation.concurrency.circuit_breaker import Attempt, GuardedService

_SHARE_FOR_SEARCHES = 4
"""How many of ten database connections searches may use."""

_FAILURES = 3
_OPEN_S = 30.0
_MAX_CALLERS = 10_000


class SearchesBusy(ResourceBusy):
    """Searches of other callers use all slots for statements."""


def statements_at_once(pool_size: int) -> int:
    return max(1, pool_size * _SHARE_FOR_SEARCHES // 10)


class SearchAdmission:
    """Admits searches and their statements. Callers take turns, and no caller gets all slots."""

    def __init__(self, settings: SearchSettings, *, statements: int) -> None:
        self._settings = settings
        self._searches = FairSemaphore(sys.maxsize, each=settings.concurrent_per_caller)
        self._statements = FairSemaphore(statements, each=max(1, statements - 1))

    def search(self, tenant: str) -> AbstractAsyncContextManager[None]:
        """Admit one search of a caller. Raises RATE_LIMITED if too many wait, or if it waits too long."""
        refusal = RateLimited(
            f"a caller has at most {self._settings.concurrent_per_caller} concurrent searches",
            hint="wait for the results of earlier searches before sending more",
            retry_after_ms=self._settings.wait_ms,
        )
        if self._searches.waiting(tenant) >= self._settings.waiting_per_caller:
            raise refusal
        return self._searches.held(tenant, timeout_s=self._settings.wait_ms / 1000, refusal=refusal)

    def statement(self, tenant: str) -> AbstractAsyncContextManager[None]:
        """Admit one statement of a search, in turn among all callers. Raises RESOURCE_BUSY after a timeout."""
        refusal = SearchesBusy("too many searches are running", hint="try again in a moment")
        return self._statements.held(tenant, timeout_s=self._settings.wait_ms / 1000, refusal=refusal)


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
