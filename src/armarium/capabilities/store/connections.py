"""Connections to the database: made when they are wanted, kept for whoever comes next, never shared by two."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from functools import partial
from typing import Any, Protocol, cast

import anyio
import asyncpg  # pyright: ignore[reportMissingTypeStubs] it has none

from armarium.capabilities.store.errors import DatabaseUnavailable

Row = Mapping[str, Any]

_CONNECT_PATIENCE_S = 10.0
_CLOSE_PATIENCE_S = 5.0
_IDLE_IN_TRANSACTION = "60s"

HUNG_UP = (
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
LOST = (*HUNG_UP, OSError)
"""What is raised when the database is not there, or goes away."""


class Connection(Protocol):
    """What is used of a connection of asyncpg, which has no types of its own."""

    async def execute(self, query: str, *args: Any) -> str:
        """Run a statement; several at once when there are no arguments."""
        ...

    async def executemany(self, command: str, args: Iterable[Sequence[Any]]) -> None:
        """Run a statement once for each row of arguments, in one go."""
        ...

    async def fetch(self, query: str, *args: Any) -> Sequence[Row]:
        """All rows."""
        ...

    async def fetchrow(self, query: str, *args: Any) -> Row | None:
        """The first row."""
        ...

    async def fetchval(self, query: str, *args: Any) -> Any:
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

    async def act_for(self, tenant: str) -> None:
        """From now on only the rows of this tenant exist."""
        ...


class _TenantConnection(asyncpg.Connection):
    """A connection that knows for whom it acts, so that asking twice for the same tenant costs nothing twice."""

    _acting_for = ""

    async def act_for(self, tenant: str) -> None:
        if tenant != self._acting_for:
            await cast(Connection, self).execute(f"SET {tenant_setting(tenant)}")
            self._acting_for = tenant


class Pool:
    """At most so many connections. The one given back last is given out first, so that the others may rest.

    asyncpg has a pool as well. It asks more of every use (a task of its own to give a connection back) and keeps more
    in order than there is here: nothing but the tenant outlives a transaction, and that is set by whoever comes next.
    """

    def __init__(self, connect: Callable[[], Awaitable[Connection]], size: int) -> None:
        self._connect = connect
        self.size = size
        self._room = anyio.Semaphore(size, fast_acquire=True)
        self._idle: list[Connection] = []
        self._in_use: set[Connection] = set()

    async def acquire(self) -> Connection:
        """A connection that nobody else has; waited for in the order of asking."""
        await self._room.acquire()
        try:
            connection = self._rested() or await self._connect()
        except BaseException:
            self._room.release()
            raise
        self._in_use.add(connection)
        return connection

    def release(self, connection: Connection) -> None:
        """Give a connection back. One with something left undone is not used again."""
        self._in_use.discard(connection)
        if not connection.is_closed() and connection.is_in_transaction():
            hang_up(connection)
        if not connection.is_closed():
            self._idle.append(connection)
        self._room.release()

    @asynccontextmanager
    async def held(self) -> AsyncGenerator[Connection]:
        """A connection for as long as the block runs."""
        connection = await self.acquire()
        try:
            yield connection
        finally:
            self.release(connection)

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
                with suppress(*LOST):
                    await self._idle.pop().close()
        for connection in (*self._idle, *self._in_use):
            hang_up(connection)


def hang_up(connection: Connection) -> None:
    """End a connection without a word."""
    with suppress(asyncpg.InterfaceError):
        connection.terminate()


def tenant_setting(tenant: str) -> str:
    """What SET is told for a tenant, whose name is hexadecimal or `*`."""
    assert tenant == "*" or (len(tenant) == 64 and tenant.isalnum()), "a tenant is the SHA-256 of a key"
    return f"armarium.tenant = '{tenant}'"


async def connect(dsn: str, *, size: int) -> Pool:
    """A pool of connections; says clearly what is wrong when there is no such database."""
    one_more = partial(
        cast(Any, asyncpg).connect,
        dsn,
        connection_class=_TenantConnection,
        timeout=_CONNECT_PATIENCE_S,
        server_settings={
            "application_name": "armarium",
            "idle_in_transaction_session_timeout": _IDLE_IN_TRANSACTION,
            "jit": "off",
        },
    )
    pool = Pool(one_more, size)
    try:
        pool.release(await pool.acquire())
    except asyncpg.ClientConfigurationError as error:
        raise DatabaseUnavailable(
            "store.dsn is not the address of a database",
            hint="write it like postgresql://user:password@host:5432/database",
        ) from error
    except (*LOST, TimeoutError) as error:
        raise DatabaseUnavailable(
            "the database does not answer",
            hint="check store.dsn, and that PostgreSQL runs there",
            private={"error": str(error)},
        ) from error
    except (asyncpg.PostgresError, ValueError) as error:
        raise DatabaseUnavailable(
            f"the database refuses the connection: {type(error).__name__}",
            hint="check user, password and database in store.dsn",
            private={"error": str(error)},
        ) from error
    return pool
