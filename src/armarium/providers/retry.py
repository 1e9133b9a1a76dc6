"""Retry policy, rate limiter and clock for requests to a provider."""

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
class Clock:
    """The sources of time and of random numbers that delays depend on."""

    now: Callable[[], float] = time.monotonic
    wall: Callable[[], float] = time.time
    sleep: Callable[[float], Awaitable[None]] = anyio.sleep
    random: Callable[[], float] = random.random


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How often a request is attempted, and how long it may take."""

    max_attempts: int = 6
    """Background requests ignore this limit while they are rate limited: they retry until their deadline."""
    first_delay_s: float = 0.5
    max_delay_s: float = 20.0
    max_retry_after_s: float = 60.0
    """A request fails when the provider asks for a longer delay."""
    attempt_timeout_s: float = 60.0
    """For one attempt; in a stream, for each event."""
    deadline_s: float = 180.0
    """For all attempts of a request and the delays between them; for a stream, until its end."""


class RateLimiter:
    """Spaces the requests to a provider. All requests of a client share one limiter."""

    def __init__(self, requests_per_minute: float | None, clock: Clock) -> None:
        # Evenly, not in bursts: providers that state a limit per minute enforce it per second.
        self._interval_s = 60.0 / requests_per_minute if requests_per_minute else 0.0
        self._clock = clock
        self._next = -math.inf

    def delay_s(self) -> float:
        """How long a request that arrives now has to wait."""
        return max(0.0, self._next - self._clock.now())

    async def acquire(self) -> None:
        delay_s = self.delay_s()
        self._next = self._clock.now() + delay_s + self._interval_s
        if delay_s:
            await self._clock.sleep(delay_s)

    def pause(self, seconds: float) -> None:
        """Delay all requests: a rate limit reported to one of them applies to the whole account."""
        self._next = max(self._next, self._clock.now() + seconds)


class Attempts:
    """The attempts of one request, and the time left for them."""

    def __init__(
        self, policy: RetryPolicy, clock: Clock, deadline_s: float | None = None, *, urgent: bool = False
    ) -> None:
        self._urgent = urgent
        self._policy = policy
        self._clock = clock
        self._deadline_s = policy.deadline_s if deadline_s is None else deadline_s
        self._ends_at: float | None = None
        self._failed = 0

    def start(self) -> None:
        if self._ends_at is None:
            self._ends_at = self._clock.now() + self._deadline_s

    @property
    def remaining_s(self) -> float:
        return self._deadline_s if self._ends_at is None else max(0.0, self._ends_at - self._clock.now())

    @property
    def timeout_s(self) -> float:
        return min(self._policy.attempt_timeout_s, self.remaining_s)

    def delay_after(self, error: ProviderError) -> float | None:
        """The delay before the next attempt; None when the error is final."""
        self._failed += 1
        # No caller waits for a background request, so it can wait for the next minute's quota.
        unlimited = isinstance(error, ProviderRateLimited) and not self._urgent
        if not error.retryable or (self._failed >= self._policy.max_attempts and not unlimited):
            return None
        if (delay_s := error.retry_after_s) is None:
            longest = min(self._policy.max_delay_s, self._policy.first_delay_s * 2.0 ** min(self._failed - 1, 30))
            # With jitter, so that requests that failed together are not repeated together.
            delay_s = longest * (0.5 + 0.5 * self._clock.random())
        elif delay_s > self._policy.max_retry_after_s:
            return None
        return delay_s if delay_s < self.remaining_s else None


def parse_retry_after(header: str | None, wall: float) -> float | None:
    """The seconds in a Retry-After header, which holds a number or a date; None when it is absent or invalid."""
    if header is None:
        return None
    try:
        seconds = float(header)
    except ValueError:
        try:
            date = parsedate_to_datetime(header)
            seconds = (date if date.tzinfo else date.replace(tzinfo=UTC)).timestamp() - wall
        except (ValueError, OverflowError):
            return None
    return max(0.0, seconds) if math.isfinite(seconds) else None
