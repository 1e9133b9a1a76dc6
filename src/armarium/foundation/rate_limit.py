"""How often a caller may call: a bucket of tokens for each of them, in this process."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass

from armarium.foundation.errors import ArmariumError

_SWEEP_AT = 10_000


@dataclass(slots=True)
class _Bucket:
    tokens: float
    filled_at: float


class RateLimit:
    """Lets each caller call `burst` times at once and `calls_per_second` times a second over a longer time."""

    def __init__(
        self,
        calls_per_second: float,
        burst: int,
        refusal: type[ArmariumError],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._refusal = refusal
        self._rate = calls_per_second
        self._burst = burst
        self._clock = clock
        self._buckets: dict[str, _Bucket] = {}

    def take(self, caller: str) -> None:
        """One call of a caller; refused when it is one too many, with how long to wait."""
        self.reserve(caller, patience_s=0)

    def reserve(self, caller: str, patience_s: float) -> float:
        """One call of a caller: how many seconds it has to wait; refused when that is more than `patience_s`."""
        now = self._clock()
        bucket = self._buckets.get(caller) or self._new_bucket(caller, now)
        bucket.tokens = min(self._burst, bucket.tokens + (now - bucket.filled_at) * self._rate)
        bucket.filled_at = now
        wait_s = max(0.0, (1 - bucket.tokens) / self._rate)
        if wait_s > patience_s:
            wait_ms = max(1, math.ceil(wait_s * 1000))
            raise self._refusal("too many calls", hint=f"try again in {wait_ms} ms", retry_after_ms=wait_ms)
        bucket.tokens -= 1
        return wait_s

    def _new_bucket(self, caller: str, now: float) -> _Bucket:
        if len(self._buckets) >= _SWEEP_AT:
            # A bucket that is full again by now is the same as none.
            self._buckets = {
                other: bucket
                for other, bucket in self._buckets.items()
                if (now - bucket.filled_at) * self._rate < self._burst - bucket.tokens
            }
        return self._buckets.setdefault(caller, _Bucket(float(self._burst), now))
