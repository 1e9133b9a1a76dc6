"""Migrations: numbered SQL files, each applied once, by one process at a time."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from importlib.resources import files

import asyncpg  # pyright: ignore[reportMissingTypeStubs] it has none

from armarium.capabilities.store.database.pool import CONNECTION_ERRORS, Connection, Pool, operator_transaction
from armarium.capabilities.store.errors import DatabaseUnavailable

OLDEST_POSTGRES = 150_000
_FIRST = 1
LONGEST_S = 12 * 3600.0
"""Timeout of one statement. `operator_transaction` detects a hung database sooner, except behind a pooler."""
_HAS_LEDGER = "SELECT to_regclass('armarium_store_schema') IS NOT NULL"
ADOPTABLE = """
SELECT relname::text AS name, pg_has_role(relowner, 'USAGE') AS is_ours
FROM unnest(ARRAY[
    'mcp_files', 'mcp_file_chunks', 'mcp_file_chunk_embeddings', 'mcp_file_chunk_bm25', 'mcp_file_index_jobs'
]) AS wanted (name)
JOIN pg_class ON pg_class.oid = to_regclass(wanted.name)
"""
"""Existing tables of the contract, whoever created them."""
_LOCK = 0x41726D617269756D % 2**63
_NUMBERED = re.compile(r"(\d{4})_\w+\.sql")
_PACKAGE = "armarium.capabilities.store.database.migrations"

_OWN_THEM = "let the user of store.dsn own its database and every table in it"
_DO_NOT_FIT = (
    "tables in the database differ from the contract, or other objects depend on them: see the log of the database; "
    "use an empty database in store.dsn, or remove the conflicting objects"
)
_LEDGER = """
CREATE TABLE IF NOT EXISTS armarium_store_schema (
    number     INT         PRIMARY KEY,
    name       TEXT        NOT NULL,
    applied_at TIMESTAMPTZ NOT NULL DEFAULT now()
);
CREATE TABLE IF NOT EXISTS armarium_store_facts (
    name  TEXT PRIMARY KEY,
    value TEXT NOT NULL
);
"""


def migrations() -> list[tuple[int, str, str]]:
    """Number, name and SQL of each migration, in order."""
    found = [
        (int(match[1]), entry.name, entry.read_text(encoding="utf-8"))
        for entry in files(_PACKAGE).iterdir()
        if (match := _NUMBERED.fullmatch(entry.name))
    ]
    return sorted(found)


async def migrate(pool: Pool, *, dimensions: int) -> None:
    """Apply missing migrations. Servers that start at the same time take turns."""
    if (made_for := await _made_for_if_current(pool)) is None:
        async with schema_transaction(pool, dimensions=dimensions) as connection:
            made_for = await index_dimensions(connection)
    if made_for != dimensions:
        raise DatabaseUnavailable(
            f"the index holds vectors of {made_for} numbers, and the settings ask for {dimensions}",
            hint="restore the embedding settings, or run: armarium store reindex",
        )


async def _made_for_if_current(pool: Pool) -> int | None:
    """The dimensions of the index if no migration is missing, without waiting for a lock."""
    async with operator_transaction(pool) as connection:
        if not await connection.fetchval(_HAS_LEDGER):
            return None
        missing = {number for number, _, _ in migrations()} - await _applied(connection)
        return None if missing else await index_dimensions(connection)


@asynccontextmanager
async def schema_transaction(pool: Pool, *, dimensions: int) -> AsyncGenerator[Connection]:
    """A transaction that applies missing migrations and holds the lock of the schema. `dimensions` applies only to a
    newly created schema."""
    async with operator_transaction(pool) as connection:
        version: int = await connection.fetchval("SELECT current_setting('server_version_num')::int")
        if version < OLDEST_POSTGRES:
            raise DatabaseUnavailable(
                f"PostgreSQL {version // 10000} is too old", hint="the store needs PostgreSQL 15 or newer"
            )
        # Building an index over many rows, or waiting for a server that does so, can take long.
        await connection.execute("SET LOCAL statement_timeout = 0")
        await connection.execute(f"SELECT pg_advisory_xact_lock({_LOCK})", timeout=LONGEST_S)
        await _ensure_vectors(connection)
        await _apply_missing(connection, dimensions)
        yield connection


async def index_dimensions(connection: Connection) -> int:
    return int(await connection.fetchval("SELECT value FROM armarium_store_facts WHERE name = 'dimensions'"))


async def _ensure_vectors(connection: Connection) -> None:
    if await connection.fetchval("SELECT true FROM pg_extension WHERE extname = 'vector'"):
        return
    try:
        async with connection.transaction():
            await connection.execute("CREATE EXTENSION vector")
    except asyncpg.PostgresError as error:
        missing = isinstance(error, asyncpg.FeatureNotSupportedError | asyncpg.UndefinedFileError)
        raise DatabaseUnavailable(
            "the database has no pgvector" if missing else "the extension vector is not enabled, and this user may not",
            hint="install pgvector 0.7 or newer on the database server"
            if missing
            else "let an administrator run: CREATE EXTENSION vector",
        ) from error


async def _apply_missing(connection: Connection, dimensions: int) -> None:
    await connection.execute(_LEDGER)
    missing = [each for each in migrations() if each[0] not in await _applied(connection)]
    try:
        if missing and missing[0][0] == _FIRST and await connection.fetch(ADOPTABLE):
            await connection.execute(files(_PACKAGE).joinpath("adopt.sql").read_text("utf-8"), timeout=LONGEST_S)
        for _, _, statements in missing:
            await connection.execute(statements.replace("{dimensions}", str(dimensions)), timeout=LONGEST_S)
    except CONNECTION_ERRORS:
        raise
    except asyncpg.PostgresError as error:
        raise DatabaseUnavailable(
            f"the tables of the store cannot be brought up to date: {type(error).__name__}",
            hint=_OWN_THEM if isinstance(error, asyncpg.InsufficientPrivilegeError) else _DO_NOT_FIT,
            private={"error": str(error)},
        ) from error
    note = "INSERT INTO armarium_store_schema (number, name) SELECT * FROM unnest($1::int[], $2::text[])"
    await connection.execute(note, [number for number, _, _ in missing], [name for _, name, _ in missing])
    await connection.execute(
        "INSERT INTO armarium_store_facts VALUES ('dimensions', $1) ON CONFLICT DO NOTHING", str(dimensions)
    )


async def _applied(connection: Connection) -> set[int]:
    """The numbers of the applied migrations. Raises if one of them is unknown to this version."""
    applied: set[int] = {row["number"] for row in await connection.fetch("SELECT number FROM armarium_store_schema")}
    if unknown := applied - {number for number, _, _ in migrations()}:
        raise DatabaseUnavailable(
            f"the database was made by a newer Armarium (schema {max(unknown)})", hint="update this server"
        )
    return applied
