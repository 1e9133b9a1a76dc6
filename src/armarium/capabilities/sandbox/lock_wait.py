"""Queues calls that met a locked directory, without occupying a thread while they wait."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

import anyio

from armarium.capabilities.sandbox.errors import ResourceBusy
from armarium.foundation.files.directory_locks import DirectoryBusy, Identity

ResultT = TypeVar("ResultT")


class LockQueues:
    """Queues calls that wait for a directory. Only the first one in a queue tries to lock it."""

    def __init__(self, timeout_s: float) -> None:
        self._timeout_s = timeout_s
        self._queues: dict[Identity, anyio.Lock] = {}

    async def run(self, busy: DirectoryBusy, attempt: Callable[[], Awaitable[ResultT]]) -> ResultT:
        """Wait for the call's turn, then repeat it while the directory is locked. Raise after the timeout."""
        deadline = time.monotonic() + self._timeout_s
        if busy.waited_long:
            raise self._error() from None
        lock = self._queues.setdefault(busy.directory, anyio.Lock())
        try:
            with anyio.move_on_after(self._timeout_s) as waiting:
                await lock.acquire()
            if waiting.cancelled_caught:
                raise self._error()
            try:
                while True:
                    try:
                        return await attempt()
                    except DirectoryBusy as again:
                        if again.waited_long or time.monotonic() >= deadline:
                            raise self._error() from None
            finally:
                lock.release()
        finally:
            if not lock.locked():
                self._queues.pop(busy.directory, None)

    def _error(self) -> ResourceBusy:
        message = f"another process has held the directory for {self._timeout_s:g} seconds; nothing was changed"
        return ResourceBusy(message, hint="try again")
