"""Workers: they claim jobs, write the words of files at once and their vectors behind, and give back the rest."""

from __future__ import annotations

import logging
import time
import traceback
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Protocol

import anyio

from armarium.capabilities.store.bell import Bell, Chime
from armarium.capabilities.store.credentials import Credentials
from armarium.capabilities.store.errors import StoreError
from armarium.capabilities.store.indexing import Words
from armarium.capabilities.store.model import Scope
from armarium.capabilities.store.outbox import DATABASE_TROUBLE, Depth, IndexJob, Outbox, Outcome, Stage
from armarium.foundation.errors import ArmariumError, DeadlineExceeded
from armarium.providers.errors import ProviderError

# Words are written in milliseconds; several at once only so that a large file does not hold up the others.
_WRITTEN_AT_ONCE = 4
_LONGEST_STAGE_S = 600.0
_CLAIM_PATIENCE_S = 10.0
_RELEASE_PATIENCE_S = 5.0
_SHORTEST_WAIT_S = 0.01
# Every write and every end of a job wakes. What comes close together is claimed together: a claim of one job costs the
# database as much as one of twenty.
_BETWEEN_CLAIMS_S = 0.02
_RENEWALS_PER_LEASE = 3

_log = logging.getLogger(__name__)


class CredentialMissing(StoreError):
    """The caller's key is not kept any more. No other key is ever used instead."""

    code, retryable = "CREDENTIAL_MISSING", True


class Index(Protocol):
    """What a job is done with."""

    async def write_words(self, scope: Scope, path: str) -> Words:
        """Make the file as it is now searchable by its words."""
        ...

    async def embed(self, scope: Scope, path: str, key: str | None) -> None:
        """Make the file searchable by its meaning, too, with the caller's key where the model needs one."""
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
    """Time from claiming a job for its last stage to its end, whatever the end."""
    visibility_lag_s: Callable[[float], None] = _ignore
    """Time from a change to the moment when searches see it, by its words."""
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
    """Do jobs until cancelled, embedding for `workers` of them at a time; with none, only look how long the queue is.
    What is not finished at the end goes back to the queue at once.

    Each job has two stages, and each stage claims from a queue of its own: what is written now is found by its words,
    however many vectors are still to be made. A job that needs vectors is handed on to the second stage when its words
    are written. There it works with the file as it is then.

    A retryable error, a missing key and an unforeseen error put a job back, with a growing wait. A permanent refusal
    by the model's provider (a wrong key, a request it does not accept) fails the job at once: the same request would
    be refused again, at the caller's cost. The next write of the file makes a new job.
    """
    crew = _Workers(outbox, index, credentials, bell, needs_key, observers or Observers())
    await crew.run(workers, batch, poll_s)


@dataclass(frozen=True, slots=True)
class _InHand:
    """How a claimed job stands."""

    since: float = field(default_factory=time.perf_counter)
    work: anyio.CancelScope = field(default_factory=anyio.CancelScope)
    """Cancelled when the lease is lost: another worker has the path then."""

    @property
    def age_s(self) -> float:
        """Seconds since it was claimed."""
        return time.perf_counter() - self.since


@dataclass(frozen=True, slots=True)
class _Desk:
    """Where the jobs of one stage are worked on."""

    stage: Stage
    do: Callable[[IndexJob, _InHand], Awaitable[bool]]
    """Whether the job ends with that, or is to be handed on."""
    seats: anyio.CapacityLimiter
    """For those that are worked on at once."""
    batch: int
    """Claimed together, when nobody waits for a seat: the next ones are at hand when one becomes free."""
    chime: Chime
    """Wakes whoever claims for this desk."""
    in_hand: dict[IndexJob, _InHand] = field(default_factory=dict[IndexJob, _InHand])


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
        self._handed_on = Chime()
        self._needs_key = needs_key
        self._observers = observers
        self._desks: list[_Desk] = []

    async def run(self, workers: int, batch: int, poll_s: float) -> None:
        if workers:
            words, vectors = anyio.CapacityLimiter(_WRITTEN_AT_ONCE), anyio.CapacityLimiter(workers)
            self._desks = [
                _Desk("words", self._write_words, words, batch, self._bell),
                # Vectors take long: more that wait for a seat here could be done by another process.
                _Desk("vectors", self._embed, vectors, min(batch, workers), self._handed_on),
            ]
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._watch, poll_s)
                tasks.start_soon(self._renew)
                for desk in self._desks:
                    tasks.start_soon(self._keep_busy, desk, poll_s)
        finally:
            await self._give_back()

    async def _keep_busy(self, desk: _Desk, poll_s: float) -> None:
        async with anyio.create_task_group() as tasks:
            while True:
                next_ring = desk.chime.next_ring()
                if len(desk.in_hand) > desk.seats.total_tokens:
                    # Some wait for a seat. The end of each job rings.
                    await next_ring.wait()
                    continue
                try:
                    # Not cancelled half-way: nobody would know of the jobs that were just claimed.
                    with anyio.fail_after(_CLAIM_PATIENCE_S, shield=True):
                        jobs, next_due_s = await self._outbox.claim_or_wait(desk.stage, desk.batch)
                        desk.in_hand.update((job, _InHand()) for job in jobs)
                except (*DATABASE_TROUBLE, TimeoutError) as error:
                    _log.warning("no jobs could be claimed", extra={"error": type(error).__name__})
                    await anyio.sleep(min(poll_s, 1.0))
                    continue
                for job in jobs:
                    tasks.start_soon(self._work_on, desk, job)
                if not jobs:
                    due_s = poll_s if next_due_s is None else max(next_due_s, _SHORTEST_WAIT_S)
                    with anyio.move_on_after(min(due_s, poll_s)):
                        await next_ring.wait()
                if len(jobs) < desk.batch:
                    await anyio.sleep(_BETWEEN_CLAIMS_S)

    async def _work_on(self, desk: _Desk, job: IndexJob) -> None:
        in_hand = desk.in_hand[job]
        ended = True
        with in_hand.work:
            async with desk.seats:
                try:
                    ended = await self._done_at(desk, job)
                except DATABASE_TROUBLE as error:
                    # The lease runs out, and the job comes back.
                    _log.warning("the end of a job could not be noted", extra={"error": type(error).__name__})
        del desk.in_hand[job]
        if ended:
            self._observers.job_latency_s(in_hand.age_s)
        # The next job of this path may have been waiting for this one, and others for a seat.
        desk.chime.wake()

    async def _done_at(self, desk: _Desk, job: IndexJob) -> bool:
        """Whether the job ended, well or not; otherwise it is handed on."""
        ends, error = True, None
        try:
            with anyio.fail_after(_LONGEST_STAGE_S):
                ends = await desk.do(job, desk.in_hand[job])
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
        if ends:
            await self._finish(job, error)
        else:
            await self._outbox.hand_on(job)
            self._handed_on.wake()
        return ends

    async def _write_words(self, job: IndexJob, in_hand: _InHand) -> bool:
        """Make the file findable by its words, or forget it; whether that was all."""
        if job.operation == "DELETE":
            await self._index.forget(job.scope, job.path)
            return True
        words = await self._index.write_words(job.scope, job.path)
        # Not again for the retry of a job that got as far as this.
        if words.new or not job.retry_count:
            self._observers.visibility_lag_s(job.age_s + in_hand.age_s)
        return words.embedded

    async def _embed(self, job: IndexJob, in_hand: _InHand) -> bool:
        # The file may have changed while the job waited, and the words of another model may be there since a restart.
        words = await self._index.write_words(job.scope, job.path)
        if not words.embedded:
            await self._index.embed(job.scope, job.path, await self._key_for(job))
        return True

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
            held = self._in_hand()
            if not held:
                continue
            try:
                ours = await self._outbox.renew(list(held))
            except DATABASE_TROUBLE as error:
                _log.warning("leases could not be renewed", extra={"error": type(error).__name__})
                continue
            for job, in_hand in held.items():
                if job not in ours:
                    in_hand.work.cancel()

    def _in_hand(self) -> dict[IndexJob, _InHand]:
        return {job: in_hand for desk in self._desks for job, in_hand in desk.in_hand.items()}

    async def _watch(self, poll_s: float) -> None:
        """Take back the jobs of workers that are gone, and tell how long the queue is."""
        while True:
            try:
                if await self._outbox.recover():
                    for desk in self._desks:
                        desk.chime.wake()
                self._observers.depth(await self._outbox.depth())
            except DATABASE_TROUBLE as error:
                _log.warning("the queue could not be looked at", extra={"error": type(error).__name__})
            await anyio.sleep(min(poll_s, self._outbox.lease_s / _RENEWALS_PER_LEASE))

    async def _give_back(self) -> None:
        unfinished = list(self._in_hand())
        if not unfinished:
            return
        with anyio.move_on_after(_RELEASE_PATIENCE_S, shield=True):
            try:
                await self._outbox.release(unfinished)
            except DATABASE_TROUBLE as error:
                _log.warning("unfinished jobs are left to their lease", extra={"error": type(error).__name__})
