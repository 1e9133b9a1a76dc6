"""How many searches run: of one caller, and in the database at all, so that nobody's other calls wait for them."""

from __future__ import annotations

import sys
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

import anyio

from armarium.capabilities.store.errors import RateLimited, ResourceBusy
from armarium.capabilities.store.index.fair_semaphore import FairSemaphore

_SHARE_FOR_SEARCHES = 4
"""Of ten connections to the database, how many searches may use at once."""


@dataclass(frozen=True, slots=True)
class SearchLimits:
    """What searches may take."""

    concurrent_per_caller: int = 4
    waiting_per_caller: int = 32
    wait_s: float = 5.0
    statements: int = 4
    """Statements of searches that run in the database at once."""


class SearchesBusy(ResourceBusy):
    """Searches of other callers take all the room there is for searches."""


def statements_at_once(pool_size: int) -> int:
    """The share of a pool of connections that searches may have."""
    return max(1, pool_size * _SHARE_FOR_SEARCHES // 10)


class SearchAdmission:
    """Admits searches. Callers take turns, and no caller gets all of the room."""

    def __init__(self, limits: SearchLimits) -> None:
        self._limits = limits
        self._searches = FairSemaphore(sys.maxsize, each=limits.concurrent_per_caller)
        self._statements = FairSemaphore(limits.statements, each=max(1, limits.statements - 1))

    @asynccontextmanager
    async def search(self, tenant: str) -> AsyncGenerator[None]:
        """One search of a caller. It waits while others of the same caller run; too many, or too long, is refused."""
        refusal = RateLimited(
            f"a caller has at most {self._limits.concurrent_per_caller} searches at once",
            hint="wait for the answers of earlier searches before sending more",
            retry_after_ms=int(self._limits.wait_s * 1000),
        )
        if self._searches.waiting(tenant) >= self._limits.waiting_per_caller:
            raise refusal
        async with self._admitted(self._searches, tenant, refusal):
            yield

    @asynccontextmanager
    async def statement(self, tenant: str) -> AsyncGenerator[None]:
        """One statement of a search. It waits for its turn among those of all callers."""
        refusal = SearchesBusy("too many searches are running", hint="try again in a moment")
        async with self._admitted(self._statements, tenant, refusal):
            yield

    @asynccontextmanager
    async def _admitted(
        self, semaphore: FairSemaphore, tenant: str, refusal: RateLimited | ResourceBusy
    ) -> AsyncGenerator[None]:
        async with AsyncExitStack() as slot:
            try:
                with anyio.fail_after(self._limits.wait_s):
                    await slot.enter_async_context(semaphore.held(tenant))
            except TimeoutError:
                raise refusal from None
            yield
