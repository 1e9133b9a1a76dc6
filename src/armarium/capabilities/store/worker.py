"""Workers: woken by the bell, they claim jobs, make files searchable, and give back what they could not do."""

from __future__ import annotations

import logging
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream

from armarium.capabilities.store.bell import Bell
from armarium.capabilities.store.credentials import Credentials
from armarium.capabilities.store.errors import StoreError
from armarium.capabilities.store.model import Scope
from armarium.capabilities.store.outbox import DATABASE_TROUBLE, Depth, IndexJob, Outbox, Outcome
from armarium.foundation.errors import ArmariumError, DeadlineExceeded
from armarium.providers.errors import ProviderError

_LONGEST_JOB_S = 600.0
_CLAIM_PATIENCE_S = 10.0
_RELEASE_PATIENCE_S = 5.0
_SHORTEST_WAIT_S = 0.01
_RENEWALS_PER_LEASE = 3

_log = logging.getLogger(__name__)


class CredentialMissing(StoreError):
    """The caller's key is not kept any more. No other key is ever used instead."""

    code, retryable = "CREDENTIAL_MISSING", True


class Index(Protocol):
    """What a job is done with."""

    async def index(self, scope: Scope, path: str, key: str | None) -> None:
        """Make the file as it is now searchable, with the caller's key where the model needs one."""
        ...

    async def forget(self, scope: Scope, path: str) -> None:
        """Remove what is indexed of a file that is not there."""
        ...


def _ignore(_: object) -> None:
    """For whoever does not measure."""


@dataclass(frozen=True, slots=True)
class Observers:
    """Who is told how indexing goes."""

    job_latency_s: Callable[[float], None] = _ignore
    """Time from beginning a job to its end, whatever the end."""
    visibility_lag_s: Callable[[float], None] = _ignore
    """Time from a change to the moment when searches see it."""
    depth: Callable[[Depth], None] = _ignore
    """How long the queue is, now and then."""


async def work(
    outbox: Outbox,
    index: Index,
    credentials: Credentials,
    bell: Bell,
    *,
    workers: int,
    batch: int,
    poll_s: float,
    needs_key: bool,
    observers: Observers | None = None,
) -> None:
    """Do jobs until cancelled, `workers` at a time. What is not finished then goes back to the queue at once.

    A retryable error, a missing key and an unforeseen error put a job back, with a growing wait. A permanent refusal
    by the model's provider (a wrong key, a request it does not accept) fails the job at once: the same request would
    be refused again, at the caller's cost. The next write of the file makes a new job.
    """
    if workers:
        crew = _Workers(outbox, index, credentials, bell, needs_key, observers or Observers())
        await crew.run(workers, batch, poll_s)


class _Workers:
    def __init__(
        self,
        outbox: Outbox,
        index: Index,
        credentials: Credentials,
        bell: Bell,
        needs_key: bool,
        observers: Observers,
    ) -> None:
        self._outbox = outbox
        self._index = index
        self._credentials = credentials
        self._bell = bell
        self._needs_key = needs_key
        self._observers = observers
        self._in_hand: dict[IndexJob, anyio.CancelScope] = {}

    async def run(self, workers: int, batch: int, poll_s: float) -> None:
        # No room in between: jobs are claimed only when the ones before are all being worked on.
        hand_out, to_do = anyio.create_memory_object_stream[IndexJob](0)
        try:
            async with hand_out, to_do, anyio.create_task_group() as tasks:
                tasks.start_soon(self._claim, hand_out, batch, poll_s)
                tasks.start_soon(self._renew)
                tasks.start_soon(self._watch, poll_s)
                for _ in range(workers):
                    tasks.start_soon(self._process, to_do)
        finally:
            await self._give_back()

    async def _claim(self, hand_out: MemoryObjectSendStream[IndexJob], batch: int, poll_s: float) -> None:
        while True:
            next_ring = self._bell.next_ring()
            try:
                # Not cancelled half-way: nobody would know of the jobs that were just claimed.
                with anyio.fail_after(_CLAIM_PATIENCE_S, shield=True):
                    jobs, next_due_s = await self._outbox.claim_or_wait(batch)
                    self._in_hand |= {job: anyio.CancelScope() for job in jobs}
            except (*DATABASE_TROUBLE, TimeoutError) as error:
                _log.warning("no jobs could be claimed", extra={"error": type(error).__name__})
                await anyio.sleep(min(poll_s, 1.0))
                continue
            for job in jobs:
                await hand_out.send(job)
            if not jobs:
                due_s = poll_s if next_due_s is None else max(next_due_s, _SHORTEST_WAIT_S)
                with anyio.move_on_after(min(due_s, poll_s)):
                    await next_ring.wait()

    async def _process(self, to_do: MemoryObjectReceiveStream[IndexJob]) -> None:
        async for job in to_do:
            started = time.perf_counter()
            # Cancelled when the lease turns out to be lost: another worker has the path now.
            with self._in_hand[job]:
                try:
                    await self._finish(job, await self._tried(job))
                except DATABASE_TROUBLE as error:
                    # The lease runs out, and the job comes back.
                    _log.warning("the end of a job could not be noted", extra={"error": type(error).__name__})
            del self._in_hand[job]
            self._observers.job_latency_s(time.perf_counter() - started)
            # The next job of this path may have been waiting for this one.
            self._bell.wake()

    async def _tried(self, job: IndexJob) -> ArmariumError | None:
        """Do the job; what kept it from being done."""
        try:
            with anyio.fail_after(_LONGEST_JOB_S):
                if job.operation == "DELETE":
                    await self._index.forget(job.scope, job.path)
                else:
                    await self._index.index(job.scope, job.path, await self._key_for(job))
        except ArmariumError as error:
            return error
        except TimeoutError:
            return DeadlineExceeded("indexing took too long")
        except Exception as error:  # noqa: BLE001 the edge of the job loop: one file must not end the indexing of all
            # Without its text: errors of the database and of parsers quote what they choked on.
            where = traceback.extract_tb(error.__traceback__)[-1]
            at = f"{where.name}:{where.lineno}"
            _log.error("indexing failed unexpectedly", extra={"error": type(error).__name__, "at": at})
            return ArmariumError("indexing failed unexpectedly")
        return None

    async def _key_for(self, job: IndexJob) -> str | None:
        if not self._needs_key:
            return None
        for reference in job.references:
            if (key := await self._credentials.take(reference, job.scope)) is not None:
                return key
        raise CredentialMissing("the caller's key is not kept any more", hint="write the file again")

    async def _finish(self, job: IndexJob, error: ArmariumError | None) -> None:
        if error is None:
            lag_s = await self._outbox.done(job)
            if lag_s is not None and job.operation == "UPSERT":
                self._observers.visibility_lag_s(lag_s)
        elif isinstance(error, ProviderError) and not error.retryable:
            self._tell(job, error, await self._outbox.fail(job, error.code))
        else:
            pause_s = error.retry_after_s if isinstance(error, ProviderError) else None
            self._tell(job, error, await self._outbox.retry(job, error.code, not_before_s=pause_s or 0.0))
        for reference in await self._outbox.unused(job):
            await self._credentials.discard(reference)

    def _tell(self, job: IndexJob, error: ArmariumError, outcome: Outcome) -> None:
        level = logging.ERROR if outcome == "failed" else logging.INFO
        told = {"job": job.id, "code": error.code, "retries": job.retry_count, "outcome": outcome}
        _log.log(level, "a file could not be indexed", extra=told)

    async def _renew(self) -> None:
        while True:
            await anyio.sleep(self._outbox.lease_s / _RENEWALS_PER_LEASE)
            held = dict(self._in_hand)
            if not held:
                continue
            try:
                ours = await self._outbox.renew(list(held))
            except DATABASE_TROUBLE as error:
                _log.warning("leases could not be renewed", extra={"error": type(error).__name__})
                continue
            for job, doing in held.items():
                if job not in ours:
                    doing.cancel()

    async def _watch(self, poll_s: float) -> None:
        """Take back the jobs of workers that are gone, and tell how long the queue is."""
        while True:
            try:
                if await self._outbox.recover():
                    self._bell.wake()
                self._observers.depth(await self._outbox.depth())
            except DATABASE_TROUBLE as error:
                _log.warning("the queue could not be looked at", extra={"error": type(error).__name__})
            await anyio.sleep(min(poll_s, self._outbox.lease_s / _RENEWALS_PER_LEASE))

    async def _give_back(self) -> None:
        if not self._in_hand:
            return
        with anyio.move_on_after(_RELEASE_PATIENCE_S, shield=True):
            try:
                await self._outbox.release(list(self._in_hand))
            except DATABASE_TROUBLE as error:
                _log.warning("unfinished jobs are left to their lease", extra={"error": type(error).__name__})
