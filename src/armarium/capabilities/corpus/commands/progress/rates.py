"""How fast indexing goes, and how long it will take."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable

from armarium.capabilities.corpus.news import IndexProgress

_WINDOW_S = 15.0

Clock = Callable[[], float]


class Pace:
    """How fast something gets done, over the last seconds."""

    def __init__(self, clock: Clock = time.monotonic) -> None:
        self._clock = clock
        self._marks: deque[tuple[float, int]] = deque()

    def mark(self, done: int) -> None:
        """So much is done by now; less than before means that something new began."""
        now = self._clock()
        if self._marks and done < self._marks[-1][1]:
            self._marks.clear()
        self._marks.append((now, done))
        while len(self._marks) > 2 and now - self._marks[0][0] > _WINDOW_S:
            self._marks.popleft()

    @property
    def per_second(self) -> float:
        """Things a second; 0 while nothing is known."""
        if len(self._marks) < 2:
            return 0.0
        (began, first), (ended, last) = self._marks[0], self._marks[-1]
        return (last - first) / (ended - began) if ended > began else 0.0

    def remaining_s(self, left: int) -> float | None:
        """How long what is left will take."""
        return left / self.per_second if self.per_second > 0 else None


class Paces:
    """The pace of files while they are read, and of passages while they are embedded."""

    def __init__(self, clock: Clock = time.monotonic) -> None:
        self._files, self._passages = Pace(clock), Pace(clock)

    def mark(self, now: IndexProgress) -> None:
        """So much is done by now."""
        self._files.mark(now.indexed + now.skipped)
        self._passages.mark(now.embedded_ok)

    def done_of(self, now: IndexProgress) -> tuple[int, int | None]:
        """How much of this phase is done, and of how much, where that is known."""
        if now.phase == "embed":
            return now.embedded_ok, now.chunks_total
        return now.indexed + now.skipped, now.files_known

    def fields(self, now: IndexProgress) -> str:
        """The rate and the time left, as fields of a progress line; nothing while they are not known."""
        pace, name = (self._passages, "chunks_per_s") if now.phase == "embed" else (self._files, "files_per_s")
        if not now.running or pace.per_second <= 0:
            return ""
        done, total = self.done_of(now)
        remaining_s = pace.remaining_s(max(0, total - done)) if total else None
        rate = f" {name}={pace.per_second:.1f}"
        return rate if remaining_s is None else f"{rate} left={duration(remaining_s)}"


def duration(seconds: float) -> str:
    """A time as people say it, without spaces: 46s, 3min20s, 1h05min."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours}h{minutes:02}min"
    return f"{minutes}min{rest:02}s" if minutes else f"{rest}s"
