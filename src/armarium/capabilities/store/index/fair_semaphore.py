"""A semaphore that tenants share fairly: they take turns, and no tenant can hold all slots."""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import anyio
import anyio.lowlevel


class FairSemaphore:
    """`total` slots, of which one tenant can hold at most `each`.

    A free slot goes to the waiting tenant that holds the fewest; among equals, to the one that has waited longest.
    Waiters of one tenant are served in order.
    """

    def __init__(self, total: int, *, each: int) -> None:
        self.total = total
        self.each = min(each, total)
        self._held: Counter[str] = Counter()
        self._queues: dict[str, deque[anyio.Event]] = {}
        """Waiters by tenant; the tenant whose turn was last comes last."""

    def waiting(self, tenant: str) -> int:
        return len(self._queues.get(tenant, ()))

    @asynccontextmanager
    async def held(
        self, tenant: str, *, timeout_s: float = math.inf, refusal: Exception | None = None
    ) -> AsyncGenerator[None]:
        """Wait for a slot, and hold it for the duration of the block. Raises the `refusal` after the timeout."""
        if self._queues or self._held[tenant] >= self.each or self._held.total() >= self.total:
            with anyio.move_on_after(timeout_s) as waiting:
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
            if waiting.cancelled_caught:
                raise refusal or TimeoutError
        else:
            self._held[tenant] += 1
        try:
            # Without it a cancelled task would start its block, and run until the first checkpoint in it.
            await anyio.lowlevel.checkpoint_if_cancelled()
            yield
        finally:
            self._release(tenant)

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
