"""A bell wakes its task from any thread, and what rang while nobody waited is not lost."""

from __future__ import annotations

import asyncio

import anyio
import anyio.lowlevel
import pytest
from anyio.to_thread import run_sync

from armarium.capabilities.corpus.ingest.wake_up import WakeUp

DEADLINE_S = 20.0


async def test_a_thread_wakes_the_task_that_waits() -> None:
    bell = WakeUp()
    with anyio.fail_after(DEADLINE_S):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(bell.wait)
            await anyio.wait_all_tasks_blocked()
            await run_sync(bell.signal)


async def test_what_rang_while_nobody_waited_is_heard_once() -> None:
    bell = WakeUp()
    bell.signal()
    bell.signal()
    await anyio.lowlevel.checkpoint()
    with anyio.fail_after(DEADLINE_S):
        await bell.wait()
    with pytest.raises(TimeoutError), anyio.fail_after(0):
        await bell.wait()


async def test_a_wait_with_a_limit_ends_without_a_ring() -> None:
    with anyio.fail_after(DEADLINE_S):
        await WakeUp().wait(0.001)


def test_ringing_after_the_loop_is_gone_does_nothing() -> None:
    async def made() -> WakeUp:
        return WakeUp()

    asyncio.run(made()).signal()
