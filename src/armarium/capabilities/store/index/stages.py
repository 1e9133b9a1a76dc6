"""Where a worker keeps the jobs it has claimed: those in work, and those that wait for a slot."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Literal

import anyio

from armarium.capabilities.store.index.fair_semaphore import FairSemaphore
from armarium.capabilities.store.index.outbox import IndexJob, Stage
from armarium.capabilities.store.index.wake_up import WakeUp

_MAX_CLAIMED_BATCHES = 3

Next = Literal["finish", "next stage", "continue later"]
"""What comes after the work on a job: nothing, the next stage, or the rest of the same work in another turn."""


@dataclass(frozen=True, slots=True)
class Claim:
    """How a claimed job stands."""

    since: float = field(default_factory=time.perf_counter)
    work: anyio.CancelScope = field(default_factory=anyio.CancelScope)
    """Cancelled when the lease is lost: another worker has the path then."""

    @property
    def age_s(self) -> float:
        """Seconds since it was claimed."""
        return time.perf_counter() - self.since


@dataclass(frozen=True, slots=True)
class StageQueue:
    """Where the jobs of one stage are worked on."""

    stage: Stage
    do: Callable[[IndexJob, Claim], Awaitable[Next]]
    """Works on a job, and says what comes next."""
    slots: FairSemaphore
    """For those that are worked on at once."""
    batch: int
    """Claim together, when nobody waits for a slot: the next ones are at hand when one becomes free."""
    wake_up: WakeUp
    """Wakes whoever claims for this stage."""
    claimed: dict[IndexJob, Claim] = field(default_factory=dict[IndexJob, Claim])

    @property
    def has_waiting(self) -> bool:
        """Whether jobs wait for a slot."""
        return len(self.claimed) > self.slots.each

    @property
    def full(self) -> bool:
        """Whether no more are to be claimed, for anybody."""
        return len(self.claimed) >= max(self.batch, self.slots.total) * _MAX_CLAIMED_BATCHES

    def tenants(self) -> set[str]:
        """Those whose jobs are worked on or wait here."""
        return {job.scope.apikey_hash for job in self.claimed}
