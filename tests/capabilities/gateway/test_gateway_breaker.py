"""The breaker: when a server is left alone, and when it is tried again."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from armarium.capabilities.gateway.upstreams.breaker import Breaker


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def breaker(clock: Clock) -> Breaker:
    return Breaker(3, 30.0, clock)


def fail(breaker: Breaker, times: int) -> list[bool]:
    outcomes: list[bool] = []
    for _ in range(times):
        assert breaker.admits()
        outcomes.append(breaker.failed())
    return outcomes


def test_it_opens_at_the_third_failure_in_a_row(breaker: Breaker) -> None:
    assert fail(breaker, 3) == [False, False, True]
    assert breaker.state == "open"
    assert not breaker.admits()
    assert breaker.retry_in_s == 30.0


def test_a_success_in_between_starts_the_count_anew(breaker: Breaker) -> None:
    fail(breaker, 2)
    breaker.succeeded()
    assert fail(breaker, 2) == [False, False]
    assert breaker.state == "closed"


def test_after_the_break_a_single_call_is_let_through(breaker: Breaker, clock: Clock) -> None:
    fail(breaker, 3)
    clock.now += 30.0
    assert breaker.state == "half_open"
    assert breaker.admits()
    assert not breaker.admits()


def test_a_trial_that_succeeds_closes_it(breaker: Breaker, clock: Clock) -> None:
    fail(breaker, 3)
    clock.now += 30.0
    assert breaker.admits()
    breaker.succeeded()
    assert breaker.state == "closed"
    assert breaker.retry_in_s is None
    assert breaker.admits()


def test_a_trial_that_fails_opens_it_for_another_break(breaker: Breaker, clock: Clock) -> None:
    fail(breaker, 3)
    clock.now += 30.0
    assert breaker.admits()
    assert breaker.failed()
    assert breaker.retry_in_s == 30.0
    assert not breaker.admits()


def test_a_trial_that_its_caller_took_back_leaves_room_for_another(breaker: Breaker, clock: Clock) -> None:
    fail(breaker, 3)
    clock.now += 30.0
    assert breaker.admits()
    breaker.forgotten()
    assert breaker.admits()


def test_failures_of_calls_from_before_do_not_prolong_the_break(breaker: Breaker, clock: Clock) -> None:
    fail(breaker, 3)
    clock.now += 10.0
    assert not breaker.failed()
    assert breaker.retry_in_s == 20.0


@given(st.lists(st.sampled_from(["call", "succeed", "fail", "forget", "wait"]), max_size=60))
def test_whatever_happens_a_break_ends_and_admits_again(steps: list[str]) -> None:
    clock = Clock()
    breaker = Breaker(3, 30.0, clock)
    under_way = 0
    for step in steps:
        if step == "wait":
            clock.now += 7.0
        elif step == "call":
            under_way += breaker.admits()
        elif under_way:
            under_way -= 1
            {"succeed": breaker.succeeded, "fail": breaker.failed, "forget": breaker.forgotten}[step]()
    for _ in range(under_way):
        breaker.forgotten()
    clock.now += 30.0
    assert breaker.admits()
