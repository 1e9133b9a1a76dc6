"""Connections to the database: made when they are wanted, kept for whoever comes next, never shared by two."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from functools import partial
from typing import Any, Protocol, cast

import anyio
import asyncpg  # pyright: ignore[reportMissingTypeStubs] it has none

from armarium.capabilities.store.database.pooler import APPLICATION, is_pooled
from armarium.capabilities.store.errors import DatabaseUnavailable
from armarium.capabilities.store.settings import Pooler

Row = Mapping[str, Any]

_CONNECT_PATIENCE_S = 10.0
_CLOSE_PATIENCE_S = 5.0
_IDLE_IN_TRANSACTION = "60s"
_FIRST_PAUSE_S = 0.1
_LONGEST_PAUSE_S = 1.0

_log = logging.getLogger(__name__)

CONNECTION_CLOSED = (
    ConnectionError,
    asyncpg.PostgresConnectionError,
    asyncpg.InterfaceError,
    asyncpg.CannotConnectNowError,
    asyncpg.AdminShutdownError,
    asyncpg.CrashShutdownError,
    asyncpg.TooManyConnectionsError,
    # Raised when the server ends a connection that was just taken up.
    asyncpg.InternalClientError,
)
"""What is raised when the other side of a connection goes away."""
CONNECTION_ERRORS = (*CONNECTION_CLOSED, OSError)
"""What is raised when the database is not there, goes away, or does not answer in time (`TimeoutError`)."""


class Connection(Protocol):
    """What is used of a connection of asyncpg, which has no types of its own."""

    def execute(self, query: str, *args: Any, timeout: float | None = None) -> Awaitable[str]:
        """Run a statement; several at once when there are no arguments."""
        ...

    async def executemany(self, command: str, args: Iterable[Sequence[Any]]) -> None:
        """Run a statement once for each row of arguments, in one go."""
        ...

    def fetch(self, query: str, *args: Any, timeout: float | None = None) -> Awaitable[Sequence[Row]]:
        """All rows."""
        ...

    def fetchrow(self, query: str, *args: Any, timeout: float | None = None) -> Awaitable[Row | None]:
        """The first row."""
        ...

    def fetchval(self, query: str, *args: Any, timeout: float | None = None) -> Awaitable[Any]:
        """The first value of the first row."""
        ...

    def transaction(self) -> AbstractAsyncContextManager[None]:
        """A transaction, or a savepoint within one."""
        ...

    def is_in_transaction(self) -> bool:
        """Whether a transaction was begun and not ended."""
        ...

    def is_closed(self) -> bool:
        """Whether the database hung up."""
        ...

    async def close(self) -> None:
        """Take leave of the database."""
        ...

    def terminate(self) -> None:
        """Hang up at once."""
        ...


class Pool:
    """At most `size` connections. The one given back last is given out first, so that the others may rest.

    asyncpg has a pool as well. It asks more of every use (a task of its own to give a connection back) and keeps more
    in order than there is here: nothing outlives a transaction.
    """

    def __init__(
        self,
        connect: Callable[[], Awaitable[Connection]],
        size: int,
        *,
        timeout_s: float | None = None,
        begin: str = "BEGIN",
        pooled: bool = False,
    ) -> None:
        self._connect = connect
        self.size = size
        self.timeout_s = timeout_s
        """How long anybody waits: for a connection, or for the answer to a statement."""
        self.begin = begin
        """What a transaction begins with."""
        self.pooled = pooled
        """Whether a pooler gives each transaction to another session of the database."""
        self._room = anyio.Semaphore(size, fast_acquire=True)
        self._idle: list[Connection] = []
        self._in_use: set[Connection] = set()

    async def acquire(self) -> Connection:
        """A connection that nobody else has; waited for in the order of asking. Raises `TimeoutError`."""
        try:
            self._room.acquire_nowait()
            connection = self._rested()
            if connection is None:
                self._room.release()
        except anyio.WouldBlock:
            connection = None
        if connection is None:
            with anyio.fail_after(self.timeout_s):
                connection = await self._waited_for()
        self._in_use.add(connection)
        return connection

    async def _waited_for(self) -> Connection:
        await self._room.acquire()
        try:
            return self._rested() or await self._connect()
        except BaseException:
            self._room.release()
            raise

    def release(self, connection: Connection) -> None:
        """Give a connection back. One with something left undone is not used again."""
        self._in_use.discard(connection)
        if not connection.is_closed() and connection.is_in_transaction():
            terminate(connection)
        if not connection.is_closed():
            self._idle.append(connection)
        self._room.release()

    @asynccontextmanager
    async def connection(self) -> AsyncGenerator[Connection]:
        """A connection for as long as the block runs."""
        connection = await self.acquire()
        try:
            yield connection
        finally:
            self.release(connection)

    async def answers(self, timeout_s: float) -> bool:
        """Whether the database answers on a new connection within this time, if only with a refusal."""
        with anyio.move_on_after(timeout_s):
            try:
                connection = await self._connect()
                try:
                    await connection.execute("SELECT 1")
                finally:
                    terminate(connection)
            except asyncpg.TooManyConnectionsError:
                return True
            except CONNECTION_ERRORS:
                return False
            return True
        return False

    def _rested(self) -> Connection | None:
        while self._idle:
            connection = self._idle.pop()
            if not connection.is_closed():
                return connection
        return None

    async def close(self) -> None:
        """Wait until every connection is back, and take leave of the database; nobody gets one any more. Those who
        take too long are cut short."""
        with anyio.move_on_after(_CLOSE_PATIENCE_S):
            for _ in range(self.size):
                await self._room.acquire()
            while self._idle:
                with suppress(*CONNECTION_ERRORS):
                    await self._idle.pop().close()
        for connection in (*self._idle, *self._in_use):
            terminate(connection)


def terminate(connection: Connection) -> None:
    """End a connection without a word."""
    with suppress(asyncpg.InterfaceError):
        connection.terminate()


def tenant_setting(tenant: str) -> str:
    """What SET LOCAL is told for a tenant, whose name is hexadecimal or `*`."""
    assert tenant == "*" or (len(tenant) == 64 and tenant.isalnum()), "a tenant is the SHA-256 of a key"
    return f"armarium.tenant = '{tenant}'"


@asynccontextmanager
async def reporting_lost_connection() -> AsyncGenerator[None]:
    """For a start and for commands: a database that goes away or hangs in the middle is told as what it is."""
    try:
        yield
    except CONNECTION_ERRORS as error:
        raise DatabaseUnavailable(
            "the database stopped answering",
            hint="check that PostgreSQL runs, and start again",
            private={"error": type(error).__name__},
        ) from error


@asynccontextmanager
async def terminating_when_unresponsive(pool: Pool, connection: Connection) -> AsyncGenerator[None]:
    """A block whose statements may take as long as they take, until the database stops answering others.

    Then the connection is cut, which ends the statement. Behind a pooler nobody can tell: others may wait there for a
    session that this connection holds.
    """
    failure: Exception | None = None
    async with anyio.create_task_group() as tasks:
        if pool.timeout_s is not None and not pool.pooled:
            tasks.start_soon(_cut_when_silent, pool, connection, pool.timeout_s / 2)
        try:
            yield
        except Exception as error:  # noqa: BLE001 raised again below, outside of the group that would wrap it
            failure = error
        tasks.cancel_scope.cancel()
    if failure is not None:
        raise failure


async def _cut_when_silent(pool: Pool, connection: Connection, every_s: float) -> None:
    while not connection.is_closed():
        await anyio.sleep(every_s)
        if not await pool.answers(every_s):
            terminate(connection)


async def connect(
    dsn: str, *, size: int, timeout_s: float | None = None, wait_s: float = 0.0, pooler: Pooler = "auto"
) -> Pool:
    """A pool of connections; says clearly what is wrong when there is no such database.

    A database that cannot be reached yet is tried again for `wait_s` seconds.
    """
    deadline = anyio.current_time() + wait_s
    pause_s = _FIRST_PAUSE_S
    while True:
        try:
            pool = await _pool(dsn, size, timeout_s, pooler)
            pool.release(await pool.acquire())
        except asyncpg.ClientConfigurationError as error:
            raise DatabaseUnavailable(
                "store.dsn is not the address of a database",
                hint="write it like postgresql://user:password@host:5432/database",
            ) from error
        except CONNECTION_ERRORS as error:
            if anyio.current_time() + pause_s > deadline:
                raise DatabaseUnavailable(
                    "the database does not answer",
                    hint="check store.dsn, and that PostgreSQL runs there",
                    private={"error": str(error)},
                ) from error
            if pause_s == _FIRST_PAUSE_S:
                _log.warning("waiting for the database", extra={"error": type(error).__name__, "seconds": wait_s})
        except (asyncpg.PostgresError, ValueError) as error:
            raise DatabaseUnavailable(
                f"the database refuses the connection: {type(error).__name__}",
                hint="check user, password and database in store.dsn",
                private={"error": str(error)},
            ) from error
        else:
            return pool
        await anyio.sleep(pause_s)
        pause_s = min(pause_s * 2, _LONGEST_PAUSE_S)


async def _pool(dsn: str, size: int, timeout_s: float | None, pooler: Pooler) -> Pool:
    settings = {"idle_in_transaction_session_timeout": _IDLE_IN_TRANSACTION, "jit": "off"}
    if timeout_s is not None:
        # A little less: a statement that only takes long ends with an error, and its connection can be used again.
        settings["statement_timeout"] = f"{max(1, int(timeout_s * 900))}ms"
    connect_timeout_s = min(_CONNECT_PATIENCE_S, timeout_s or _CONNECT_PATIENCE_S)
    one_more = partial(cast(Any, asyncpg).connect, dsn, timeout=connect_timeout_s, command_timeout=timeout_s)
    if pooler == "transaction" or (pooler == "auto" and await is_pooled(dsn, connect_timeout_s)):
        # A session is shared with others: what is prepared in it or set for it is not there the next time.
        begin = "; ".join(["BEGIN", *(f"SET LOCAL {name} = '{value}'" for name, value in settings.items())])
        one_more = partial(one_more, statement_cache_size=0, server_settings={"application_name": APPLICATION})
        return Pool(one_more, size, timeout_s=timeout_s, begin=begin, pooled=True)
    one_more = partial(one_more, server_settings={"application_name": APPLICATION} | settings)
    return Pool(one_more, size, timeout_s=timeout_s)
