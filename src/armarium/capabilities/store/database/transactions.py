"""Transactions on the database: each belongs to one tenant, and changes to a project are serialised."""

from __future__ import annotations

import hashlib
import logging
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any
from weakref import WeakValueDictionary

import anyio
import asyncpg  # pyright: ignore[reportMissingTypeStubs] it has none

from armarium.capabilities.store.database.pool import (
    CONNECTION_CLOSED,
    CONNECTION_ERRORS,
    Connection,
    Pool,
    Row,
    tenant_setting,
    terminate,
)
from armarium.capabilities.store.errors import ResourceBusy
from armarium.capabilities.store.model import Scope
from armarium.foundation.errors import ArmariumError

ALL_TENANTS = "*"
"""For background work over all tenants: claiming jobs and maintenance."""

_ROLLBACK_TIMEOUT_S = 5.0
_MIN_WAIT_S = 0.05
_SHARE_FOR_CHANGES = 7
"""How many of ten connections changes may use."""

_log = logging.getLogger(__name__)

_TRANSIENT_ERRORS = (
    asyncpg.ReadOnlySQLTransactionError,  # the database is temporarily a replica
    asyncpg.InsufficientResourcesError,  # no memory, no disk
    asyncpg.OperatorInterventionError,
    asyncpg.TransactionRollbackError,
    asyncpg.PostgresSystemError,
)
"""Temporary errors of the database, reported as RESOURCE_BUSY."""

RECOVERABLE_ERRORS = (ArmariumError, asyncpg.PostgresError, asyncpg.InternalClientError)
"""Errors that a background task survives. asyncpg raises the last one when the server has just closed an idle
connection and the client has not noticed yet."""


class StoreDatabase:
    """An open database. Every transaction belongs to one tenant, and row security restricts it to that tenant's rows.

    The tenant is set per transaction, so a session can serve another tenant next, also behind a pooler. Every wait is
    bounded by the pool's timeout and then raises `RESOURCE_BUSY`.
    """

    def __init__(self, pool: Pool, *, lock_timeout_ms: int, on_lock_wait: Callable[[float], None]) -> None:
        self.pool = pool
        self._lock_timeout_ms = lock_timeout_ms
        self._on_lock_wait = on_lock_wait
        self._projects: WeakValueDictionary[Scope, anyio.Semaphore] = WeakValueDictionary()
        # Some connections stay reserved for reads, so that reads never wait for a busy project.
        self._slots = anyio.Semaphore(max(1, pool.size * _SHARE_FOR_CHANGES // 10), fast_acquire=True)
        self.answered_at = time.monotonic()
        """Time of the last successful transaction (monotonic clock)."""

    def read_transaction(self, tenant: str) -> AbstractAsyncContextManager[Connection]:
        """A READ ONLY transaction at isolation level READ COMMITTED: each statement has its own snapshot."""
        begin = self.pool.begin.replace("BEGIN", "BEGIN READ ONLY", 1)
        return self._transaction(f"SET LOCAL {tenant_setting(tenant)}", begin=begin)

    async def fetch_in_transaction(self, tenant: str, statement: str, *arguments: Any) -> Sequence[Row]:
        """Run one statement in a write transaction of its own and return its rows."""
        async with self.write_transaction(tenant) as connection:
            return await connection.fetch(statement, *arguments)

    def write_transaction(self, tenant: str, *, durable: bool = True) -> AbstractAsyncContextManager[Connection]:
        """A transaction that may change rows without the lock of a project, such as jobs and chunks.

        If it is not `durable`, the commit does not wait for the disk and can be lost in a crash of the database.
        """
        begin = [f"SET LOCAL {tenant_setting(tenant)}"]
        if not durable:
            begin.append("SET LOCAL synchronous_commit = off")
        return self._transaction(*begin)

    async def fetch_autocommit(self, statement: str, *arguments: Any) -> Sequence[Row]:
        """Run one statement that sets the tenant itself, without an explicit transaction: one round trip."""
        if self.pool.pooled:
            # A statement is two messages, and outside a transaction a pooler may send each to another session.
            async with self._transaction() as connection:
                return await connection.fetch(statement, *arguments)
        deadline = time.monotonic() + self.pool.timeout_s
        connection = await self._acquire()
        try:
            rows = await connection.fetch(statement, *arguments, timeout=_remaining(deadline))
        except (*CONNECTION_CLOSED, *_TRANSIENT_ERRORS, TimeoutError) as error:
            if isinstance(error, TimeoutError):
                terminate(connection)
            raise _unavailable(error) from error
        finally:
            self.pool.release(connection)
        self.answered_at = time.monotonic()
        return rows

    @asynccontextmanager
    async def project_transaction(self, scope: Scope) -> AsyncGenerator[Connection]:
        """A transaction that holds the lock of a project: one at a time in each project, across all processes."""
        started = time.perf_counter()
        async with self._turn(scope, started) as lock_timeout_ms:
            begin = (
                f"SET LOCAL {tenant_setting(scope.apikey_hash)}",
                f"SET LOCAL lock_timeout = {lock_timeout_ms}",
                f"SELECT pg_advisory_xact_lock({lock_key(scope)})",
            )
            async with self._transaction(*begin) as connection:
                self._on_lock_wait(time.perf_counter() - started)
                yield connection

    async def fetchrow_locked(self, scope: Scope, statement: str, *arguments: Any) -> Row:
        """Run one statement that sets the tenant and locks the project itself, in one round trip.

        Its last two arguments are the key of the lock and the lock timeout in milliseconds; its column `waited_s` is
        how long it waited for the lock.
        """
        started = time.perf_counter()
        async with self._turn(scope, started) as lock_timeout_ms:
            waited_s = time.perf_counter() - started
            [row] = await self.fetch_autocommit(statement, *arguments, lock_key(scope), lock_timeout_ms)
        self._on_lock_wait(waited_s + row["waited_s"])
        return row

    @asynccontextmanager
    async def _turn(self, scope: Scope, started: float) -> AsyncGenerator[int]:
        """Wait for a turn in the process, first by project, then for a slot: in the database, each waiting change would
        hold a connection. Yields the milliseconds that remain for the lock in the database."""
        project = self._projects.get(scope)
        if project is None:
            project = self._projects[scope] = anyio.Semaphore(1, fast_acquire=True)
        deadline = anyio.current_time() + self._lock_timeout_ms / 1000
        if not await _acquired(project, deadline):
            raise self._busy(scope, started)
        try:
            if not await _acquired(self._slots, deadline):
                raise self._busy(scope, started)
            try:
                yield max(1, self._lock_timeout_ms - int((time.perf_counter() - started) * 1000))
            except asyncpg.LockNotAvailableError as error:
                raise self._busy(scope, started) from error
            finally:
                self._slots.release()
        finally:
            project.release()

    def _busy(self, scope: Scope, since: float) -> ResourceBusy:
        self._on_lock_wait(time.perf_counter() - since)
        return ResourceBusy("others are changing this project", hint="try again in a moment", project=scope.project)

    @asynccontextmanager
    async def _transaction(self, *setup: str, begin: str | None = None) -> AsyncGenerator[Connection]:
        deadline = time.monotonic() + self.pool.timeout_s
        connection = await self._acquire()
        try:
            await connection.execute("; ".join((begin or self.pool.begin, *setup)), timeout=_remaining(deadline))
            yield connection
            await connection.execute("COMMIT")
            self.answered_at = time.monotonic()
        except BaseException as error:
            await self._roll_back(connection, error)
            if isinstance(error, (*CONNECTION_CLOSED, *_TRANSIENT_ERRORS, TimeoutError)):
                raise _unavailable(error) from error
            raise
        finally:
            self.pool.release(connection)

    async def _acquire(self) -> Connection:
        try:
            return await self.pool.acquire()
        except (*CONNECTION_ERRORS, asyncpg.InvalidAuthorizationSpecificationError) as error:
            # While a password is rotated, the database and the file differ for a moment.
            raise _unavailable(error) from error

    async def _roll_back(self, connection: Connection, error: BaseException) -> None:
        """Roll back, also after cancellation. A connection that fails to roll back is closed."""
        if isinstance(error, TimeoutError):
            terminate(connection)
            return
        with anyio.move_on_after(min(_ROLLBACK_TIMEOUT_S, self.pool.timeout_s), shield=True) as waiting:
            try:
                await connection.execute("ROLLBACK")
            except (*CONNECTION_ERRORS, asyncpg.PostgresError):
                terminate(connection)
        if waiting.cancelled_caught:
            terminate(connection)


async def _acquired(semaphore: anyio.Semaphore, deadline: float) -> bool:
    try:
        semaphore.acquire_nowait()
    except anyio.WouldBlock:
        with anyio.move_on_after(max(0.0, deadline - anyio.current_time())) as waiting:
            await semaphore.acquire()
        return not waiting.cancelled_caught
    return True


def _unavailable(error: Exception) -> ResourceBusy:
    _log.warning("the database does not answer", extra={"error": type(error).__name__})
    hint = (
        "try again in a moment; a change with a request_id can be repeated safely with the same id, before any other "
        "check whether it was made"
    )
    return ResourceBusy("the database does not answer", hint=hint)


def _remaining(deadline: float) -> float:
    """The remaining seconds, at least a minimum, so that an acquired connection is always tried once."""
    return max(_MIN_WAIT_S, deadline - time.monotonic())


def lock_key(scope: Scope) -> int:
    """The advisory lock key of a project, equal in every process."""
    digest = hashlib.sha256(f"{scope.apikey_hash}:{scope.project}".encode()).digest()
    return int.from_bytes(digest[:8], "big", signed=True)
