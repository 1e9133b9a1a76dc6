"""A wake-up reaches its task from any thread, and a signal without a waiting task is not lost."""

from __future__ import annotations

import asyncio

import anyio
import anyio.lowlevel
import pytest
from anyio.to_thread import run_sync

from armarium.capabilities.corpus.ingest.embedding_task import WakeUp

DEADLINE_S = 20.0


async def test_a_thread_wakes_the_task_that_waits() -> None:
    wake_up = WakeUp()
    with anyio.fail_after(DEADLINE_S):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(wake_up.wait)
            await anyio.wait_all_tasks_blocked()
            await run_sync(wake_up.signal)


async def test_signals_without_a_waiting_task_are_received_once() -> None:
    wake_up = WakeUp()
    wake_up.signal()
    wake_up.signal()
    await anyio.lowlevel.checkpoint()
    with anyio.fail_after(DEADLINE_S):
        await wake_up.wait()
    with pytest.raises(TimeoutError), anyio.fail_after(0):
        await wake_up.wait()


async def test_a_wait_with_a_timeout_ends_without_a_signal() -> None:
    with anyio.fail_after(DEADLINE_S):
        await WakeUp().wait(0.001)


def test_a_signal_after_the_loop_is_closed_does_nothing() -> None:
    async def made() -> WakeUp:
        return WakeUp()

    asyncio.run(made()).signal()
