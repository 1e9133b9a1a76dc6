"""The worker threads for all file access, so that a slow disk never blocks the event loop."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import Literal, TypeVar

import anyio

from armarium.capabilities.sandbox.threads.pool import LongWork, Pool
from armarium.foundation.files import landlock
from armarium.foundation.files.confine import ConfinedRoot

ResultT = TypeVar("ResultT")

_QUICK_BYTES = 2 * 1024 * 1024
"""Work that processes more bytes than this is long work."""
_QUICK_THREADS = 16
_CORES = os.cpu_count() or 1
# Long work keeps a core busy for minutes: more threads than cores are not faster, and delay the event loop.
_BUSY_THREADS = min(32, max(2, _CORES))
_BUSY_AT_ONCE = max(1, _BUSY_THREADS // 2)
"""How many of these threads run at the same time; they take turns. With all of them running, a short call beside 50
long calls of 50 callers on two cores took ten times as long."""
_LONG_NICENESS = 10
_SEARCH_NICENESS = 5
"""Lower priority than the event loop. This halved the duration of a short call beside 50 long calls of 50 callers on
two cores."""
_SWITCH_S = 0.001
"""The interpreter's switch interval while there is long work. The default is five times as long, and a short call waits
for several of them."""
_CLOSE_TIMEOUT_S = 0.5
_FINISH_TIMEOUT_S = 3.0
"""How long to wait for a change whose caller has left. A disk that takes longer is probably dead."""


class Workers:
    """One pool for each kind of work, so that long work does not occupy the threads that short calls need."""

    def __init__(
        self,
        writable: Sequence[ConfinedRoot],
        readable: Sequence[ConfinedRoot],
        *,
        confine: Literal["auto", "off"],
        finish_timeout_s: float = _FINISH_TIMEOUT_S,
    ) -> None:
        self._finish_timeout_s = finish_timeout_s
        self.confined = confine == "auto" and landlock.supported_abi() > 0
        self._retired: list[Pool] = []
        self._busy = 0
        self._usual_switch_s = sys.getswitchinterval()
        self._start(writable, readable)

    def _start(self, writable: Sequence[ConfinedRoot], readable: Sequence[ConfinedRoot]) -> None:
        own = landlock.python_read_paths()

        def prepare() -> None:
            # By descriptor: the directory at the path may be another one when a thread starts.
            if self.confined:
                landlock.restrict_current_thread(
                    [root.descriptor_path for root in writable], [*(root.descriptor_path for root in readable), *own]
                )

        def prepare_slow(niceness: int) -> None:
            with suppress(OSError):
                thread = threading.get_native_id()  # on Linux a priority is a thread's own
                os.setpriority(os.PRIO_PROCESS, thread, os.getpriority(os.PRIO_PROCESS, thread) + niceness)
            prepare()

        self._short = Pool("sandbox", _QUICK_THREADS, prepare, max_bytes=_QUICK_BYTES)
        self._change = Pool("sandbox-change", _QUICK_THREADS, prepare, max_bytes=_QUICK_BYTES)
        slow, slower = partial(prepare_slow, _SEARCH_NICENESS), partial(prepare_slow, _LONG_NICENESS)
        self._search = Pool("sandbox-search", _BUSY_THREADS, slow, at_once=_BUSY_AT_ONCE)
        self._long = Pool("sandbox-long", _BUSY_THREADS, slower, at_once=_BUSY_AT_ONCE)

    def renew(self, writable: Sequence[ConfinedRoot], readable: Sequence[ConfinedRoot]) -> None:
        """Start threads that may use these directories. The current ones end when their work is done."""
        if self.confined:
            self._retired = [pool for pool in (*self._retired, *self._pools()) if not pool.is_idle]
            for pool in self._pools():
                pool.retire()
            self._start(writable, readable)

    @contextmanager
    def _fast_switching(self) -> Generator[None]:
        """Switch threads more often while long work waits or runs. Otherwise every hand-over would take 1.5 times as
        long."""
        self._busy += 1
        sys.setswitchinterval(min(_SWITCH_S, self._usual_switch_s))
        try:
            yield
        finally:
            self._busy -= 1
            if not self._busy:
                sys.setswitchinterval(self._usual_switch_s)

    def _pools(self) -> tuple[Pool, ...]:
        return self._short, self._change, self._long, self._search

    async def run(self, caller: str, work: Callable[..., ResultT], *arguments: object) -> ResultT:
        """Run work that changes nothing. It is short unless it calls `expect_bytes`."""
        try:
            return await self._short.submit(caller, work, arguments)
        except LongWork:
            return await self.long(caller, work, *arguments)

    async def long(self, caller: str, work: Callable[..., ResultT], *arguments: object) -> ResultT:
        """Run work that may take minutes."""
        with self._fast_switching():
            return await self._long.submit(caller, work, arguments)

    async def transfer(self, caller: str, work: Callable[..., ResultT], *arguments: object) -> ResultT:
        """Run a copy or a move. It is short unless it calls `expect_bytes` or `expect_much`."""
        try:
            return await self._change.submit(caller, work, arguments)
        except LongWork:
            return await self.long(caller, work, *arguments)

    async def search(self, caller: str, work: Callable[..., ResultT], *arguments: object) -> ResultT:
        """Run a search, which may take minutes."""
        with self._fast_switching():
            return await self._search.submit(caller, work, arguments)

    async def change(self, caller: str, work: Callable[..., ResultT], *arguments: object) -> ResultT:
        """Run work that changes a file. Once started, it is awaited even if the call is cancelled, so that its event is
        published."""
        try:
            return await self._finished(self._change.submit(caller, work, arguments))
        except LongWork:
            with self._fast_switching():
                return await self._finished(self._long.submit(caller, work, arguments))

    async def _finished(self, future: asyncio.Future[ResultT]) -> ResultT:
        try:
            return await asyncio.shield(future)
        except asyncio.CancelledError:
            with anyio.move_on_after(self._finish_timeout_s, shield=True):
                return await asyncio.shield(future)
            future.cancel()  # the pool skips it if it has not started
            raise

    def close(self) -> bool:
        """Cancel waiting work and let running work end. Returns False if some of it still runs after half a second."""
        threads = [thread for pool in (*self._pools(), *self._retired) for thread in pool.close()]
        deadline = time.monotonic() + _CLOSE_TIMEOUT_S
        for thread in threads:
            thread.join(max(0.0, deadline - time.monotonic()))
        return not any(thread.is_alive() for thread in threads)
