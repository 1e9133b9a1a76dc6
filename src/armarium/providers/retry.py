"""When a vendor is asked, and when it is asked again: tries, growing waits, and the rate everybody shares."""

from __future__ import annotations

import math
import random
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC
from email.utils import parsedate_to_datetime

import anyio

from armarium.providers.errors import ProviderError, ProviderRateLimited


@dataclass(frozen=True, slots=True)
class Timing:
    """The clock and the chance that waits depend on."""

    now: Callable[[], float] = time.monotonic
    wall: Callable[[], float] = time.time
    sleep: Callable[[float], Awaitable[None]] = anyio.sleep
    chance: Callable[[], float] = random.random


@dataclass(frozen=True, slots=True)
class Patience:
    """How long a vendor is waited for, and how often it is asked again."""

    tries: int = 6
    """What nobody waits for is asked again after a rate limit until its deadline, however often that is."""
    first_wait_s: float = 0.5
    longest_wait_s: float = 20.0
    longest_retry_after_s: float = 60.0
    """A vendor that wants to be left alone for longer is not waited for."""
    try_s: float = 60.0
    """For one try; in a stream, for each event."""
    deadline_s: float = 180.0
    """For all tries of a request and the waits between them; for a stream, until its end."""


class Pace:
    """The moments at which requests may start, shared by all requests to a vendor."""

    def __init__(self, requests_per_minute: float | None, timing: Timing) -> None:
        # Evenly, not in bursts: vendors that name a limit by the minute enforce it by the second.
        self._interval_s = 60.0 / requests_per_minute if requests_per_minute else 0.0
        self._timing = timing
        self._next = -math.inf

    def wait_s(self) -> float:
        """How long a request that came now would wait."""
        return max(0.0, self._next - self._timing.now())

    async def turn(self) -> None:
        """Return when the next request may start."""
        wait_s = self.wait_s()
        self._next = self._timing.now() + wait_s + self._interval_s
        if wait_s:
            await self._timing.sleep(wait_s)

    def hold(self, seconds: float) -> None:
        """Let no request start for so long: what one was told about the rate is true for all."""
        self._next = max(self._next, self._timing.now() + seconds)


class Tries:
    """The tries that one request has, and the time it has for them."""

    def __init__(
        self, patience: Patience, timing: Timing, deadline_s: float | None = None, *, urgent: bool = False
    ) -> None:
        self._urgent = urgent
        self._patience = patience
        self._timing = timing
        self._deadline_s = patience.deadline_s if deadline_s is None else deadline_s
        self._ends_at: float | None = None
        self._failed = 0

    def begin(self) -> None:
        """Let the time run from now, unless it already does."""
        if self._ends_at is None:
            self._ends_at = self._timing.now() + self._deadline_s

    @property
    def left_s(self) -> float:
        """How much time is left, whatever is done with it."""
        return self._deadline_s if self._ends_at is None else max(0.0, self._ends_at - self._timing.now())

    @property
    def try_s(self) -> float:
        """How long the next wait for the vendor may be."""
        return min(self._patience.try_s, self.left_s)

    def wait_after(self, error: ProviderError) -> float | None:
        """How long to wait before the next try; None when there is none."""
        self._failed += 1
        # A quota by the minute is waited out as long as nobody waits for the answer.
        endless = isinstance(error, ProviderRateLimited) and not self._urgent
        if not error.retryable or (self._failed >= self._patience.tries and not endless):
            return None
        wait_s = error.retry_after_s
        if wait_s is None:
            longest = min(self._patience.longest_wait_s, self._patience.first_wait_s * 2.0 ** min(self._failed - 1, 30))
            # Requests that failed together must not come back together.
            wait_s = longest * (0.5 + 0.5 * self._timing.chance())
        elif wait_s > self._patience.longest_retry_after_s:
            return None
        return wait_s if wait_s < self.left_s else None


def retry_after_s(header: str | None, wall: float) -> float | None:
    """The seconds that a Retry-After header asks for, given as a number or as a date; None when it says neither."""
    if header is None:
        return None
    try:
        seconds = float(header)
    except ValueError:
        try:
            date = parsedate_to_datetime(header)
        except (ValueError, OverflowError):
            return None
        try:
            seconds = (date if date.tzinfo else date.replace(tzinfo=UTC)).timestamp() - wall
        except OverflowError:
            return None
    return max(0.0, seconds) if math.isfinite(seconds) else None
