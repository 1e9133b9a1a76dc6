"""Where JSON is read and written that would hold the event loop up. Callers take turns."""

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
"""More would only wait for the interpreter's lock, with more in memory."""

_caller: ContextVar[str] = ContextVar("json_caller", default="")
_shared = RunVar["_Threads"]("json_threads")


class _Threads:
    """Of each caller one job at a time queues for a thread, so that nobody waits behind many of another caller's."""

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


def work_for(caller: str) -> None:
    """Say whose request this task, and what it starts from now on, works on."""
    _caller.set(caller)


async def in_json_thread(work: Callable[[Unpack[ArgumentsT]], ResultT], *arguments: *ArgumentsT) -> ResultT:
    """Do the work in a thread."""
    try:
        threads = _shared.get()
    except LookupError:
        threads = _Threads()
        _shared.set(threads)
    async with threads.turn(_caller.get()):
        return await run_sync(work, *arguments, limiter=threads.limiter)
