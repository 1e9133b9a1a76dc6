"""A thread pool that serves its callers in turn."""

from __future__ import annotations

import asyncio
import queue
import sys
import threading
from collections import Counter, OrderedDict, deque
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import KW_ONLY, dataclass
from typing import Any, NamedTuple, TypeVar

from armarium.foundation.concurrency.run_slots import RunSlots

ResultT = TypeVar("ResultT")

_IDLE_S = 30.0
"""How long an idle thread waits for work before it ends."""

_here = threading.local()
"""Holds `max_bytes` of the pool that the current thread belongs to."""


class LongWork(Exception):
    """The work would process too many bytes for a pool of short work."""


def expect_bytes(count: int) -> None:
    """Announce how many bytes of files the work is going to process, before it changes anything.

    In a pool for short work, too many bytes raise `LongWork`; the work then starts again in the pool for long work.
    """
    if count > getattr(_here, "max_bytes", count):
        raise LongWork


def expect_much() -> None:
    """Announce that the work is going to process a directory tree, or takes long for another reason."""
    expect_bytes(sys.maxsize)


class _Job(NamedTuple):
    caller: str
    work: Callable[..., Any]
    arguments: tuple[object, ...]
    future: asyncio.Future[Any]


@dataclass(eq=False)
class Pool:
    """Threads that start on demand and end when they have been idle for a while.

    A caller gets another thread only while it has fewer than are still free, so that other callers always find one.
    Waiting jobs are taken from each caller in turn.

    The standard library's pool takes 1.5 times as long to hand work over, and at exit it waits for a thread that hangs
    on a dead disk. These threads are daemons.
    """

    name: str
    size: int
    prepare: Callable[[], None]
    _: KW_ONLY
    max_bytes: int | None = None
    """Work that announces more bytes raises `LongWork`."""
    at_once: int | None = None
    """At most this many jobs run at the same time; the others wait for a time slice."""
    idle_s: float = _IDLE_S

    def __post_init__(self) -> None:
        self._run_slots = None if self.at_once is None else RunSlots(self.at_once)
        self._lock = threading.Lock()
        self._threads: set[threading.Thread] = set()
        self._started = 0
        self._assigned: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        """Jobs that a thread is about to take."""
        self._running = 0
        self._running_of: Counter[str] = Counter()
        """Number of jobs that have a thread, in total and for each caller."""
        self._waiting: OrderedDict[str, deque[_Job]] = OrderedDict()
        """Jobs without a thread, by caller, in the order of their turns."""
        self._closed = False

    def submit(
        self, caller: str, work: Callable[..., ResultT], arguments: tuple[object, ...] = ()
    ) -> asyncio.Future[ResultT]:
        """Hand work to a thread. The future belongs to the running event loop."""
        future: asyncio.Future[ResultT] = asyncio.get_running_loop().create_future()
        job = _Job(caller, work, arguments, future)
        thread = None
        with self._lock:
            if self._closed:
                raise RuntimeError("the sandbox is closed")
            if self._may_run(caller):
                self._count_in(caller)
                self._assigned.put(job)
                if self._running > len(self._threads):
                    self._started += 1
                    thread = threading.Thread(target=self._serve, name=f"{self.name}-{self._started}", daemon=True)
                    self._threads.add(thread)
            else:
                self._waiting.setdefault(caller, deque()).append(job)
        if thread is not None:
            thread.start()
        return future

    @property
    def is_idle(self) -> bool:
        with self._lock:
            return not (self._running or self._running_of or self._waiting)

    def retire(self) -> None:
        """Accept no more work. The threads end when all submitted work is done."""
        with self._lock:
            self._closed = True
            for _ in self._threads:
                self._assigned.put(None)

    def close(self) -> list[threading.Thread]:
        """Cancel waiting jobs. Returns the threads, which end after their current job."""
        self.retire()
        with self._lock:
            given_up = [job for jobs in self._waiting.values() for job in jobs]
            self._waiting.clear()
            threads = list(self._threads)
        for job in given_up:
            job.future.cancel()
        return threads

    def _may_run(self, caller: str) -> bool:
        return self._running_of[caller] < self.size - self._running

    def _count_in(self, caller: str) -> None:
        self._running += 1
        self._running_of[caller] += 1

    def _serve(self) -> None:
        self.prepare()
        if self.max_bytes is not None:
            _here.max_bytes = self.max_bytes
        while (job := self._next_assigned()) is not None:
            while job is not None:
                self._run(job)
                job = self._next_waiting(job.caller)  # an idle thread must not keep the last result alive
        with self._lock:
            self._threads.discard(threading.current_thread())

    def _run(self, job: _Job) -> None:
        with nullcontext() if self._run_slots is None else self._run_slots.slot():
            if job.future.cancelled():
                return
            result = error = None
            try:
                result = job.work(*job.arguments)
            except BaseException as raised:  # noqa: BLE001 the caller that waits for the result gets it
                error = raised
            loop = job.future.get_loop()
            if not loop.is_closed():
                loop.call_soon_threadsafe(_settle, job.future, result, error)

    def _next_assigned(self) -> _Job | None:
        """The next assigned job, or None if this thread should end."""
        while True:
            try:
                return self._assigned.get(timeout=self.idle_s)
            except queue.Empty:
                with self._lock:
                    if len(self._threads) > self._running:
                        self._threads.discard(threading.current_thread())
                        return None

    def _next_waiting(self, finished: str) -> _Job | None:
        """The waiting job whose turn it is, after a job of the caller `finished` is done."""
        with self._lock:
            self._running -= 1
            self._running_of[finished] -= 1
            if not self._running_of[finished]:
                del self._running_of[finished]
            # This skips only callers that have threads, so at most as many as there are threads.
            for caller, jobs in self._waiting.items():
                if self._may_run(caller):
                    job = jobs.popleft()
                    if jobs:
                        self._waiting.move_to_end(caller)
                    else:
                        del self._waiting[caller]
                    self._count_in(caller)
                    return job
            return None


def _settle(future: asyncio.Future[Any], result: Any, error: BaseException | None) -> None:
    if future.done():
        return
    if error is None:
        future.set_result(result)
    else:
        future.set_exception(error)
