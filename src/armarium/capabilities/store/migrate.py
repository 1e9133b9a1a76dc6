"""Brings the schema up to date: numbered files of SQL, each applied once, by one process at a time."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from importlib.resources import files

import asyncpg  # pyright: ignore[reportMissingTypeStubs] it has none

from armarium.capabilities.store.connections import Connection, Pool
from armarium.capabilities.store.errors import DatabaseUnavailable

OLDEST_POSTGRES = 150_000
_LOCK = 0x41726D617269756D % 2**63
_NUMBERED = re.compile(r"(\d{4})_\w+\.sql")
_PACKAGE = "armarium.capabilities.store.migrations"

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
    """Number, name and SQL of each, in order."""
    found = [
        (int(match[1]), entry.name, entry.read_text(encoding="utf-8"))
        for entry in files(_PACKAGE).iterdir()
        if (match := _NUMBERED.fullmatch(entry.name))
    ]
    return sorted(found)


async def migrate(pool: Pool, *, dimensions: int) -> None:
    """Apply what is missing. Several servers may start at once: they take turns."""
    async with changing_schema(pool, dimensions=dimensions) as connection:
        made_for = await index_dimensions(connection)
        if made_for != dimensions:
            raise DatabaseUnavailable(
                f"the index holds vectors of {made_for} numbers, and the settings ask for {dimensions}",
                hint="put the embedding settings back, or run: armarium store reindex",
            )


@asynccontextmanager
async def changing_schema(pool: Pool, *, dimensions: int) -> AsyncGenerator[Connection]:
    """A transaction in which every migration is applied, and nobody else changes the schema. `dimensions` is for a
    schema that is made now; one that was made for others is left so."""
    async with pool.held() as connection:
        version: int = await connection.fetchval("SELECT current_setting('server_version_num')::int")
        if version < OLDEST_POSTGRES:
            raise DatabaseUnavailable(
                f"PostgreSQL {version // 10000} is too old", hint="the store needs PostgreSQL 15 or newer"
            )
        await connection.execute(f"SELECT pg_advisory_lock({_LOCK})")
        try:
            async with connection.transaction():
                await _ensure_vectors(connection)
                await _apply_missing(connection, dimensions)
                yield connection
        finally:
            await connection.execute(f"SELECT pg_advisory_unlock({_LOCK})")


async def index_dimensions(connection: Connection) -> int:
    """How many numbers the vectors of the index have."""
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
    applied = {row["number"] for row in await connection.fetch("SELECT number FROM armarium_store_schema")}
    known = migrations()
    if unknown := applied - {number for number, _, _ in known}:
        raise DatabaseUnavailable(
            f"the database was made by a newer Armarium (schema {max(unknown)})", hint="update this server"
        )
    for number, name, statements in known:
        if number not in applied:
            await connection.execute(statements.replace("{dimensions}", str(dimensions)))
            await connection.execute("INSERT INTO armarium_store_schema (number, name) VALUES ($1, $2)", number, name)
    await connection.execute(
        "INSERT INTO armarium_store_facts VALUES ('dimensions', $1) ON CONFLICT DO NOTHING", str(dimensions)
    )
