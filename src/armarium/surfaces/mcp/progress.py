"""Forwards the progress of a tool to the client that asked for it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import anyio.lowlevel
from mcp.server.context import ServerRequestContext

from armarium.foundation.cancellation import ProgressListener
from armarium.foundation.tasks import task_group

_MAX_QUEUED = 16

_Report = tuple[float, float | None, str | None]


@asynccontextmanager
async def progress_of(context: ServerRequestContext[Any, Any]) -> AsyncGenerator[ProgressListener | None]:
    """A function that reports progress from any thread; None if the client did not ask for progress."""
    if context.meta is None or context.meta.get("progress_token") is None:
        yield None
        return
    loop = asyncio.get_running_loop()
    reports, to_send = anyio.create_memory_object_stream[_Report](_MAX_QUEUED)

    def report(progress: float, total: float | None, message: str | None) -> None:
        loop.call_soon_threadsafe(_offer, reports, (progress, total, message))

    async def forward() -> None:
        last = -1.0
        async for progress, total, message in to_send:
            if progress > last:  # the protocol requires increasing values
                last = progress
                await context.session.report_progress(progress, total, message)

    with reports, to_send:
        async with task_group() as tasks:
            tasks.start_soon(forward)
            yield report
            # The last report must precede the response: let scheduled reports arrive before the stream closes.
            await anyio.lowlevel.checkpoint()
            reports.close()


def _offer(reports: Any, report: _Report) -> None:
    """Queue a report. Reports that a slow client cannot take are dropped."""
    try:
        reports.send_nowait(report)
    except (anyio.WouldBlock, anyio.ClosedResourceError, anyio.BrokenResourceError):
        return
