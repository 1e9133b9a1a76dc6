"""How far indexing is, its rate, and the remaining time."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable
from typing import NotRequired

from typing_extensions import TypedDict

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


class Part(TypedDict):
    """How far one index is."""

    done: int
    total: NotRequired[int]
    """Missing until it is known."""
    per_second: float
    seconds_left: NotRequired[int]


class ProgressReport(TypedDict):
    """The progress of indexing, with lexical search and vectors apart."""

    job_id: str
    running: bool
    phase: str
    """`scan`, `embed` or `idle`."""
    lexical: Part
    """Files that can be found by their words. Counts this job."""
    vectors: Part
    """Chunks that can be found by meaning. Counts the whole index."""
    scanned: int
    indexed: int
    skipped: int
    deleted: int
    errors: int


class ProgressReporter:
    """Turns the counters into reports with rates."""

    def __init__(self, clock: Clock = time.monotonic) -> None:
        self._files, self._chunks = Rate(clock), Rate(clock)

    def record(self, now: IndexProgress) -> None:
        """Measure the rates. Call it for every event."""
        self._files.record(_files_done(now))
        self._chunks.record(now.embedded_ok)

    def report(self, now: IndexProgress) -> ProgressReport:
        return {
            "job_id": now.job_id,
            "running": now.running,
            "phase": now.phase,
            "lexical": _part(self._files, _files_done(now), now.files_known, running=now.running),
            "vectors": _part(self._chunks, now.embedded_ok, now.chunks_total, running=now.running),
            "scanned": now.scanned,
            "indexed": now.indexed,
            "skipped": now.skipped,
            "deleted": now.deleted,
            "errors": now.errors,
        }


def _files_done(now: IndexProgress) -> int:
    return now.indexed + now.skipped + now.errors


def _part(rate: Rate, done: int, total: int | None, *, running: bool) -> Part:
    per_second = rate.per_second if running else 0.0
    part: Part = {"done": done, "per_second": round(per_second, 1)}
    if total is not None:
        part["total"] = max(total, done)
        if per_second > 0:
            part["seconds_left"] = math.ceil((part["total"] - done) / per_second)
    return part


def duration(seconds: float) -> str:
    """A duration without spaces: 46s, 3min20s, 1h05min."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours}h{minutes:02}min"
    return f"{minutes}min{rest:02}s" if minutes else f"{rest}s"
