"""Workers: they claim jobs, write the words of files at once and their vectors behind, and give back the rest."""

from __future__ import annotations

import logging
import math
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import anyio

from armarium.capabilities.store.database.transactions import RECOVERABLE_ERRORS
from armarium.capabilities.store.errors import StoreError
from armarium.capabilities.store.index.credentials import Credentials
from armarium.capabilities.store.index.fair_semaphore import FairSemaphore
from armarium.capabilities.store.index.file_index import TermsWritten
from armarium.capabilities.store.index.outbox import Depth, IndexJob, Outbox, Outcome
from armarium.capabilities.store.index.stages import Claim, Next, StageQueue
from armarium.capabilities.store.index.wake_up import SharedWakeUp, WakeUp
from armarium.capabilities.store.model import Scope
from armarium.foundation.errors import ArmariumError, DeadlineExceeded
from armarium.providers.errors import ProviderError

# TermsWritten are written in milliseconds; several at once only so that a large file does not hold up the others. One slot is
# left to other tenants.
_WRITTEN_AT_ONCE = 5
_WRITTEN_AT_ONCE_OF_A_TENANT = 4
# Chunks of a file that are embedded before other tenants have their turn: a long file takes minutes.
_EMBEDDED_IN_A_TURN = 64
_LONGEST_STAGE_S = 600.0
_CLAIM_PATIENCE_S = 10.0
_RELEASE_PATIENCE_S = 5.0
_SHORTEST_WAIT_S = 0.01
# Every write and every end of a job wakes. What comes close together is claimed together: a claim of one job costs the
# database as much as one of twenty.
_BETWEEN_CLAIMS_S = 0.02
# While jobs wait here for a slot, those of other tenants are claimed besides, now and then and not without end.
_BETWEEN_CLAIMS_FOR_OTHERS_S = 0.1
_RENEWALS_PER_LEASE = 3

_log = logging.getLogger(__name__)


class CredentialMissing(StoreError):
    """The caller's key is not kept any more. No other key is ever used instead."""

    code, retryable = "CREDENTIAL_MISSING", True


class Index(Protocol):
    """What a job is done with."""

    async def write_terms(self, scope: Scope, path: str) -> TermsWritten:
        """Make the file as it is now searchable by its words."""
        ...

    async def embed(self, scope: Scope, path: str, key: str | None, *, most: int | None = None) -> bool:
        """Make the file searchable by its meaning, too, with the caller's key where the model needs one; whether that
        was all, or `most` texts were embedded and there are more."""
        ...

    async def forget(self, scope: Scope, path: str) -> None:
        """Remove what is indexed of a file that is not there."""
        ...

    async def follow(self, scope: Scope, path: str, credential_ref: str | None) -> int:
        """Follow a rename to a path; how many of the files that were moved are queued to be indexed."""
        ...


def _ignore(_: object) -> None:
    """For whoever does not measure."""


@dataclass(frozen=True, slots=True)
class Observers:
    """Who is told how indexing goes."""

    job_latency_s: Callable[[float], None] = _ignore
    """Time from claiming a job for its last stage to its end, whatever the end."""
    visibility_lag_s: Callable[[float], None] = _ignore
    """Time from a change to the moment when searches see it, by its words."""
    depth: Callable[[Depth], None] = _ignore
    """How long the queue is, now and then."""


async def work(
    outbox: Outbox,
    index: Index,
    credentials: Credentials,
    wake_up: SharedWakeUp,
    *,
    workers: int,
    batch: int,
    poll_s: float,
    needs_key: bool,
    observers: Observers | None = None,
) -> None:
    """Do jobs until cancelled, embedding for `workers` of them at a time; with none, only look how long the queue is.
    What is not finished at the end goes back to the queue at once.

    Each job has two stages, and each stage claims from a queue of its own: what is written now is found by its words,
    however many vectors are still to be made. A job that needs vectors is handed on to the second stage when its words
    are written. There it works with the file as it is then.

    A retryable error, a missing key and an unforeseen error put a job back, with a growing wait. A permanent refusal
    by the model's provider (a wrong key, a request it does not accept) fails the job at once: the same request would
    be refused again, at the caller's cost. The next write of the file makes a new job.
    """
    pool = _WorkerPool(outbox, index, credentials, wake_up, needs_key, observers or Observers())
    await pool.run(workers, batch, poll_s)


class _WorkerPool:
    def __init__(
        self,
        outbox: Outbox,
        index: Index,
        credentials: Credentials,
        wake_up: SharedWakeUp,
        needs_key: bool,
        observers: Observers,
    ) -> None:
        self._outbox = outbox
        self._index = index
        self._credentials = credentials
        self._wake_up = wake_up
        self._vectors_wake_up = WakeUp()
        self._needs_key = needs_key
        self._observers = observers
        self._stages: list[StageQueue] = []

    async def run(self, workers: int, batch: int, poll_s: float) -> None:
        if workers:
            words = FairSemaphore(_WRITTEN_AT_ONCE, each=_WRITTEN_AT_ONCE_OF_A_TENANT)
            vectors = FairSemaphore(workers, each=workers)
            self._stages = [
                StageQueue("words", self._write_terms, words, batch, self._wake_up),
                # Vectors take long: more that wait for a slot here could be done by another process.
                StageQueue("vectors", self._embed, vectors, min(batch, workers), self._vectors_wake_up),
            ]
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._watch, poll_s)
                tasks.start_soon(self._renew)
                for queue in self._stages:
                    tasks.start_soon(self._claim_jobs, queue, poll_s)
        finally:
            await self._release_unfinished()

    async def _claim_jobs(self, queue: StageQueue, poll_s: float) -> None:
        for_others_at = -math.inf
        async with anyio.create_task_group() as tasks:
            while True:
                next_wake_up = queue.wake_up.next_wake_up()
                others: set[str] = set()
                if queue.has_waiting:
                    # The end of each job rings.
                    pause_s = for_others_at + _BETWEEN_CLAIMS_FOR_OTHERS_S - anyio.current_time()
                    if queue.full or pause_s > 0:
                        with anyio.move_on_after(math.inf if queue.full else pause_s):
                            await next_wake_up.wait()
                        continue
                    others, for_others_at = queue.tenants(), anyio.current_time()
                try:
                    # Not cancelled half-way: nobody would know of the jobs that were just claimed.
                    with anyio.fail_after(_CLAIM_PATIENCE_S, shield=True):
                        jobs, next_due_s = await self._outbox.claim_or_wait(queue.stage, queue.batch, skip=others)
                        queue.claimed.update((job, Claim()) for job in jobs)
                except (*RECOVERABLE_ERRORS, TimeoutError) as error:
                    _log.warning("no jobs could be claimed", extra={"error": type(error).__name__})
                    await anyio.sleep(min(poll_s, 1.0))
                    continue
                for job in jobs:
                    tasks.start_soon(self._run_job, queue, job)
                if not jobs:
                    due_s = poll_s if next_due_s is None else max(next_due_s, _SHORTEST_WAIT_S)
                    with anyio.move_on_after(min(due_s, poll_s)):
                        await next_wake_up.wait()
                if len(jobs) < queue.batch:
                    await anyio.sleep(_BETWEEN_CLAIMS_S)

    async def _run_job(self, queue: StageQueue, job: IndexJob) -> None:
        claimed = queue.claimed[job]
        ended = True
        with claimed.work:
            async with queue.slots.held(job.scope.apikey_hash):
                try:
                    ended = await self._run_stage(queue, job)
                except RECOVERABLE_ERRORS as error:
                    # The lease runs out, and the job comes back.
                    _log.warning("the end of a job could not be noted", extra={"error": type(error).__name__})
        del queue.claimed[job]
        if ended:
            self._observers.job_latency_s(claimed.age_s)
        # The next job of this path may have been waiting for this one, and others for a slot.
        queue.wake_up.wake()

    async def _run_stage(self, queue: StageQueue, job: IndexJob) -> bool:
        """Whether the job ended, well or not; otherwise it goes on."""
        after: Next = "finish"
        error = None
        try:
            with anyio.fail_after(_LONGEST_STAGE_S):
                after = await queue.do(job, queue.claimed[job])
        except ArmariumError as raised:
            error = raised
        except TimeoutError:
            error = DeadlineExceeded("indexing took too long")
        except Exception as raised:  # noqa: BLE001 the edge of the job loop: one file must not end the indexing of all
            # Without its text: errors of the database and of parsers quote what they choked on.
            where = traceback.extract_tb(raised.__traceback__)[-1]
            at = f"{where.name}:{where.lineno}"
            _log.error("indexing failed unexpectedly", extra={"error": type(raised).__name__, "at": at})
            error = ArmariumError("indexing failed unexpectedly")
        match after:
            case "finish":
                await self._finish(job, error)
            case "next stage":
                await self._outbox.advance(job)
                self._vectors_wake_up.wake()
            case "continue later":
                await self._outbox.release([job])
        return after == "finish"

    async def _write_terms(self, job: IndexJob, claimed: Claim) -> Next:
        """Make the file findable by its words, or forget it."""
        if job.operation == "DELETE":
            await self._index.forget(job.scope, job.path)
            return "finish"
        if job.operation == "MOVE":
            # One key serves all jobs that come of this one: it stays until the last of them is done.
            if await self._index.follow(job.scope, job.path, next(iter(job.references), None)):
                self._wake_up.wake_all()
            return "finish"
        words = await self._index.write_terms(job.scope, job.path)
        # Not again for the retry of a job that got as far as this.
        if words.new or not job.retry_count:
            self._observers.visibility_lag_s(job.age_s + claimed.age_s)
        return "finish" if words.embedded else "next stage"

    async def _embed(self, job: IndexJob, claimed: Claim) -> Next:
        # The file may have changed while the job waited, and the words of another model may be there since a restart.
        words = await self._index.write_terms(job.scope, job.path)
        if words.embedded:
            return "finish"
        # A caller's key is kept for minutes only, so with one the whole file is embedded at once.
        most = None if self._needs_key else _EMBEDDED_IN_A_TURN
        complete = await self._index.embed(job.scope, job.path, await self._key_for(job), most=most)
        return "finish" if complete else "continue later"

    async def _key_for(self, job: IndexJob) -> str | None:
        if not self._needs_key:
            return None
        for reference in job.references:
            if (key := await self._credentials.take(reference, job.scope)) is not None:
                return key
        raise CredentialMissing("the caller's key is not kept any more", hint="write the file again")

    async def _finish(self, job: IndexJob, error: ArmariumError | None) -> None:
        if error is None:
            await self._outbox.done(job)
        elif isinstance(error, ProviderError) and not error.retryable:
            self._tell(job, error, await self._outbox.fail(job, error.code))
        else:
            pause_s = error.retry_after_s if isinstance(error, ProviderError) else None
            self._tell(job, error, await self._outbox.retry(job, error.code, not_before_s=pause_s or 0.0))
        for reference in await self._outbox.unused(job):
            await self._credentials.discard(reference)

    def _tell(self, job: IndexJob, error: ArmariumError, outcome: Outcome) -> None:
        level = logging.ERROR if outcome == "failed" else logging.INFO
        told = {"job": job.id, "stage": job.stage, "code": error.code, "retries": job.retry_count, "outcome": outcome}
        _log.log(level, "a file could not be indexed", extra=told)

    async def _renew(self) -> None:
        while True:
            await anyio.sleep(self._outbox.lease_s / _RENEWALS_PER_LEASE)
            held = self._claimed()
            if not held:
                continue
            try:
                ours = await self._outbox.renew(list(held))
            except RECOVERABLE_ERRORS as error:
                _log.warning("leases could not be renewed", extra={"error": type(error).__name__})
                continue
            for job, claimed in held.items():
                if job not in ours:
                    claimed.work.cancel()

    def _claimed(self) -> dict[IndexJob, Claim]:
        return {job: claimed for queue in self._stages for job, claimed in queue.claimed.items()}

    async def _watch(self, poll_s: float) -> None:
        """Take back the jobs of workers that are gone, and tell how long the queue is."""
        while True:
            try:
                if await self._outbox.recover():
                    for queue in self._stages:
                        queue.wake_up.wake()
                self._observers.depth(await self._outbox.depth())
            except RECOVERABLE_ERRORS as error:
                _log.warning("the queue could not be looked at", extra={"error": type(error).__name__})
            await anyio.sleep(min(poll_s, self._outbox.lease_s / _RENEWALS_PER_LEASE))

    async def _release_unfinished(self) -> None:
        unfinished = list(self._claimed())
        if not unfinished:
            return
        with anyio.move_on_after(_RELEASE_PATIENCE_S, shield=True):
            try:
                await self._outbox.release(unfinished)
            except RECOVERABLE_ERRORS as error:
                _log.warning("unfinished jobs are left to their lease", extra={"error": type(error).__name__})
