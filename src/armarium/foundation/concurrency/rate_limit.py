"""Rate limits: a token bucket for each caller, in this process."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from armarium.foundation.errors import ArmariumError

_SWEEP_AT = 10_000


@dataclass(slots=True)
class _Bucket:
    tokens: float
    filled_at: float


@dataclass(slots=True, eq=False)
class RateLimit:
    """Allows each caller `burst` calls at once, and `calls_per_second` on average."""

    calls_per_second: float
    burst: int
    refusal: type[ArmariumError]
    clock: Callable[[], float] = time.monotonic
    _buckets: dict[str, _Bucket] = field(default_factory=dict[str, _Bucket], init=False)

    def take(self, caller: str) -> None:
        """Count a call. Raise if it exceeds the limit; the error has the time to wait."""
        self.reserve(caller, max_wait_s=0)

    def reserve(self, caller: str, max_wait_s: float) -> float:
        """Count a call and return how many seconds it must wait. Raise if that is more than `max_wait_s`."""
        now = self.clock()
        bucket = self._buckets.get(caller) or self._new_bucket(caller, now)
        bucket.tokens = min(self.burst, bucket.tokens + (now - bucket.filled_at) * self.calls_per_second)
        bucket.filled_at = now
        wait_s = max(0.0, (1 - bucket.tokens) / self.calls_per_second)
        if wait_s > max_wait_s:
            wait_ms = max(1, math.ceil(wait_s * 1000))
            raise self.refusal("too many calls", hint=f"try again in {wait_ms} ms", retry_after_ms=wait_ms)
        bucket.tokens -= 1
        return wait_s

    def _new_bucket(self, caller: str, now: float) -> _Bucket:
        if len(self._buckets) >= _SWEEP_AT:
            # Full buckets need not be stored.
            self._buckets = {
                other: bucket
                for other, bucket in self._buckets.items()
                if (now - bucket.filled_at) * self.calls_per_second < self.burst - bucket.tokens
            }
        return self._buckets.setdefault(caller, _Bucket(float(self.burst), now))
