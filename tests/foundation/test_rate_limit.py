"""Rate limits, with a fake clock."""

from __future__ import annotations

import pytest

from armarium.foundation.concurrency.rate_limit import RateLimit
from armarium.foundation.errors import ArmariumError


class TooOften(ArmariumError):
    code = "TOO_OFTEN"


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def refused_for_ms(limit: RateLimit, caller: str) -> int:
    with pytest.raises(TooOften) as refused:
        limit.take(caller)
    return refused.value.details["retry_after_ms"]


def test_a_bucket_fills_with_time_up_to_its_burst() -> None:
    clock = Clock()
    limit = RateLimit(2.0, 3, TooOften, clock)
    for _ in range(3):
        limit.take("a")
    assert refused_for_ms(limit, "a") == 500
    clock.now += 0.4
    assert refused_for_ms(limit, "a") == 100
    clock.now += 0.11
    limit.take("a")
    clock.now += 1000
    for _ in range(3):
        limit.take("a")
    assert refused_for_ms(limit, "a") == 500


def test_callers_do_not_use_up_each_others_calls() -> None:
    limit = RateLimit(1.0, 1, TooOften, Clock())
    limit.take("a")
    limit.take("b")
    assert refused_for_ms(limit, "a") == 1000


def test_forgetting_idle_callers_gives_nobody_more_calls() -> None:
    clock = Clock()
    limit = RateLimit(1.0, 2, TooOften, clock)
    for number in range(10_000):
        limit.take(f"idle-{number}")
    clock.now += 10
    limit.take("busy")
    limit.take("busy")
    for number in range(10_000):
        limit.take(f"next-{number}")
    assert refused_for_ms(limit, "busy") == 1000
