"""Limits how many jobs of a thread pool run at once, with time slices, so that short calls find a free core."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Generator
from contextlib import contextmanager
from typing import Final

_SLICE_S: Final = 0.5
"""How long a job runs before it yields its slot. With a tenth of it, short calls took four times as long."""
_MAX_WAIT_S: Final = 2.0
"""After this time a job runs without a slot: one of the running jobs probably hangs on a dead disk."""

_current = threading.local()
"""The slot of the job that the current thread runs."""


class RunSlots:
    """Lets at most `slots` jobs run. The others wait in order until a time slice or a job ends."""

    def __init__(self, slots: int, *, slice_s: float = _SLICE_S, max_wait_s: float = _MAX_WAIT_S) -> None:
        self.slice_s = slice_s
        self._free = slots
        self._max_wait_s = max_wait_s
        self._lock = threading.Lock()
        self._waiting: deque[threading.Event] = deque()

    @contextmanager
    def slot(self) -> Generator[None]:
        """Run a job in a slot. The job calls `yield_slot` to let others run in between."""
        _current.slot = slot = _Slot(self)
        slot.take()
        try:
            yield
        finally:
            slot.release()
            del _current.slot

    @property
    def is_contended(self) -> bool:
        """Whether a job waits for a slot."""
        return bool(self._waiting)

    def take(self) -> bool:
        """Wait for a slot. Return False after the maximum wait; the job then runs without one."""
        with self._lock:
            if self._free:
                self._free -= 1
                return True
            granted = threading.Event()
            self._waiting.append(granted)
        if granted.wait(self._max_wait_s):
            return True
        with self._lock:
            if granted.is_set():
                return True
            self._waiting.remove(granted)
            return False

    def release(self) -> None:
        """Hand the slot to the job that has waited longest."""
        with self._lock:
            if self._waiting:
                self._waiting.popleft().set()
            else:
                self._free += 1


class _Slot:
    """The slot of one job. The job holds it, except while it waits and after the maximum wait."""

    def __init__(self, slots: RunSlots) -> None:
        self._slots = slots
        self._held = False
        self._slice_ends = 0.0

    def take(self) -> None:
        self._held = self._slots.take()
        self._slice_ends = time.monotonic() + self._slots.slice_s

    def release(self) -> None:
        if self._held:
            self._held = False
            self._slots.release()

    def yield_if_due(self) -> None:
        if self._slots.is_contended and time.monotonic() >= self._slice_ends:
            self.release()
            self.take()


def yield_slot() -> None:
    """Let a waiting job run if this one has used up its time slice. Cheap enough for every file or block."""
    if (slot := getattr(_current, "slot", None)) is not None:
        slot.yield_if_due()
