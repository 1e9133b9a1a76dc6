"""Liveness checks: a server is silent only if its ping had enough time."""

from __future__ import annotations

import anyio
import pytest

from armarium.capabilities.gateway.upstreams.policy import LivenessCheck
from support.waiting import DEADLINE_S as TIMEOUT_S

DEADLINE_S = 0.1
PING_S = 0.04


class Peer:
    """A connection that is pinged; the answer comes when the test says so."""

    usable = True

    def __init__(self) -> None:
        self.pinged = anyio.Event()
        self.answer = anyio.Event()

    async def ping(self, within_s: float) -> bool:
        self.pinged.set()
        await self.answer.wait()
        return True


@pytest.mark.parametrize(
    ("waited_s", "is_silent"), [(0.0, False), (0.7 * PING_S, False), (0.9 * PING_S, True), (TIMEOUT_S, True)]
)
async def test_a_server_is_silent_once_its_ping_had_most_of_its_time(waited_s: float, is_silent: bool) -> None:
    clock = [1000.0]
    peer = Peer()
    async with anyio.create_task_group() as tasks:
        liveness = LivenessCheck(lambda: peer, tasks, lambda: clock[0], ping_s=PING_S)
        await _until_pinged(liveness, peer)
        clock[0] += waited_s
        assert liveness.is_silent(DEADLINE_S) == is_silent
        tasks.cancel_scope.cancel()


async def test_a_server_that_answered_its_ping_is_not_silent() -> None:
    clock = [1000.0]
    peer = Peer()
    async with anyio.create_task_group() as tasks:
        liveness = LivenessCheck(lambda: peer, tasks, lambda: clock[0], ping_s=PING_S)
        await _until_pinged(liveness, peer)
        peer.answer.set()
    clock[0] += TIMEOUT_S
    assert not liveness.is_silent(DEADLINE_S)


async def test_the_silence_of_a_connection_that_was_replaced_says_nothing_of_the_next() -> None:
    clock = [1000.0]
    peer = Peer()
    in_use = [peer]
    async with anyio.create_task_group() as tasks:
        liveness = LivenessCheck(lambda: in_use[0], tasks, lambda: clock[0], ping_s=PING_S)
        await _until_pinged(liveness, peer)
        clock[0] += TIMEOUT_S
        assert liveness.is_silent(DEADLINE_S)
        in_use[0] = Peer()
        assert not liveness.is_silent(DEADLINE_S)
        tasks.cancel_scope.cancel()


async def _until_pinged(liveness: LivenessCheck, peer: Peer) -> None:
    with anyio.fail_after(TIMEOUT_S), liveness.before(DEADLINE_S):
        await peer.pinged.wait()
