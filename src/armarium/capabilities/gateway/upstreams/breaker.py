"""A circuit breaker: a server that keeps failing is left alone for a while, then tried with a single call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

BreakerState = Literal["closed", "open", "half_open"]


class Breaker:
    """Counts failures in a row. Every admitted call must end in `succeeded`, `failed` or `forgotten`."""

    def __init__(self, failures: int, open_s: float, now: Callable[[], float]) -> None:
        self._limit = failures
        self._open_s = open_s
        self._now = now
        self._in_a_row = 0
        self._opened_at: float | None = None
        self._trial_under_way = False

    @property
    def state(self) -> BreakerState:
        """`half_open` when it is time for a trial, whether or not one is under way."""
        if self._opened_at is None:
            return "closed"
        return "half_open" if self._now() - self._opened_at >= self._open_s else "open"

    @property
    def retry_in_s(self) -> float | None:
        """How long calls are refused still; None when they are not."""
        if self._opened_at is None:
            return None
        return max(0.0, self._opened_at + self._open_s - self._now())

    def admits(self) -> bool:
        """Whether a call may go through now; half open, only one does until it has ended."""
        state = self.state
        if state == "half_open" and not self._trial_under_way:
            self._trial_under_way = True
            return True
        return state == "closed"

    def succeeded(self) -> None:
        """The server answered, so all is well."""
        self._in_a_row = 0
        self._opened_at = None
        self._trial_under_way = False

    def failed(self) -> bool:
        """The server did not answer; whether this is what opened the breaker."""
        self._in_a_row += 1
        state = self.state
        # What was sent before it opened and fails afterwards tells nothing new.
        if state == "open" or self._in_a_row < self._limit:
            return False
        self._opened_at = self._now()
        self._trial_under_way = False
        return True

    def forgotten(self) -> None:
        """The call ended without telling anything about the server."""
        self._trial_under_way = False
