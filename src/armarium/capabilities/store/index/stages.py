"""The claimed jobs of a worker, by stage: running, or waiting for a slot."""

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
"""What follows after a job ran: it is finished, it enters the next stage, or it continues in another turn."""


@dataclass(frozen=True, slots=True)
class Claim:
    """The state of a claimed job."""

    since: float = field(default_factory=time.perf_counter)
    work: anyio.CancelScope = field(default_factory=anyio.CancelScope)
    """Cancelled when the lease is lost, because another worker may have the path then."""

    @property
    def age_s(self) -> float:
        return time.perf_counter() - self.since


@dataclass(frozen=True, slots=True)
class StageQueue:
    """The claimed jobs of one stage, and how they run."""

    stage: Stage
    do: Callable[[IndexJob, Claim], Awaitable[Next]]
    """Runs a job and returns what follows."""
    slots: FairSemaphore
    """Slots for running jobs, shared fairly by tenants."""
    batch: int
    """How many jobs to claim together if none waits for a slot, so that the next ones are ready."""
    wake_up: WakeUp
    """Wakes the task that claims jobs for this stage."""
    claimed: dict[IndexJob, Claim] = field(default_factory=dict[IndexJob, Claim])

    @property
    def has_waiting(self) -> bool:
        return len(self.claimed) > self.slots.each

    @property
    def full(self) -> bool:
        """Whether no more jobs may be claimed, for any tenant."""
        return len(self.claimed) >= max(self.batch, self.slots.total) * _MAX_CLAIMED_BATCHES

    def tenants(self) -> set[str]:
        return {job.scope.apikey_hash for job in self.claimed}
