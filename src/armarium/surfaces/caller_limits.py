"""What one caller may have in flight, so that no caller starves another; the same for every surface."""

from __future__ import annotations

import asyncio
import gc
import math
import weakref
from collections import Counter, deque
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass

import anyio

from armarium.foundation.errors import TooManyCalls
from armarium.foundation.processes.memory import give_memory_back

MIB = 1024 * 1024

_RETRY_AFTER_MS = 1000
_TRIM_AFTER_S = 1.0
_MAX_VALUES = 200_000


@dataclass(frozen=True, slots=True)
class CallLimits:
    """How much a call may carry, and how much of it a caller may have in flight. `limits` in the settings."""

    calls_in_flight: int = 256
    searches_in_flight: int = 16
    max_argument_values: int = _MAX_VALUES
    max_argument_depth: int = 64
    max_response_bytes: int = 64 * MIB
    response_bytes_in_flight: int = 64 * MIB
    total_response_bytes_in_flight: int = 256 * MIB


@dataclass(frozen=True, slots=True)
class RequestLimits:
    """How fast a caller may send requests over HTTP, and how much of them. `limits` in the settings, too."""

    requests_per_second: float | None = 500.0
    request_burst: int = 2000
    request_bytes_in_flight: int = 64 * MIB
    total_request_bytes_in_flight: int = 256 * MIB
    max_values: int = _MAX_VALUES


class CallsInFlight:
    """Counts the calls of each caller. Too many are refused; searches above their own limit wait for a turn."""

    def __init__(self, limits: CallLimits) -> None:
        self._most_calls = limits.calls_in_flight
        self._most_searches = limits.searches_in_flight
        self._calls: Counter[str] = Counter()
        self._searches: dict[str, _Turns] = {}

    def enter(self, caller: str) -> None:
        """One call more; raises `TooManyCalls`. Every call that enters must leave."""
        if self._calls[caller] >= self._most_calls:
            raise TooManyCalls(
                f"there are {self._most_calls} calls of yours in flight already",
                hint="wait for one of them to end",
                limit="calls_in_flight",
                retry_after_ms=_RETRY_AFTER_MS,
            )
        self._calls[caller] += 1

    def leave(self, caller: str) -> None:
        """The call has ended."""
        self._calls[caller] -= 1
        if not self._calls[caller]:
            del self._calls[caller]

    @asynccontextmanager
    async def search_turn(self, caller: str) -> AsyncGenerator[None]:
        """While inside, one of the caller's searches runs; those of other callers are not waited for."""
        turns = self._searches.setdefault(caller, _Turns(self._most_searches))
        turns.users += 1
        try:
            async with turns.running:
                yield
        finally:
            turns.users -= 1
            if not turns.users:
                del self._searches[caller]


class _Turns:
    def __init__(self, most: int) -> None:
        self.running = anyio.Semaphore(most, fast_acquire=True)
        self.users = 0
        """Searches that run or wait; without any, nothing needs to be remembered."""


class BytesInFlight:
    """Bytes in memory, for each caller and for all of them. What does not fit waits for its turn.

    What is larger than a limit still fits when nothing else counts against that limit: it must not be impossible.
    """

    def __init__(
        self,
        setting: str,
        most_of_one: int,
        most_of_all: int,
        *,
        most_waiting: tuple[float, float] = (math.inf, math.inf),
    ) -> None:
        self._setting = setting
        self._most_of_one = most_of_one
        self._most_of_all = most_of_all
        self._most_waiting_of_one, self._most_waiting_of_all = most_waiting
        self._held: Counter[str] = Counter()
        self._total = 0
        self._waiting: deque[_Waiting] = deque()
        self._trim_timer: asyncio.TimerHandle | None = None

    @property
    def total(self) -> int:
        """What is in memory now."""
        return self._total

    async def acquire(self, caller: str, size: int) -> Held:
        """Wait until so many bytes more fit; raises `TooManyCalls` when more wait than may."""
        of_caller = [each.size for each in self._waiting if each.caller == caller]
        of_all = sum(each.size for each in self._waiting)
        too_many = sum(of_caller) + size > self._most_waiting_of_one or of_all + size > self._most_waiting_of_all
        if of_caller and too_many:
            raise too_many_bytes(self._setting)
        if not of_caller and self._fits(caller, size):
            self._take(caller, size)
            return Held(self, caller, size)
        waiting = _Waiting(caller, size, anyio.Event())
        self._waiting.append(waiting)
        try:
            await waiting.admitted.wait()
        except BaseException:
            if waiting.admitted.is_set():
                self._put_back(caller, size)
            else:
                self._waiting.remove(waiting)
            raise
        return Held(self, caller, size)

    def change(self, caller: str, difference: int) -> None:
        """The bytes turned out to be more, or fewer, than was thought."""
        if difference > 0:
            self._take(caller, difference)
        elif difference < 0:
            self._put_back(caller, -difference)

    def _fits(self, caller: str, size: int) -> bool:
        held = self._held[caller]
        fits_caller = not held or held + size <= self._most_of_one
        return fits_caller and (not self._total or self._total + size <= self._most_of_all)

    def _take(self, caller: str, size: int) -> None:
        self._held[caller] += size
        self._total += size

    def _put_back(self, caller: str, size: int) -> None:
        self._held[caller] -= size
        if not self._held[caller]:
            del self._held[caller]
        self._total -= size
        self._admit_waiting()
        if not self._total and self._trim_timer is None:
            self._trim_timer = asyncio.get_running_loop().call_later(_TRIM_AFTER_S, self._trim)

    def _trim(self) -> None:
        """Large messages leave the C library with much free memory. Nobody needs it soon, unless another one comes."""
        self._trim_timer = None
        if not self._total:
            asyncio.get_running_loop().run_in_executor(None, _collect)

    def _admit_waiting(self) -> None:
        """Admit those that fit, in the order they came; one that does not fit holds up only its own caller."""
        held_up = set[str]()
        for waiting in list(self._waiting):
            if waiting.caller in held_up:
                continue
            if self._fits(waiting.caller, waiting.size):
                self._waiting.remove(waiting)
                self._take(waiting.caller, waiting.size)
                waiting.admitted.set()
            else:
                held_up.add(waiting.caller)


def too_many_bytes(setting: str) -> TooManyCalls:
    """The refusal of what would have to wait for too long, or with too much in memory."""
    return TooManyCalls(
        "too much of yours is on its way",
        hint="read the answers before you ask for more, or ask for smaller parts",
        limit=setting,
        retry_after_ms=_RETRY_AFTER_MS,
    )


class _Waiting:
    """Bytes that did not fit when they came."""

    def __init__(self, caller: str, size: int, admitted: anyio.Event) -> None:
        self.caller = caller
        self.size = size
        self.admitted = admitted


class Held:
    """A caller's share of the bytes in flight, until it is released."""

    def __init__(self, budget: BytesInFlight, caller: str, size: int) -> None:
        self._budget = budget
        self._caller = caller
        self._size = size

    def resize(self, size: int) -> None:
        """The size as it turned out."""
        difference, self._size = size - self._size, size
        self._budget.change(self._caller, difference)

    def release(self) -> None:
        """Nothing of it is in memory any more. A second time changes nothing."""
        self.resize(0)

    def release_with(self, holders: Sequence[object]) -> None:
        """Release when the last of the objects that hold the bytes is gone: sent, or given up."""
        loop, remaining = asyncio.get_running_loop(), len(holders)

        def gone() -> None:
            nonlocal remaining
            remaining -= 1
            if not remaining:
                # The last reference may go in any thread, also after the loop.
                with suppress(RuntimeError):
                    loop.call_soon_threadsafe(self.release)

        for holder in holders:
            weakref.finalize(holder, gone).atexit = False


def _collect() -> None:
    # Calls that waited or failed leave reference cycles that hold whole messages until the collector runs by itself,
    # which takes as long.
    gc.collect()
    give_memory_back()
