"""Cancellation of work in a worker thread, and the progress it reports meanwhile."""

from __future__ import annotations

import time
from collections.abc import Callable

from armarium.foundation.concurrency.run_slots import yield_slot

PROGRESS_INTERVAL_S = 0.25

ProgressListener = Callable[[float, float | None, str | None], None]
"""Receives the progress so far, the total if it is known, and a message if there is one."""


class Stopped(Exception):
    """The call was cancelled, or its deadline passed, while a worker thread was busy with it."""


class Cancellation:
    """Passed to long loops in a worker thread. They call `checkpoint`, which raises once the call has ended."""

    def __init__(self, listener: ProgressListener | None = None) -> None:
        self._cancelled = False
        self._listener = listener
        self._next_report = time.monotonic() + PROGRESS_INTERVAL_S

    def cancel(self) -> None:
        """Stop the work at its next checkpoint. Thread-safe."""
        self._cancelled = True

    def checkpoint(self, done: int) -> None:
        """Report progress; raise `Stopped` if the call has ended. Cheap enough for every file or block."""
        if self._cancelled:
            raise Stopped
        yield_slot()
        if self._listener is not None and (now := time.monotonic()) >= self._next_report:
            self._next_report = now + PROGRESS_INTERVAL_S
            self._listener(done, None, None)

    @property
    def has_listener(self) -> bool:
        """Whether the caller asked for progress. Check it where progress is expensive to determine."""
        return self._listener is not None

    def report(self, progress: float, total: float | None = None, message: str | None = None) -> None:
        """Forward progress that another party reports, unthrottled; raise `Stopped` if the call has ended."""
        if self._cancelled:
            raise Stopped
        if self._listener is not None:
            self._listener(progress, total, message)
