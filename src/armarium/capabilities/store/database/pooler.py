"""Detects a pooler such as PgBouncer in front of the database."""

from __future__ import annotations

from typing import Any, cast

import asyncpg  # pyright: ignore[reportMissingTypeStubs] it has none

from armarium.capabilities.store.errors import DatabaseUnavailable

APPLICATION = "armarium"
"""The `application_name` of our connections."""


async def is_pooled(dsn: str, timeout_s: float) -> bool:
    """Whether the connection goes through a pooler.

    PostgreSQL sends the process id of the session when a connection starts. A pooler accepts the connection itself and
    invents a process id, so the two ids differ.
    """
    # Poolers refuse most startup parameters, but accept this one.
    connection = await cast(Any, asyncpg).connect(
        dsn,
        timeout=timeout_s,
        command_timeout=timeout_s,
        statement_cache_size=0,
        server_settings={"application_name": APPLICATION},
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
