"""Concurrency limits of searches: for each caller, and for statements in the database."""

from __future__ import annotations

import sys
from contextlib import AbstractAsyncContextManager

from armarium.capabilities.store.errors import RateLimited, ResourceBusy
from armarium.capabilities.store.index.fair_semaphore import FairSemaphore
from armarium.capabilities.store.settings import SearchSettings

_SHARE_FOR_SEARCHES = 4
"""How many of ten database connections searches may use."""


class SearchesBusy(ResourceBusy):
    """Searches of other callers use all slots for statements."""


def statements_at_once(pool_size: int) -> int:
    """How many connections of a pool searches may use."""
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
