"""The threads in which the sandbox touches files, so that a slow disk never holds up the server."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Literal, TypeVar

from armarium.capabilities.sandbox import landlock

_log = logging.getLogger(__name__)

ResultT = TypeVar("ResultT")

_QUICK_THREADS = 16
_SEARCH_THREADS = 8


class Workers:
    """Two pools: long searches do not take the threads that short calls wait for."""

    def __init__(self, writable: Sequence[str], readable: Sequence[str], *, confine: Literal["auto", "off"]) -> None:
        self._writable = tuple(writable)
        self._readable = (*readable, *landlock.python_read_paths())
        self.confined = confine == "auto" and landlock.supported_abi() > 0
        prepare = self._confine_thread if self.confined else None
        self._quick = ThreadPoolExecutor(_QUICK_THREADS, "sandbox", initializer=prepare)
        self._search = ThreadPoolExecutor(_SEARCH_THREADS, "sandbox-search", initializer=prepare)

    def _confine_thread(self) -> None:
        landlock.restrict_current_thread(self._writable, self._readable)

    async def run(self, work: Callable[..., ResultT], *arguments: object) -> ResultT:
        """Run a short piece of work in a thread."""
        return await asyncio.wrap_future(self._quick.submit(work, *arguments))

    async def search(self, work: Callable[..., ResultT], *arguments: object) -> ResultT:
        """Run work that may take minutes."""
        return await asyncio.wrap_future(self._search.submit(work, *arguments))

    def close(self) -> None:
        """Let running work end; start none that waits."""
        self._quick.shutdown(wait=False, cancel_futures=True)
        self._search.shutdown(wait=False, cancel_futures=True)
