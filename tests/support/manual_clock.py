"""Time that passes when somebody waits, so that waits can be asked for and none is real."""

from __future__ import annotations

import anyio.lowlevel

from armarium.providers.retry import Clock

WALL = 1_800_000_000.0
"""Fri, 15 Jan 2027 08:00:00 GMT."""


class ManualClock:
    """A clock that starts at 0 and remembers every wait."""

    def __init__(self) -> None:
        self.now = 0.0
        self.waits: list[float] = []
        self.random = 1.0
        """Of 0 to 1: which part of the span that is left to chance a wait takes."""

    @property
    def clock(self) -> Clock:
        """What a client is given instead of the real clock."""
        return Clock(now=lambda: self.now, wall=lambda: WALL + self.now, sleep=self._sleep, random=lambda: self.random)

    async def _sleep(self, seconds: float) -> None:
        self.waits.append(seconds)
        self.now += seconds
        await anyio.lowlevel.checkpoint()
