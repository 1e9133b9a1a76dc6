"""Progress of a tool on its way to the client that asked for it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import anyio.lowlevel
from mcp.server.context import ServerRequestContext

from armarium.foundation.cancellation import ProgressListener

_MOST_WAITING = 16

_News = tuple[float, float | None, str | None]


@asynccontextmanager
async def progress_of(context: ServerRequestContext[Any, Any]) -> AsyncGenerator[ProgressListener | None]:
    """A function that worker threads may call to report progress; None when the client did not ask for any."""
    if context.meta is None or context.meta.get("progress_token") is None:
        yield None
        return
    loop = asyncio.get_running_loop()
    reports, to_send = anyio.create_memory_object_stream[_News](_MOST_WAITING)

    def report(progress: float, total: float | None, message: str | None) -> None:
        loop.call_soon_threadsafe(_offer, reports, (progress, total, message))

    async def forward() -> None:
        told = -1.0
        async for progress, total, message in to_send:
            if progress > told:  # the protocol wants every report to be further than the last
                told = progress
                await context.session.report_progress(progress, total, message)

    with reports, to_send:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(forward)
            yield report
            # What was said last goes out before the answer: a turn for what is on its way here, then the rest.
            await anyio.lowlevel.checkpoint()
            reports.close()


def _offer(reports: Any, news: _News) -> None:
    """Progress is news, not a ledger: what the client was too slow for is dropped."""
    try:
        reports.send_nowait(news)
    except (anyio.WouldBlock, anyio.ClosedResourceError, anyio.BrokenResourceError):
        return
