"""The threads in which the sandbox touches files, so that a slow disk never holds up the server."""

from __future__ import annotations

import asyncio
import logging
import queue
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple, TypeVar

import anyio

from armarium.capabilities.sandbox import landlock

_log = logging.getLogger(__name__)

ResultT = TypeVar("ResultT")

_QUICK_THREADS = 16
_SEARCH_THREADS = 32
_PARTING_S = 0.5
_FINISHING_S = 3.0
"""How long a change may go on after its caller has left; a disk that takes longer is probably dead."""


class Workers:
    """Two pools: long searches do not take the threads that short calls wait for."""

    def __init__(self, writable: Sequence[str], readable: Sequence[str], *, confine: Literal["auto", "off"]) -> None:
        readable = (*readable, *landlock.python_read_paths())
        self.confined = confine == "auto" and landlock.supported_abi() > 0

        def prepare() -> None:
            if self.confined:
                landlock.restrict_current_thread(writable, readable)

        self._quick = _Pool("sandbox", _QUICK_THREADS, prepare)
        self._search = _Pool("sandbox-search", _SEARCH_THREADS, prepare)

    async def run(self, work: Callable[..., ResultT], *arguments: object) -> ResultT:
        """Run a short piece of work in a thread."""
        return await self._quick.submit(work, arguments)

    async def change(self, work: Callable[[], ResultT]) -> ResultT:
        """Run work that changes something: once begun it is waited for, so that its caller can tell of it."""
        answer = self._quick.submit(work, ())
        try:
            return await asyncio.shield(answer)
        except asyncio.CancelledError:
            with anyio.move_on_after(_FINISHING_S, shield=True):
                return await asyncio.shield(answer)
            raise

    async def search(self, work: Callable[..., ResultT], *arguments: object) -> ResultT:
        """Run work that may take minutes."""
        return await self._search.submit(work, arguments)

    def close(self) -> bool:
        """Start no work that waits, and let what runs end; False if some of it goes on after a moment."""
        threads = self._quick.close() + self._search.close()
        deadline = time.monotonic() + _PARTING_S
        for thread in threads:
            thread.join(max(0.0, deadline - time.monotonic()))
        return not any(thread.is_alive() for thread in threads)


class _Job(NamedTuple):
    work: Callable[..., Any]
    arguments: tuple[object, ...]
    answer: asyncio.Future[Any]


class _Pool:
    """Threads, started when the first work comes.

    The standard library's pool takes half as long again to hand work over, and waits at exit for a thread that hangs
    on a dead disk; these are daemons.
    """

    def __init__(self, name: str, size: int, prepare: Callable[[], None]) -> None:
        self._name = name
        self._size = size
        self._prepare = prepare
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._closed = False

    def submit(self, work: Callable[..., ResultT], arguments: tuple[object, ...]) -> asyncio.Future[ResultT]:
        """Hand work to a thread; the future is the calling loop's."""
        if self._closed:
            raise RuntimeError("the sandbox is closed")
        answer: asyncio.Future[ResultT] = asyncio.get_running_loop().create_future()
        self._jobs.put(_Job(work, arguments, answer))
        if not self._threads:
            names = (f"{self._name}-{number}" for number in range(self._size))
            self._threads = [threading.Thread(target=self._serve, name=name, daemon=True) for name in names]
            for thread in self._threads:
                thread.start()
        return answer

    def close(self) -> list[threading.Thread]:
        """Give up what waits; every thread ends after its work."""
        self._closed = True
        while not self._jobs.empty():
            job = self._jobs.get()
            if job is not None:
                job.answer.cancel()
        for _ in self._threads:
            self._jobs.put(None)
        return self._threads

    def _serve(self) -> None:
        self._prepare()
        while (job := self._jobs.get()) is not None:
            if not job.answer.cancelled():
                self._do(job)
            del job  # an idle thread must not keep the last answer alive

    def _do(self, job: _Job) -> None:
        loop = job.answer.get_loop()
        try:
            result = job.work(*job.arguments)
        except BaseException as error:  # noqa: BLE001 it belongs to whoever waits for the answer
            settle, value = _fail, error
        else:
            settle, value = _succeed, result
        if not loop.is_closed():
            loop.call_soon_threadsafe(settle, job.answer, value)


def _succeed(answer: asyncio.Future[Any], result: Any) -> None:
    if not answer.done():
        answer.set_result(result)


def _fail(answer: asyncio.Future[Any], error: BaseException) -> None:
    if not answer.done():
        answer.set_exception(error)
