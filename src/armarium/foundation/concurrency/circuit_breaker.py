"""A circuit breaker: stops calls to a service that keeps failing, and tries it again after a while."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal

CircuitState = Literal["closed", "open", "half_open"]


class CircuitBreaker:
    """Opens after a number of consecutive failures. While open, it admits no calls; its owner tries later."""

    def __init__(self, failures: int, open_s: float, now: Callable[[], float]) -> None:
        self._limit = failures
        self._open_s = open_s
        self._now = now
        self._in_a_row = 0
        self._opened_at: float | None = None

    @property
    def state(self) -> CircuitState:
        """`half_open` when a trial is due, whether or not one is in progress."""
        if self._opened_at is None:
            return "closed"
        return "half_open" if self._now() - self._opened_at >= self._open_s else "open"

    @property
    def retry_in_s(self) -> float | None:
        """Seconds until the next trial; None while calls are admitted."""
        if self._opened_at is None:
            return None
        return max(0.0, self._opened_at + self._open_s - self._now())

    def admits(self) -> bool:
        """Whether calls are admitted. An ordinary call is never the trial: it would wait for a failing server."""
        return self._opened_at is None

    def succeeded(self) -> None:
        """Record a success. It does not close an open circuit: the call was sent before the circuit opened."""
        self._in_a_row = 0

    def failed(self) -> bool:
        """Record a failure. Returns whether the circuit opens now."""
        self._in_a_row += 1
        return self._in_a_row >= self._limit and self.gone()

    def gone(self) -> bool:
        """Open the circuit at once, because the server is known to be unavailable. Returns whether it opens now."""
        if self._opened_at is not None:
            return False
        self._opened_at = self._now()
        return True

    def tried(self, well: bool) -> None:
        """Record the outcome of a trial: close the circuit, or open it again."""
        self._in_a_row = 0
        self._opened_at = None if well else self._now()


@dataclass(slots=True)
class Attempt:
    """One attempt to call a service."""

    admitted: bool
    """Whether the service may be called."""
    failed: bool = False
    """Set this if the service did not answer in time."""


class GuardedService:
    """A service behind a circuit breaker. While the circuit is half open, one call at a time is the trial."""

    def __init__(self, failures: int, open_s: float, now: Callable[[], float]) -> None:
        self._breaker = CircuitBreaker(failures, open_s, now)
        self._in_trial = False

    @contextmanager
    def attempt(self) -> Generator[Attempt]:
        """Call the service in the block if the attempt is admitted, and set `failed` if it failed. A block that raises
        without setting `failed` does not count."""
        trial = not self._breaker.admits()
        if trial and (self._in_trial or self._breaker.state != "half_open"):
            yield Attempt(admitted=False)
            return
        self._in_trial = trial
        attempt, counts = Attempt(admitted=True), False
        try:
            yield attempt
            counts = True
        finally:
            if trial:
                self._in_trial = False
            if trial and (counts or attempt.failed):
                self._breaker.tried(well=not attempt.failed)
            elif attempt.failed:
                self._breaker.failed()
            elif counts:
                self._breaker.succeeded()
