"""Tells a server that is slow from one that is gone: before a call's deadline passes, the server is pinged."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator
from contextlib import contextmanager

from anyio.abc import TaskGroup

from armarium.capabilities.gateway.upstreams.connection import Connection

_NEARLY = 0.8
"""Timers are not exact: a ping that is unanswered for this share of its time has had its time."""


class Pulse:
    """Of one server. It is taken within the time of the call that waits, so the verdict keeps nobody waiting."""

    def __init__(
        self,
        connection: Callable[[], Connection | None],
        ping_s: float,
        tasks: TaskGroup,
        now: Callable[[], float],
    ) -> None:
        self._connection = connection
        self._ping_s = ping_s
        self._tasks = tasks
        self._now = now
        self._silent: tuple[Connection, float] | None = None
        self._under_way = False

    @contextmanager
    def taken_before(self, deadline_s: float) -> Generator[None]:
        """Ping the server if the block lasts until shortly before the deadline."""
        # A timer, because a task for each call would cost as much as everything else that guards it.
        timer = asyncio.get_running_loop().call_later(deadline_s - self._lead_s(deadline_s), self._take)
        try:
            yield
        finally:
            timer.cancel()

    def is_missing(self, deadline_s: float) -> bool:
        """When that deadline has passed: whether nothing was heard of the server since its ping.

        One whose ping went out too late, for we were busy ourselves, gets the benefit of the doubt.
        """
        if self._silent is None:
            return False
        connection, since = self._silent
        waited_s = self._now() - since
        return connection is self._connection() and waited_s >= _NEARLY * self._lead_s(deadline_s)

    def felt(self) -> None:
        """The server said something, whatever it was."""
        self._silent = None

    def _lead_s(self, deadline_s: float) -> float:
        return min(self._ping_s, deadline_s / 2)

    def _take(self) -> None:
        connection = self._connection()
        # One ping will do for all calls that wait.
        if connection is None or not connection.usable or self._under_way:
            return
        self._under_way = True
        self._silent = connection, self._now()
        self._tasks.start_soon(self._ping, connection)

    async def _ping(self, connection: Connection) -> None:
        try:
            if await connection.answers(self._ping_s):
                self.felt()
        finally:
            self._under_way = False
