"""A circuit breaker: a server that is gone, or keeps failing, is left alone for a while and then tried apart."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal

CircuitState = Literal["closed", "open", "half_open"]


class CircuitBreaker:
    """Counts failures in a row. Open, it admits no call; whoever owns it tries the server once the break is over."""

    def __init__(self, failures: int, open_s: float, now: Callable[[], float]) -> None:
        self._limit = failures
        self._open_s = open_s
        self._now = now
        self._in_a_row = 0
        self._opened_at: float | None = None

    @property
    def state(self) -> CircuitState:
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


@dataclass(slots=True)
class Attempt:
    """One try of a service."""

    admitted: bool
    """Whether the service is to be asked at all."""
    failed: bool = False
    """To be set when it did not answer, or not in time."""


class GuardedService:
    """A service that everybody asks alike: left alone while it keeps failing, and then tried by one call at a time."""

    def __init__(self, failures: int, open_s: float, now: Callable[[], float]) -> None:
        self._breaker = CircuitBreaker(failures, open_s, now)
        self._in_trial = False

    @contextmanager
    def attempt(self) -> Generator[Attempt]:
        """Ask the service within the block if the attempt is admitted, and mark it if it failed.

        A block that is cut short and not marked counts as nothing: nobody knows what the service would have answered.
        """
        trial = not self._breaker.admits()
        if trial and (self._in_trial or self._breaker.state != "half_open"):
            yield Attempt(admitted=False)
            return
        self._in_trial = trial
        attempt = Attempt(admitted=True)
        try:
            yield attempt
        except BaseException:
            if attempt.failed:
                self._note(attempt, trial=trial)
            elif trial:
                self._in_trial = False
            raise
        self._note(attempt, trial=trial)

    def _note(self, attempt: Attempt, *, trial: bool) -> None:
        if trial:
            self._in_trial = False
            self._breaker.tried(well=not attempt.failed)
        elif attempt.failed:
            self._breaker.failed()
        else:
            self._breaker.succeeded()
