"""How fast can 8 workers take jobs from the outbox?

The real outbox on a PostgreSQL that flushes every commit to the disk, with 40,000 jobs of as many files over 50
tenants; in batches as workers take them. Once with 8 workers in one process, once with 2 processes of 4. The peer is
the plain queue of the same table: an update of the oldest rows that nobody has locked, which knows nothing of paths,
so two workers could have the same file and an old job could be done after a newer one. Each job must have been given
out once. `--quick` takes a twentieth.
"""

from __future__ import annotations

import secrets
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import anyio
import orjson
from anyio import to_thread

from armarium.capabilities.store.database.pool import connect
from armarium.capabilities.store.database.schema import migrate
from armarium.capabilities.store.database.transactions import ALL_TENANTS, StoreDatabase
from armarium.capabilities.store.index.outbox import Outbox
from armarium.capabilities.store.postgres.embedded import embedded_postgres
from armarium.capabilities.store.settings import IndexSettings, StoreSettings
from armarium.providers.local.embedder import LocalEmbedder
from trial import report, scaled

JOBS = 40_000
TENANTS = 50
ROUNDS = 3
GOAL_PER_SECOND = 10_000
LAYOUTS = ((1, 8), (2, 4))
"""Processes, and workers in each."""
CONTENDERS = ("outbox", "plain")
SETTINGS = IndexSettings()
POOL_SIZE = StoreSettings().pool_size
WORKER = "--worker"

PLAIN = """
UPDATE mcp_file_index_jobs SET status = 'processing', worker = $2, lease_until = now() + make_interval(secs => $3)
WHERE id IN (
    SELECT id FROM mcp_file_index_jobs WHERE status = 'pending' AND available_at <= now()
    ORDER BY available_at, id LIMIT $1 FOR UPDATE SKIP LOCKED
)
RETURNING id, apikey_hash, project, file_path, operation, retry_count, credential_ref
"""
FILL = """
INSERT INTO mcp_file_index_jobs (apikey_hash, project, file_path, operation, file_updated_at, available_at)
SELECT ($1::text[])[1 + number % cardinality($1::text[])], 'notes', '/docs/' || number, 'UPSERT', now(),
    now() - make_interval(secs => 1 - number / $2::float8)
FROM generate_series(0, $2::int - 1) AS number
"""

Claim = Callable[[], Awaitable[list[int]]]


async def main() -> None:
    async with AsyncExitStack() as stack:
        directory = stack.enter_context(tempfile.TemporaryDirectory())
        dsn = await stack.enter_async_context(embedded_postgres(Path(directory) / "data"))
        database = await opened(stack, dsn)
        rows = [await measured(database, dsn, *layout) for layout in LAYOUTS]
    goal = f"{GOAL_PER_SECOND:,} jobs a second with 8 workers"
    report("store_claims", rows, goal, all(row["jobs_per_second"] >= GOAL_PER_SECOND for row in rows))


async def measured(database: StoreDatabase, dsn: str, processes: int, workers: int) -> dict[str, Any]:
    rates: dict[str, list[float]] = {contender: [] for contender in CONTENDERS}
    for _ in range(ROUNDS):
        for contender in CONTENDERS:
            await fill(database, scaled(JOBS))
            rates[contender].append(await emptied(dsn, contender, processes, workers))
    ours, peer = (max(rates[contender]) for contender in CONTENDERS)
    return {
        "case": f"{processes} x {workers} workers, {SETTINGS.batch_size} jobs at a time",
        "jobs": scaled(JOBS),
        "jobs_per_second": round(ours),
        "peer_jobs_per_second": round(peer),
        "ratio": round(ours / peer, 3),
        "of_each_round": [round(rate) for rate in rates["outbox"]],
        "peer_of_each_round": [round(rate) for rate in rates["plain"]],
    }


async def fill(database: StoreDatabase, jobs: int) -> None:
    tenants = [secrets.token_hex(32) for _ in range(TENANTS)]
    async with database.write_transaction(ALL_TENANTS) as connection:
        await connection.execute("TRUNCATE mcp_file_index_jobs")
        await connection.execute(FILL, tenants, jobs)
    async with database.pool.connection() as connection:
        # What autovacuum does within a minute; the plain queue needs it.
        await connection.execute("VACUUM ANALYZE mcp_file_index_jobs")


async def emptied(dsn: str, contender: str, processes: int, workers: int) -> float:
    """Jobs a second, from the first claim of any process to the end of the last."""

    def worked() -> list[dict[str, Any]]:
        command = [sys.executable, __file__, WORKER, dsn, contender, str(workers)]
        crews = [
            subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            for _ in range(processes)
        ]
        # All of them are ready before any of them begins.
        for crew in crews:
            crew.stdout.readline()
        for crew in crews:
            crew.stdin.write("go\n")
            crew.stdin.flush()
        return [orjson.loads(crew.communicate()[0]) for crew in crews]

    found = await to_thread.run_sync(worked)
    ids = [job for crew in found for job in crew["ids"]]
    if len(ids) != scaled(JOBS) or len(set(ids)) != len(ids):
        raise RuntimeError(f"of {scaled(JOBS)} jobs {len(ids)} were given out, {len(set(ids))} different ones")
    # The clock is the machine's, the same in every process.
    return len(ids) / (max(crew["ended"] for crew in found) - min(crew["started"] for crew in found))


async def crew(dsn: str, contender: str, workers: int) -> None:
    """One process of workers: ready when its connections are, and told by its standard input when to begin."""
    async with AsyncExitStack() as stack:
        database = await opened(stack, dsn, migrated=True)
        claims = {"outbox": from_outbox, "plain": plain}[contender](database)
        await together(workers, lambda: connected(database))
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        sys.stdin.readline()
        ids: list[int] = []

        async def work() -> None:
            while claimed := await claims():
                ids.extend(claimed)

        started = time.monotonic()
        await together(workers, work)
        ended = time.monotonic()
    sys.stdout.write(orjson.dumps({"started": started, "ended": ended, "ids": ids}).decode())


def from_outbox(database: StoreDatabase) -> Claim:
    outbox = Outbox(
        database,
        lease_s=SETTINGS.lease_seconds,
        retry_max=SETTINGS.retry_max,
        retry_backoff_s=SETTINGS.retry_backoff_ms / 1000,
    )

    async def claim() -> list[int]:
        jobs, _ = await outbox.claim("words", SETTINGS.batch_size)
        return [job.id for job in jobs]

    return claim


def plain(database: StoreDatabase) -> Claim:
    async def claim() -> list[int]:
        arguments = (SETTINGS.batch_size, "worker", SETTINGS.lease_seconds)
        rows = await database.fetch_in_transaction(ALL_TENANTS, PLAIN, *arguments)
        return [row["id"] for row in rows]

    return claim


async def connected(database: StoreDatabase) -> None:
    """Held for a moment, so that every worker has a connection of its own."""
    async with database.read_transaction(ALL_TENANTS) as connection:
        await connection.execute("SELECT pg_sleep(0.2)")


async def together(workers: int, work: Callable[[], Awaitable[None]]) -> None:
    async with anyio.create_task_group() as tasks:
        for _ in range(workers):
            tasks.start_soon(work)


async def opened(stack: AsyncExitStack, dsn: str, *, migrated: bool = False) -> StoreDatabase:
    pool = await connect(dsn, size=POOL_SIZE)
    database = StoreDatabase(pool, lock_timeout_ms=5000, on_lock_wait=lambda seconds: None)
    stack.push_async_callback(database.pool.aclose)
    if not migrated:
        await migrate(pool, dimensions=LocalEmbedder.dimensions)
    return database


if __name__ == "__main__":
    if WORKER in sys.argv:
        _, _, address, contender, workers = sys.argv
        anyio.run(crew, address, contender, int(workers), backend_options={"use_uvloop": True})
    else:
        anyio.run(main, backend_options={"use_uvloop": True})
