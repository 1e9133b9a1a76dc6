"""When a server that could not be connected may be tried again: twice as long after every attempt."""

from __future__ import annotations

import random
from collections.abc import Callable

FIRST_PAUSE_S = 0.25
LONGEST_PAUSE_S = 60.0
JITTER = 0.2
"""By how much a pause may differ, so that many gateways do not knock at the same moment."""
_MOST_DOUBLINGS = 16


class Attempts:
    """Counts attempts that failed in a row."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._failed = 0
        self._not_before = 0.0

    @property
    def pause_s(self) -> float:
        """How long nobody is to try, from now."""
        return max(0.0, self._not_before - self._now())

    def failed(self, took_s: float) -> None:
        """Pause at least as long as the attempt took, so that most calls fail fast while a server hangs."""
        doubled_s = min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2**self._failed)
        self._failed = min(self._failed + 1, _MOST_DOUBLINGS)
        spread = random.uniform(1 - JITTER, 1 + JITTER)  # noqa: S311 no secret depends on it
        self._not_before = self._now() + max(took_s, doubled_s) * spread

    def succeeded(self) -> None:
        """Whatever ends now had worked: the next call may try at once."""
        self._failed, self._not_before = 0, 0.0
