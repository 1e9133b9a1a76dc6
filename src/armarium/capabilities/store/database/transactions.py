"""The ways to ask and to change the database: always for a tenant, and locked where a project changes."""

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
"""For chores that go over all tenants: claiming jobs, purging what is too old."""

_ROLLBACK_PATIENCE_S = 5.0
_SHORTEST_WAIT_S = 0.05
_SHARE_FOR_CHANGES = 7
"""Of ten connections, how many changes may have at once."""

_log = logging.getLogger(__name__)

_TRANSIENT_ERRORS = (
    asyncpg.ReadOnlySQLTransactionError,  # the database is a replica just now
    asyncpg.InsufficientResourcesError,  # no memory, no disk
    asyncpg.OperatorInterventionError,
    asyncpg.TransactionRollbackError,
    asyncpg.PostgresSystemError,
)
"""Troubles of the database that are nobody's fault here, and that pass."""

RECOVERABLE_ERRORS = (ArmariumError, asyncpg.PostgresError, asyncpg.InternalClientError)
"""Errors that a background task survives. asyncpg raises the last one when the server has just closed an idle
connection and the client has not noticed yet."""


class _Turns:
    """Changes wait here first, for others of their project and for room: in the database each would take a connection.

    Some connections are left to whoever does not change anything, so that nobody waits for a busy project of others.
    """

    def __init__(self, connections: int) -> None:
        self._projects: WeakValueDictionary[Scope, anyio.Semaphore] = WeakValueDictionary()
        self._room = anyio.Semaphore(max(1, connections * _SHARE_FOR_CHANGES // 10), fast_acquire=True)

    @asynccontextmanager
    async def turn(self, scope: Scope, patience_s: float) -> AsyncGenerator[bool]:
        """Come in the order of asking; False when it takes too long."""
        until = anyio.current_time() + patience_s
        project = self._projects.get(scope)
        if project is None:
            project = self._projects[scope] = anyio.Semaphore(1, fast_acquire=True)
        if not await _acquired(project, until):
            yield False
            return
        try:
            if not await _acquired(self._room, until):
                yield False
                return
            try:
                yield True
            finally:
                self._room.release()
        finally:
            project.release()


async def _acquired(place: anyio.Semaphore, until: float) -> bool:
    try:
        place.acquire_nowait()
    except anyio.WouldBlock:
        with anyio.move_on_after(max(0.0, until - anyio.current_time())) as patience:
            await place.acquire()
        return not patience.cancelled_caught
    return True


class StoreDatabase:
    """An open database. Every transaction belongs to a tenant: row security lets it see nothing else.

    The tenant is set for the transaction alone, so a session may serve another one next, whoever keeps the sessions.
    No wait for the database is longer than the pool's timeout; whoever waits that long is told `RESOURCE_BUSY`.
    """

    def __init__(self, pool: Pool, *, lock_timeout_ms: int, on_lock_wait: Callable[[float], None]) -> None:
        self._pool = pool
        self._lock_timeout_ms = lock_timeout_ms
        self._on_lock_wait = on_lock_wait
        self._turns = _Turns(pool.size)
        self.answered_at = time.monotonic()
        """When the database last did what it was asked."""

    @property
    def supports_listen(self) -> bool:
        """Whether a connection can listen: not through a pooler, which gives the session to others."""
        return not self._pool.pooled

    @asynccontextmanager
    async def read_transaction(self, tenant: str) -> AsyncGenerator[Connection]:
        """A transaction to read in. Each statement sees one moment; two statements may see two."""
        async with self._transaction("SET TRANSACTION READ ONLY", f"SET LOCAL {tenant_setting(tenant)}") as connection:
            yield connection

    async def fetch_in_transaction(self, tenant: str, statement: str, *arguments: Any) -> Sequence[Row]:
        """The rows of one statement, which is a transaction of its own, whether or not it changes anything."""
        async with self.write_transaction(tenant) as connection:
            return await connection.fetch(statement, *arguments)

    @asynccontextmanager
    async def write_transaction(self, tenant: str, *, durable: bool = True) -> AsyncGenerator[Connection]:
        """A transaction that changes rows which no other transaction depends on, such as jobs and chunks.

        Unless it is `durable`, nobody waits for the disk, and a crash of the database may forget it.
        """
        begin = [f"SET LOCAL {tenant_setting(tenant)}"]
        if not durable:
            begin.append("SET LOCAL synchronous_commit = off")
        async with self._transaction(*begin) as connection:
            yield connection

    async def fetchrow_autocommit(self, statement: str, *arguments: Any) -> Row | None:
        """The row of one statement that sets the tenant itself: one round trip."""
        rows = await self.fetch_autocommit(statement, *arguments)
        return rows[0] if rows else None

    async def fetch_autocommit(self, statement: str, *arguments: Any) -> Sequence[Row]:
        """The rows of one statement that sets the tenant itself: one round trip."""
        if self._pool.pooled:
            # A statement is two messages, and outside a transaction each may reach another session.
            async with self._transaction() as connection:
                return await connection.fetch(statement, *arguments)
        until = self._until()
        connection = await self._connected()
        try:
            rows = await connection.fetch(statement, *arguments, timeout=_left(until))
        except (*CONNECTION_CLOSED, *_TRANSIENT_ERRORS, TimeoutError) as error:
            if isinstance(error, TimeoutError):
                terminate(connection)
            raise _gone(error) from error
        finally:
            self._pool.release(connection)
        self.answered_at = time.monotonic()
        return rows

    @asynccontextmanager
    async def project_transaction(self, scope: Scope) -> AsyncGenerator[Connection]:
        """A transaction that changes files: one at a time in each project, over all processes."""
        started = time.perf_counter()
        try:
            async with self._turns.turn(scope, self._lock_timeout_ms / 1000) as is_ours:
                waited_ms = int((time.perf_counter() - started) * 1000)
                if not is_ours:
                    raise self._busy(scope, started)
                begin = (
                    f"SET LOCAL {tenant_setting(scope.apikey_hash)}",
                    f"SET LOCAL lock_timeout = {max(1, self._lock_timeout_ms - waited_ms)}",
                    f"SELECT pg_advisory_xact_lock({lock_key(scope)})",
                )
                async with self._transaction(*begin) as connection:
                    self._on_lock_wait(time.perf_counter() - started)
                    yield connection
        except asyncpg.LockNotAvailableError as error:
            raise self._busy(scope, started) from error

    async def fetchrow_locked(self, scope: Scope, statement: str, *arguments: Any) -> Row:
        """A change of files in one statement, which sets the tenant and locks the project itself: it is given the
        number of the lock and how many milliseconds to wait for it as its last arguments, and tells in `waited_s` how
        long it did."""
        started = time.perf_counter()
        try:
            async with self._turns.turn(scope, self._lock_timeout_ms / 1000) as is_ours:
                waited_s = time.perf_counter() - started
                if not is_ours:
                    raise self._busy(scope, started)
                patience_ms = max(1, self._lock_timeout_ms - int(waited_s * 1000))
                row = await self.fetchrow_autocommit(statement, *arguments, lock_key(scope), patience_ms)
        except asyncpg.LockNotAvailableError as error:
            raise self._busy(scope, started) from error
        assert row is not None, "the statement always gives a row"
        self._on_lock_wait(waited_s + row["waited_s"])
        return row

    def _busy(self, scope: Scope, since: float) -> ResourceBusy:
        self._on_lock_wait(time.perf_counter() - since)
        return ResourceBusy("others are changing this project", hint="try again in a moment", project=scope.project)

    @asynccontextmanager
    async def _transaction(self, *begin: str) -> AsyncGenerator[Connection]:
        until = self._until()
        connection = await self._connected()
        try:
            await connection.execute("; ".join((self._pool.begin, *begin)), timeout=_left(until))
            yield connection
            await connection.execute("COMMIT")
            self.answered_at = time.monotonic()
        except BaseException as error:
            await self._roll_back(connection, error)
            if isinstance(error, (*CONNECTION_CLOSED, *_TRANSIENT_ERRORS, TimeoutError)):
                raise _gone(error) from error
            raise
        finally:
            self._pool.release(connection)

    async def _connected(self) -> Connection:
        try:
            return await self._pool.acquire()
        except CONNECTION_ERRORS as error:
            raise _gone(error) from error

    def _until(self) -> float | None:
        return None if self._pool.timeout_s is None else time.monotonic() + self._pool.timeout_s

    async def _roll_back(self, connection: Connection, error: BaseException) -> None:
        """Also when the call was cancelled. A connection that does not even roll back is not used again."""
        if isinstance(error, TimeoutError):
            terminate(connection)
            return
        patience_s = min(_ROLLBACK_PATIENCE_S, self._pool.timeout_s or _ROLLBACK_PATIENCE_S)
        with anyio.move_on_after(patience_s, shield=True) as patience:
            try:
                await connection.execute("ROLLBACK")
            except (*CONNECTION_ERRORS, asyncpg.PostgresError):
                terminate(connection)
        if patience.cancelled_caught:
            terminate(connection)

    async def aclose(self) -> None:
        """Let go of every connection."""
        await self._pool.close()

    def connection(self) -> AbstractAsyncContextManager[Connection]:
        """A connection without a transaction, to notify."""
        return self._pool.connection()


def _gone(error: Exception) -> ResourceBusy:
    _log.warning("the database went away", extra={"error": type(error).__name__})
    hint = (
        "try again in a moment; a change that had a request_id can be sent again with the same one and is made once, "
        "of any other look first whether it was made"
    )
    return ResourceBusy("the database does not answer", hint=hint)


def _left(until: float | None) -> float | None:
    """Seconds that are left of a wait, never none: a connection that was waited for is asked at least once."""
    return None if until is None else max(_SHORTEST_WAIT_S, until - time.monotonic())


def lock_key(scope: Scope) -> int:
    """The number of a project's lock, the same in every process."""
    digest = hashlib.sha256(f"{scope.apikey_hash}:{scope.project}".encode()).digest()
    return int.from_bytes(digest[:8], "big", signed=True)
