"""Waits for a condition, with a deadline that only a hung program reaches."""

from __future__ import annotations

import inspect
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar, cast

import anyio

DEADLINE_S = 60.0
_INTERVAL_S = 0.01

ResultT = TypeVar("ResultT")


async def eventually(
    condition: Callable[[], Awaitable[ResultT] | ResultT], *, what: str = "", deadline_s: float = DEADLINE_S
) -> ResultT:
    """Wait until the condition, which may be async, is true. Returns its value."""
    until = anyio.current_time() + deadline_s
    while True:
        result = condition()
        value = await result if inspect.isawaitable(result) else cast(ResultT, result)
        if value:
            return value
        if anyio.current_time() > until:
            raise TimeoutError(f"not within {deadline_s:g} s: {what or inspect.getsource(condition).strip()}")
        await anyio.sleep(_INTERVAL_S)


def wait_until(condition: Callable[[], ResultT], *, what: str = "", deadline_s: float = DEADLINE_S) -> ResultT:
    """The same for tests without an event loop."""
    until = time.monotonic() + deadline_s
    while not (value := condition()):
        if time.monotonic() > until:
            raise TimeoutError(f"not within {deadline_s:g} s: {what or inspect.getsource(condition).strip()}")
        time.sleep(_INTERVAL_S)
    return value
