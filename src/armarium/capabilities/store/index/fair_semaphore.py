"""A semaphore that tenants share fairly: they take turns, and none of them can hold it all."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import anyio


class FairSemaphore:
    """At most `total` slots are held at once, at most `each` of them by one tenant.

    A free slot goes to the waiting tenant that has the fewest; among equals, to the one that has waited the longest for
    its turn. Those of one tenant get theirs in the order in which they came.
    """

    def __init__(self, total: int, *, each: int) -> None:
        self.total = total
        self.each = min(each, total)
        self._held: Counter[str] = Counter()
        self._queues: dict[str, deque[anyio.Event]] = {}
        """Those who wait, by tenant; the tenant whose turn was last stands last."""

    def waiting(self, tenant: str) -> int:
        """How many of a tenant wait for a slot."""
        return len(self._queues.get(tenant, ()))

    @asynccontextmanager
    async def held(self, tenant: str) -> AsyncGenerator[None]:
        """Wait for a slot, and hold it for as long as the block runs."""
        await self._acquire(tenant)
        try:
            yield
        finally:
            self._release(tenant)

    async def _acquire(self, tenant: str) -> None:
        granted = anyio.Event()
        self._queues.setdefault(tenant, deque()).append(granted)
        self._grant_next()
        try:
            await granted.wait()
        except BaseException:
            if granted.is_set():
                self._release(tenant)
            else:
                self._forget(tenant, granted)
            raise

    def _release(self, tenant: str) -> None:
        self._held[tenant] -= 1
        if not self._held[tenant]:
            del self._held[tenant]
        self._grant_next()

    def _grant_next(self) -> None:
        while self._held.total() < self.total:
            waiting = [tenant for tenant in self._queues if self._held[tenant] < self.each]
            if not waiting:
                return
            tenant = min(waiting, key=self._held.__getitem__)
            granted = self._queues[tenant][0]
            self._forget(tenant, granted)
            if tenant in self._queues:
                self._queues[tenant] = self._queues.pop(tenant)
            self._held[tenant] += 1
            granted.set()

    def _forget(self, tenant: str, granted: anyio.Event) -> None:
        queue = self._queues[tenant]
        queue.remove(granted)
        if not queue:
            del self._queues[tenant]
