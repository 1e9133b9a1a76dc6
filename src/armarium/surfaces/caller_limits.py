"""Limits what each caller has in flight, on every surface, so that no caller starves another."""

from __future__ import annotations

import asyncio
import gc
import math
import weakref
from collections import Counter, deque
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

import anyio

from armarium.foundation.concurrency.tasks import PerCaller
from armarium.foundation.errors import TooManyCalls
from armarium.foundation.processes.memory import give_memory_back
from armarium.foundation.settings.model import LimitSettings

_RETRY_AFTER_MS = 1000
_TRIM_AFTER_S = 1.0


class CallsInFlight:
    """Counts the calls of each caller. Calls above the limit are rejected; searches above theirs wait."""

    def __init__(self, limits: LimitSettings) -> None:
        self._max_calls = limits.calls_in_flight
        self._calls: Counter[str] = Counter()
        self.search_slots = PerCaller(partial(anyio.Semaphore, limits.searches_in_flight, fast_acquire=True))
        """A search runs in a turn of its caller: it waits only for searches of the same caller."""

    def enter(self, caller: str, max_calls: int | None = None) -> None:
        """Count a call; raises `TooManyCalls` above the limit, which `max_calls` replaces. Every call that enters must
        leave."""
        most = max_calls or self._max_calls
        if self._calls[caller] >= most:
            raise TooManyCalls(
                f"you already have {most} calls in flight",
                hint="wait for one of them to end",
                limit="calls_in_flight",
                retry_after_ms=_RETRY_AFTER_MS,
            )
        self._calls[caller] += 1

    def leave(self, caller: str) -> None:
        """Stop counting a call that has ended."""
        self._calls[caller] -= 1
        if not self._calls[caller]:
            del self._calls[caller]


class BytesInFlight:
    """Limits the bytes in memory, per caller and in total. Messages that exceed a limit wait. A message larger than a
    limit is admitted when nothing else counts against that limit."""

    def __init__(
        self,
        setting: str,
        max_per_caller: int,
        max_total: int,
        *,
        max_waiting: tuple[float, float] = (math.inf, math.inf),
    ) -> None:
        self._setting = setting
        self._max_per_caller = max_per_caller
        self._max_total = max_total
        self._max_waiting_per_caller, self._max_waiting_total = max_waiting
        self._held: Counter[str] = Counter()
        self.total = 0
        """The bytes reserved now."""
        self.waiting: deque[_Waiter] = deque()
        """The messages that wait, in order of arrival."""
        self._trim_timer: asyncio.TimerHandle | None = None

    async def acquire(self, caller: str, size: int) -> Reservation:
        """Wait until `size` more bytes fit; raises `TooManyCalls` if too much waits already."""
        of_caller = [each.size for each in self.waiting if each.caller == caller]
        of_all = sum(each.size for each in self.waiting)
        too_many = sum(of_caller) + size > self._max_waiting_per_caller or of_all + size > self._max_waiting_total
        if of_caller and too_many:
            raise TooManyCalls(
                "too many of your bytes are in flight",
                hint="read the answers before you ask for more, or ask for smaller parts",
                limit=self._setting,
                retry_after_ms=_RETRY_AFTER_MS,
            )
        if not of_caller and self._fits(caller, size):
            self.change(caller, size)
            return Reservation(self, caller, size)
        waiter = _Waiter(caller, size, anyio.Event())
        self.waiting.append(waiter)
        try:
            await waiter.admitted.wait()
        except BaseException:
            if waiter.admitted.is_set():
                self.change(caller, -size)
            else:
                self.waiting.remove(waiter)
            raise
        return Reservation(self, caller, size)

    def change(self, caller: str, difference: int) -> None:
        """Add to the reserved bytes, or release some of them."""
        self._held[caller] += difference
        self.total += difference
        if not self._held[caller]:
            del self._held[caller]
        if difference < 0:
            self._admit_waiting()
            if not self.total and self._trim_timer is None:
                self._trim_timer = asyncio.get_running_loop().call_later(_TRIM_AFTER_S, self._trim)

    def _fits(self, caller: str, size: int) -> bool:
        held = self._held[caller]
        fits_caller = not held or held + size <= self._max_per_caller
        return fits_caller and (not self.total or self.total + size <= self._max_total)

    def _trim(self) -> None:
        """Return freed memory to the system, unless another large message has arrived."""
        self._trim_timer = None
        if not self.total:
            asyncio.get_running_loop().run_in_executor(None, _collect)

    def _admit_waiting(self) -> None:
        """Admit waiting messages that fit, in order of arrival. One that does not fit blocks only its own caller."""
        blocked = set[str]()
        for waiter in list(self.waiting):
            if waiter.caller not in blocked and self._fits(waiter.caller, waiter.size):
                self.waiting.remove(waiter)
                self.change(waiter.caller, waiter.size)
                waiter.admitted.set()
            else:
                blocked.add(waiter.caller)


@dataclass(frozen=True, slots=True, eq=False)
class _Waiter:
    """A message that waits for its bytes."""

    caller: str
    size: int
    admitted: anyio.Event


class Reservation:
    """Bytes reserved for one message of a caller, until they are released."""

    def __init__(self, budget: BytesInFlight, caller: str, size: int) -> None:
        self._budget = budget
        self._caller = caller
        self._size = size

    def resize(self, size: int) -> None:
        """Set the actual size."""
        difference, self._size = size - self._size, size
        self._budget.change(self._caller, difference)

    def release(self) -> None:
        """Release all bytes. Idempotent."""
        self.resize(0)

    def release_with(self, holders: Sequence[object]) -> None:
        """Release when the last of the objects that hold the bytes has been garbage-collected."""
        loop, remaining = asyncio.get_running_loop(), len(holders)

        def gone() -> None:
            nonlocal remaining
            remaining -= 1
            if not remaining:
                # The last reference may be dropped in any thread, even after the loop is closed.
                with suppress(RuntimeError):
                    loop.call_soon_threadsafe(self.release)

        for holder in holders:
            weakref.finalize(holder, gone).atexit = False


def _collect() -> None:
    # Calls that waited or failed leave reference cycles that hold whole messages until the next collection.
    gc.collect()
    give_memory_back()
