"""Jobs of a pool share run slots: few run at once, and none waits for the end of a long one or for one that hangs."""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager

from armarium.foundation.concurrency.cancellation import Cancellation
from armarium.foundation.concurrency.run_slots import RunSlots, yield_slot

FAR_S = 60.0
NEVER_S = 3600.0


@contextmanager
def jobs(slots: RunSlots) -> Generator[Callable[[Callable[[], None]], Future[None]]]:
    """Starts jobs, each in its own thread and slot."""

    def run(work: Callable[[], None]) -> None:
        with slots.slot():
            work()

    with ThreadPoolExecutor(4) as threads:
        yield lambda work: threads.submit(run, work)


def wait_until_contended(slots: RunSlots) -> None:
    pause = threading.Event()
    while not slots.is_contended:
        pause.wait(0.001)


def test_a_job_waits_while_as_many_run_as_may() -> None:
    slots = RunSlots(1, max_wait_s=NEVER_S)
    begun, end, order = threading.Event(), threading.Event(), list[str]()

    def first() -> None:
        begun.set()
        assert end.wait(FAR_S)
        order.append("first")

    with jobs(slots) as start:
        one = start(first)
        assert begun.wait(FAR_S)
        other = start(lambda: order.append("second"))
        wait_until_contended(slots)
        end.set()
        one.result(FAR_S)
        other.result(FAR_S)
    assert order == ["first", "second"]


def test_two_jobs_run_together_where_two_may() -> None:
    together = threading.Barrier(2)
    with jobs(RunSlots(2, max_wait_s=NEVER_S)) as start:
        for job in [start(lambda: together.wait(FAR_S) and None) for _ in range(2)]:
            job.result(FAR_S)


def test_a_long_job_lets_the_one_that_waits_run_at_its_next_checkpoint() -> None:
    slots = RunSlots(1, slice_s=0, max_wait_s=NEVER_S)
    begun, order, cancellation = threading.Event(), list[str](), Cancellation()

    def long() -> None:
        begun.set()
        wait_until_contended(slots)
        cancellation.checkpoint(1)
        order.append("long")

    with jobs(slots) as start:
        one = start(long)
        assert begun.wait(FAR_S)
        start(lambda: order.append("short")).result(FAR_S)
        one.result(FAR_S)
    assert order == ["short", "long"]


def test_a_job_keeps_its_slot_for_a_slice_of_time() -> None:
    slots = RunSlots(1, slice_s=NEVER_S, max_wait_s=NEVER_S)
    begun, order = threading.Event(), list[str]()

    def first() -> None:
        begun.set()
        wait_until_contended(slots)
        yield_slot()
        order.append("first")

    with jobs(slots) as start:
        one = start(first)
        assert begun.wait(FAR_S)
        start(lambda: order.append("second")).result(FAR_S)
        one.result(FAR_S)
    assert order == ["first", "second"]


def test_a_job_that_hangs_does_not_hold_up_the_others_for_long() -> None:
    slots = RunSlots(1, max_wait_s=0.01)
    begun, end = threading.Event(), threading.Event()

    def hung() -> None:
        begun.set()
        assert end.wait(FAR_S)

    with jobs(slots) as start:
        one = start(hung)
        assert begun.wait(FAR_S)
        start(yield_slot).result(FAR_S)
        end.set()
        one.result(FAR_S)
        # A job that ran without a slot releases none: still one at once.
        begun.clear()
        end.clear()
        start(hung)
        assert begun.wait(FAR_S)
        assert not slots.take()
        end.set()


def test_work_outside_a_pool_has_no_slot_to_yield() -> None:
    yield_slot()
    Cancellation().checkpoint(1)
