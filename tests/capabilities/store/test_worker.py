"""Workers: every job done once, by whoever lives, with the caller's own key, which is nowhere to be read."""

from __future__ import annotations

import logging
import secrets
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager

import anyio
import pytest
from pydantic import SecretStr

from armarium.capabilities.store.database.pool import connect
from armarium.capabilities.store.database.transactions import ALL_TENANTS, StoreDatabase
from armarium.capabilities.store.index.credentials import Credentials, MemoryCache, open_credentials
from armarium.capabilities.store.index.envelope import Keks
from armarium.capabilities.store.index.file_index import TermsWritten
from armarium.capabilities.store.index.outbox import Depth, Outbox
from armarium.capabilities.store.index.wake_up import SharedWakeUp
from armarium.capabilities.store.index.worker import Observers, WorkerPool
from armarium.capabilities.store.model import Scope
from armarium.capabilities.store.settings import SecuritySettings
from armarium.foundation.errors import ArmariumError
from armarium.providers.vendors import OPENAI
from support.outbox import claim_jobs, clear_jobs, enqueue, enqueue_many, job_row, last_job, set_job, stages, statuses
from support.redis import everything_in, running_redis
from support.waiting import eventually

NEVER_S = 3600.0
CANARY = "sk-canary-0ddba11"
KEKS = {1: SecretStr("a key for these tests")}

Deed = Callable[[str], Awaitable[None]]


async def _nothing(path: str) -> None:
    """Done at once."""


class Indexed:
    """Stands for the index: notes what it is asked for, and does with each path what the test wants."""

    def __init__(self, deed: Deed = _nothing) -> None:
        self.deed = deed
        self.calls: list[tuple[str, Scope, str, str | None]] = []
        self.cancelled: list[str] = []
        self.written: list[str] = []
        """Paths whose words were written."""
        self.known: set[str] = set()
        """Paths whose vectors are all known."""
        self.turns_needed: dict[str, int] = {}
        """In how many turns a path is embedded, where that is more than one."""

    async def write_terms(self, scope: Scope, path: str) -> TermsWritten:
        new = path not in self.written
        self.written.append(path)
        return TermsWritten(new=new, embedded=path in self.known)

    async def embed(self, scope: Scope, path: str, key: str | None, *, most: int | None = None) -> bool:
        await self._do("index", scope, path, key)
        left = self.turns_needed.get(path, 1) - 1
        self.turns_needed[path] = left
        return left <= 0 or most is None

    async def forget(self, scope: Scope, path: str) -> None:
        await self._do("forget", scope, path, None)

    async def _do(self, what: str, scope: Scope, path: str, key: str | None) -> None:
        self.calls.append((what, scope, path, key))
        try:
            await self.deed(path)
        except anyio.get_cancelled_exc_class():
            self.cancelled.append(path)
            raise

    @property
    def paths(self) -> list[str]:
        return [path for _, _, path, _ in self.calls]


def raising(*errors: Exception) -> Deed:
    """Fails with each of the errors in turn, and then no more."""
    left = list(errors)

    async def deed(path: str) -> None:
        if left:
            raise left.pop(0)

    return deed


class Crew:
    """Workers on one database, and what they share."""

    def __init__(self, database: StoreDatabase, dsn: str) -> None:
        self.database = database
        self.wake_up = SharedWakeUp(database, dsn)

    @asynccontextmanager
    async def working(
        self,
        index: Indexed,
        credentials: Credentials | None = None,
        *,
        workers: int = 2,
        poll_s: float = NEVER_S,
        lease_s: float = 60.0,
        backoff_s: float = 1000.0,
        retry_max: int = 3,
        observers: Observers | None = None,
    ) -> AsyncGenerator[None]:
        outbox = Outbox(self.database, lease_s=lease_s, retry_max=retry_max, retry_backoff_s=backoff_s)

        async def run() -> None:
            pool = WorkerPool(outbox, index, credentials, self.wake_up, observers or Observers())
            await pool.run(workers=workers, batch=5, poll_s=poll_s)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(run)
            yield
            tasks.cancel_scope.cancel()

    async def settled(self, tenant: str, *expected: str) -> None:
        """Wait until the tenant's jobs are in these states."""

        async def reached() -> bool:
            return await statuses(self.database, tenant) == list(expected)

        await eventually(reached)


@pytest.fixture
async def pool(database: StoreDatabase, store_dsn: str) -> AsyncGenerator[Crew]:
    await clear_jobs(database)
    yield Crew(database, store_dsn)
    await clear_jobs(database)


@pytest.fixture
async def elsewhere(store_dsn: str) -> AsyncGenerator[StoreDatabase]:
    """The same database, opened by what plays another process."""
    opened = StoreDatabase(await connect(store_dsn, size=2), lock_timeout_ms=500, on_lock_wait=lambda seconds: None)
    yield opened
    await opened.pool.aclose()


@pytest.fixture
def credentials() -> Credentials:
    return Credentials(MemoryCache(ttl_s=300), Keks(KEKS), ttl_s=300)


async def kept(credentials: Credentials, tenant: str, key: str = CANARY) -> str:
    reference = await credentials.keep(key, Scope(tenant, "p"))
    assert reference is not None
    return reference


@pytest.mark.contract("S4-2")
async def test_what_waits_is_done_and_what_comes_is_done_after_a_wake_up(
    pool: Crew, database: StoreDatabase, tenant: str
) -> None:
    index = Indexed()
    await enqueue(database, tenant, "/waiting")
    async with pool.working(index):
        await pool.settled(tenant, "done")
        await enqueue(database, tenant, "/gone", "DELETE")
        pool.wake_up.wake_all()
        await pool.settled(tenant, "done", "done")
    scope = Scope(tenant, "p")
    assert index.calls == [("index", scope, "/waiting", None), ("forget", scope, "/gone", None)]


async def test_a_wake_up_from_another_process_reaches_the_workers(
    pool: Crew, elsewhere: StoreDatabase, store_dsn: str, tenant: str
) -> None:
    index = Indexed()
    waking = SharedWakeUp(elsewhere, store_dsn)
    async with pool.working(index), anyio.create_task_group() as tasks:
        woken = pool.wake_up.next_wake_up()
        tasks.start_soon(pool.wake_up.listen)
        await woken.wait()
        await enqueue(elsewhere, tenant, "/a")
        tasks.start_soon(waking.notify_others)
        waking.wake_all()
        await pool.settled(tenant, "done")
        tasks.cancel_scope.cancel()


async def test_a_lost_notice_costs_one_poll(pool: Crew, database: StoreDatabase, tenant: str) -> None:
    depths: list[Depth] = []
    async with pool.working(Indexed(), poll_s=0.05, observers=Observers(depth=depths.append)):
        await eventually(lambda: depths)
        await enqueue(database, tenant, "/a")
        await pool.settled(tenant, "done")


async def test_as_many_jobs_at_once_as_there_are_workers(pool: Crew, database: StoreDatabase, tenant: str) -> None:
    may_end = anyio.Event()
    busy: set[str] = set()
    most = 0

    async def slow(path: str) -> None:
        nonlocal most
        busy.add(path)
        most = max(most, len(busy))
        await may_end.wait()
        busy.remove(path)

    for n in range(12):
        await enqueue(database, tenant, f"/{n}")
    # More than are claimed at once.
    async with pool.working(Indexed(slow), workers=7):
        await eventually(lambda: len(busy) == 7)
        may_end.set()
        await pool.settled(tenant, *["done"] * 12)
    assert most == 7


async def test_a_slow_file_does_not_hold_up_the_others(pool: Crew, database: StoreDatabase, tenant: str) -> None:
    may_end = anyio.Event()

    async def deed(path: str) -> None:
        if path == "/0":
            await may_end.wait()

    for n in range(12):
        await enqueue(database, tenant, f"/{n}")
    async with pool.working(Indexed(deed), workers=2):
        await eventually(lambda: _done_but_one(database, tenant))
        assert await statuses(database, tenant) == ["processing", *["done"] * 11]
        may_end.set()
        await pool.settled(tenant, *["done"] * 12)


async def _done_but_one(database: StoreDatabase, tenant: str) -> bool:
    return (await statuses(database, tenant)).count("done") == 11


async def test_words_do_not_wait_for_the_vectors_of_others(pool: Crew, database: StoreDatabase, tenant: str) -> None:
    async def endless(path: str) -> None:
        await anyio.sleep_forever()

    index = Indexed(endless)
    lags: list[float] = []
    for n in range(12):
        await enqueue(database, tenant, f"/{n}")
    async with pool.working(index, workers=1, observers=Observers(visibility_lag_s=lags.append)):
        await eventually(lambda: len(lags) == 12)
        await enqueue(database, tenant, "/later")
        pool.wake_up.wake_all()
        await eventually(lambda: "/later" in index.written)
        assert len(index.calls) == 1


async def test_the_words_of_a_tenant_do_not_wait_for_those_of_a_crowd(
    pool: Crew, database: StoreDatabase, tenant: str
) -> None:
    crowd = secrets.token_hex(32)

    async def endless(path: str) -> None:
        if path.startswith("/many/"):
            await anyio.sleep_forever()

    index = Indexed(endless)
    await enqueue_many(database, crowd, 50, operation="DELETE")
    async with pool.working(index):
        # All slots that one tenant may have are taken, and as many jobs as are claimed at once wait for them.
        await eventually(lambda: len(index.calls) == 4)
        await enqueue(database, tenant, "/a", "DELETE")
        pool.wake_up.wake_all()
        await pool.settled(tenant, "done")


async def test_a_long_file_is_embedded_in_turns_with_the_files_of_others(
    pool: Crew, database: StoreDatabase, tenant: str
) -> None:
    others = secrets.token_hex(32)
    may_go_on = anyio.Event()

    async def deed(path: str) -> None:
        if path == "/long" and index.paths.count("/long") > 1:
            await may_go_on.wait()

    index = Indexed(deed)
    index.turns_needed["/long"] = 3
    await enqueue(database, tenant, "/long")
    await enqueue(database, others, "/short")
    async with pool.working(index, workers=1):
        await pool.settled(others, "done")
        assert await statuses(database, tenant) != ["done"]
        may_go_on.set()
        await pool.settled(tenant, "done")
    assert index.paths.count("/long") == 3
    assert (await job_row(database, await last_job(database, tenant)))["retry_count"] == 0


async def test_with_a_callers_key_a_long_file_is_embedded_at_once(
    pool: Crew, database: StoreDatabase, tenant: str, credentials: Credentials
) -> None:
    index = Indexed()
    index.turns_needed["/long"] = 3
    reference = await credentials.keep(CANARY, Scope(tenant, "p"))
    await enqueue(database, tenant, "/long", reference=reference)
    async with pool.working(index, credentials):
        await pool.settled(tenant, "done")
    assert index.paths == ["/long"]


async def test_only_what_is_worked_on_and_the_next_are_held_and_the_rest_is_anybodys(
    pool: Crew, database: StoreDatabase, tenant: str
) -> None:
    begun = anyio.Event()

    async def endless(path: str) -> None:
        begun.set()
        await anyio.sleep_forever()

    index = Indexed(endless)
    for n in range(12):
        await enqueue(database, tenant, f"/{n}")
    async with pool.working(index, workers=1):
        await begun.wait()
        await eventually(lambda: len(index.written) >= 12)
        await eventually(lambda: _all_at(database, tenant, "vectors"))
        await eventually(lambda: _held(database, tenant, 2))
        others = await claim_jobs(Outbox(database, lease_s=60, retry_max=1, retry_backoff_s=1), "vectors", 20)
        assert len(others) == 10


async def _held(database: StoreDatabase, tenant: str, count: int) -> bool:
    return (await statuses(database, tenant)).count("processing") == count


async def _all_at(database: StoreDatabase, tenant: str, stage: str) -> bool:
    return set(await stages(database, tenant)) == {stage}


async def test_a_retry_does_not_count_as_seen_again(pool: Crew, database: StoreDatabase, tenant: str) -> None:
    lags: list[float] = []
    await enqueue(database, tenant, "/a")
    index = Indexed(raising(OPENAI.unavailable("1"), OPENAI.unavailable("2")))
    async with pool.working(index, backoff_s=0.01, observers=Observers(visibility_lag_s=lags.append)):
        await pool.settled(tenant, "done")
    assert index.paths == ["/a"] * 3
    assert len(lags) == 1


async def test_a_lease_lost_while_waiting_for_a_seat_is_not_worked_on(
    pool: Crew, database: StoreDatabase, tenant: str
) -> None:
    may_end = anyio.Event()

    async def slow(path: str) -> None:
        await may_end.wait()

    index = Indexed(slow)
    ids = [await enqueue(database, tenant, f"/{n}", "DELETE") for n in range(5)]
    first, waiting = ids[0], ids[-1]

    async def renewed() -> bool:
        return (await job_row(database, first))["lease_until"] > before

    async with pool.working(index, lease_s=0.3):
        await eventually(lambda: len(index.calls) == 4)
        await set_job(database, waiting, "worker = 'another', lease_until = now() + interval '1 hour'")
        # The worker knows what the first renewal said when it asks for the second.
        for _ in range(2):
            before = (await job_row(database, first))["lease_until"]
            await eventually(renewed)
        may_end.set()
        await enqueue(database, tenant, "/later", "DELETE")
        pool.wake_up.wake_all()
        await pool.settled(tenant, *["done"] * 4, "processing", "done")
    assert sorted(index.paths) == ["/0", "/1", "/2", "/3", "/later"]
    assert (await job_row(database, waiting))["worker"] == "another"


async def test_a_change_during_the_work_on_words_is_worked_on_afterwards(
    pool: Crew, database: StoreDatabase, tenant: str
) -> None:
    begun, may_end = anyio.Event(), anyio.Event()

    async def slow(path: str) -> None:
        begun.set()
        await may_end.wait()

    index = Indexed(slow)
    await enqueue(database, tenant, "/a", "DELETE")
    async with pool.working(index):
        await begun.wait()
        await enqueue(database, tenant, "/a")
        other = await enqueue(database, secrets.token_hex(32), "/b", "DELETE")
        pool.wake_up.wake_all()
        await eventually(lambda: "/b" in index.paths)
        assert await statuses(database, tenant) == ["processing", "pending"]
        may_end.set()
        await pool.settled(tenant, "done", "done")
        await eventually(lambda: _is(database, other, "done"))
    assert [call[0] for call in index.calls if call[2] == "/a"] == ["forget", "index"]


async def test_a_change_during_the_embedding_has_its_words_at_once_and_its_vectors_afterwards(
    pool: Crew, database: StoreDatabase, tenant: str
) -> None:
    begun, may_end = anyio.Event(), anyio.Event()

    async def slow(path: str) -> None:
        begun.set()
        await may_end.wait()

    index = Indexed(slow)
    lags: list[float] = []
    await enqueue(database, tenant, "/a")
    async with pool.working(index, observers=Observers(visibility_lag_s=lags.append)):
        await begun.wait()
        await enqueue(database, tenant, "/a")
        pool.wake_up.wake_all()
        await eventually(lambda: _all_at(database, tenant, "vectors"))
        assert await statuses(database, tenant) == ["processing", "pending"]
        assert (len(lags), index.paths) == (2, ["/a"])
        may_end.set()
        await pool.settled(tenant, "done", "done")
    assert index.paths == ["/a", "/a"]
    assert len(lags) == 2


async def test_of_many_changes_that_wait_for_vectors_one_is_embedded(
    pool: Crew, database: StoreDatabase, tenant: str
) -> None:
    begun, may_end = anyio.Event(), anyio.Event()

    async def slow(path: str) -> None:
        begun.set()
        await may_end.wait()

    index = Indexed(slow)
    for path in ("/busy", "/next"):
        await enqueue(database, tenant, path)
    async with pool.working(index, workers=1):
        await begun.wait()
        await eventually(lambda: _held(database, tenant, 2))
        for n in range(4):
            await enqueue(database, tenant, "/a")
            pool.wake_up.wake_all()
            await eventually(lambda n=n: _waiting_for_vectors(database, tenant, n + 1))
        may_end.set()
        await pool.settled(tenant, *["done"] * 6)
    assert sorted(index.paths) == ["/a", "/busy", "/next"]


async def _waiting_for_vectors(database: StoreDatabase, tenant: str, count: int) -> bool:
    states = zip(await stages(database, tenant), await statuses(database, tenant), strict=True)
    return list(states).count(("vectors", "pending")) == count


async def test_a_retry_of_the_words_leaves_all_tries_to_the_vectors(
    pool: Crew, database: StoreDatabase, tenant: str
) -> None:
    class FailsFirst(Indexed):
        async def write_terms(self, scope: Scope, path: str) -> TermsWritten:
            words = await super().write_terms(scope, path)
            if len(self.written) <= 2:
                raise OPENAI.unavailable("not yet")
            return words

    index = FailsFirst(raising(*[OPENAI.unavailable("nor yet")] * 2))
    await enqueue(database, tenant, "/a")
    async with pool.working(index, backoff_s=0.01, retry_max=2):
        await pool.settled(tenant, "done")
    assert index.paths == ["/a"] * 3


async def _is(database: StoreDatabase, job_id: int, status: str) -> bool:
    return (await job_row(database, job_id))["status"] == status


async def test_two_crews_do_each_job_once(pool: Crew, database: StoreDatabase, store_dsn: str, tenant: str) -> None:
    first, second = Indexed(), Indexed()
    paths = [f"/{n}" for n in range(60)]
    for path in paths:
        await enqueue(database, tenant, path)
    async with pool.working(first), Crew(database, store_dsn).working(second):
        await pool.settled(tenant, *["done"] * 60)
    assert sorted(first.paths + second.paths) == sorted(paths)


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (OPENAI.unavailable("not there"), "OPENAI_FAILED"),
        (ArmariumError("a fault"), "INTERNAL"),
        (ZeroDivisionError("a bug"), "INTERNAL"),
        (TimeoutError(), "DEADLINE_EXCEEDED"),
    ],
)
async def test_what_may_work_later_is_tried_again_when_its_time_comes(
    pool: Crew, database: StoreDatabase, tenant: str, error: Exception, code: str
) -> None:
    job_id = await enqueue(database, tenant, "/a")
    index = Indexed(raising(error))
    async with pool.working(index, poll_s=0.05):
        await eventually(lambda: _retried(database, job_id))
        row = await job_row(database, job_id)
        assert (row["error_code"], row["retry_count"]) == (code, 1)
        assert 250 < row["due_s"] <= 600
        await set_job(database, job_id, "available_at = now()")
        await pool.settled(tenant, "done")
    assert index.paths == ["/a", "/a"]


async def test_a_retry_comes_at_its_time_without_a_wake_up_or_a_poll(
    pool: Crew, database: StoreDatabase, tenant: str
) -> None:
    await enqueue(database, tenant, "/a")
    index = Indexed(raising(OPENAI.unavailable("1"), OPENAI.unavailable("2")))
    async with pool.working(index, backoff_s=0.1):
        await pool.settled(tenant, "done")
    assert index.paths == ["/a"] * 3


async def test_a_vendor_that_asks_for_a_delay_gets_it(pool: Crew, database: StoreDatabase, tenant: str) -> None:
    job_id = await enqueue(database, tenant, "/a")
    async with pool.working(Indexed(raising(OPENAI.rate_limited("slower", retry_after_s=5000.0)))):
        await eventually(lambda: _retried(database, job_id))
    assert (await job_row(database, job_id))["due_s"] > 4900


@pytest.mark.contract("S11.2-6")
async def test_after_the_last_retry_the_job_has_failed(pool: Crew, database: StoreDatabase, tenant: str) -> None:
    await enqueue(database, tenant, "/a")
    index = Indexed(raising(*[OPENAI.unavailable("never there")] * 9))
    async with pool.working(index, backoff_s=0.01, retry_max=2):
        await pool.settled(tenant, "failed")
    assert index.paths == ["/a"] * 3


async def test_a_permanent_refusal_fails_at_once_and_the_next_write_is_a_new_chance(
    pool: Crew, database: StoreDatabase, tenant: str
) -> None:
    await enqueue(database, tenant, "/a")
    async with pool.working(Indexed(raising(OPENAI.auth("no")))):
        await pool.settled(tenant, "failed")
        await enqueue(database, tenant, "/a")
        pool.wake_up.wake_all()
        await pool.settled(tenant, "failed", "done")


@pytest.mark.contract("S14-3")
async def test_an_unforeseen_error_is_logged_without_what_it_quotes(
    pool: Crew, database: StoreDatabase, tenant: str, caplog: pytest.LogCaptureFixture
) -> None:
    job_id = await enqueue(database, tenant, "/a")
    async with pool.working(Indexed(raising(ValueError("content of the file")))):
        await eventually(lambda: _retried(database, job_id))
    (line,) = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert vars(line)["error"] == "ValueError"
    assert "content of the file" not in repr([vars(record) for record in caplog.records])


@pytest.mark.contract("S11.2-4", "S20-4")
async def test_the_callers_key_is_used_and_gone_afterwards(
    pool: Crew, database: StoreDatabase, tenant: str, credentials: Credentials
) -> None:
    reference = await kept(credentials, tenant)
    await enqueue(database, tenant, "/a", reference=reference)
    index = Indexed()
    async with pool.working(index, credentials):
        await eventually(lambda: _gone(credentials, reference, tenant))
    assert index.calls == [("index", Scope(tenant, "p"), "/a", CANARY)]


async def _gone(credentials: Credentials, reference: str, tenant: str) -> bool:
    return await credentials.take(reference, Scope(tenant, "p")) is None


async def test_a_key_stays_for_the_retry_and_goes_with_the_final_failure(
    pool: Crew, database: StoreDatabase, tenant: str, credentials: Credentials
) -> None:
    reference = await kept(credentials, tenant)
    job_id = await enqueue(database, tenant, "/a", reference=reference)
    index = Indexed(raising(OPENAI.unavailable("wait"), OPENAI.auth("no")))
    async with pool.working(index, credentials, poll_s=0.05):
        await eventually(lambda: _retried(database, job_id))
        assert not await _gone(credentials, reference, tenant)
        await set_job(database, job_id, "available_at = now()")
        await pool.settled(tenant, "failed")
        await eventually(lambda: _gone(credentials, reference, tenant))


async def test_one_key_for_many_jobs_stays_until_the_last_is_done(
    pool: Crew, database: StoreDatabase, tenant: str, credentials: Credentials
) -> None:
    reference = await kept(credentials, tenant)
    for n in range(8):
        await enqueue(database, tenant, f"/{n}", reference=reference)
    index = Indexed()
    async with pool.working(index, credentials, workers=3):
        await pool.settled(tenant, *["done"] * 8)
        await eventually(lambda: _gone(credentials, reference, tenant))
    assert [key for *_, key in index.calls] == [CANARY] * 8


async def test_the_keys_of_older_jobs_of_a_path_serve_the_newest_and_go_with_it(
    pool: Crew, database: StoreDatabase, tenant: str, credentials: Credentials
) -> None:
    older = await kept(credentials, tenant)
    await enqueue(database, tenant, "/a", reference=older)
    await enqueue(database, tenant, "/a", reference="0" * 32)
    index = Indexed()
    async with pool.working(index, credentials):
        await eventually(lambda: _gone(credentials, older, tenant))
    assert index.calls == [("index", Scope(tenant, "p"), "/a", CANARY)]


@pytest.mark.contract("S11.2-8", "S20-5")
@pytest.mark.parametrize("reference", [None, "0" * 32])
async def test_without_the_callers_key_the_job_waits_and_no_other_key_is_used(
    pool: Crew, database: StoreDatabase, tenant: str, credentials: Credentials, reference: str | None
) -> None:
    job_id = await enqueue(database, tenant, "/a", reference=reference)
    deleted = await enqueue(database, tenant, "/b", "DELETE")
    await kept(credentials, tenant)
    index = Indexed()
    async with pool.working(index, credentials):
        await pool.settled(tenant, "pending", "done")
        await eventually(lambda: _retried(database, job_id))
    row = await job_row(database, job_id)
    assert (row["error_code"], row["retry_count"]) == ("CREDENTIAL_MISSING", 1)
    assert row["due_s"] > 250
    assert index.calls == [("forget", Scope(tenant, "p"), "/b", None)]
    assert (await job_row(database, deleted))["error_code"] is None


async def test_no_key_is_needed_where_nothing_is_to_be_embedded(
    pool: Crew, database: StoreDatabase, tenant: str, credentials: Credentials
) -> None:
    reference = await kept(credentials, tenant)
    await enqueue(database, tenant, "/a", reference=reference)
    await enqueue(database, tenant, "/b")
    index = Indexed()
    index.known = {"/a", "/b"}
    async with pool.working(index, credentials):
        await pool.settled(tenant, "done", "done")
        await eventually(lambda: _gone(credentials, reference, tenant))
    assert index.calls == []


@pytest.mark.contract("S6.2-6")
async def test_the_key_of_another_tenant_is_never_used(
    pool: Crew, database: StoreDatabase, tenant: str, credentials: Credentials
) -> None:
    foreign = await kept(credentials, secrets.token_hex(32))
    job_id = await enqueue(database, tenant, "/a", reference=foreign)
    index = Indexed()
    async with pool.working(index, credentials):
        await eventually(lambda: _retried(database, job_id))
    assert index.calls == []


async def test_a_redis_that_is_away_delays_the_job(pool: Crew, database: StoreDatabase, tenant: str) -> None:
    with running_redis() as address:
        pass
    job_id = await enqueue(database, tenant, "/a", reference="0" * 32)
    opened = open_credentials(SecretStr(address), SecuritySettings(encryption_keks=KEKS))
    async with opened as credentials, pool.working(Indexed(), credentials):
        await eventually(lambda: _retried(database, job_id))
    assert (await job_row(database, job_id))["error_code"] == "RESOURCE_BUSY"


async def _retried(database: StoreDatabase, job_id: int) -> bool:
    return (await job_row(database, job_id))["retry_count"] > 0


@pytest.mark.contract("S11.2-7", "S20-6")
async def test_the_raw_key_is_in_no_cache_no_table_and_no_log(
    pool: Crew, database: StoreDatabase, tenant: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    begun, may_end = anyio.Event(), anyio.Event()

    async def deed(path: str) -> None:
        begun.set()
        await may_end.wait()
        if path == "/refused":
            raise OPENAI.auth("no", private={"error": "status 401"})
        if path == "/broken":
            raise ValueError(CANARY)

    with running_redis() as address:
        opened = open_credentials(SecretStr(address), SecuritySettings(encryption_keks=KEKS))
        async with opened as credentials:
            for path in ("/fine", "/refused"):
                await enqueue(database, tenant, path, reference=await kept(credentials, tenant))
            broken = await enqueue(database, tenant, "/broken", reference=await kept(credentials, tenant))
            index = Indexed(deed)
            async with pool.working(index, credentials):
                await begun.wait()
                during = everything_in(address)
                tables = await _all_tables(database)
                may_end.set()
                await pool.settled(tenant, "done", "failed", "pending")
                await eventually(lambda: _retried(database, broken))
            assert during.count(b"ciphertext") >= 3
            assert CANARY.encode() not in during + everything_in(address)
            assert tenant in tables
            assert CANARY not in tables + await _all_tables(database)
    assert {key for *_, key in index.calls} == {CANARY}
    assert caplog.records
    assert CANARY not in repr([vars(record) for record in caplog.records]) + caplog.text


async def _all_tables(database: StoreDatabase) -> str:
    async with database.read_transaction(ALL_TENANTS) as connection:
        names = await connection.fetch("SELECT tablename FROM pg_tables WHERE schemaname = 'public'")
        rows = [await connection.fetch(f'SELECT t::text AS row FROM "{name["tablename"]}" AS t') for name in names]
    return "\n".join(row["row"] for table in rows for row in table)


async def test_ending_gives_unfinished_jobs_back_at_once(pool: Crew, database: StoreDatabase, tenant: str) -> None:
    begun = anyio.Event()

    async def endless(path: str) -> None:
        begun.set()
        await anyio.sleep_forever()

    index = Indexed(endless)
    for n in range(4):
        await enqueue(database, tenant, f"/{n}")
    async with pool.working(index, workers=1):
        await begun.wait()
        await eventually(lambda: _all_at(database, tenant, "vectors"))
        assert "processing" in await statuses(database, tenant)
    assert await statuses(database, tenant) == ["pending"] * 4
    assert index.cancelled == index.paths
    assert len(index.paths) == 1
    jobs = await claim_jobs(Outbox(database, lease_s=60, retry_max=1, retry_backoff_s=1), "vectors", 10)
    assert sorted((job.path, job.retry_count) for job in jobs) == [(f"/{n}", 0) for n in range(4)]


async def test_the_jobs_of_a_crashed_worker_are_taken_over(pool: Crew, database: StoreDatabase, tenant: str) -> None:
    job_id = await enqueue(database, tenant, "/a")
    await claim_jobs(Outbox(database, lease_s=60, retry_max=1, retry_backoff_s=1), "words", 10)
    index = Indexed()
    async with pool.working(index, poll_s=0.05):
        await set_job(database, job_id, "lease_until = now() - interval '1 second'")
        await pool.settled(tenant, "done")
    assert index.paths == ["/a"]


async def test_the_lease_is_renewed_while_the_work_goes_on(pool: Crew, database: StoreDatabase, tenant: str) -> None:
    may_end = anyio.Event()

    async def slow(path: str) -> None:
        await may_end.wait()

    job_id = await enqueue(database, tenant, "/a")
    index = Indexed(slow)

    async def renewed() -> bool:
        row = await job_row(database, job_id)
        return row["lease_until"] is not None and row["lease_until"] > first

    async with pool.working(index, lease_s=0.9):
        await eventually(lambda: index.calls)
        first = (await job_row(database, job_id))["lease_until"]
        await eventually(renewed)
        may_end.set()
        await pool.settled(tenant, "done")
    assert index.paths == ["/a"]


async def test_a_worker_that_lost_its_lease_stops_working(pool: Crew, database: StoreDatabase, tenant: str) -> None:
    async def endless(path: str) -> None:
        await anyio.sleep_forever()

    job_id = await enqueue(database, tenant, "/a")
    index = Indexed(endless)
    async with pool.working(index, lease_s=0.3):
        await eventually(lambda: index.calls)
        await set_job(database, job_id, "worker = 'another', lease_until = now() + interval '1 hour'")
        await eventually(lambda: index.cancelled == ["/a"])
        await enqueue(database, tenant, "/b")
        pool.wake_up.wake_all()
        await eventually(lambda: "/b" in index.paths)
    assert (await job_row(database, job_id))["worker"] == "another"


async def test_workers_outlive_a_database_that_hangs_up(pool: Crew, elsewhere: StoreDatabase, tenant: str) -> None:
    depths: list[Depth] = []
    index = Indexed()
    async with pool.working(index, poll_s=0.05, observers=Observers(depth=depths.append)):
        await eventually(lambda: depths)
        for n in range(20):
            await enqueue(elsewhere, tenant, f"/{n}")
            async with elsewhere.read_transaction(ALL_TENANTS) as connection:
                await connection.execute(
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                    "WHERE application_name = 'armarium' AND pid <> pg_backend_pid()"
                )
        async with elsewhere.write_transaction(ALL_TENANTS) as connection:
            # A worker that could not note the end of its job leaves it to its lease.
            await connection.execute("UPDATE mcp_file_index_jobs SET lease_until = now() WHERE status = 'processing'")
        await eventually(lambda: _all_done(elsewhere, tenant))
    assert set(index.paths) == {f"/{n}" for n in range(20)}


async def _all_done(database: StoreDatabase, tenant: str) -> bool:
    return set(await statuses(database, tenant)) == {"done"}


async def test_observers_learn_latency_lag_and_depth(pool: Crew, database: StoreDatabase, tenant: str) -> None:
    latencies: list[float] = []
    lags: list[float] = []
    depths: list[Depth] = []
    written = await enqueue(database, tenant, "/a")
    await set_job(database, written, "created_at = now() - interval '1 minute'")
    await enqueue(database, tenant, "/b", "DELETE")
    async with pool.working(Indexed(), observers=Observers(latencies.append, lags.append, depths.append)):
        await eventually(lambda: len(latencies) == 2)
        await eventually(lambda: depths)
    assert len(lags) == 1
    assert 60 <= lags[0] < 120
    assert all(latency >= 0 for latency in latencies)
    assert depths[0].failed == 0


async def test_without_workers_nothing_is_claimed_and_the_depth_is_told(
    pool: Crew, database: StoreDatabase, tenant: str
) -> None:
    depths: list[Depth] = []
    await enqueue(database, tenant, "/a")
    async with pool.working(Indexed(), workers=0, poll_s=0.05, observers=Observers(depth=depths.append)):
        await eventually(lambda: len(depths) >= 3)
    assert depths[-1] == Depth(pending=1, processing=0, failed=0)
