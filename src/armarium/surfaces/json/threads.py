"""Runs long JSON work in threads, fairly between callers, so that it does not block the event loop."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from functools import partial
from typing import TypeVar, TypeVarTuple, Unpack

import anyio
from anyio.lowlevel import RunVar
from anyio.to_thread import run_sync

from armarium.foundation.concurrency.tasks import PerCaller

ResultT = TypeVar("ResultT")
ArgumentsT = TypeVarTuple("ArgumentsT")

_THREADS = 2
"""More threads would only wait for the interpreter lock, and hold more in memory."""

_caller: ContextVar[str] = ContextVar("json_caller", default="")
_shared = RunVar[tuple[anyio.CapacityLimiter, PerCaller]]("json_threads")
"""The threads. Each caller queues one job at a time, so that no caller waits behind many jobs of another."""


def set_json_caller(caller: str) -> None:
    """Set the caller that the JSON work of this task, and of tasks it starts later, counts for."""
    _caller.set(caller)


async def run_in_json_thread(work: Callable[[Unpack[ArgumentsT]], ResultT], *arguments: *ArgumentsT) -> ResultT:
    try:
        limiter, queues = _shared.get()
    except LookupError:
        limiter, queues = anyio.CapacityLimiter(_THREADS), PerCaller(partial(anyio.Lock, fast_acquire=True))
        _shared.set((limiter, queues))
    async with queues.turn(_caller.get()):
        return await run_sync(work, *arguments, limiter=limiter)
