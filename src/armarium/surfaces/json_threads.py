"""Where JSON is read and written that would hold the event loop up."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar, TypeVarTuple, Unpack

import anyio
from anyio.lowlevel import RunVar
from anyio.to_thread import run_sync

ResultT = TypeVar("ResultT")
ArgumentsT = TypeVarTuple("ArgumentsT")

_THREADS = 2
"""More would only wait for the interpreter's lock, with more in memory."""
_limiter = RunVar[anyio.CapacityLimiter]("json_threads")


async def in_json_thread(work: Callable[[Unpack[ArgumentsT]], ResultT], *arguments: *ArgumentsT) -> ResultT:
    """Do the work in a thread."""
    try:
        limiter = _limiter.get()
    except LookupError:
        limiter = anyio.CapacityLimiter(_THREADS)
        _limiter.set(limiter)
    return await run_sync(work, *arguments, limiter=limiter)
