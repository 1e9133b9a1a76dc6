"""Jobs of a pool take turns: few run at once, and none waits for the end of a long one or for one that hangs."""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager

from armarium.foundation.limits import Pulse
from armarium.foundation.turns import Turns, step_aside

FAR_S = 60.0
NEVER_S = 3600.0


@contextmanager
def jobs(turns: Turns) -> Generator[Callable[[Callable[[], None]], Future[None]]]:
    """Starts jobs, each in a thread and a turn of its own."""

    def run(work: Callable[[], None]) -> None:
        with turns.turn():
            work()

    with ThreadPoolExecutor(4) as threads:
        yield lambda work: threads.submit(run, work)


def wait_until_anyone_waits(turns: Turns) -> None:
    pause = threading.Event()
    while not turns.anyone_waits:
        pause.wait(0.001)


def test_a_job_waits_while_as_many_run_as_may() -> None:
    turns = Turns(1, longest_wait_s=NEVER_S)
    begun, end, order = threading.Event(), threading.Event(), list[str]()

    def first() -> None:
        begun.set()
        assert end.wait(FAR_S)
        order.append("first")

    with jobs(turns) as start:
        one = start(first)
        assert begun.wait(FAR_S)
        other = start(lambda: order.append("second"))
        wait_until_anyone_waits(turns)
        end.set()
        one.result(FAR_S)
        other.result(FAR_S)
    assert order == ["first", "second"]


def test_two_jobs_run_together_where_two_may() -> None:
    together = threading.Barrier(2)
    with jobs(Turns(2, longest_wait_s=NEVER_S)) as start:
        for job in [start(lambda: together.wait(FAR_S) and None) for _ in range(2)]:
            job.result(FAR_S)


def test_a_long_job_lets_the_one_that_waits_run_at_its_next_beat() -> None:
    turns = Turns(1, slice_s=0, longest_wait_s=NEVER_S)
    begun, order, pulse = threading.Event(), list[str](), Pulse()

    def long() -> None:
        begun.set()
        wait_until_anyone_waits(turns)
        pulse.beat(1)
        order.append("long")

    with jobs(turns) as start:
        one = start(long)
        assert begun.wait(FAR_S)
        start(lambda: order.append("short")).result(FAR_S)
        one.result(FAR_S)
    assert order == ["short", "long"]


def test_a_job_keeps_its_turn_for_a_slice_of_time() -> None:
    turns = Turns(1, slice_s=NEVER_S, longest_wait_s=NEVER_S)
    begun, order = threading.Event(), list[str]()

    def first() -> None:
        begun.set()
        wait_until_anyone_waits(turns)
        step_aside()
        order.append("first")

    with jobs(turns) as start:
        one = start(first)
        assert begun.wait(FAR_S)
        start(lambda: order.append("second")).result(FAR_S)
        one.result(FAR_S)
    assert order == ["first", "second"]


def test_a_job_that_hangs_does_not_hold_up_the_others_for_long() -> None:
    turns = Turns(1, longest_wait_s=0.01)
    begun, end = threading.Event(), threading.Event()

    def hung() -> None:
        begun.set()
        assert end.wait(FAR_S)

    with jobs(turns) as start:
        one = start(hung)
        assert begun.wait(FAR_S)
        start(step_aside).result(FAR_S)
        end.set()
        one.result(FAR_S)
        # A job that ran without a turn gives none back: still one at once.
        begun.clear()
        end.clear()
        start(hung)
        assert begun.wait(FAR_S)
        assert not turns.take()
        end.set()


def test_work_outside_a_pool_has_no_turn_to_give() -> None:
    step_aside()
    Pulse().beat(1)
