"""Lets a thread wake a task of the event loop."""

from __future__ import annotations

import asyncio

import anyio


class Bell:
    """Any thread rings it, one task waits for it. It says that something changed, not what: the task looks itself."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._rung = asyncio.Event()

    def ring(self) -> None:
        """Wake the task, or keep it from falling asleep."""
        # After the loop is gone there is nobody left to wake.
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._rung.set)

    async def wait(self, most_s: float | None = None) -> None:
        """Return when it rang since the last time, or after `most_s` seconds."""
        with anyio.move_on_after(most_s):
            await self._rung.wait()
        self._rung.clear()
