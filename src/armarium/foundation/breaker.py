"""A circuit breaker: a server that is gone, or keeps failing, is left alone for a while and then tried apart."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

BreakerState = Literal["closed", "open", "half_open"]


class Breaker:
    """Counts failures in a row. Open, it admits no call; whoever owns it tries the server once the break is over."""

    def __init__(self, failures: int, open_s: float, now: Callable[[], float]) -> None:
        self._limit = failures
        self._open_s = open_s
        self._now = now
        self._in_a_row = 0
        self._opened_at: float | None = None

    @property
    def state(self) -> BreakerState:
        """`half_open` when it is time for a trial, whether or not one is under way."""
        if self._opened_at is None:
            return "closed"
        return "half_open" if self._now() - self._opened_at >= self._open_s else "open"

    @property
    def retry_in_s(self) -> float | None:
        """How long until the next trial; None when calls are admitted."""
        if self._opened_at is None:
            return None
        return max(0.0, self._opened_at + self._open_s - self._now())

    def admits(self) -> bool:
        """Whether calls may go through. None is ever the trial: a server that is still gone would cost it its time."""
        return self._opened_at is None

    def succeeded(self) -> None:
        """A call was answered. What was sent before a break does not end it, for its connection is given up."""
        self._in_a_row = 0

    def failed(self) -> bool:
        """A call failed; whether that is one too many, and the break begins now."""
        self._in_a_row += 1
        return self._in_a_row >= self._limit and self.gone()

    def gone(self) -> bool:
        """The server is known not to answer, so no more failures are needed; whether the break begins now."""
        if self._opened_at is not None:
            return False
        self._opened_at = self._now()
        return True

    def tried(self, well: bool) -> None:
        """The trial ended: all is well, or another break begins."""
        self._in_a_row = 0
        self._opened_at = None if well else self._now()
