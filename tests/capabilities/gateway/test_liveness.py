"""Whether a server counts as silent when a deadline passes, by the clock: a ping has to have had its time."""

from __future__ import annotations

from typing import cast

import anyio
import pytest

from armarium.capabilities.gateway.upstreams.connection import Connection
from armarium.capabilities.gateway.upstreams.pulse import Pulse
from support.upstreams import PATIENCE_S

DEADLINE_S = 0.1
PING_S = 0.04


class Peer:
    """A connection that is pinged; the answer comes when the test says so."""

    usable = True

    def __init__(self) -> None:
        self.pinged = anyio.Event()
        self.answer = anyio.Event()

    async def answers(self, within_s: float) -> bool:
        self.pinged.set()
        await self.answer.wait()
        return True


@pytest.mark.parametrize(
    ("waited_s", "is_missing"), [(0.0, False), (0.7 * PING_S, False), (0.9 * PING_S, True), (PATIENCE_S, True)]
)
async def test_a_server_is_missing_once_its_ping_had_most_of_its_time(waited_s: float, is_missing: bool) -> None:
    clock = [1000.0]
    peer = Peer()
    async with anyio.create_task_group() as tasks:
        pulse = Pulse(lambda: cast("Connection", peer), PING_S, tasks, lambda: clock[0])
        await _until_pinged(pulse, peer)
        clock[0] += waited_s
        assert pulse.is_missing(DEADLINE_S) == is_missing
        tasks.cancel_scope.cancel()


async def test_a_server_that_answered_its_ping_is_not_missing() -> None:
    clock = [1000.0]
    peer = Peer()
    async with anyio.create_task_group() as tasks:
        pulse = Pulse(lambda: cast("Connection", peer), PING_S, tasks, lambda: clock[0])
        await _until_pinged(pulse, peer)
        peer.answer.set()
    clock[0] += PATIENCE_S
    assert not pulse.is_missing(DEADLINE_S)


async def test_the_silence_of_a_connection_that_was_replaced_says_nothing_of_the_next() -> None:
    clock = [1000.0]
    peer = Peer()
    in_use = [peer]
    async with anyio.create_task_group() as tasks:
        pulse = Pulse(lambda: cast("Connection", in_use[0]), PING_S, tasks, lambda: clock[0])
        await _until_pinged(pulse, peer)
        clock[0] += PATIENCE_S
        assert pulse.is_missing(DEADLINE_S)
        in_use[0] = Peer()
        assert not pulse.is_missing(DEADLINE_S)
        tasks.cancel_scope.cancel()


async def _until_pinged(pulse: Pulse, peer: Peer) -> None:
    with anyio.fail_after(PATIENCE_S), pulse.taken_before(DEADLINE_S):
        await peer.pinged.wait()
