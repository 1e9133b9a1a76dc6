"""What does it cost to hand a piece of work to a thread and take the answer back?

Ours are the sandbox's worker threads; the peers are the standard library's pool and AnyIO's `to_thread`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import anyio

from armarium.capabilities.sandbox.threads.workers import Workers
from measure import Cost, best_of_each, compared, report

HANDOVERS = 2000
RUNS = 7


def nothing() -> None:
    return


def main() -> None:
    workers = Workers((), (), confine="off")
    pool = ThreadPoolExecutor(16)
    ways: dict[str, Callable[[], Awaitable[Any]]] = {
        "ours": lambda: workers.run("", nothing),
        "concurrent.futures": lambda: asyncio.wrap_future(pool.submit(nothing)),
        "anyio.to_thread": lambda: anyio.to_thread.run_sync(nothing),
    }

    async def hand_over(way: Callable[[], Awaitable[Any]]) -> None:
        for _ in range(HANDOVERS):
            await way()

    def timed(way: Callable[[], Awaitable[Any]]) -> Callable[[], None]:
        return lambda: anyio.run(hand_over, way, backend_options={"use_uvloop": True})

    costs: dict[str, Cost] = {
        name: cost.per(HANDOVERS)
        for name, cost in best_of_each(RUNS, {name: timed(way) for name, way in ways.items()}).items()
    }
    rows = [compared(f"ours / {peer}", costs["ours"], costs[peer]) for peer in list(ways)[1:]]
    met = all(row["cpu_ratio"] is not None and row["cpu_ratio"] < 1 for row in rows)
    report("thread_handover", rows, "less CPU than either", met)


if __name__ == "__main__":
    main()
