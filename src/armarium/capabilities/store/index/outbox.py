"""The outbox: index jobs that writes create, and that workers lease until they are done or have failed."""

from __future__ import annotations

import itertools
import os
import random
import secrets
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import Literal

from armarium.capabilities.store.database.pool import Row
from armarium.capabilities.store.database.transactions import ALL_TENANTS, StoreDatabase
from armarium.capabilities.store.model import Scope
from armarium.foundation.sql import queries

Operation = Literal["UPSERT", "DELETE", "MOVE"]
"""What happened at a path. MOVE: a file or a directory was renamed to it."""
Stage = Literal["words", "vectors"]
"""The stage of a job. All jobs start with `words`; those that need vectors continue with `vectors`."""
Outcome = Literal["pending", "failed", "lost"]
"""Result of rescheduling a job: it will be retried, it has failed, or this worker has lost its lease."""

_SQL = queries("armarium.capabilities.store.database.sql", "jobs.sql")
_LONGEST_BACKOFF_S = 600.0


@dataclass(frozen=True, slots=True)
class IndexJob:
    """The newest job of a path, claimed together with the older jobs that it supersedes."""

    id: int
    scope: Scope
    path: str
    stage: Stage
    operation: Operation
    retry_count: int
    references: tuple[str, ...]
    """References to stored keys of callers, that of the newest job first."""
    superseded: tuple[int, ...]
    """Ids of the older jobs in this stage; the claim marks them as done."""
    claim: str
    """Identifies the claim. Another claim of the same job, even by the same worker, has another value."""
    age_s: float = field(compare=False)
    """Seconds from the change that caused the job to the claim."""


@dataclass(frozen=True, slots=True)
class Depth:
    """Numbers of pending, processing and failed jobs in both stages."""

    pending: int
    processing: int
    failed: int


@dataclass(slots=True, eq=False)
class Outbox:
    """Claims jobs of all tenants, who take turns. Any number of workers may share it: in each stage, at most one worker
    has a path at a time.

    A job that fails is retried after `retry_backoff_s`, doubled with each retry, and is marked as failed after
    `retry_max` retries. `recover` returns a job to the queue if its worker has not renewed the lease for `lease_s`.
    """

    database: StoreDatabase
    _: KW_ONLY
    lease_s: float
    """How long a claim is valid unless it is renewed."""
    retry_max: int
    retry_backoff_s: float
    jitter: Callable[[], float] = random.random
    _worker: str = field(default_factory=lambda: f"{os.getpid()}-{secrets.token_hex(6)}", init=False)
    _claims: Iterator[int] = field(default_factory=itertools.count, init=False)
    _turns: dict[Stage, str] = field(
        default_factory=lambda: {"words": secrets.token_hex(32), "vectors": secrets.token_hex(32)}, init=False
    )
    """The tenant whose turn was last. The first is random, so that processes started together begin with different
    tenants."""

    async def claim(
        self, stage: Stage, batch: int, *, skip: Collection[str] = ()
    ) -> tuple[list[IndexJob], float | None]:
        """Claim the due jobs of at most `batch` paths that no worker has in this stage, one job for each path.

        Tenants take turns: the batch is divided among the next tenants with jobs, the oldest jobs of each first. The
        jobs are in processing order, one of each tenant after the other. Tenants in `skip` are skipped. If there is
        nothing to claim, the second value is the seconds until the next job is due, if known.
        """
        claim = f"{self._worker}-{next(self._claims)}"
        after = self._turns[stage]
        how = (stage, batch, claim, self.lease_s, after, list(skip))
        rows = await self.database.fetch_autocommit(_SQL["claim"], *how)
        if rows[0]["id"] is None:
            return [], rows[0]["next_due_s"]
        jobs = _in_turn(_newest_of_each_path(rows, stage, claim), after)
        self._turns[stage] = max((job.scope.apikey_hash for job in jobs), key=_next_after(after))
        return jobs, None

    async def renew(self, jobs: Sequence[IndexJob]) -> set[IndexJob]:
        """Renew the leases. Returns the jobs whose lease this worker still holds."""
        rows = await self.database.fetch_in_transaction(ALL_TENANTS, _SQL["renew"], *_proofs(jobs), self.lease_s)
        ours = {(row["id"], row["worker"]) for row in rows}
        return {job for job in jobs if (job.id, job.claim) in ours}

    async def done(self, job: IndexJob) -> float | None:
        """Mark a job as done. Returns the seconds since the change that caused it, or None if the lease was lost."""
        tenant = job.scope.apikey_hash
        rows = await self.database.fetch_in_transaction(tenant, _SQL["done"], tenant, job.id, job.claim)
        return rows[0]["lag_s"] if rows else None

    async def advance(self, job: IndexJob) -> bool:
        """Move a job to the stage `vectors`, with its retry count reset. Returns False if the lease was lost."""
        tenant = job.scope.apikey_hash
        how = (tenant, job.id, job.claim, list(job.superseded))
        return bool(await self.database.fetch_in_transaction(tenant, _SQL["advance"], *how))

    async def retry(
        self, job: IndexJob, error_code: str, *, not_before_s: float = 0.0, permanent: bool = False
    ) -> Outcome:
        """Retry the job later, or mark it as failed after the last retry, or at once if the error is `permanent`."""
        # Half of the delay is random, so that jobs that failed together are not retried together.
        wait_s = min(self.retry_backoff_s * 2.0**job.retry_count, _LONGEST_BACKOFF_S) * (0.5 + self.jitter() / 2)
        tenant, retry_max = job.scope.apikey_hash, 0 if permanent else self.retry_max
        how = (job.id, job.claim, error_code, retry_max, max(wait_s, not_before_s))
        rows = await self.database.fetch_in_transaction(tenant, _SQL["reschedule"], tenant, *how)
        return rows[0]["status"] if rows else "lost"

    async def release(self, jobs: Sequence[IndexJob]) -> None:
        """Return unfinished jobs to the queue; other workers can claim them at once."""
        await self.database.fetch_in_transaction(ALL_TENANTS, _SQL["release"], *_proofs(jobs))

    async def recover(self) -> int:
        """Return jobs with expired leases to the queue. Returns their number."""
        return len(await self.database.fetch_in_transaction(ALL_TENANTS, _SQL["recover"], self.retry_max))

    async def depth(self, tenant: str = ALL_TENANTS) -> Depth:
        """The length of the queue, of all tenants or of one."""
        rows = await self.database.fetch_in_transaction(tenant, _SQL["depth"], tenant)
        jobs = {row["status"]: row["jobs"] for row in rows}
        return Depth(jobs.get("pending", 0), jobs.get("processing", 0), jobs.get("failed", 0))

    async def unused(self, job: IndexJob) -> list[str]:
        """The references of the job that no open job uses."""
        if not job.references:
            return []
        where = (*job.scope, list(job.references))
        rows = await self.database.fetch_in_transaction(job.scope.apikey_hash, _SQL["references_in_use"], *where)
        in_use = {row["credential_ref"] for row in rows}
        return [reference for reference in job.references if reference not in in_use]


def _newest_of_each_path(rows: Iterable[Row], stage: Stage, claim: str) -> list[IndexJob]:
    by_path: dict[tuple[str, str, str], list[Row]] = {}
    for row in sorted(rows, key=lambda row: row["id"], reverse=True):
        by_path.setdefault((row["apikey_hash"], row["project"], row["file_path"]), []).append(row)
    # Oldest first by due time; the oldest job of a path counts.
    in_order = sorted(by_path.values(), key=lambda jobs: min((job["available_at"], job["id"]) for job in jobs))
    return [_job(newest, older, stage, claim) for newest, *older in in_order]


def _next_after(after: str) -> Callable[[str], tuple[bool, str]]:
    """Sort key for the order of tenants in a round that begins after this one."""
    return lambda tenant: (tenant <= after, tenant)


def _in_turn(jobs: Iterable[IndexJob], after: str) -> list[IndexJob]:
    """Interleave the jobs: the first of each tenant, then the second of each, and so on."""
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
