"""A database that another program filled by the contract's own statements is taken over, with its files."""

from __future__ import annotations

import asyncio
import hashlib
import secrets
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import asyncpg
import pytest

from armarium.capabilities.store.checks import check
from armarium.capabilities.store.database.pool import connect
from armarium.capabilities.store.database.schema import migrate
from armarium.capabilities.store.database.transactions import StoreDatabase
from armarium.capabilities.store.errors import DatabaseUnavailable
from armarium.capabilities.store.settings import LOCAL_DIMENSIONS, StoreSettings
from armarium.capability import CheckResult, Facilities
from support.store_calls import Files

# Section 7 of the contract, word for word.
CONTRACT = """
CREATE TABLE IF NOT EXISTS mcp_files (
    id            BIGSERIAL PRIMARY KEY,
    apikey_hash   CHAR(64)      NOT NULL,
    project       VARCHAR(128)  NOT NULL,
    path          VARCHAR(1024) NOT NULL,
    content       BYTEA         NOT NULL,
    size          BIGINT        NOT NULL DEFAULT 0,
    created_at    TIMESTAMPTZ   NOT NULL DEFAULT now(),
    updated_at    TIMESTAMPTZ   NOT NULL DEFAULT now(),
    deleted       BOOLEAN       NOT NULL DEFAULT FALSE,
    deleted_at    TIMESTAMPTZ
);
CREATE UNIQUE INDEX IF NOT EXISTS uq_mcp_files_active
ON mcp_files (apikey_hash, project, path)
WHERE deleted = FALSE;
CREATE INDEX IF NOT EXISTS idx_mcp_files_prefix
ON mcp_files (apikey_hash, project, path text_pattern_ops)
WHERE deleted = FALSE;
CREATE INDEX IF NOT EXISTS idx_mcp_files_deleted_at
ON mcp_files (deleted_at)
WHERE deleted = TRUE;
CREATE TABLE IF NOT EXISTS mcp_file_chunks (
    id              BIGSERIAL PRIMARY KEY,
    apikey_hash     CHAR(64)      NOT NULL,
    project         VARCHAR(128)  NOT NULL,
    file_path       VARCHAR(1024) NOT NULL,
    chunk_index     INT           NOT NULL,
    start_byte      BIGINT        NOT NULL,
    end_byte        BIGINT        NOT NULL,
    chunk_content   TEXT          NOT NULL,
    content_hash    CHAR(64)      NOT NULL,
    created_at      TIMESTAMPTZ   NOT NULL DEFAULT now(),
    updated_at      TIMESTAMPTZ   NOT NULL DEFAULT now(),
    last_served_at  TIMESTAMPTZ,
    UNIQUE (apikey_hash, project, file_path, chunk_index)
);
CREATE INDEX IF NOT EXISTS idx_mcp_file_chunks_prefix
ON mcp_file_chunks (apikey_hash, project, file_path text_pattern_ops);
CREATE TABLE IF NOT EXISTS mcp_file_chunk_embeddings (
    chunk_id        BIGINT        PRIMARY KEY REFERENCES mcp_file_chunks(id) ON DELETE CASCADE,
    embedding       VECTOR(1536)  NOT NULL,
    model           VARCHAR(128)  NOT NULL,
    created_at      TIMESTAMPTZ   NOT NULL DEFAULT now(),
    updated_at      TIMESTAMPTZ   NOT NULL DEFAULT now()
);
CREATE TABLE IF NOT EXISTS mcp_file_chunk_bm25 (
    chunk_id        BIGINT        PRIMARY KEY REFERENCES mcp_file_chunks(id) ON DELETE CASCADE,
    tokens          JSONB         NOT NULL,
    token_count     INT           NOT NULL,
    tokenizer       VARCHAR(64)   NOT NULL,
    created_at      TIMESTAMPTZ   NOT NULL DEFAULT now(),
    updated_at      TIMESTAMPTZ   NOT NULL DEFAULT now()
);
CREATE TABLE IF NOT EXISTS mcp_file_index_jobs (
    id              BIGSERIAL PRIMARY KEY,
    apikey_hash     CHAR(64)      NOT NULL,
    project         VARCHAR(128)  NOT NULL,
    file_path       VARCHAR(1024) NOT NULL,
    operation       VARCHAR(16)   NOT NULL, -- UPSERT / DELETE
    file_updated_at TIMESTAMPTZ,
    status          VARCHAR(16)   NOT NULL DEFAULT 'pending',
    retry_count     INT           NOT NULL DEFAULT 0,
    available_at    TIMESTAMPTZ   NOT NULL DEFAULT now(),
    created_at      TIMESTAMPTZ   NOT NULL DEFAULT now(),
    updated_at      TIMESTAMPTZ   NOT NULL DEFAULT now()
);
CREATE INDEX IF NOT EXISTS idx_mcp_file_index_jobs_pending
ON mcp_file_index_jobs (status, available_at, id);
"""
COLUMNS = """
SELECT table_name, column_name, udt_name, character_maximum_length, is_nullable FROM information_schema.columns
WHERE table_schema = $1
"""
ROWS = """
INSERT INTO mcp_files (apikey_hash, project, path, content, size, deleted, deleted_at)
SELECT $1, 'p', path, convert_to(content, 'UTF8'), octet_length(content), gone, CASE WHEN gone THEN now() END
FROM (VALUES ('/notes/a.md', 'first', false), ('/notes/b.md', 'second ü', false), ('/old', 'gone', true)) AS file
    (path, content, gone);
"""
INDEX_ROWS = """
WITH chunk AS (
    INSERT INTO mcp_file_chunks
        (apikey_hash, project, file_path, chunk_index, start_byte, end_byte, chunk_content, content_hash)
    SELECT apikey_hash, project, path, 0, 0, size, 'first', repeat('0', 64) FROM mcp_files WHERE apikey_hash = $1
    RETURNING id
),
vector AS (
    INSERT INTO mcp_file_chunk_embeddings (chunk_id, embedding, model)
    SELECT id, array_fill(1, ARRAY[1536])::vector, 'theirs' FROM chunk
),
words AS (
    INSERT INTO mcp_file_chunk_bm25 (chunk_id, tokens, token_count, tokenizer) SELECT id, '["first"]', 1, 'x' FROM chunk
)
INSERT INTO mcp_file_index_jobs (apikey_hash, project, file_path, operation, status)
VALUES ($1, 'p', '/notes/a.md', 'UPSERT', 'processing');
"""
SCHEMA = """
SELECT table_name::text, column_name::text, data_type::text, character_maximum_length, is_nullable::text,
       column_default::text, collation_name::text
FROM information_schema.columns
WHERE table_schema = 'public' AND table_name NOT LIKE '%seq%' ORDER BY 1, 2
"""
INDEXES = "SELECT indexname::text, indexdef FROM pg_indexes WHERE schemaname = 'public' ORDER BY 1"


async def run(dsn: str, statement: str, *arguments: Any) -> list[Any]:
    connection = await asyncpg.connect(dsn, server_settings={"armarium.tenant": "*"})
    try:
        return await connection.fetch(statement, *arguments) if arguments else [await connection.execute(statement)]
    finally:
        await connection.close()


async def rows(dsn: str, statement: str) -> list[Any]:
    connection = await asyncpg.connect(dsn, server_settings={"armarium.tenant": "*"})
    try:
        return await connection.fetch(statement)
    finally:
        await connection.close()


@pytest.fixture
def contract_dsn(store_dsn: str) -> Iterator[str]:
    """A database with the contract's tables and nothing else."""
    name = f"contract_{secrets.token_hex(4)}"
    above = store_dsn.replace("//armarium@", "//postgres@")
    asyncio.run(run(above, f"CREATE DATABASE {name} OWNER armarium"))
    asyncio.run(run(above.replace("/armarium?", f"/{name}?"), "CREATE EXTENSION vector"))
    dsn = store_dsn.replace("/armarium?", f"/{name}?")
    asyncio.run(run(dsn, CONTRACT))
    yield dsn
    asyncio.run(run(above, f"DROP DATABASE {name} WITH (FORCE)"))


@pytest.fixture
async def filled(contract_dsn: str, tenant: str) -> AsyncGenerator[StoreDatabase]:
    """The same with files and an index, after a server started on it."""
    await run(contract_dsn, ROWS, tenant)
    await run(contract_dsn, INDEX_ROWS, tenant)
    await migrated(contract_dsn)
    opened = StoreDatabase(await connect(contract_dsn, size=2), lock_timeout_ms=5000, on_lock_wait=lambda seconds: None)
    yield opened
    await opened.pool.aclose()


async def migrated(dsn: str) -> None:
    pool = await connect(dsn, size=2)
    try:
        await migrate(pool, dimensions=LOCAL_DIMENSIONS)
    finally:
        await pool.aclose()


def doctor(dsn: str, directory: Path) -> dict[str, CheckResult]:
    facilities = Facilities(cast(Any, SimpleNamespace()), directory)
    settings = StoreSettings.model_validate({"dsn": dsn})
    return {finding.subject: finding for finding in check(settings, facilities)}


async def test_files_that_were_there_are_read_listed_and_changed(filled: StoreDatabase, tenant: str) -> None:
    files = Files(filled, tenant)
    assert await files.paths() == ["/notes/", "/notes/a.md", "/notes/b.md"]
    assert await files.text("/notes/b.md") == "second ü"
    assert await files.counted_and_real_bytes() == (14, 14)
    await files.ok("write", path="/notes/a.md", content=" and more")
    assert await files.text("/notes/a.md") == "first and more"
    assert await files.ok("rename", from_path="/notes", to_path="/kept") == {"moved_count": 2}
    assert await files.counted_and_real_bytes() == (23, 23)


async def test_their_versions_go_on_from_the_ones_they_were_given(filled: StoreDatabase, tenant: str) -> None:
    files = Files(filled, tenant)
    before = {(await files.ok("stat", path=path))["version"] for path in ("/notes/a.md", "/notes/b.md")}
    assert len(before) == 2
    written = await files.ok("write", path="/notes/a.md", content="!", mode="TRUNCATE")
    assert written["version"] > max(before)


async def test_another_tenant_sees_nothing_of_them(filled: StoreDatabase) -> None:
    stranger = Files(filled, hashlib.sha256(b"another").hexdigest())
    assert await stranger.paths() == []
    assert await stranger.code("read", path="/notes/a.md") == "NOT_FOUND"


@pytest.mark.contract("S7-1")
async def test_the_schema_is_the_one_of_a_new_database(contract_dsn: str, store_dsn: str) -> None:
    await migrated(contract_dsn)
    assert await rows(contract_dsn, SCHEMA) == await rows(store_dsn, SCHEMA)
    assert await rows(contract_dsn, INDEXES) == await rows(store_dsn, INDEXES)


@pytest.mark.contract("S7-1")
async def test_every_table_column_and_index_of_the_contract_is_there(store_dsn: str) -> None:
    connection = await asyncpg.connect(store_dsn)
    try:
        transaction = connection.transaction()
        await transaction.start()
        await connection.execute("CREATE SCHEMA contract; SET LOCAL search_path = contract, public;" + CONTRACT)
        described = {tuple(row) for row in await connection.fetch(COLUMNS, "contract")}
        ours = {tuple(row) for row in await connection.fetch(COLUMNS, "public")}
        await transaction.rollback()
    finally:
        await connection.close()
    assert len(described) == 44
    assert described - ours == set()
    names = {row["indexname"] for row in await rows(store_dsn, INDEXES)}
    assert {"uq_mcp_files_active", "idx_mcp_files_prefix", "idx_mcp_files_deleted_at"} <= names
    assert {"idx_mcp_file_chunks_prefix", "idx_mcp_file_index_jobs_pending"} <= names


@pytest.mark.contract("S7-1")
async def test_rows_may_be_added_as_the_contract_describes_them(store_dsn: str, tenant: str) -> None:
    connection = await asyncpg.connect(store_dsn, server_settings={"armarium.tenant": tenant})
    try:
        transaction = connection.transaction()
        await transaction.start()
        await connection.execute(ROWS, tenant)
        await connection.execute(INDEX_ROWS.replace("1536", str(LOCAL_DIMENSIONS)), tenant)
        await transaction.rollback()
    finally:
        await connection.close()


def test_the_doctor_says_before_what_the_start_does(contract_dsn: str, tmp_path: Path, tenant: str) -> None:
    asyncio.run(run(contract_dsn, ROWS, tenant))
    finding = doctor(contract_dsn, tmp_path)["store schema"]
    assert finding.state == "ok"
    assert "adopts 5 tables" in finding.message
    asyncio.run(migrated(contract_dsn))
    assert doctor(contract_dsn, tmp_path)["store schema"].message == "up to date"


def test_tables_of_another_user_are_refused_by_the_doctor_and_by_the_start(
    contract_dsn: str, store_dsn: str, tmp_path: Path
) -> None:
    above = contract_dsn.replace("//armarium@", "//postgres@")
    asyncio.run(run(above, "ALTER TABLE mcp_files OWNER TO postgres"))
    finding = doctor(contract_dsn, tmp_path)["store schema"]
    assert finding.state == "fail"
    assert "mcp_files" in finding.message
    with pytest.raises(DatabaseUnavailable, match="cannot be brought up to date") as refused:
        asyncio.run(migrated(contract_dsn))
    assert "own" in str(refused.value.hint)


async def test_an_index_without_files_is_taken_over_as_well(contract_dsn: str, tenant: str) -> None:
    await run(contract_dsn, "DROP TABLE mcp_files")
    await migrated(contract_dsn)
    pool = await connect(contract_dsn, size=2)
    opened = StoreDatabase(pool, lock_timeout_ms=5000, on_lock_wait=lambda seconds: None)
    await Files(opened, tenant).put("/a")
    await opened.pool.aclose()


@asynccontextmanager
async def taken_over(dsn: str, tenant: str) -> AsyncGenerator[Files]:
    await migrated(dsn)
    opened = StoreDatabase(await connect(dsn, size=2), lock_timeout_ms=5000, on_lock_wait=lambda seconds: None)
    try:
        yield Files(opened, tenant)
    finally:
        await opened.pool.aclose()


async def test_a_policy_that_was_there_shows_no_row_to_other_tenants(contract_dsn: str, tenant: str) -> None:
    await run(contract_dsn, ROWS, tenant)
    await run(
        contract_dsn,
        "ALTER TABLE mcp_files ENABLE ROW LEVEL SECURITY; ALTER TABLE mcp_files FORCE ROW LEVEL SECURITY;"
        "CREATE POLICY everybody ON mcp_files USING (true)",
    )
    async with taken_over(contract_dsn, tenant) as files:
        assert await files.text("/notes/a.md") == "first"
        async with files.database.read_transaction(hashlib.sha256(b"another").hexdigest()) as connection:
            assert await connection.fetchval("SELECT count(*) FROM mcp_files") == 0


async def test_a_file_with_an_unpaired_surrogate_can_be_read_and_replaced(contract_dsn: str, tenant: str) -> None:
    await run(contract_dsn, ROWS, tenant)
    await run(contract_dsn, r"UPDATE mcp_files SET content = '\x61c3', size = 2 WHERE path = '/notes/a.md'")
    async with taken_over(contract_dsn, tenant) as files:
        assert await files.text("/notes/a.md") == "a\ufffd"
        await files.ok("write", path="/notes/a.md", content="whole", mode="TRUNCATE")
        assert await files.text("/notes/a.md") == "whole"


async def test_rows_with_gaps_are_filled_up(contract_dsn: str, tenant: str) -> None:
    columns = ("size", "created_at", "updated_at", "deleted")
    await run(contract_dsn, "; ".join(f"ALTER TABLE mcp_files ALTER {column} DROP NOT NULL" for column in columns))
    await run(contract_dsn, ROWS, tenant)
    await run(contract_dsn, "UPDATE mcp_files SET deleted_at = NULL WHERE deleted")
    await run(
        contract_dsn,
        "UPDATE mcp_files SET size = NULL, created_at = NULL, updated_at = NULL, deleted = NULL WHERE NOT deleted",
    )
    async with taken_over(contract_dsn, tenant) as files:
        assert await files.paths() == ["/notes/", "/notes/a.md", "/notes/b.md"]
        assert await files.counted_and_real_bytes() == (14, 14)
        assert await files.rows("SELECT FROM mcp_files WHERE deleted AND deleted_at IS NULL") == []


@pytest.mark.parametrize(
    "in_the_way",
    [
        "ALTER TABLE mcp_files ALTER content TYPE TEXT USING encode(content, 'escape')",
        "CREATE VIEW reports AS SELECT * FROM mcp_file_chunks",
        "CREATE VIEW reports AS SELECT path FROM mcp_files",
        "ALTER TABLE mcp_files RENAME apikey_hash TO owner",
    ],
)
async def test_tables_that_do_not_fit_are_refused_with_what_to_do(
    contract_dsn: str, tenant: str, in_the_way: str
) -> None:
    await run(contract_dsn, ROWS, tenant)
    await run(contract_dsn, in_the_way)
    with pytest.raises(DatabaseUnavailable, match="cannot be brought up to date") as refused:
        await migrated(contract_dsn)
    assert "differ from the contract" in str(refused.value.hint)
    assert (await rows(contract_dsn, "SELECT count(*) FROM mcp_files"))[0]["count"] == 3
