"""The circuit breaker: when it opens, and when the server is tried again."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from armarium.foundation.concurrency.circuit_breaker import CircuitBreaker


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def breaker(clock: Clock) -> CircuitBreaker:
    return CircuitBreaker(3, 30.0, clock)


def fail(breaker: CircuitBreaker, times: int) -> list[bool]:
    return [breaker.failed() for _ in range(times)]


def test_it_opens_at_the_third_failure_in_a_row(breaker: CircuitBreaker) -> None:
    assert fail(breaker, 3) == [False, False, True]
    assert breaker.state == "open"
    assert not breaker.admits()
    assert breaker.retry_in_s == 30.0


def test_a_success_in_between_starts_the_count_anew(breaker: CircuitBreaker) -> None:
    fail(breaker, 2)
    breaker.succeeded()
    assert fail(breaker, 2) == [False, False]
    assert breaker.state == "closed"


def test_a_server_that_is_gone_opens_it_at_once(breaker: CircuitBreaker) -> None:
    assert breaker.gone()
    assert not breaker.admits()
    assert breaker.retry_in_s == 30.0


def test_after_the_break_a_trial_is_due_and_calls_are_refused_until_it_has_ended(
    breaker: CircuitBreaker, clock: Clock
) -> None:
    breaker.gone()
    clock.now += 30.0
    assert (breaker.state, breaker.retry_in_s) == ("half_open", 0.0)
    assert not breaker.admits()


def test_a_trial_that_succeeds_closes_it_and_the_count_starts_anew(breaker: CircuitBreaker, clock: Clock) -> None:
    fail(breaker, 3)
    clock.now += 30.0
    breaker.tried(well=True)
    assert breaker.admits()
    assert (breaker.state, breaker.retry_in_s) == ("closed", None)
    assert fail(breaker, 3) == [False, False, True]


def test_a_trial_that_fails_begins_another_break(breaker: CircuitBreaker, clock: Clock) -> None:
    breaker.gone()
    clock.now += 31.0
    breaker.tried(well=False)
    assert (breaker.state, breaker.retry_in_s) == ("open", 30.0)
    assert not breaker.admits()


def test_what_was_sent_before_a_break_neither_ends_nor_prolongs_it(breaker: CircuitBreaker, clock: Clock) -> None:
    fail(breaker, 3)
    clock.now += 10.0
    breaker.succeeded()
    assert fail(breaker, 4) == [False] * 4
    assert not breaker.gone()
    assert breaker.retry_in_s == 20.0


@given(st.lists(st.sampled_from(["succeed", "fail", "gone", "wait", "try_in_vain"]), max_size=60))
def test_whatever_happens_calls_are_admitted_exactly_until_a_break_that_only_a_trial_ends(steps: list[str]) -> None:
    clock = Clock()
    breaker = CircuitBreaker(3, 30.0, clock)
    for step in steps:
        admitted = breaker.admits()
        began = False
        match step:
            case "wait":
                clock.now += 7.0
            case "succeed":
                breaker.succeeded()
            case "fail":
                began = breaker.failed()
            case "gone":
                began = breaker.gone()
            case _ if breaker.state == "half_open":
                breaker.tried(well=False)
            case _:
                pass
        assert breaker.admits() == (admitted and not began)
        assert (breaker.retry_in_s is None) == breaker.admits()
    if not breaker.admits():
        clock.now += 30.0
        assert breaker.state == "half_open"
        breaker.tried(well=True)
    assert breaker.admits()
