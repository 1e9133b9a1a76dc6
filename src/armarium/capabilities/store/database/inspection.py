"""Reads version, extensions, schema and index of a database for `armarium doctor`."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, cast

from armarium.capability import CheckResult
from armarium.foundation.sql import queries

DATABASE = "store database"
"""The subject of checks of the database itself."""

_TIMEOUT_S = 10.0

_FACTS = """
SELECT current_setting('server_version_num')::int AS version,
       (SELECT extversion FROM pg_extension WHERE extname = 'vector') AS vectors,
       EXISTS (SELECT FROM pg_available_extensions WHERE name = 'vector') AS vectors_available,
       (SELECT rolsuper OR rolbypassrls FROM pg_roles WHERE rolname = current_user) AS above_row_security,
       to_regclass('armarium_store_schema') IS NOT NULL AS migrated,
       pg_backend_pid() AS process
"""
_APPLIED = "SELECT number FROM armarium_store_schema"
_NOTED = "SELECT name, value FROM armarium_store_facts"
_SQL = queries("armarium.capabilities.store.database.sql", "reindex.sql")


@dataclass(frozen=True, slots=True)
class DatabaseFacts:
    facts: Mapping[str, Any]
    applied: frozenset[int] = frozenset()
    made_for: str | None = None
    """Dimensions of the vectors in the index."""
    made_with: str | None = None
    """The embedding model of the index, if it has vectors."""
    adoptable: Mapping[str, bool] = field(default_factory=dict[str, bool])
    """Tables of the contract that another program created, and whether this user may alter them."""
    pooled: bool = False
    """Whether connections go through a pooler."""


async def inspect_database(dsn: str) -> DatabaseFacts | CheckResult:
    """The state of the database, or a failed check if it cannot be read."""
    import asyncpg  # pyright: ignore[reportMissingTypeStubs] it has none

    try:
        # Compatible with poolers: no prepared statements, and everything in one transaction.
        connection = await cast(Any, asyncpg).connect(dsn, timeout=_TIMEOUT_S, statement_cache_size=0)
    except (OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError, ValueError) as error:
        # The message of the error may contain the address, and with it the password.
        message = f"cannot be used: {type(error).__name__}"
        return CheckResult(DATABASE, "fail", message, hint="check store.dsn, and that PostgreSQL runs there")
    try:
        async with asyncio.timeout(_TIMEOUT_S), connection.transaction():
            return await _found(connection)
    except (OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError) as error:
        message = f"does not answer queries: {type(error).__name__}"
        return CheckResult(DATABASE, "fail", message, hint="let the user of store.dsn own its database")
    finally:
        connection.terminate()


async def _found(connection: Any) -> DatabaseFacts:
    from armarium.capabilities.store.database.schema import ADOPTABLE
    from armarium.capabilities.store.database.transactions import ALL_TENANTS

    facts = await connection.fetchrow(_FACTS)
    pooled = facts["process"] != connection.get_server_pid()
    if not facts["migrated"]:
        adoptable = {row["name"]: row["is_ours"] for row in await connection.fetch(ADOPTABLE)}
        return DatabaseFacts(facts, adoptable=adoptable, pooled=pooled)
    applied = frozenset(row["number"] for row in await connection.fetch(_APPLIED))
    noted = dict(await connection.fetch(_NOTED))
    await connection.execute(f"SET LOCAL armarium.tenant = '{ALL_TENANTS}'")
    of_a_vector = await connection.fetchval(_SQL["model_of_a_vector"], ALL_TENANTS)
    made_with = noted.get("model", of_a_vector) if of_a_vector else None
    return DatabaseFacts(facts, applied, noted.get("dimensions"), made_with, pooled=pooled)
