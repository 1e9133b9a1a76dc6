"""Finds out whether a pooler such as PgBouncer stands between us and the database."""

from __future__ import annotations

from typing import Any, cast

import asyncpg  # pyright: ignore[reportMissingTypeStubs] it has none

from armarium.capabilities.store.errors import DatabaseUnavailable

APPLICATION = "armarium"
"""The name under which the database knows our connections."""


async def is_pooled(dsn: str, timeout_s: float) -> bool:
    """Whether the session that answers is another one than greeted us.

    The server tells its process id when a connection begins. A pooler begins the connection itself, and has no process
    id to tell: it makes one up.
    """
    # Poolers refuse most settings at the start of a connection, and pass this one on.
    connection = await cast(Any, asyncpg).connect(
        dsn,
        timeout=timeout_s,
        command_timeout=timeout_s,
        statement_cache_size=0,
        server_settings={"application_name": APPLICATION},
    )
    try:
        # In a transaction, which a pooler leaves with one session from beginning to end.
        async with connection.transaction():
            return await connection.fetchval("SELECT pg_backend_pid()") != connection.get_server_pid()
    except asyncpg.ConnectionDoesNotExistError as error:
        # What the pooler says before it hangs up; the database itself never says this.
        if not isinstance(error.__cause__, asyncpg.ProtocolViolationError):
            raise
        raise DatabaseUnavailable(
            "the pooler in front of the database allows no transactions",
            hint="set `pool_mode = transaction` or `pool_mode = session` in PgBouncer",
            private={"error": str(error)},
        ) from error
    finally:
        connection.terminate()
