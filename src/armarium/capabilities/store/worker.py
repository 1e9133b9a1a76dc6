"""Workers: woken by the bell, they claim jobs, make files searchable, words before vectors, and give back the rest."""

from __future__ import annotations

import logging
import time
import traceback
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final, Protocol

import anyio
import anyio.lowlevel
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream

from armarium.capabilities.store.bell import Bell
from armarium.capabilities.store.credentials import Credentials
from armarium.capabilities.store.errors import StoreError
from armarium.capabilities.store.indexing import Words
from armarium.capabilities.store.model import Scope
from armarium.capabilities.store.outbox import DATABASE_TROUBLE, Depth, IndexJob, Outbox, Outcome
from armarium.foundation.errors import ArmariumError, DeadlineExceeded
from armarium.providers.errors import ProviderError

MOST_IN_HAND: Final = 500
"""Jobs that are claimed and not done: the words of so many are searchable before their vectors are made."""

# Words are written in milliseconds; several at once only so that a large file does not hold up the others.
_WRITTEN_AT_ONCE = 4
_LONGEST_STAGE_S = 600.0
_CLAIM_PATIENCE_S = 10.0
_RELEASE_PATIENCE_S = 5.0
_SHORTEST_WAIT_S = 0.01
# Every write and every end of a job rings. What comes close together is claimed together: a claim of one job costs the
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
    """Time from claiming a job to its end, whatever the end."""
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
    """Do jobs until cancelled, embedding for `workers` of them at a time. What is not finished then goes back to the
    queue at once.

    Each job goes through two stages. Its words are written as soon as it is claimed, and claiming goes on while jobs
    wait for their vectors, so what is written now does not wait for what was written before. Only the next change of
    the same path does: its job is claimed when the one before is done. The words of that change are searchable when the
    turn of the earlier job comes to be embedded, since a job always works with the file as it is then.

    A retryable error, a missing key and an unforeseen error put a job back, with a growing wait. A permanent refusal
    by the model's provider (a wrong key, a request it does not accept) fails the job at once: the same request would
    be refused again, at the caller's cost. The next write of the file makes a new job.
    """
    if workers:
        crew = _Workers(outbox, index, credentials, bell, needs_key, observers or Observers())
        await crew.run(workers, batch, poll_s)


@dataclass(slots=True)
class _InHand:
    """A claimed job, waiting for a stage or in it."""

    _since: float = field(default_factory=time.perf_counter)
    _stage: anyio.CancelScope | None = None
    _lost: bool = False

    @property
    def age_s(self) -> float:
        """Seconds since it was claimed."""
        return time.perf_counter() - self._since

    @contextmanager
    def worked_on(self) -> Generator[None]:
        """A stage; it ends early, or does not begin, when the lease is lost: another worker has the path then."""
        with anyio.CancelScope() as self._stage:
            if self._lost:
                self._stage.cancel()
            yield
        self._stage = None

    def lose(self) -> None:
        """The lease is lost."""
        self._lost = True
        if self._stage is not None:
            self._stage.cancel()


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
        self._in_hand: dict[IndexJob, _InHand] = {}

    async def run(self, workers: int, batch: int, poll_s: float) -> None:
        # Neither ever fills up: no more jobs are claimed than there is room for.
        claimed, to_write = anyio.create_memory_object_stream[IndexJob](MOST_IN_HAND)
        written, to_embed = anyio.create_memory_object_stream[IndexJob](MOST_IN_HAND)

        async def write_words(job: IndexJob) -> bool:
            ends = await self._ended(job, self._write_words)
            if not ends:
                written.send_nowait(job)
            return ends

        async def embed(job: IndexJob) -> bool:
            return await self._ended(job, self._embed)

        try:
            async with claimed, to_write, written, to_embed, anyio.create_task_group() as tasks:
                tasks.start_soon(self._claim, claimed, min(batch, MOST_IN_HAND), poll_s)
                tasks.start_soon(self._renew)
                tasks.start_soon(self._watch, poll_s)
                for _ in range(_WRITTEN_AT_ONCE):
                    tasks.start_soon(self._one_by_one, to_write, write_words)
                for _ in range(workers):
                    tasks.start_soon(self._one_by_one, to_embed, embed)
        finally:
            await self._give_back()

    async def _claim(self, claimed: MemoryObjectSendStream[IndexJob], batch: int, poll_s: float) -> None:
        while True:
            next_ring = self._bell.next_ring()
            if len(self._in_hand) + batch > MOST_IN_HAND:
                # The end of each job rings.
                await next_ring.wait()
                continue
            try:
                # Not cancelled half-way: nobody would know of the jobs that were just claimed.
                with anyio.fail_after(_CLAIM_PATIENCE_S, shield=True):
                    jobs, next_due_s = await self._outbox.claim_or_wait(batch)
                    self._in_hand |= {job: _InHand() for job in jobs}
            except (*DATABASE_TROUBLE, TimeoutError) as error:
                _log.warning("no jobs could be claimed", extra={"error": type(error).__name__})
                await anyio.sleep(min(poll_s, 1.0))
                continue
            for job in jobs:
                claimed.send_nowait(job)
            if not jobs:
                due_s = poll_s if next_due_s is None else max(next_due_s, _SHORTEST_WAIT_S)
                with anyio.move_on_after(min(due_s, poll_s)):
                    await next_ring.wait()
            if len(jobs) < batch:
                await anyio.sleep(_BETWEEN_CLAIMS_S)

    async def _one_by_one(
        self, jobs: MemoryObjectReceiveStream[IndexJob], stage: Callable[[IndexJob], Awaitable[bool]]
    ) -> None:
        """Take jobs through a stage, and let go of those that end with it."""
        async for job in jobs:
            in_hand = self._in_hand[job]
            ends = True
            with in_hand.worked_on():
                try:
                    await anyio.lowlevel.checkpoint_if_cancelled()
                    ends = await stage(job)
                except DATABASE_TROUBLE as error:
                    # The lease runs out, and the job comes back.
                    _log.warning("the end of a job could not be noted", extra={"error": type(error).__name__})
            if ends:
                del self._in_hand[job]
                self._observers.job_latency_s(in_hand.age_s)
                # The next job of this path may have been waiting for this one, and others for room.
                self._bell.wake()

    async def _ended(self, job: IndexJob, stage: Callable[[IndexJob], Awaitable[bool]]) -> bool:
        """Whether the job ended with this stage, well or not."""
        error: ArmariumError | None = None
        try:
            with anyio.fail_after(_LONGEST_STAGE_S):
                if not await stage(job):
                    return False
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
        await self._finish(job, error)
        return True

    async def _write_words(self, job: IndexJob) -> bool:
        """Make the file findable by its words, or forget it; whether that was all."""
        if job.operation == "DELETE":
            await self._index.forget(job.scope, job.path)
            return True
        words = await self._index.write_words(job.scope, job.path)
        # Not again for the retry of a job that got as far as this.
        if words.new or not job.retry_count:
            self._observers.visibility_lag_s(job.age_s + self._in_hand[job].age_s)
        return words.embedded

    async def _embed(self, job: IndexJob) -> bool:
        # The file may have changed while the job waited, and the job of that change waits for this one.
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
            for job, in_hand in held.items():
                if job not in ours:
                    in_hand.lose()

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
