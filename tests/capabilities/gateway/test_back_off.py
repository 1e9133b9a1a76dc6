"""Back-off between connection attempts: pauses double up to a maximum, and end with a success."""

from __future__ import annotations

from itertools import pairwise

from armarium.capabilities.gateway.upstreams.policy import JITTER, MAX_PAUSE_S, ConnectBackoff

FIRST_PAUSE_S = 0.25


def test_each_pause_is_about_twice_the_one_before_until_the_longest() -> None:
    backoff = ConnectBackoff(lambda: 50.0, first_pause_s=FIRST_PAUSE_S)
    assert backoff.pause_s == 0.0
    pauses: list[float] = []
    for _ in range(20):
        backoff.failed(took_s=0.0)
        pauses.append(backoff.pause_s)
    assert FIRST_PAUSE_S * (1 - JITTER) <= pauses[0] <= FIRST_PAUSE_S * (1 + JITTER)
    assert all(after > before for before, after in pairwise(pauses[:8]))
    assert all(MAX_PAUSE_S * (1 - JITTER) <= pause <= MAX_PAUSE_S * (1 + JITTER) for pause in pauses[8:])


def test_pauses_of_many_differ() -> None:
    found: set[float] = set()
    for _ in range(20):
        backoff = ConnectBackoff(lambda: 0.0)
        backoff.failed(took_s=10.0)
        found.add(backoff.pause_s)
    assert len(found) > 1


def test_an_attempt_that_took_long_is_followed_by_a_pause_as_long() -> None:
    backoff = ConnectBackoff(lambda: 0.0)
    backoff.failed(took_s=10.0)
    assert 10.0 * (1 - JITTER) <= backoff.pause_s <= 10.0 * (1 + JITTER)


def test_a_success_ends_the_pause_and_the_doubling() -> None:
    backoff = ConnectBackoff(lambda: 0.0)
    for _ in range(5):
        backoff.failed(took_s=0.0)
    backoff.succeeded()
    assert backoff.pause_s == 0.0
    backoff.failed(took_s=0.0)
    assert backoff.pause_s <= FIRST_PAUSE_S * (1 + JITTER)
