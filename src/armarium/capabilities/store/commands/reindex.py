"""`armarium store reindex`: creates all vectors again, after the embedding settings changed."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import aclosing
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import anyio
import typer
from prometheus_client import CollectorRegistry
from pydantic import SecretStr

from armarium.capabilities.store.commands.operation import Operation
from armarium.capabilities.store.database.pool import Pool, connect
from armarium.capabilities.store.index.reindex import (
    QueuedJobs,
    ReindexPlan,
    begin_reindex,
    plan_reindex,
    reindex_progress,
)
from armarium.capabilities.store.lifespan import database_address, open_resources
from armarium.capabilities.store.settings import StoreSettings
from armarium.command_line.output import FAILED, confirm, count, progress_lines, say, show_json
from armarium.foundation.concurrency.tasks import background
from armarium.foundation.schema import Json
from armarium.foundation.tools import Args, Call, local_tool

_POLL_S = 0.5
_CONNECTIONS = 2


class _ReindexArgs(Args):
    wait: bool


def reindex(operation: Operation, *, yes: bool, wait: bool) -> None:
    """Print what reindexing means, ask, and reindex."""
    work = Reindex(operation.section, operation.state_dir)
    plan = anyio.run(work.plan, backend_options={"use_uvloop": True})
    say(f"The vectors of {count(plan.files, 'file')} of {count(plan.callers, 'caller')} are deleted and created again.")
    if plan.dimensions != plan.wanted_dimensions:
        say(f"They have {plan.dimensions} dimensions now, and {plan.wanted_dimensions} with these settings.")
    say("Until a file has its new vectors, only lexical search finds it.")
    if operation.section.needs_callers_keys:
        say("Vectors need callers' keys, which only come with a call: each file gets its vectors at its next write.")
    if plan.running:
        say("Servers or workers use the database now; they need these settings, too.")
    if not yes:
        confirm("Continue?", default=False, outcome="nothing was changed", hint="add --yes")

    async def store_reindex(call: Call, args: _ReindexArgs) -> Json:
        """Delete all vectors and queue all files."""
        return await work.run(wait=args.wait, on_progress=partial(progress_lines(), "indexed"))

    done = operation.call(local_tool("store_reindex", store_reindex), {"wait": wait})
    if operation.as_json:
        show_json({"files": plan.files, "dimensions": plan.wanted_dimensions} | done)
    elif not done["queued"]:
        say("done; nothing is queued")
    elif not done["complete"]:
        say(f"queued: {count(done['queued'], 'file')}; servers and workers index them")
    else:
        failed = f", {done['failed']} failed" if done["failed"] else ""
        say(f"indexed: {count(done['queued'] - done['failed'], 'file')}{failed}")
    if done["failed"]:
        raise typer.Exit(FAILED)


@dataclass(frozen=True, slots=True)
class Reindex:
    section: StoreSettings
    state_dir: Path

    async def plan(self) -> ReindexPlan:
        async with database_address(self.section, self.state_dir) as dsn, aclosing(await self._pool(dsn)) as pool:
            return await plan_reindex(pool, dimensions=self.section.dimensions)

    async def run(self, *, wait: bool, on_progress: Callable[[int, int], None]) -> Json:
        """Delete all vectors and queue all files; with `wait`, also index here until the queue is empty. Where callers'
        keys are needed nothing is queued: a job without a key would fail."""
        queue = self.section.search.enabled and not self.section.needs_callers_keys
        async with database_address(self.section, self.state_dir) as dsn:
            async with aclosing(await self._pool(dsn)) as pool:
                queued = await begin_reindex(pool, dimensions=self.section.dimensions, queue=queue)
            if wait and queued.jobs:
                failed = await self._index(queued, on_progress)
                return {"queued": queued.jobs, "failed": failed, "complete": True}
        return {"queued": queued.jobs, "failed": 0, "complete": not queued.jobs}

    async def _pool(self, dsn: str | SecretStr) -> Pool:
        timeout_s = self.section.database_timeout_ms / 1000
        return await connect(dsn, size=_CONNECTIONS, timeout_s=timeout_s, pooler=self.section.effective_pooler)

    async def _index(self, queued: QueuedJobs, on_progress: Callable[[int, int], None]) -> int:
        """Index until no job is left; how many failed."""
        left, failed = queued.jobs, 0
        async with (
            open_resources(self.section, self.state_dir, CollectorRegistry()) as resources,
            background(partial(resources.run_workers, self.section.index.workers or 1)),
        ):
            while left:
                await anyio.sleep(_POLL_S)
                left, failed = await reindex_progress(resources.database, queued)
                on_progress(queued.jobs - left, queued.jobs)
        return failed
