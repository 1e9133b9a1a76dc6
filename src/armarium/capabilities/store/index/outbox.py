"""The outbox: jobs that writes leave behind, leased to workers path by path and stage by stage until they are done, or
given up."""

from __future__ import annotations

import itertools
import os
import random
import secrets
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Literal

from armarium.capabilities.store.database.pool import Row
from armarium.capabilities.store.database.transactions import ALL_TENANTS, StoreDatabase
from armarium.capabilities.store.model import Scope
from armarium.foundation.sql import queries

Operation = Literal["UPSERT", "DELETE", "MOVE"]
"""What happened at a path. MOVE: a file or a directory was renamed to it, with everything in it."""
Stage = Literal["words", "vectors"]
"""What a job waits for. All begin with words; those that need vectors, too, are handed on."""
Outcome = Literal["pending", "failed", "lost"]
"""What became of a job that was put back: tried again, given up, or no longer this worker's."""

_SQL = queries("armarium.capabilities.store.database.sql", "jobs.sql")
_LONGEST_BACKOFF_S = 600.0


@dataclass(frozen=True, slots=True)
class IndexJob:
    """The newest job of a path, claimed together with the older ones, which it makes needless."""

    id: int
    scope: Scope
    path: str
    stage: Stage
    operation: Operation
    retry_count: int
    references: tuple[str, ...]
    """Where callers' keys for this path are kept, the newest job's first."""
    superseded: tuple[int, ...]
    """Ids of the older jobs of this stage; they are done with the claim."""
    claim: str
    """Proof that the job is ours. Another claim of the same job, even by the same worker, has another one."""
    age_s: float = field(compare=False)
    """Seconds from the change that caused the job to the claim."""


@dataclass(frozen=True, slots=True)
class Depth:
    """How many jobs wait, are worked on, and were given up, in both stages together."""

    pending: int
    processing: int
    failed: int


class Outbox:
    """Claims jobs over all tenants, who take turns. Any number of workers may share it: in each stage a path is with
    one of them at a time.

    A job that fails is tried again after `retry_backoff_s`, doubled with each retry, and counts as failed after
    `retry_max` retries. A job whose worker is not heard of for `lease_s` goes back, by `recover`.
    """

    def __init__(
        self,
        database: StoreDatabase,
        *,
        lease_s: float,
        retry_max: int,
        retry_backoff_s: float,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        self._database = database
        self._lease_s = lease_s
        self._retry_max = retry_max
        self._retry_backoff_s = retry_backoff_s
        self._jitter = jitter
        self._worker = f"{os.getpid()}-{secrets.token_hex(6)}"
        self._claims = itertools.count(1)
        # The tenant whose turn was last. Chance decides where to begin, so that processes started together do not all
        # begin with the same tenant.
        self._turns: dict[Stage, str] = {"words": secrets.token_hex(32), "vectors": secrets.token_hex(32)}

    @property
    def lease_s(self) -> float:
        """For how long a claim holds unless it is renewed."""
        return self._lease_s

    async def claim(self, stage: Stage, batch: int, *, skip: Collection[str] = ()) -> list[IndexJob]:
        """The due jobs of at most `batch` paths that nobody works on in this stage, one job for each path.

        Tenants take turns: the batch is divided among the next ones that have work, and each gives its oldest jobs. The
        jobs come in the order in which they are to be worked on, one of each tenant after the other. Tenants in `skip`
        are passed over.
        """
        jobs, _ = await self.claim_or_wait(stage, batch, skip=skip)
        return jobs

    async def claim_or_wait(
        self, stage: Stage, batch: int, *, skip: Collection[str] = ()
    ) -> tuple[list[IndexJob], float | None]:
        """As `claim`; and when nothing can be claimed, the seconds until the next job's time comes, if it is known."""
        claim = f"{self._worker}-{next(self._claims)}"
        after = self._turns[stage]
        rows = await self._database.fetch_autocommit(
            _SQL["claim"], stage, batch, claim, self._lease_s, after, list(skip)
        )
        if rows[0]["id"] is None:
            return [], rows[0]["next_due_s"]
        jobs = _in_turn(_newest_of_each_path(rows, stage, claim), after)
        self._turns[stage] = max((job.scope.apikey_hash for job in jobs), key=_next_after(after))
        return jobs, None

    async def renew(self, jobs: Sequence[IndexJob]) -> set[IndexJob]:
        """Prolong the leases; the jobs that are still ours."""
        rows = await self._database.fetch_in_transaction(ALL_TENANTS, _SQL["renew"], *_proofs(jobs), self._lease_s)
        ours = {(row["id"], row["worker"]) for row in rows}
        return {job for job in jobs if (job.id, job.claim) in ours}

    async def done(self, job: IndexJob) -> float | None:
        """The job has no more to do. Seconds since the change that caused it, or None if the job was not ours."""
        tenant = job.scope.apikey_hash
        rows = await self._database.fetch_in_transaction(tenant, _SQL["done"], tenant, job.id, job.claim)
        return rows[0]["lag_s"] if rows else None

    async def advance(self, job: IndexJob) -> bool:
        """The job's words are written: let it wait for its vectors, with all its tries before it. False if the job was
        not ours."""
        tenant = job.scope.apikey_hash
        superseded = list(job.superseded)
        return bool(
            await self._database.fetch_in_transaction(tenant, _SQL["advance"], tenant, job.id, job.claim, superseded)
        )

    async def retry(self, job: IndexJob, error_code: str, *, not_before_s: float = 0.0) -> Outcome:
        """Try the job again later, unless it was tried often enough."""
        # Half of the wait is by chance, so that jobs that failed together do not all come back together.
        wait_s = min(self._retry_backoff_s * 2.0**job.retry_count, _LONGEST_BACKOFF_S) * (0.5 + self._jitter() / 2)
        return await self._reschedule(job, error_code, self._retry_max, max(wait_s, not_before_s))

    async def fail(self, job: IndexJob, error_code: str) -> Outcome:
        """Give the job up: trying again would not help."""
        return await self._reschedule(job, error_code, 0, 0.0)

    async def _reschedule(self, job: IndexJob, error_code: str, retry_max: int, wait_s: float) -> Outcome:
        tenant = job.scope.apikey_hash
        how = (job.id, job.claim, error_code, retry_max, wait_s)
        rows = await self._database.fetch_in_transaction(tenant, _SQL["reschedule"], tenant, *how)
        return rows[0]["status"] if rows else "lost"

    async def release(self, jobs: Sequence[IndexJob]) -> None:
        """Give jobs back that were not worked on; others may have them at once."""
        await self._database.fetch_in_transaction(ALL_TENANTS, _SQL["release"], *_proofs(jobs))

    async def recover(self) -> int:
        """Take jobs back from workers whose lease ran out; how many."""
        return len(await self._database.fetch_in_transaction(ALL_TENANTS, _SQL["recover"], self._retry_max))

    async def depth(self, tenant: str = ALL_TENANTS) -> Depth:
        """How long the queue is, of all tenants or of one."""
        rows = await self._database.fetch_in_transaction(tenant, _SQL["depth"], tenant)
        jobs = {row["status"]: row["jobs"] for row in rows}
        return Depth(jobs.get("pending", 0), jobs.get("processing", 0), jobs.get("failed", 0))

    async def unused(self, job: IndexJob) -> list[str]:
        """References of the job that no open job needs any more."""
        if not job.references:
            return []
        tenant, project = job.scope.apikey_hash, job.scope.project
        rows = await self._database.fetch_in_transaction(
            tenant, _SQL["references_in_use"], tenant, project, list(job.references)
        )
        in_use = {row["credential_ref"] for row in rows}
        return [reference for reference in job.references if reference not in in_use]


def _newest_of_each_path(rows: Iterable[Row], stage: Stage, claim: str) -> list[IndexJob]:
    by_path: dict[tuple[str, str, str], list[Row]] = {}
    for row in sorted(rows, key=lambda row: row["id"], reverse=True):
        by_path.setdefault((row["apikey_hash"], row["project"], row["file_path"]), []).append(row)
    # Oldest first, as they were due; a path is as old as its oldest job.
    in_order = sorted(by_path.values(), key=lambda jobs: min((job["available_at"], job["id"]) for job in jobs))
    return [_job(newest, older, stage, claim) for newest, *older in in_order]


def _next_after(after: str) -> Callable[[str], tuple[bool, str]]:
    """The order of tenants in a round that begins after this one."""
    return lambda tenant: (tenant <= after, tenant)


def _in_turn(jobs: Iterable[IndexJob], after: str) -> list[IndexJob]:
    """One job of each tenant after the other, and then the second one of each."""
    of_tenant: dict[str, list[IndexJob]] = {}
    for job in jobs:
        of_tenant.setdefault(job.scope.apikey_hash, []).append(job)
    rounds = itertools.zip_longest(*(of_tenant[tenant] for tenant in sorted(of_tenant, key=_next_after(after))))
    return [job for one_of_each in rounds for job in one_of_each if job is not None]


def _job(newest: Row, older: Sequence[Row], stage: Stage, claim: str) -> IndexJob:
    references = (row["credential_ref"] for row in (newest, *older))
    return IndexJob(
        id=newest["id"],
        scope=Scope(newest["apikey_hash"], newest["project"]),
        path=newest["file_path"],
        stage=stage,
        operation=newest["operation"],
        retry_count=newest["retry_count"],
        references=tuple(dict.fromkeys(reference for reference in references if reference is not None)),
        superseded=tuple(row["id"] for row in older),
        claim=claim,
        age_s=newest["age_s"],
    )


def _proofs(jobs: Sequence[IndexJob]) -> tuple[list[int], list[str]]:
    return [job.id for job in jobs], [job.claim for job in jobs]
