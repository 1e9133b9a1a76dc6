"""The retry policy and the rate limiter."""

from __future__ import annotations

from datetime import UTC, datetime
from email.utils import format_datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from armarium.providers.retry import Attempts, RateLimiter, RetryPolicy, parse_retry_after
from armarium.providers.vendors import MISTRAL
from support.manual_clock import WALL, ManualClock


def http_date(wall: float) -> str:
    return format_datetime(datetime.fromtimestamp(wall, UTC), usegmt=True)


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        (None, None),
        ("0", 0.0),
        ("7", 7.0),
        ("1.5", 1.5),
        ("-3", 0.0),
        (http_date(WALL + 30), 30.0),
        (http_date(WALL - 30), 0.0),
        ("Fri, 15 Jan 2027 08:00:12 -0000", 12.0),
        ("nan", None),
        ("inf", None),
        ("soon", None),
        ("", None),
    ],
)
def test_retry_after_is_read_as_seconds_or_as_a_date(header: str | None, seconds: float | None) -> None:
    assert parse_retry_after(header, WALL) == seconds


@given(st.text(max_size=60))
def test_no_retry_after_header_breaks_the_reader_or_gives_a_wait_that_cannot_be_waited(header: str) -> None:
    seconds = parse_retry_after(header, WALL)
    assert seconds is None or 0 <= seconds < float("inf")


def test_waits_grow_and_stop_growing_at_the_longest() -> None:
    clock = ManualClock()
    attempts = Attempts(RetryPolicy(max_attempts=7, first_delay_s=0.5, max_delay_s=4.0), clock.clock)
    waits = [attempts.delay_after(MISTRAL.unavailable("down")) for _ in range(7)]
    assert waits == [0.5, 1.0, 2.0, 4.0, 4.0, 4.0, None]


def test_a_rate_limit_is_waited_out_for_longer_when_nobody_waits_for_the_answer() -> None:
    clock = ManualClock()
    policy = RetryPolicy(max_attempts=2, first_delay_s=1.0, max_delay_s=4.0)
    batch, question = Attempts(policy, clock.clock), Attempts(policy, clock.clock, urgent=True)
    assert [batch.delay_after(MISTRAL.rate_limited("busy")) for _ in range(5)] == [1.0, 2.0, 4.0, 4.0, 4.0]
    assert [question.delay_after(MISTRAL.rate_limited("busy")) for _ in range(2)] == [1.0, None]


def test_half_of_every_wait_is_left_to_chance() -> None:
    clock = ManualClock()
    clock.random = 0.0
    attempts = Attempts(RetryPolicy(first_delay_s=2.0), clock.clock)
    assert attempts.delay_after(MISTRAL.unavailable("down")) == 1.0


def test_a_wait_that_would_pass_the_deadline_is_not_begun() -> None:
    clock = ManualClock()
    attempts = Attempts(RetryPolicy(), clock.clock, 10.0)
    attempts.start()
    assert attempts.delay_after(MISTRAL.rate_limited("busy", retry_after_s=9.0)) == 9.0
    clock.now = 9.0
    assert attempts.delay_after(MISTRAL.rate_limited("busy", retry_after_s=1.0)) is None


async def test_a_rate_spreads_requests_evenly() -> None:
    clock = ManualClock()
    limiter = RateLimiter(30, clock.clock)
    for _ in range(4):
        await limiter.acquire()
    assert clock.waits == [2.0, 2.0, 2.0]


async def test_without_a_rate_nobody_waits_until_somebody_is_told_to() -> None:
    clock = ManualClock()
    limiter = RateLimiter(None, clock.clock)
    await limiter.acquire()
    await limiter.acquire()
    assert clock.waits == []
    limiter.pause(5.0)
    await limiter.acquire()
    await limiter.acquire()
    assert clock.waits == [5.0]
