"""Index workers: claim jobs from the outbox, write the terms of files first and their vectors later."""

from __future__ import annotations

import logging
import math
import time
import traceback
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Literal

import anyio

from armarium.capabilities.store.database.transactions import RECOVERABLE_ERRORS
from armarium.capabilities.store.errors import StoreError
from armarium.capabilities.store.index.credentials import Credentials
from armarium.capabilities.store.index.fair_semaphore import FairSemaphore
from armarium.capabilities.store.index.file_index import FileIndex
from armarium.capabilities.store.index.outbox import Depth, IndexJob, Outbox, Stage
from armarium.capabilities.store.index.wake_up import SharedWakeUp, WakeUp
from armarium.foundation.errors import ArmariumError, DeadlineExceeded
from armarium.providers.errors import ProviderError

# Writing terms takes milliseconds; several jobs run concurrently only so that a large file does not delay the others.
# One slot is reserved for other tenants.
_TERM_JOBS = 5
_TERM_JOBS_PER_TENANT = 4
# Chunks of a file that are embedded before other tenants get their turn: a long file takes minutes.
_EMBEDDED_PER_TURN = 64
_STAGE_TIMEOUT_S = 600.0
_CLAIM_TIMEOUT_S = 10.0
_RELEASE_TIMEOUT_S = 5.0
_MIN_WAIT_S = 0.01
# Every write and every finished job is a wake-up. A pause collects jobs into one claim: claiming one job costs the
# database as much as claiming twenty.
_CLAIM_INTERVAL_S = 0.02
# While claimed jobs wait for a slot, jobs of other tenants are still claimed, at this interval and up to a limit.
_OTHER_TENANTS_INTERVAL_S = 0.1
_MAX_CLAIMED_BATCHES = 3
_RENEWALS_PER_LEASE = 3

_log = logging.getLogger(__name__)


class CredentialMissing(StoreError, code="CREDENTIAL_MISSING", retryable=True):
    """The stored key of the caller has expired. No other key is ever used instead."""


@dataclass(frozen=True, slots=True)
class Observers:
    job_latency_s: Callable[[float], None] = lambda _: None
    """Time from the claim of a job in its last stage to its end, successful or not."""
    visibility_lag_s: Callable[[float], None] = lambda _: None
    """Time from a change until lexical search finds it."""
    depth: Callable[[Depth], None] = lambda _: None
    """Length of the queue, reported periodically."""


Next = Literal["finish", "next stage", "continue later"]
"""What follows after a job ran: it is finished, it enters the next stage, or it continues in another turn."""


@dataclass(frozen=True, slots=True)
class Claim:
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
    def full(self) -> bool:
        """Whether no more jobs may be claimed, for any tenant."""
        return len(self.claimed) >= max(self.batch, self.slots.total) * _MAX_CLAIMED_BATCHES


@dataclass(frozen=True, slots=True)
class WorkerPool:
    """Runs index jobs. Each job has two stages, and each stage has its own queue, so that lexical search finds new text
    however many vectors are pending. A job that needs vectors enters the second stage when its terms are written, and
    works with the content the file has then.

    A retryable error, a missing key and an unexpected error reschedule a job with a growing delay. A permanent refusal
    by the provider of the model (an invalid key or request) fails the job at once, because a retry would fail again at
    the caller's cost. The next write of the file creates a new job.
    """

    outbox: Outbox
    index: FileIndex
    credentials: Credentials | None
    """Where callers' keys are, if the model needs them."""
    wake_up: SharedWakeUp
    observers: Observers = Observers()
    vectors_wake_up: WakeUp = field(default_factory=WakeUp)
    stages: list[StageQueue] = field(default_factory=list[StageQueue])

    async def run(self, *, workers: int, batch: int, poll_s: float) -> None:
        """Run jobs until cancelled, embedding `workers` files at a time; with 0, only report the length of the queue.
        Unfinished jobs return to the queue at the end."""
        if workers:
            term_slots = FairSemaphore(_TERM_JOBS, each=_TERM_JOBS_PER_TENANT)
            vector_slots = FairSemaphore(workers, each=workers)
            self.stages.append(StageQueue("words", self._write_terms, term_slots, batch, self.wake_up))
            # Embedding takes long: jobs that wait for a slot here could run in another process.
            at_once = min(batch, workers)
            self.stages.append(StageQueue("vectors", self._embed, vector_slots, at_once, self.vectors_wake_up))
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._watch, poll_s)
                tasks.start_soon(self._renew)
                for queue in self.stages:
                    tasks.start_soon(self._claim_jobs, queue, poll_s)
        finally:
            message = "releasing unfinished jobs failed; their leases expire"
            with anyio.move_on_after(_RELEASE_TIMEOUT_S, shield=True), _failure_logged(message):
                if unfinished := list(self._claimed()):
                    await self.outbox.release(unfinished)

    async def _claim_jobs(self, queue: StageQueue, poll_s: float) -> None:
        for_others_at = -math.inf
        async with anyio.create_task_group() as tasks:
            while True:
                next_wake_up = queue.wake_up.next_wake_up()
                others: set[str] = set()
                if len(queue.claimed) > queue.slots.each:
                    # Every finished job is a wake-up.
                    delay_s = for_others_at + _OTHER_TENANTS_INTERVAL_S - anyio.current_time()
                    if queue.full or delay_s > 0:
                        with anyio.move_on_after(math.inf if queue.full else delay_s):
                            await next_wake_up.wait()
                        continue
                    others, for_others_at = {job.scope.apikey_hash for job in queue.claimed}, anyio.current_time()
                try:
                    # Shielded: a cancelled claim would leave jobs claimed by nobody until their lease expires.
                    with anyio.fail_after(_CLAIM_TIMEOUT_S, shield=True):
                        jobs, next_due_s = await self.outbox.claim(queue.stage, queue.batch, skip=others)
                        queue.claimed.update((job, Claim()) for job in jobs)
                except (*RECOVERABLE_ERRORS, TimeoutError) as error:
                    _log.warning("claiming jobs failed", extra={"error": type(error).__name__})
                    await anyio.sleep(min(poll_s, 1.0))
                    continue
                for job in jobs:
                    tasks.start_soon(self._run_job, queue, job)
                if not jobs:
                    due_s = poll_s if next_due_s is None else max(next_due_s, _MIN_WAIT_S)
                    with anyio.move_on_after(min(due_s, poll_s)):
                        await next_wake_up.wait()
                if len(jobs) < queue.batch:
                    await anyio.sleep(_CLAIM_INTERVAL_S)

    async def _run_job(self, queue: StageQueue, job: IndexJob) -> None:
        claimed = queue.claimed[job]
        ended = True
        with claimed.work:
            async with queue.slots.held(job.scope.apikey_hash):
                # If it fails, the lease expires, and the job returns to the queue.
                with _failure_logged("recording the end of a job failed"):
                    ended = await self._run_stage(queue, job)
        del queue.claimed[job]
        if ended:
            self.observers.job_latency_s(claimed.age_s)
        # The next job of this path may be claimable now, and a slot is free.
        queue.wake_up.wake()

    async def _run_stage(self, queue: StageQueue, job: IndexJob) -> bool:
        """Run one stage of a job. Returns whether the job ended, successfully or not."""
        after: Next = "finish"
        error = None
        try:
            with anyio.fail_after(_STAGE_TIMEOUT_S):
                after = await queue.do(job, queue.claimed[job])
        except ArmariumError as raised:
            error = raised
        except TimeoutError:
            error = DeadlineExceeded("indexing took too long")
        except Exception as raised:  # noqa: BLE001 the edge of the job loop: one file must not end the indexing of all
            # Without the message: errors of the database and of parsers quote the content.
            where = traceback.extract_tb(raised.__traceback__)[-1]
            at = f"{where.name}:{where.lineno}"
            _log.error("indexing failed unexpectedly", extra={"error": type(raised).__name__, "at": at})
            error = ArmariumError("indexing failed unexpectedly")
        match after:
            case "finish":
                await self._finish(job, error)
            case "next stage":
                await self.outbox.advance(job)
                self.vectors_wake_up.wake()
            case "continue later":
                await self.outbox.release([job])
        return after == "finish"

    async def _write_terms(self, job: IndexJob, claimed: Claim) -> Next:
        """The first stage: write the terms of a file, or update the index after a deletion or rename."""
        if job.operation == "DELETE":
            await self.index.forget(job.scope, job.path)
            return "finish"
        if job.operation == "MOVE":
            # All jobs that this one queues share one key, which is removed when the last of them ends.
            if await self.index.follow(job.scope, job.path, next(iter(job.references), None)):
                self.wake_up.wake_all()
            return "finish"
        words = await self.index.write_terms(job.scope, job.path)
        # Observed once: not for a retry of a job that had written its terms.
        if words.new or not job.retry_count:
            self.observers.visibility_lag_s(job.age_s + claimed.age_s)
        return "finish" if words.embedded else "next stage"

    async def _embed(self, job: IndexJob, claimed: Claim) -> Next:
        # The file may have changed while the job waited, or a restart may have changed the model.
        words = await self.index.write_terms(job.scope, job.path)
        if words.embedded:
            return "finish"
        # A caller's key expires within minutes, so a file that needs one is embedded in one turn.
        most = _EMBEDDED_PER_TURN if self.credentials is None else None
        key = None if self.credentials is None else await _key_for(job, self.credentials)
        complete = await self.index.embed(job.scope, job.path, key, most=most)
        return "finish" if complete else "continue later"

    async def _finish(self, job: IndexJob, error: ArmariumError | None) -> None:
        if error is None:
            await self.outbox.done(job)
        else:
            of_provider = isinstance(error, ProviderError)
            delay_s = error.retry_after_s if of_provider else None
            permanent = of_provider and not error.retryable
            outcome = await self.outbox.retry(job, error.code, not_before_s=delay_s or 0.0, permanent=permanent)
            facts = {"job": job.id, "stage": job.stage, "code": error.code, "retries": job.retry_count}
            level = logging.ERROR if outcome == "failed" else logging.INFO
            _log.log(level, "a file could not be indexed", extra=facts | {"outcome": outcome})
        if self.credentials is not None:
            for reference in await self.outbox.unused(job):
                await self.credentials.discard(reference)

    async def _renew(self) -> None:
        while True:
            await anyio.sleep(self.outbox.lease_s / _RENEWALS_PER_LEASE)
            if held := self._claimed():
                with _failure_logged("renewing leases failed"):
                    ours = await self.outbox.renew(list(held))
                    for job, claimed in held.items():
                        if job not in ours:
                            claimed.work.cancel()

    def _claimed(self) -> dict[IndexJob, Claim]:
        return {job: claimed for queue in self.stages for job, claimed in queue.claimed.items()}

    async def _watch(self, poll_s: float) -> None:
        """Recover jobs whose lease has expired, and report the length of the queue."""
        while True:
            with _failure_logged("inspecting the queue failed"):
                if await self.outbox.recover():
                    for queue in self.stages:
                        queue.wake_up.wake()
                self.observers.depth(await self.outbox.depth())
            await anyio.sleep(min(poll_s, self.outbox.lease_s / _RENEWALS_PER_LEASE))


@contextmanager
def _failure_logged(message: str) -> Generator[None]:
    """Log a recoverable error of the database in the block, and continue after it."""
    try:
        yield
    except RECOVERABLE_ERRORS as error:
        _log.warning(message, extra={"error": type(error).__name__})


async def _key_for(job: IndexJob, credentials: Credentials) -> str:
    for reference in job.references:
        if (key := await credentials.take(reference, job.scope)) is not None:
            return key
    raise CredentialMissing("the stored key of the caller has expired", hint="write the file again")
