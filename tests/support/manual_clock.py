"""A clock for tests: time passes only when code sleeps, or the test says so."""

from __future__ import annotations

import anyio.lowlevel

from armarium.providers.retry import Clock

WALL = 1_800_000_000.0
"""Fri, 15 Jan 2027 08:00:00 GMT."""


class ManualClock:
    """A clock that starts at 0 and records every sleep."""

    def __init__(self) -> None:
        self.now = 0.0
        self.waits: list[float] = []
        self.random = 1.0
        """The next random number, 0 to 1."""

    def __call__(self) -> float:
        return self.now

    def advance(self, seconds: float) -> None:
        """Let time pass."""
        self.now += seconds

    @property
    def clock(self) -> Clock:
        """The clock to pass to a client."""
        return Clock(now=lambda: self.now, wall=lambda: WALL + self.now, sleep=self._sleep, random=lambda: self.random)

    async def _sleep(self, seconds: float) -> None:
        self.waits.append(seconds)
        self.now += seconds
        await anyio.lowlevel.checkpoint()
