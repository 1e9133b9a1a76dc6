"""Connection pool of the database, with timeouts for every wait."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, suppress
from dataclasses import KW_ONLY, dataclass, field
from functools import partial
from typing import Any, Protocol, cast

import anyio
import asyncpg  # pyright: ignore[reportMissingTypeStubs] it has none
from pydantic import SecretStr

from armarium.capabilities.store.errors import DatabaseUnavailable
from armarium.capabilities.store.settings import Pooler
from armarium.foundation.concurrency.tasks import background
from armarium.foundation.settings.file_secrets import revealed

Row = Mapping[str, Any]

_APPLICATION = "armarium"
_CONNECT_TIMEOUT_S = 10.0
_CLOSE_TIMEOUT_S = 5.0
_IDLE_IN_TRANSACTION = "60s"
_FIRST_DELAY_S = 0.1
_MAX_DELAY_S = 1.0

_log = logging.getLogger(__name__)

CONNECTION_CLOSED = (
    ConnectionError,
    asyncpg.PostgresConnectionError,
    asyncpg.InterfaceError,
    asyncpg.CannotConnectNowError,
    asyncpg.AdminShutdownError,
    asyncpg.CrashShutdownError,
    asyncpg.TooManyConnectionsError,
    # Raised when the server closes a connection that was just acquired.
    asyncpg.InternalClientError,
)
"""Errors raised when the server closes a connection."""
CONNECTION_ERRORS = (*CONNECTION_CLOSED, OSError)
"""Errors raised when the database is unreachable, goes away, or does not answer in time (`TimeoutError`)."""


class Connection(Protocol):
    """The part of an asyncpg connection that we use; asyncpg has no type annotations."""

    def execute(self, query: str, *args: Any, timeout: float | None = None) -> Awaitable[str]: ...

    def fetch(self, query: str, *args: Any, timeout: float | None = None) -> Awaitable[Sequence[Row]]: ...

    def fetchrow(self, query: str, *args: Any, timeout: float | None = None) -> Awaitable[Row | None]: ...

    def fetchval(self, query: str, *args: Any, timeout: float | None = None) -> Awaitable[Any]: ...

    def transaction(self) -> AbstractAsyncContextManager[None]: ...

    async def add_listener(self, channel: str, callback: Callable[..., Any]) -> None: ...

    def add_termination_listener(self, callback: Callable[[object], None]) -> None: ...

    def is_in_transaction(self) -> bool: ...

    def is_closed(self) -> bool: ...

    async def close(self) -> None: ...

    def terminate(self) -> None: ...


@dataclass(eq=False, repr=False)
class Pool:
    """At most `size` connections, opened on demand and reused last in, first out.

    asyncpg's own pool costs about a third more CPU per write (docs/decisions/0051-connection-pool.md): it releases each
    connection in a separate task and resets session state, of which we have none outside transactions.
    """

    connect: Callable[[], Awaitable[Connection]]
    size: int
    _: KW_ONLY
    timeout_s: float
    """Timeout for acquiring a connection and for each statement."""
    begin: str = "BEGIN"
    """The statements that begin a transaction."""
    pooled: bool = False
    """Whether a pooler assigns each transaction to another session of the database."""
    _idle: list[Connection] = field(default_factory=list[Connection], init=False)
    _in_use: set[Connection] = field(default_factory=set[Connection], init=False)

    def __post_init__(self) -> None:
        self._slots = anyio.Semaphore(self.size, fast_acquire=True)

    async def acquire(self) -> Connection:
        """Acquire a connection; callers are served in order. Raises `TimeoutError`."""
        try:
            self._slots.acquire_nowait()
            connection = self._pop_idle()
            if connection is None:
                self._slots.release()
        except anyio.WouldBlock:
            connection = None
        if connection is None:
            with anyio.fail_after(self.timeout_s):
                connection = await self._wait_and_acquire()
        self._in_use.add(connection)
        return connection

    async def _wait_and_acquire(self) -> Connection:
        await self._slots.acquire()
        try:
            return self._pop_idle() or await self.connect()
        except BaseException:
            self._slots.release()
            raise

    def release(self, connection: Connection) -> None:
        """Return a connection. One with an open transaction is closed instead of reused."""
        self._in_use.discard(connection)
        if not connection.is_closed() and connection.is_in_transaction():
            terminate(connection)
        if not connection.is_closed():
            self._idle.append(connection)
        self._slots.release()

    @asynccontextmanager
    async def connection(self) -> AsyncGenerator[Connection]:
        connection = await self.acquire()
        try:
            yield connection
        finally:
            self.release(connection)

    async def answers(self, timeout_s: float) -> bool:
        """Whether the database answers on a new connection within this time; a refusal counts as an answer."""
        with anyio.move_on_after(timeout_s):
            try:
                connection = await self.connect()
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

    def _pop_idle(self) -> Connection | None:
        while self._idle:
            connection = self._idle.pop()
            if not connection.is_closed():
                return connection
        return None

    async def aclose(self) -> None:
        """Wait until all connections are returned, then close them. After a timeout, connections in use are terminated.
        No connection can be acquired afterwards."""
        with anyio.move_on_after(_CLOSE_TIMEOUT_S):
            for _ in range(self.size):
                await self._slots.acquire()
            while self._idle:
                with suppress(*CONNECTION_ERRORS):
                    await self._idle.pop().close()
        for connection in (*self._idle, *self._in_use):
            terminate(connection)


def terminate(connection: Connection) -> None:
    """Close a connection immediately; idempotent."""
    with suppress(asyncpg.InterfaceError):
        connection.terminate()


def tenant_setting(tenant: str) -> str:
    """The assignment that SET LOCAL uses for a tenant, a SHA-256 in hexadecimal or `*`."""
    assert tenant == "*" or (len(tenant) == 64 and tenant.isalnum()), "a tenant is the SHA-256 of a key"
    return f"armarium.tenant = '{tenant}'"


@asynccontextmanager
async def operator_transaction(pool: Pool) -> AsyncGenerator[Connection]:
    """A transaction for start-up and commands. Raises DATABASE_UNAVAILABLE if the connection is lost.

    Long statements are allowed in it; the connection is terminated if the database stops answering new connections.
    Behind a pooler this is not possible: new connections may wait there for the session that this connection holds.
    """
    try:
        async with AsyncExitStack() as stack:
            connection = await stack.enter_async_context(pool.connection())
            if not pool.pooled:
                watch = partial(_terminate_when_unresponsive, pool, connection, pool.timeout_s / 2)
                await stack.enter_async_context(background(watch))
            await stack.enter_async_context(connection.transaction())
            yield connection
    except CONNECTION_ERRORS as error:
        raise DatabaseUnavailable(
            "the database stopped answering",
            hint="check that PostgreSQL runs, and start again",
            private={"error": type(error).__name__},
        ) from error


async def _terminate_when_unresponsive(pool: Pool, connection: Connection, every_s: float) -> None:
    while not connection.is_closed():
        await anyio.sleep(every_s)
        if not await pool.answers(every_s):
            terminate(connection)


async def connect(
    dsn: str | SecretStr, *, size: int, timeout_s: float = 600.0, wait_s: float = 0.0, pooler: Pooler = "auto"
) -> Pool:
    """Open a pool of connections. An unreachable database is retried for `wait_s` seconds. Raises DATABASE_UNAVAILABLE
    with the reason if that fails. Each new connection uses the value that the DSN has then."""
    deadline = anyio.current_time() + wait_s
    delay_s = _FIRST_DELAY_S
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
            if anyio.current_time() + delay_s > deadline:
                raise DatabaseUnavailable(
                    "the database does not answer",
                    hint="check store.dsn, and that PostgreSQL runs there",
                    private={"error": str(error)},
                ) from error
            if delay_s == _FIRST_DELAY_S:
                _log.warning("waiting for the database", extra={"error": type(error).__name__, "seconds": wait_s})
        except (asyncpg.PostgresError, ValueError) as error:
            raise DatabaseUnavailable(
                f"the database refuses the connection: {type(error).__name__}",
                hint="check user, password and database in store.dsn",
                private={"error": str(error)},
            ) from error
        else:
            return pool
        await anyio.sleep(delay_s)
        delay_s = min(delay_s * 2, _MAX_DELAY_S)


async def _pool(dsn: str | SecretStr, size: int, timeout_s: float, pooler: Pooler) -> Pool:
    settings = {
        "idle_in_transaction_session_timeout": _IDLE_IN_TRANSACTION,
        "jit": "off",
        # A little less than ours: the server cancels a slow statement first, and the connection stays usable.
        "statement_timeout": f"{max(1, int(timeout_s * 900))}ms",
    }
    connect_timeout_s = min(_CONNECT_TIMEOUT_S, timeout_s)
    opened = partial(open_connection, dsn, timeout=connect_timeout_s, command_timeout=timeout_s)
    if pooler == "transaction" or (pooler == "auto" and await is_pooled(dsn, connect_timeout_s)):
        # Sessions are shared: prepared statements and session settings do not survive a transaction.
        begin = "; ".join(["BEGIN", *(f"SET LOCAL {name} = '{value}'" for name, value in settings.items())])
        opened = partial(opened, statement_cache_size=0, server_settings={"application_name": _APPLICATION})
        return Pool(opened, size, timeout_s=timeout_s, begin=begin, pooled=True)
    opened = partial(opened, server_settings={"application_name": _APPLICATION} | settings)
    return Pool(opened, size, timeout_s=timeout_s)


async def open_connection(dsn: str | SecretStr, **options: Any) -> Connection:
    """Connect to the address that the DSN has now. Raises `ClientConfigurationError`, which counts as an error of the
    connection, if it is not an address."""
    try:
        return await cast(Any, asyncpg).connect(revealed(dsn), **options)
    except ValueError:
        # The message may contain a part of the address, and with it the password.
        raise asyncpg.ClientConfigurationError("store.dsn is not the address of a database") from None


async def is_pooled(dsn: str | SecretStr, timeout_s: float) -> bool:
    """Whether the connection goes through a pooler.

    PostgreSQL sends the process id of the session when a connection starts. A pooler accepts the connection itself and
    invents a process id, so the two ids differ.
    """
    # Poolers refuse most startup parameters, but accept this one.
    connection = cast(
        Any,
        await open_connection(
            dsn,
            timeout=timeout_s,
            command_timeout=timeout_s,
            statement_cache_size=0,
            server_settings={"application_name": _APPLICATION},
        ),
    )
    try:
        # In a transaction, because a pooler keeps a transaction on one session.
        async with connection.transaction():
            return await connection.fetchval("SELECT pg_backend_pid()") != connection.get_server_pid()
    except asyncpg.ConnectionDoesNotExistError as error:
        # Sent by the pooler before it closes the connection; PostgreSQL itself never sends this error.
        if not isinstance(error.__cause__, asyncpg.ProtocolViolationError):
            raise
        raise DatabaseUnavailable(
            "the pooler in front of the database allows no transactions",
            hint="set `pool_mode = transaction` or `pool_mode = session` in PgBouncer",
            private={"error": str(error)},
        ) from error
    finally:
        connection.terminate()
