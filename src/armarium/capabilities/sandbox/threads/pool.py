"""Threads that do one kind of work and serve their callers in turn."""

from __future__ import annotations

import asyncio
import queue
import sys
import threading
from collections import Counter, OrderedDict, deque
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any, NamedTuple, TypeVar

from armarium.foundation.run_slots import RunSlots

ResultT = TypeVar("ResultT")

_IDLE_S = 30.0
"""How long a thread without work waits for some before it ends."""

_here = threading.local()
"""`max_bytes` of the pool that the current thread belongs to."""


class LongWork(Exception):
    """The work would go through too many bytes for a thread that others wait for."""


def expect_bytes(count: int) -> None:
    """Say how many bytes of files the work is about to go through, before it changes anything.

    In a thread for short work this raises `LongWork` if they are many, and the work begins anew in one for long work.
    """
    if count > getattr(_here, "max_bytes", count):
        raise LongWork


def expect_much() -> None:
    """Say that the work is about to go through a directory tree, or takes long for another reason."""
    expect_bytes(sys.maxsize)


class _Job(NamedTuple):
    caller: str
    work: Callable[..., Any]
    arguments: tuple[object, ...]
    answer: asyncio.Future[Any]


class Pool:
    """Threads that start when there is work for them and end when there has been none for a while.

    A caller gets another thread as long as it has fewer than are left over. So whatever one caller asks for, the next
    one finds a thread, and a third one too; jobs that wait are taken from one caller after the other.

    The standard library's pool takes half as long again to hand work over, and waits at exit for a thread that hangs on
    a dead disk; these are daemons.
    """

    def __init__(
        self,
        name: str,
        size: int,
        prepare: Callable[[], None],
        *,
        max_bytes: int | None = None,
        at_once: int | None = None,
    ) -> None:
        """With `max_bytes`, work that expects to go through more raises `LongWork`.

        With `at_once`, at most that many jobs run at the same time; the others wait for a time slice.
        """
        self._max_bytes = max_bytes
        self._run_slots = None if at_once is None else RunSlots(at_once)
        self._name = name
        self._size = size
        self._prepare = prepare
        self._lock = threading.Lock()
        self._threads: set[threading.Thread] = set()
        self._started = 0
        self._assigned: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        """Jobs that have a thread, which is about to take them."""
        self._running = 0
        self._running_of: Counter[str] = Counter()
        """Jobs that have a thread, of all callers and of each."""
        self._waiting: OrderedDict[str, deque[_Job]] = OrderedDict()
        """Jobs that have none yet; the caller whose turn is next stands first."""
        self._closed = False

    def submit(
        self, caller: str, work: Callable[..., ResultT], arguments: tuple[object, ...] = ()
    ) -> asyncio.Future[ResultT]:
        """Hand work to a thread; the future is the calling loop's."""
        answer: asyncio.Future[ResultT] = asyncio.get_running_loop().create_future()
        job = _Job(caller, work, arguments, answer)
        thread = None
        with self._lock:
            if self._closed:
                raise RuntimeError("the sandbox is closed")
            if self._may_run(caller):
                self._count_in(caller)
                self._assigned.put(job)
                if self._running > len(self._threads):
                    thread = self._new_thread()
            else:
                self._waiting.setdefault(caller, deque()).append(job)
        if thread is not None:
            thread.start()
        return answer

    @property
    def is_idle(self) -> bool:
        """Whether no work runs or waits."""
        with self._lock:
            return not (self._running or self._waiting)

    def retire(self) -> None:
        """Take no more work; the threads end once all that was handed in is done."""
        with self._lock:
            self._closed = True
            for _ in self._threads:
                self._assigned.put(None)

    def close(self) -> list[threading.Thread]:
        """Give up what waits; every thread ends after its work."""
        self.retire()
        with self._lock:
            given_up = [job for jobs in self._waiting.values() for job in jobs]
            self._waiting.clear()
            threads = list(self._threads)
        for job in given_up:
            job.answer.cancel()
        return threads

    def _may_run(self, caller: str) -> bool:
        return self._running_of[caller] < self._size - self._running

    def _count_in(self, caller: str) -> None:
        self._running += 1
        self._running_of[caller] += 1

    def _count_out(self, caller: str) -> None:
        self._running -= 1
        self._running_of[caller] -= 1
        if not self._running_of[caller]:
            del self._running_of[caller]

    def _new_thread(self) -> threading.Thread:
        self._started += 1
        thread = threading.Thread(target=self._serve, name=f"{self._name}-{self._started}", daemon=True)
        self._threads.add(thread)
        return thread

    def _serve(self) -> None:
        self._prepare()
        if self._max_bytes is not None:
            _here.max_bytes = self._max_bytes
        while (job := self._next_assigned()) is not None:
            while job is not None:
                self._run(job)
                job = self._next_waiting(job.caller)  # an idle thread must not keep the last answer alive
        with self._lock:
            self._threads.discard(threading.current_thread())

    def _run(self, job: _Job) -> None:
        with nullcontext() if self._run_slots is None else self._run_slots.slot():
            if not job.answer.cancelled():
                _do(job)

    def _next_assigned(self) -> _Job | None:
        """The next job that was assigned to an idle thread; None: this thread ends."""
        while True:
            try:
                return self._assigned.get(timeout=_IDLE_S)
            except queue.Empty:
                with self._lock:
                    if len(self._threads) > self._running:
                        self._threads.discard(threading.current_thread())
                        return None

    def _next_waiting(self, finished: str) -> _Job | None:
        """The job whose turn it is, now that one of the caller `finished` is done."""
        with self._lock:
            self._count_out(finished)
            # Only callers that have threads can be passed over here, and there are no more of them than threads.
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


def _do(job: _Job) -> None:
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
