"""Runs long JSON work in threads, fairly between callers, so that it does not block the event loop."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from contextvars import ContextVar
from typing import TypeVar, TypeVarTuple, Unpack

import anyio
from anyio.lowlevel import RunVar
from anyio.to_thread import run_sync

ResultT = TypeVar("ResultT")
ArgumentsT = TypeVarTuple("ArgumentsT")

_THREADS = 2
"""More threads would only wait for the interpreter lock, and hold more in memory."""

_caller: ContextVar[str] = ContextVar("json_caller", default="")
_shared = RunVar["_Threads"]("json_threads")


class _Threads:
    """The threads. Each caller queues one job at a time, so that no caller waits behind many jobs of another."""

    def __init__(self) -> None:
        self.limiter = anyio.CapacityLimiter(_THREADS)
        self._queues: dict[str, tuple[anyio.Lock, list[None]]] = {}

    @asynccontextmanager
    async def turn(self, caller: str) -> AsyncGenerator[None]:
        lock, users = self._queues.setdefault(caller, (anyio.Lock(fast_acquire=True), []))
        users.append(None)
        try:
            async with lock:
                yield
        finally:
            users.pop()
            if not users:
                del self._queues[caller]


def set_json_caller(caller: str) -> None:
    """Set the caller that the JSON work of this task, and of tasks it starts later, counts for."""
    _caller.set(caller)


async def run_in_json_thread(work: Callable[[Unpack[ArgumentsT]], ResultT], *arguments: *ArgumentsT) -> ResultT:
    """Run `work(*arguments)` in a thread."""
    try:
        threads = _shared.get()
    except LookupError:
        threads = _Threads()
        _shared.set(threads)
    async with threads.turn(_caller.get()):
        return await run_sync(work, *arguments, limiter=threads.limiter)
