"""Lets any thread wake up a task of the event loop."""

from __future__ import annotations

import asyncio

import anyio


class WakeUp:
    """A signal from any thread to one waiting task. It carries no data: the task checks for itself what changed."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._signalled = asyncio.Event()

    def signal(self) -> None:
        """Wake the task up, or make its next wait return at once. Does nothing after the event loop has closed."""
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._signalled.set)

    async def wait(self, timeout_s: float | None = None) -> None:
        """Return after a signal since the last wait, or after the timeout."""
        with anyio.move_on_after(timeout_s):
            await self._signalled.wait()
        self._signalled.clear()
