"""How long work that runs in a worker thread may go on, and how it tells that it does."""

from __future__ import annotations

import time
from collections.abc import Callable

from armarium.foundation.turns import step_aside

_PROGRESS_INTERVAL_S = 0.25

Report = Callable[[float, float | None, str | None], None]
"""Takes how far work is, of how much if that is known, and what it is at, if there is something to say."""


class Stopped(Exception):
    """The call was cancelled, or its deadline passed, while a worker was busy with it."""


class Pulse:
    """Beaten by long loops in a worker thread: stops them when the call ended, and passes their progress on."""

    def __init__(self, report: Report | None = None) -> None:
        self._stopped = False
        self._report = report
        self._next_report = time.monotonic() + _PROGRESS_INTERVAL_S

    def stop(self) -> None:
        """End the work at its next beat. Called from any thread."""
        self._stopped = True

    def beat(self, done: int) -> None:
        """Say how far the work is. Cheap enough for every file or block; raises `Stopped` when nobody waits."""
        if self._stopped:
            raise Stopped
        step_aside()
        if self._report is not None and (now := time.monotonic()) >= self._next_report:
            self._next_report = now + _PROGRESS_INTERVAL_S
            self._report(done, None, None)

    @property
    def is_heard(self) -> bool:
        """Whether anybody wants to know how far the work is, for those to whom finding out is work."""
        return self._report is not None

    def tell(self, progress: float, total: float | None = None, message: str | None = None) -> None:
        """Pass on what somebody else says of their work, at their pace; raises `Stopped` when nobody waits."""
        if self._stopped:
            raise Stopped
        if self._report is not None:
            self._report(progress, total, message)
