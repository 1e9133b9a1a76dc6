"""FairSemaphore: never too many at once, in turn by tenant, and none is lost."""

from __future__ import annotations

from collections import Counter

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from armarium.capabilities.store.index.fair_semaphore import FairSemaphore
from support.waiting import eventually


class Room:
    """Notes who is holding, and lets each go when the test says so."""

    def __init__(self, semaphore: FairSemaphore) -> None:
        self._semaphore = semaphore
        self.holding: list[str] = []
        self._may_leave: dict[str, anyio.Event] = {}

    async def visit(self, name: str) -> None:
        """The tenant is the first letter of the name."""
        async with self._semaphore.held(name[0]):
            self.holding.append(name)
            self._may_leave[name] = anyio.Event()
            await self._may_leave[name].wait()
        self.holding.remove(name)

    async def leave(self, name: str) -> None:
        self._may_leave[name].set()
        await anyio.wait_all_tasks_blocked()


async def test_a_crowd_waits_in_its_own_line() -> None:
    room = Room(FairSemaphore(3, each=2))
    async with anyio.create_task_group() as tasks:
        for name in ("a1", "a2", "a3", "a4", "b1", "c1"):
            tasks.start_soon(room.visit, name)
            await anyio.wait_all_tasks_blocked()
        # a3 came before b1, and a has as many as one may have.
        assert room.holding == ["a1", "a2", "b1"]
        await room.leave("a1")
        assert room.holding == ["a2", "b1", "c1"]
        await room.leave("b1")
        assert room.holding == ["a2", "c1", "a3"]
        tasks.cancel_scope.cancel()


async def test_tenants_take_turns() -> None:
    room = Room(FairSemaphore(1, each=1))
    async with anyio.create_task_group() as tasks:
        for name in ("a1", "a2", "a3", "b1", "b2"):
            tasks.start_soon(room.visit, name)
            await anyio.wait_all_tasks_blocked()
        order: list[str] = []
        while room.holding:
            (name,) = room.holding
            order.append(name)
            await room.leave(name)
        assert order == ["a1", "a2", "b1", "a3", "b2"]


async def test_a_cancelled_task_does_not_start_though_a_slot_is_free() -> None:
    semaphore = FairSemaphore(1, each=1)
    started = False
    with anyio.CancelScope() as scope:
        scope.cancel()
        async with semaphore.held("a"):
            started = True
    assert not started
    with anyio.fail_after(60):
        async with semaphore.held("a"):
            pass


@pytest.mark.parametrize("holding", [False, True])
async def test_who_is_cancelled_leaves_no_seat_behind(holding: bool) -> None:
    semaphore = FairSemaphore(1, each=1)
    room = Room(semaphore)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(room.visit, "a1")
        await eventually(lambda: room.holding)
        with anyio.CancelScope() as scope:
            async with anyio.create_task_group() as waiting:
                waiting.start_soon(room.visit, "b1")
                await anyio.wait_all_tasks_blocked()
                assert semaphore.waiting("b") == 1
                if holding:
                    # The seat becomes free at the very moment in which nobody wants it any more.
                    room._may_leave["a1"].set()
                scope.cancel()
        await room.leave("a1")
        with anyio.fail_after(10):
            async with semaphore.held("c"):
                assert semaphore.waiting("b") == 0


@given(st.lists(st.sampled_from("abcd"), max_size=40), st.integers(1, 5), st.integers(1, 5))
def test_all_are_seated_in_the_end_and_never_too_many(visitors: list[str], total: int, each: int) -> None:
    inside: Counter[str] = Counter()
    done: list[str] = []

    async def visit(semaphore: FairSemaphore, tenant: str) -> None:
        async with semaphore.held(tenant):
            inside[tenant] += 1
            assert inside.total() <= total
            assert inside[tenant] <= each
            await anyio.lowlevel.checkpoint()
            inside[tenant] -= 1
        done.append(tenant)

    async def main() -> None:
        semaphore = FairSemaphore(total, each=each)
        async with anyio.create_task_group() as tasks:
            for tenant in visitors:
                tasks.start_soon(visit, semaphore, tenant)

    anyio.run(main)
    assert Counter(done) == Counter(visitors)
