"""The rate of indexing, and the remaining time."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from armarium.capabilities.corpus.events import IndexProgress

_WINDOW_S = 15.0

Clock = Callable[[], float]


class Rate:
    """The rate of a counter over the last seconds."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._samples: deque[tuple[float, int]] = deque()

    def record(self, done: int) -> None:
        """Add the current count. A smaller count than before starts a new measurement."""
        now = self._clock()
        if self._samples and done < self._samples[-1][1]:
            self._samples.clear()
        self._samples.append((now, done))
        while len(self._samples) > 2 and now - self._samples[0][0] > _WINDOW_S:
            self._samples.popleft()

    @property
    def per_second(self) -> float:
        """The count per second; 0 while unknown."""
        if len(self._samples) < 2:
            return 0.0
        (began, first), (ended, last) = self._samples[0], self._samples[-1]
        return (last - first) / (ended - began) if ended > began else 0.0

    def remaining_s(self, left: int) -> float | None:
        """The time for the remaining count; None while unknown."""
        return left / self.per_second if self.per_second > 0 else None


class ProgressRates:
    """The rates of indexed files and of embedded chunks."""

    def __init__(self, clock: Clock) -> None:
        self._files, self._chunks = Rate(clock), Rate(clock)

    def record(self, now: IndexProgress) -> None:
        self._files.record(now.indexed + now.skipped)
        self._chunks.record(now.embedded_ok)

    def done_and_total(self, now: IndexProgress) -> tuple[int, int | None]:
        """The count of the current phase, and its total if known."""
        if now.phase == "embed":
            return now.embedded_ok, now.chunks_total
        return now.indexed + now.skipped, now.files_known

    def fields(self, now: IndexProgress) -> str:
        """The rate and the remaining time as fields of a progress line; empty while unknown."""
        rate, name = (self._chunks, "chunks_per_s") if now.phase == "embed" else (self._files, "files_per_s")
        if not now.running or rate.per_second <= 0:
            return ""
        done, total = self.done_and_total(now)
        remaining_s = rate.remaining_s(max(0, total - done)) if total else None
        field = f" {name}={rate.per_second:.1f}"
        return field if remaining_s is None else f"{field} left={duration(remaining_s)}"


def duration(seconds: float) -> str:
    """A duration without spaces: 46s, 3min20s, 1h05min."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours}h{minutes:02}min"
    return f"{minutes}min{rest:02}s" if minutes else f"{rest}s"
