"""The outbox: a path is with one worker at a time, the newest job counts, and nothing is lost."""

from __future__ import annotations

import asyncio
import random
import re
import secrets
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, cast

import pytest

from armarium.capabilities.store.database.pool import connect
from armarium.capabilities.store.database.transactions import ALL_TENANTS, StoreDatabase
from armarium.capabilities.store.index.outbox import Depth, IndexJob, Outbox, Stage
from armarium.capabilities.store.model import Scope
from support.outbox import claim_jobs, clear_jobs, enqueue, enqueue_many, job_row, set_job, statuses

LEASE_S = 60.0
BACKOFF_S = 100.0
STAGES: tuple[Stage, ...] = ("words", "vectors")


def outbox_of(database: StoreDatabase, *, retry_max: int = 2) -> Outbox:
    return Outbox(database, lease_s=LEASE_S, retry_max=retry_max, retry_backoff_s=BACKOFF_S, jitter=lambda: 1.0)


@pytest.fixture
async def outbox(database: StoreDatabase) -> AsyncGenerator[Outbox]:
    await clear_jobs(database)
    yield outbox_of(database)
    await clear_jobs(database)


async def claimed(outbox: Outbox) -> IndexJob:
    (job,) = await claim_jobs(outbox, "words", 10)
    return job


async def expire(database: StoreDatabase, job_id: int) -> None:
    await set_job(database, job_id, "lease_until = now() - interval '1 second'")


@pytest.mark.contract("S11.2-9")
async def test_a_claimed_job_says_what_to_do_and_for_whom(outbox: Outbox, database: StoreDatabase, tenant: str) -> None:
    job_id = await enqueue(database, tenant, "/a", "DELETE", project="notes", reference="r1")
    job = await claimed(outbox)
    assert (job.id, job.scope, job.path) == (job_id, Scope(tenant, "notes"), "/a")
    assert (job.operation, job.retry_count, job.references, job.superseded) == ("DELETE", 0, ("r1",), ())
    row = await job_row(database, job_id)
    assert row["status"] == "processing"
    assert 0 < row["lease_s"] <= LEASE_S


async def test_a_claim_is_one_statement_which_leaves_no_tenant_in_the_session(store_dsn: str, tenant: str) -> None:
    pool = await connect(store_dsn, size=1)
    database = StoreDatabase(pool, lock_timeout_ms=500, on_lock_wait=lambda seconds: None)
    try:
        await clear_jobs(database)
        job_id = await enqueue(database, tenant, "/a")
        async with database.pool.connection() as connection:
            asked: list[str] = []
            cast(Any, connection).add_query_logger(lambda record: asked.append(record.query))
        assert [job.id for job in await claim_jobs(outbox_of(database), "words", 10)] == [job_id]
        async with database.pool.connection() as connection:
            assert not await connection.fetchval("SELECT current_setting('armarium.tenant', true)")
        # Besides, the driver asks for types that are new to it.
        own = [query for query in asked if "mcp_file" in query or query.startswith(("BEGIN", "COMMIT"))]
        assert len(own) == 1, own
        await clear_jobs(database)
    finally:
        await database.pool.aclose()


async def test_the_jobs_of_a_tenant_are_claimed_oldest_first(
    outbox: Outbox, database: StoreDatabase, tenant: str
) -> None:
    ids = [await enqueue(database, tenant, f"/{n}") for n in range(5)]
    await set_job(database, ids[3], "available_at = now() - interval '1 hour'")
    assert [job.id for job in await claim_jobs(outbox, "words", 2)] == [ids[3], ids[0]]
    assert [job.id for job in await claim_jobs(outbox, "words", 10)] == [ids[1], ids[2], ids[4]]
    assert await claim_jobs(outbox, "words", 10) == []


@pytest.mark.parametrize("stage", STAGES)
async def test_tenants_take_turns_however_many_jobs_one_of_them_has_waiting(
    outbox: Outbox, database: StoreDatabase, stage: Stage
) -> None:
    crowd, others = secrets.token_hex(32), [secrets.token_hex(32) for _ in range(7)]
    await enqueue_many(database, crowd, 1_000, stage)
    for other in others:
        await enqueue_many(database, other, 2, stage)
    claims = [await claim_jobs(outbox, stage, 4) for _ in range(4)]
    # Eight tenants, four in each claim: everybody has had two turns.
    assert Counter(job.scope.apikey_hash for jobs in claims for job in jobs) == dict.fromkeys([crowd, *others], 2)


async def test_a_claim_is_divided_among_the_tenants_that_have_work_and_none_of_it_stays_unused(
    outbox: Outbox, database: StoreDatabase, tenant: str
) -> None:
    crowd = secrets.token_hex(32)
    await enqueue_many(database, crowd, 100)
    await enqueue_many(database, tenant, 1)
    jobs = await claim_jobs(outbox, "words", 10)
    assert Counter(job.scope.apikey_hash for job in jobs) == {crowd: 5, tenant: 1}
    # Worked on in this order: nobody waits for all jobs of another tenant.
    assert tenant in {job.scope.apikey_hash for job in jobs[:2]}
    assert Counter(job.scope.apikey_hash for job in await claim_jobs(outbox, "words", 10)) == {crowd: 10}


async def test_tenants_whose_work_is_not_due_or_with_others_hold_nobody_up(
    outbox: Outbox, database: StoreDatabase, tenant: str
) -> None:
    for _ in range(10):
        blocked, later = secrets.token_hex(32), secrets.token_hex(32)
        await enqueue(database, blocked, "/a")
        await claim_jobs(outbox, "words", 10)
        await enqueue(database, blocked, "/a")
        await set_job(database, await enqueue(database, later, "/a"), "available_at = now() + interval '1 hour'")
    ids = [await enqueue(database, tenant, f"/{n}") for n in range(3)]
    for job_id in ids:
        assert [job.id for job in await claim_jobs(outbox, "words", 1)] == [job_id]


async def test_tenants_can_be_passed_over(outbox: Outbox, database: StoreDatabase, tenant: str) -> None:
    crowd = secrets.token_hex(32)
    await enqueue_many(database, crowd, 100)
    await enqueue_many(database, tenant, 1)
    assert [job.scope.apikey_hash for job in await claim_jobs(outbox, "words", 10, skip=[crowd])] == [tenant]
    assert await claim_jobs(outbox, "words", 10, skip=[crowd]) == []


async def test_a_job_waits_for_its_time_and_the_wait_is_told(
    outbox: Outbox, database: StoreDatabase, tenant: str
) -> None:
    assert await outbox.claim("words", 10) == ([], None)
    job_id = await enqueue(database, tenant, "/a")
    await set_job(database, job_id, "available_at = now() + interval '1 hour'")
    jobs, next_due_s = await outbox.claim("words", 10)
    assert jobs == []
    assert next_due_s is not None
    assert 3500 < next_due_s <= 3600


async def test_a_job_that_is_due_and_blocked_is_not_waited_for(
    outbox: Outbox, database: StoreDatabase, tenant: str
) -> None:
    await enqueue(database, tenant, "/a")
    await claimed(outbox)
    await enqueue(database, tenant, "/a")
    assert await outbox.claim("words", 10) == ([], None)


@pytest.mark.contract("S11.2-2")
async def test_only_the_newest_job_of_a_path_is_worked_on(outbox: Outbox, database: StoreDatabase, tenant: str) -> None:
    first = await enqueue(database, tenant, "/a", reference="r1")
    second = await enqueue(database, tenant, "/a", "DELETE", reference="r2")
    elsewhere = await enqueue(database, tenant, "/b")
    third = await enqueue(database, tenant, "/a", reference="r3")
    a, b = await claim_jobs(outbox, "words", 10)
    assert (a.id, a.superseded, a.references) == (third, (second, first), ("r3", "r2", "r1"))
    assert (b.id, b.superseded) == (elsewhere, ())
    await outbox.done(a)
    await outbox.done(b)
    assert await statuses(database, tenant) == ["done"] * 4


@pytest.mark.contract("S6.2-6")
async def test_the_same_path_of_another_tenant_or_project_is_another_path(
    outbox: Outbox, database: StoreDatabase
) -> None:
    one, other = secrets.token_hex(32), secrets.token_hex(32)
    ids = [
        await enqueue(database, one, "/a"),
        await enqueue(database, other, "/a"),
        await enqueue(database, one, "/a", project="q"),
    ]
    assert {(job.id, job.superseded) for job in await claim_jobs(outbox, "words", 10)} == {
        (job_id, ()) for job_id in ids
    }


async def test_a_path_that_is_worked_on_is_left_alone(outbox: Outbox, database: StoreDatabase, tenant: str) -> None:
    await enqueue(database, tenant, "/a")
    job = await claimed(outbox)
    newer = await enqueue(database, tenant, "/a")
    assert await claim_jobs(outbox_of(database), "words", 10) == []
    await outbox.done(job)
    assert (await claimed(outbox)).id == newer


async def test_a_new_change_does_not_wait_for_the_retry_of_an_old_one(
    outbox: Outbox, database: StoreDatabase, tenant: str
) -> None:
    await enqueue(database, tenant, "/a", reference="r1")
    failed = await claimed(outbox)
    assert await outbox.retry(failed, "OPENAI_FAILED") == "pending"
    newer = await enqueue(database, tenant, "/a", reference="r2")
    job = await claimed(outbox)
    assert (job.id, job.superseded, job.retry_count) == (newer, (failed.id,), 0)


@pytest.mark.contract("S11.2-6", "S11.2-9")
async def test_retries_wait_twice_as_long_each_time_and_then_the_job_has_failed(
    outbox: Outbox, database: StoreDatabase, tenant: str
) -> None:
    job_id = await enqueue(database, tenant, "/a")
    for attempt, wait_s in enumerate([BACKOFF_S, 2 * BACKOFF_S]):
        job = await claimed(outbox)
        assert job.retry_count == attempt
        assert await outbox.retry(job, "OPENAI_FAILED") == "pending"
        row = await job_row(database, job_id)
        assert wait_s - 10 < row["due_s"] <= wait_s
        assert (row["error_code"], row["worker"], row["lease_until"]) == ("OPENAI_FAILED", None, None)
        await set_job(database, job_id, "available_at = now()")
    assert await outbox.retry(await claimed(outbox), "OPENAI_FAILED") == "failed"
    assert await statuses(database, tenant) == ["failed"]
    assert await claim_jobs(outbox, "words", 10) == []


async def test_a_retry_does_not_come_before_the_vendor_allows(
    outbox: Outbox, database: StoreDatabase, tenant: str
) -> None:
    job_id = await enqueue(database, tenant, "/a")
    await outbox.retry(await claimed(outbox), "OPENAI_RATE_LIMIT", not_before_s=1000.0)
    assert 900 < (await job_row(database, job_id))["due_s"] <= 1000


async def test_jitter_takes_at_most_half_of_the_wait(database: StoreDatabase, tenant: str) -> None:
    await clear_jobs(database)
    eager = Outbox(database, lease_s=LEASE_S, retry_max=2, retry_backoff_s=BACKOFF_S, jitter=lambda: 0.0)
    job_id = await enqueue(database, tenant, "/a")
    await eager.retry(await claimed(eager), "X")
    assert BACKOFF_S / 2 - 10 < (await job_row(database, job_id))["due_s"] <= BACKOFF_S / 2


async def test_a_job_that_cannot_succeed_fails_at_once(outbox: Outbox, database: StoreDatabase, tenant: str) -> None:
    job_id = await enqueue(database, tenant, "/a")
    assert await outbox.retry(await claimed(outbox), "OPENAI_AUTH", permanent=True) == "failed"
    assert (await job_row(database, job_id))["error_code"] == "OPENAI_AUTH"


async def test_the_jobs_of_a_crashed_worker_come_back_after_the_lease(
    outbox: Outbox, database: StoreDatabase, tenant: str
) -> None:
    job_id = await enqueue(database, tenant, "/a")
    crashed = await claimed(outbox)
    assert await outbox.recover() == 0
    await expire(database, job_id)
    assert await outbox.recover() == 1
    again = await claimed(outbox)
    assert (again.id, again.retry_count) == (job_id, 1)
    assert again.claim != crashed.claim


async def test_a_job_that_brings_every_worker_down_fails_in_the_end(
    outbox: Outbox, database: StoreDatabase, tenant: str
) -> None:
    job_id = await enqueue(database, tenant, "/a")
    for _ in range(3):
        await claimed(outbox)
        await expire(database, job_id)
        await outbox.recover()
    row = await job_row(database, job_id)
    assert (row["status"], row["error_code"]) == ("failed", "LEASE_EXPIRED")


async def test_a_worker_that_lost_its_lease_changes_nothing(
    outbox: Outbox, database: StoreDatabase, tenant: str
) -> None:
    job_id = await enqueue(database, tenant, "/a")
    lost = await claimed(outbox)
    await expire(database, job_id)
    await outbox.recover()
    job = await claimed(outbox)
    assert await outbox.done(lost) is None
    assert await outbox.retry(lost, "X") == "lost"
    assert await outbox.retry(lost, "X", permanent=True) == "lost"
    await outbox.release([lost])
    assert await outbox.renew([lost, job]) == {job}
    assert (await job_row(database, job_id))["worker"] == job.claim


async def test_a_renewed_lease_lasts_longer(outbox: Outbox, database: StoreDatabase, tenant: str) -> None:
    job_id = await enqueue(database, tenant, "/a")
    job = await claimed(outbox)
    await set_job(database, job_id, "lease_until = now() + interval '1 second'")
    assert await outbox.renew([job]) == {job}
    assert (await job_row(database, job_id))["lease_s"] > LEASE_S / 2


async def test_released_jobs_keep_their_place_and_count_no_retry(
    outbox: Outbox, database: StoreDatabase, tenant: str
) -> None:
    ids = [await enqueue(database, tenant, f"/{n}") for n in range(3)]
    await outbox.release(await claim_jobs(outbox, "words", 2))
    jobs = await claim_jobs(outbox_of(database), "words", 10)
    assert [(job.id, job.retry_count) for job in jobs] == [(job_id, 0) for job_id in ids]


@pytest.mark.contract("S11.2-9")
async def test_done_tells_the_time_since_the_change(outbox: Outbox, database: StoreDatabase, tenant: str) -> None:
    job_id = await enqueue(database, tenant, "/a")
    await set_job(database, job_id, "created_at = now() - interval '1 hour'")
    lag_s = await outbox.done(await claimed(outbox))
    assert lag_s is not None
    assert 3600 <= lag_s < 3700


async def test_the_depth_of_the_queue(outbox: Outbox, database: StoreDatabase, tenant: str) -> None:
    other = secrets.token_hex(32)
    await enqueue(database, other, "/x")
    await outbox.retry(await claimed(outbox), "X", permanent=True)
    for n in range(3):
        await enqueue(database, tenant, f"/{n}")
    done, _ = await claim_jobs(outbox, "words", 2)
    await outbox.done(done)
    assert await outbox.depth() == Depth(pending=1, processing=1, failed=1)
    assert await outbox.depth(tenant) == Depth(pending=1, processing=1, failed=0)


async def test_a_reference_is_in_use_until_the_last_job_with_it_ends(
    outbox: Outbox, database: StoreDatabase, tenant: str
) -> None:
    await enqueue(database, tenant, "/a", reference="own")
    await enqueue(database, tenant, "/a", reference="shared")
    await enqueue(database, tenant, "/b", reference="shared")
    a, b = await claim_jobs(outbox, "words", 10)
    assert await outbox.unused(a) == ["own"]
    await outbox.done(a)
    assert await outbox.unused(a) == ["own"]
    await outbox.retry(b, "X")
    assert await outbox.unused(b) == []
    await set_job(database, b.id, "available_at = now()")
    b = await claimed(outbox)
    await outbox.retry(b, "X", permanent=True)
    assert await outbox.unused(b) == ["shared"]


async def test_a_job_handed_on_waits_in_the_other_stage_with_all_its_tries_before_it(
    outbox: Outbox, database: StoreDatabase, tenant: str
) -> None:
    job_id = await enqueue(database, tenant, "/a", reference="r1")
    assert await outbox.retry(await claimed(outbox), "X") == "pending"
    await set_job(database, job_id, "available_at = now()")
    assert await outbox.advance(await claimed(outbox))
    assert await claim_jobs(outbox, "words", 10) == []
    row = await job_row(database, job_id)
    assert (row["status"], row["error_code"], row["worker"], row["lease_until"]) == ("pending", None, None, None)
    (job,) = await claim_jobs(outbox, "vectors", 10)
    assert (job.id, job.stage, job.retry_count, job.references) == (job_id, "vectors", 0, ("r1",))
    assert await outbox.retry(job, "X") == "pending"
    assert await outbox.claim("words", 10) == ([], None)
    _, next_due_s = await outbox.claim("vectors", 10)
    assert next_due_s is not None


async def test_each_stage_holds_a_path_for_itself(outbox: Outbox, database: StoreDatabase, tenant: str) -> None:
    first = await enqueue(database, tenant, "/a")
    await outbox.advance(await claimed(outbox))
    (embedding,) = await claim_jobs(outbox, "vectors", 10)
    second = await enqueue(database, tenant, "/a")
    writing = await claimed(outbox)
    assert (embedding.id, writing.id, writing.superseded) == (first, second, ())
    await outbox.advance(writing)
    assert await claim_jobs(outbox, "vectors", 10) == []
    await outbox.done(embedding)
    (job,) = await claim_jobs(outbox, "vectors", 10)
    assert (job.id, job.superseded) == (second, ())


async def test_of_the_jobs_handed_on_for_a_path_the_newest_is_worked_on(
    outbox: Outbox, database: StoreDatabase, tenant: str
) -> None:
    ids: list[int] = []
    for number in range(3):
        ids.append(await enqueue(database, tenant, "/a", reference=f"r{number}"))
        await outbox.advance(await claimed(outbox))
    (job,) = await claim_jobs(outbox, "vectors", 10)
    assert (job.id, job.superseded, job.references) == (ids[2], (ids[1], ids[0]), ("r2", "r1", "r0"))
    await outbox.done(job)
    assert await statuses(database, tenant) == ["done"] * 3
    assert await outbox.unused(job) == ["r2", "r1", "r0"]


async def test_the_keys_of_older_jobs_are_handed_on_with_the_newest(
    outbox: Outbox, database: StoreDatabase, tenant: str
) -> None:
    with_key = await enqueue(database, tenant, "/a", reference="r1")
    await enqueue(database, tenant, "/a")
    newest = await enqueue(database, tenant, "/a", reference="r2")
    job = await claimed(outbox)
    await outbox.advance(job)
    assert await outbox.unused(job) == []
    assert await statuses(database, tenant) == ["pending", "done", "pending"]
    (job,) = await claim_jobs(outbox, "vectors", 10)
    assert (job.id, job.superseded, job.references) == (newest, (with_key,), ("r2", "r1"))


async def test_who_lost_the_lease_hands_nothing_on(outbox: Outbox, database: StoreDatabase, tenant: str) -> None:
    await enqueue(database, tenant, "/a", reference="r1")
    job_id = await enqueue(database, tenant, "/a")
    lost = await claimed(outbox)
    await expire(database, job_id)
    await outbox.recover()
    assert not await outbox.advance(lost)
    assert await statuses(database, tenant) == ["done", "pending"]
    assert await claim_jobs(outbox, "vectors", 10) == []


async def test_the_depth_counts_both_stages(outbox: Outbox, database: StoreDatabase, tenant: str) -> None:
    for n in range(3):
        await enqueue(database, tenant, f"/{n}")
    for job in await claim_jobs(outbox, "words", 2):
        await outbox.advance(job)
    await claim_jobs(outbox, "vectors", 1)
    assert await outbox.depth() == Depth(pending=2, processing=1, failed=0)


@pytest.mark.contract("S11.2-1")
async def test_many_workers_claim_each_job_once(outbox: Outbox, database: StoreDatabase, tenant: str) -> None:
    ids = [await enqueue(database, tenant, f"/{n}") for n in range(120)]
    seen: list[int] = []

    async def worker() -> None:
        own = outbox_of(database)
        while jobs := await claim_jobs(own, "words", 7):
            seen.extend(job.id for job in jobs)

    await asyncio.gather(*(worker() for _ in range(6)))
    assert sorted(seen) == ids


async def test_no_path_is_ever_with_two_workers_of_a_stage_nor_goes_back_in_time(
    outbox: Outbox, database: StoreDatabase, tenant: str
) -> None:
    paths = [f"/{n}" for n in range(4)]
    held: set[tuple[Stage, str]] = set()
    newest: dict[str, int] = {}
    results: dict[tuple[Stage, str], list[int]] = {(stage, path): [] for stage in STAGES for path in paths}
    writing = True

    async def writer(path: str) -> None:
        for _ in range(25):
            newest[path] = await enqueue(database, tenant, path)

    async def worker(stage: Stage, chance: random.Random) -> None:
        own = outbox_of(database, retry_max=1000)
        while True:
            jobs = await claim_jobs(own, stage, 2)
            for job in jobs:
                assert (stage, job.path) not in held
                held.add((stage, job.path))
            for job in jobs:
                await asyncio.sleep(0)
                held.remove((stage, job.path))
                if chance.random() < 0.3:
                    await own.release([job])
                    continue
                results[stage, job.path].append(job.id)
                assert await own.advance(job) if stage == "words" else await own.done(job) is not None
            if not jobs and not writing and await own.depth() == Depth(0, 0, 0):
                return

    async def writers() -> None:
        nonlocal writing
        await asyncio.gather(*(writer(path) for path in paths))
        writing = False

    async with asyncio.timeout(60):
        await asyncio.gather(writers(), *(worker(stage, random.Random(seed)) for stage in STAGES for seed in range(3)))
    for (_, path), ids in results.items():
        assert ids == sorted(set(ids))
        assert ids[-1] == newest[path]


@pytest.mark.parametrize("statistics", ["none", "of an empty queue", "of now", "of a queue that was full"])
@pytest.mark.parametrize("stage", STAGES)
async def test_a_claim_reads_only_what_it_takes_whatever_the_statistics_say(
    outbox: Outbox, database: StoreDatabase, stage: Stage, statistics: str
) -> None:
    async with statistics_of_jobs(database) as run:
        if statistics == "of a queue that was full":
            await enqueue_many(database, "f" * 64, 6_000)
            await enqueue(database, "e" * 64, "/last")
            await run("DELETE FROM mcp_file_index_jobs WHERE apikey_hash = repeat('f', 64)")
        if statistics.startswith("of a"):
            await run("VACUUM ANALYZE mcp_file_index_jobs")
            await clear_jobs(database)
        tenants = [secrets.token_hex(32) for _ in range(200)]
        for waiting in STAGES:
            await enqueue_many(database, tenants[0], 3_000, waiting)
            for tenant in tenants[1:]:
                await enqueue_many(database, tenant, 1, waiting)
        if statistics == "of now":
            await run("ANALYZE mcp_file_index_jobs")
        plan = await claim_plan(database, stage, batch=5)
    scans = [line for line in plan if re.search(r" Scan (using|on) \S+ on mcp_file_index_jobs|Seq Scan", line)]
    assert len(scans) >= 8
    for scan in scans:
        assert "never executed" in scan or re.search(r"rows=[0-5](\.00)? ", scan), scan
    assert not [line for line in plan if "Rows Removed" in line]
    assert not [line for line in plan if "idx_mcp_file_index_jobs_pending" in line]


@asynccontextmanager
async def statistics_of_jobs(database: StoreDatabase) -> AsyncGenerator[Callable[[str], Awaitable[object]]]:
    """Run statements that alone decide about the statistics of the table. It begins empty and without any."""
    async with database.pool.connection() as connection:
        await connection.execute("SET armarium.tenant = '*'")
        await connection.execute("ALTER TABLE mcp_file_index_jobs SET (autovacuum_enabled = false)")
        await connection.execute("TRUNCATE mcp_file_index_jobs")
        try:
            yield connection.execute
        finally:
            await connection.execute("ALTER TABLE mcp_file_index_jobs RESET (autovacuum_enabled)")
            await connection.execute("TRUNCATE mcp_file_index_jobs")
            await connection.execute("RESET armarium.tenant")


async def claim_plan(database: StoreDatabase, stage: Stage, *, batch: int) -> list[str]:
    """How the database goes about a claim, as the function runs it."""
    values = {
        "of_stage": ("text", stage),
        "batch": ("int", batch),
        "claim": ("text", "w"),
        "lease_s": ("float8", LEASE_S),
        "after_tenant": ("bpchar", "8" * 64),
        "skipped": ("bpchar[]", []),
    }
    async with database.write_transaction(ALL_TENANTS) as connection:
        function = await connection.fetchrow(
            "SELECT prosrc, proconfig FROM pg_proc WHERE proname = 'mcp_file_claim_in_turn'"
        )
        assert function is not None
        for setting in function["proconfig"]:
            await connection.execute(f"SET LOCAL {setting}")
        claim = re.search(r"RETURN QUERY(.*?);", function["prosrc"], re.DOTALL)
        assert claim
        numbered = {name: f"${place}::{kind}" for place, (name, (kind, _)) in enumerate(values.items(), 1)}
        statement = re.sub(rf"\b({'|'.join(values)})\b", lambda name: numbered[name[1]], claim[1])
        plan = await connection.fetch(
            f"EXPLAIN (ANALYZE, COSTS OFF) {statement}", *(value for _, value in values.values())
        )
    return [row[0] for row in plan]
