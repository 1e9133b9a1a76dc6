"""Lets few jobs of a pool run at once, and the others take turns with them, so that short calls find a free core."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Generator
from contextlib import contextmanager
from typing import Final

_SLICE_S: Final = 0.5
"""How long a job runs before it lets another one run. With a tenth of it, short calls took four times as long."""
_LONGEST_WAIT_S: Final = 2.0
"""Then a job runs beside the others: one of them probably hangs on a dead disk."""

_here = threading.local()
"""The turn that the current thread's job has."""


class Turns:
    """At most `at_once` jobs run; the others wait in order, each for a slice of time or for the end of a job."""

    def __init__(self, at_once: int, *, slice_s: float = _SLICE_S, longest_wait_s: float = _LONGEST_WAIT_S) -> None:
        self.slice_s = slice_s
        self._free = at_once
        self._longest_wait_s = longest_wait_s
        self._lock = threading.Lock()
        self._waiting: deque[threading.Event] = deque()

    @contextmanager
    def turn(self) -> Generator[None]:
        """Run a job. With `step_aside` it lets others run in between."""
        _here.turn = turn = _Turn(self)
        turn.take()
        try:
            yield
        finally:
            turn.give()
            del _here.turn

    @property
    def anyone_waits(self) -> bool:
        """Whether a job waits for its turn."""
        return bool(self._waiting)

    def take(self) -> bool:
        """Wait for a turn; False if it took too long, and the job runs without one."""
        with self._lock:
            if self._free:
                self._free -= 1
                return True
            mine = threading.Event()
            self._waiting.append(mine)
        if mine.wait(self._longest_wait_s):
            return True
        with self._lock:
            if mine.is_set():
                return True
            self._waiting.remove(mine)
            return False

    def give(self) -> None:
        """Give a turn to the job that has waited longest."""
        with self._lock:
            if self._waiting:
                self._waiting.popleft().set()
            else:
                self._free += 1


class _Turn:
    """What one job has of its turns."""

    def __init__(self, turns: Turns) -> None:
        self.turns = turns
        self._taken = False
        self._until = 0.0

    def take(self) -> None:
        self._taken = self.turns.take()
        self._until = time.monotonic() + self.turns.slice_s

    def give(self) -> None:
        if self._taken:
            self._taken = False
            self.turns.give()

    def step_aside(self) -> None:
        if self.turns.anyone_waits and time.monotonic() >= self._until:
            self.give()
            self.take()


def step_aside() -> None:
    """Let a job run that waits, if this one has run for a while. Cheap enough for every file or block."""
    if (turn := getattr(_here, "turn", None)) is not None:
        turn.step_aside()
