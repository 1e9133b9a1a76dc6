"""No statement reads what belongs to other tenants: its plans among 100,000 files of 500 tenants, as the server's role
under row security, on every PostgreSQL that is installed."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import sha256
from importlib.resources import files
from typing import Any

import asyncpg
import pytest

from armarium.capabilities.store.database.schema import migrations
from armarium.foundation.sql import queries
from support.postgres import PostgresPrograms, installed_postgres, running_postgres

PACKAGE = "armarium.capabilities.store.database.sql"
TENANTS, FILES_EACH = 500, 200
DIMENSIONS = 8
TENANT = sha256(b"7").hexdigest()
FIRST_ID = 7 * FILES_EACH
MODES = ("force_generic_plan", "force_custom_plan")

# Commands and maintenance for all tenants: they read all rows, and serve no call.
OVER_ALL_TENANTS = {
    "reindex.sql:count_files": "counts every file before a new index is made",
    "reindex.sql:queue_all_files": "queues every file",
    "reindex.sql:reset_made_with": "changes every row",
    "reindex.sql:model_of_a_vector": "takes any one row",
    "reindex.sql:reindex_progress": "counts the jobs of a new index",
    "maintenance.sql:delete_indexed_of_deleted": "once a minute",
    "maintenance.sql:last_file": "the largest id, once at a start",
    "jobs.sql:depth": "counts the whole queue, once in poll_seconds",
}
FOR_ONE_TENANT = re.compile(r"apikey_hash = \$1\b|\bmcp_file_(write|read|stat)\(")
# A condition that only few rows meet: the tenant's, or those of one file, chunk or job.
NARROW = re.compile(r"apikey_hash|\b(id|file_id|chunk_id) = ")
# Rows a function may read: its tenant's own, a few of each table.
MOST_ROWS = 600

FILL = f"""
SET session_replication_role = replica;
CREATE TEMP TABLE given AS
SELECT
    file AS id,
    encode(sha256((file / {FILES_EACH})::text::bytea), 'hex') AS tenant,
    CASE WHEN file % 4 < 3 THEN 'p' ELSE 'q' END AS project,
    '/d' || file % 10 || '/f' || file || '.md' AS path
FROM generate_series(0, {TENANTS * FILES_EACH} - 1) AS file
ORDER BY 2, 3, 4;
INSERT INTO mcp_files (id, apikey_hash, project, path, content, size, deleted, deleted_at, version)
SELECT id, tenant, project, path, 'some text', 9, id % 20 = 0, CASE WHEN id % 20 = 0 THEN now() END, id FROM given;
INSERT INTO mcp_file_projects (apikey_hash, project, bytes, revision)
SELECT tenant, project, 9 * count(*), max(id) FROM given GROUP BY tenant, project;
INSERT INTO mcp_file_versions (id, apikey_hash, project, path, version, content, size, written_at)
SELECT id, tenant, project, path, id, 'some text', 9, now() FROM given;
INSERT INTO mcp_file_indexed (file_id, apikey_hash, project, version, made_with, passages, words, languages)
SELECT id, tenant, project, id, 'model', 1, 2, '{{en}}' FROM given;
INSERT INTO mcp_file_chunks (
    id, apikey_hash, project, file_path, file_id, chunk_index, start_byte, end_byte, chunk_content, content_hash
)
SELECT id, tenant, project, path, id, 0, 0, 9, 'some text', encode(sha256(id::text::bytea), 'hex') FROM given;
INSERT INTO mcp_file_chunk_embeddings (chunk_id, apikey_hash, project, file_id, embedding, model)
SELECT id, tenant, project, id, :vector, 'model' FROM given;
INSERT INTO mcp_file_chunk_bm25 (chunk_id, apikey_hash, project, file_id, tokens, token_count, tokenizer)
SELECT id, tenant, project, id, '{{"some": 1, "text": 1}}', 2, 'words' FROM given;
INSERT INTO mcp_file_requests (apikey_hash, project, request_id, digest, answer)
SELECT tenant, project, 'r' || id, tenant, '{{}}' FROM given;
INSERT INTO mcp_file_index_jobs (id, apikey_hash, project, file_path, operation, status, worker, lease_until)
SELECT
    id, tenant, project, path, 'UPSERT',
    CASE id % 100 WHEN 1 THEN 'pending' WHEN 2 THEN 'failed' WHEN 3 THEN 'processing' ELSE 'done' END,
    CASE id % 100 WHEN 3 THEN 'worker' END,
    CASE id % 100 WHEN 3 THEN now() + interval '1 minute' END
FROM given;
INSERT INTO mcp_file_requests (apikey_hash, project, request_id, digest, answer, made_at)
SELECT tenant, project, path, repeat('0', 64), '{{}}', now() - make_interval(days => (id % 100 = 0)::int) FROM given;
DROP TABLE given;
"""
TABLES = "SELECT relname::text FROM pg_stat_user_tables WHERE relname LIKE 'mcp%'"
MADE_AFTERWARDS = """
SELECT indexname, indexdef FROM pg_indexes
WHERE tablename LIKE 'mcp%' AND NOT EXISTS (SELECT FROM pg_constraint WHERE conname = indexname)
"""


def named_statements() -> list[tuple[str, str]]:
    found = sorted(entry.name for entry in files(PACKAGE).iterdir() if entry.name.endswith(".sql"))
    return [(f"{file}:{name}", text) for file in found for name, text in queries(PACKAGE, file).items()]


@dataclass(frozen=True, slots=True)
class Filled:
    """A server with the rows of many tenants."""

    dsn: str
    programs: PostgresPrograms

    def runs(self, statement: str) -> bool:
        return self.programs.has_vectors or "vector" not in re.sub(r"--[^\n]*", "", statement)


@pytest.fixture(scope="module", params=installed_postgres(), ids=str)
def filled(request: pytest.FixtureRequest) -> Iterator[Filled]:
    programs: PostgresPrograms = request.param
    # Statistics are there when a test asks for them, and not before.
    quick = ("autovacuum=off", "max_wal_size=4GB", "synchronous_commit=off", "jit=off", "full_page_writes=off")
    with running_postgres(programs=programs, settings=quick) as dsn:
        yield Filled(dsn, programs)


async def fill(filled: Filled) -> None:
    has_vectors = filled.programs.has_vectors
    connection = await asyncpg.connect(filled.dsn)
    for _, _, text in migrations():
        schema = text.replace("{dimensions}", str(DIMENSIONS))
        await connection.execute(schema if has_vectors else re.sub(r"VECTOR\(\d+\)", "REAL[]", schema))
    await connection.close()
    above = await asyncpg.connect(filled.dsn.replace("//armarium@", "//postgres@"))
    array = f"array_fill(1, ARRAY[{DIMENSIONS}])::real[]"
    # An index that is made of all rows at once takes a fraction of the time.
    indexes = await above.fetch(MADE_AFTERWARDS)
    await above.execute("; ".join(f"DROP INDEX {index['indexname']}" for index in indexes))
    await above.execute(FILL.replace(":vector", f"{array}::vector" if has_vectors else array), timeout=300)
    await above.execute("; ".join(index["indexdef"] for index in indexes), timeout=300)
    sizes = {table: await above.fetchval(f"SELECT count(*) FROM {table}") for (table,) in await above.fetch(TABLES)}
    assert min(sizes.values()) >= TENANTS, f"a table that FILL leaves out: {sizes}"
    await above.close()


async def test_every_plan_stays_within_the_tenant(filled: Filled) -> None:
    await fill(filled)
    faults: list[str] = []
    for analysed in (False, True):
        if analysed:
            above = await asyncpg.connect(filled.dsn.replace("//armarium@", "//postgres@"))
            await above.execute("ANALYZE")
            await above.close()
        connection = await asyncpg.connect(filled.dsn)
        looked_at = 0
        for name, statement in named_statements():
            if name in OVER_ALL_TENANTS or not filled.runs(statement):
                continue
            looked_at += 1
            for mode in MODES:
                where = f"{name} ({mode}, {'with' if analysed else 'without'} statistics)"
                faults += [f"{where}: {fault}" for fault in await faults_of(connection, name, statement, mode)]
        assert looked_at > 20
        await connection.close()
    assert not faults, "\n".join(faults)


async def faults_of(connection: asyncpg.Connection, name: str, statement: str, mode: str) -> list[str]:
    """What is wrong with the plan of a statement, and with what the functions do that it calls."""
    transaction = connection.transaction()
    await transaction.start()
    try:
        await connection.execute(f"PREPARE looked_at AS {statement}")
        kinds = await connection.fetchval(
            "SELECT parameter_types::text[] FROM pg_prepared_statements WHERE name = 'looked_at'"
        )
        given = [argument(statement, place, kind) for place, kind in enumerate(kinds, 1)]
        tenant = TENANT if FOR_ONE_TENANT.search(statement) else "*"
        await connection.execute(f"SET LOCAL armarium.tenant = '{tenant}'; SET LOCAL plan_cache_mode = {mode}")
        execute = f"EXECUTE looked_at({', '.join(given)})" if given else "EXECUTE looked_at"
        [row] = await connection.fetch(f"EXPLAIN (FORMAT JSON) {execute}")
        faults = [fault for plan in json.loads(row[0]) for fault in scans(plan["Plan"], one_tenant=tenant == TENANT)]
        if re.search(r"\bmcp_file_[a-z_]+\(", statement):
            faults += await rows_read(connection, execute)
        return faults
    except asyncpg.PostgresError as error:
        return [f"cannot be explained, {type(error).__name__}: {str(error).splitlines()[0]}"]
    finally:
        await transaction.rollback()
        await connection.execute("DEALLOCATE looked_at")


def scans(plan: dict[str, Any], *, one_tenant: bool) -> Iterator[str]:
    """The nodes of a plan that read a table of tenants from one end to the other, or parse an argument for each row."""
    table, kind = str(plan.get("Relation Name", "")), plan["Node Type"]
    found_by = str(plan.get("Index Cond", ""))
    whole_index = kind in {"Index Scan", "Index Only Scan"} and not (
        NARROW.search(found_by) if one_tenant else found_by or "Order By" in plan
    )
    if table.startswith("mcp_") and (kind == "Seq Scan" or whole_index):
        yield f"{kind} on {table} by ({found_by}), filtered by {plan.get('Filter')}"
    if kind == "Bitmap Index Scan" and one_tenant and not NARROW.search(found_by):
        yield f"{kind} on {plan['Index Name']} by ({found_by})"
    yield from (
        f"{kind} parses a vector for each row" for part in ("Filter", "Sort Key") if "::vector" in str(plan.get(part))
    )
    for inner in plan.get("Plans", ()):
        yield from scans(inner, one_tenant=one_tenant)


async def rows_read(connection: asyncpg.Connection, execute: str) -> list[str]:
    """What a function reads too much of, by the counters of the database: EXPLAIN does not look into it."""
    before = await counters(connection)
    await connection.execute(execute)
    read = {table: rows - before.get(table, 0) for table, rows in (await counters(connection)).items()}
    return [f"reads {rows} rows of {table}" for table, rows in read.items() if rows > MOST_ROWS]


async def counters(connection: asyncpg.Connection) -> dict[str, int]:
    """Rows that this session read of each table, and did not report yet."""
    counted = await connection.fetch(
        "SELECT relname, coalesce(seq_tup_read, 0) + coalesce(idx_tup_fetch, 0) AS rows FROM pg_stat_xact_user_tables"
        " WHERE relname LIKE 'mcp%'"
    )
    return {row["relname"]: row["rows"] for row in counted}


def argument(statement: str, place: int, kind: str) -> str:
    """A value for a parameter, from its type and from what it is compared with."""
    text = re.sub(r"--[^\n]*", "", statement)

    def stands(pattern: str) -> bool:
        return re.search(pattern.replace("#", rf"\${place}(?!\d)"), text) is not None

    if stands(r"#::(text|bpchar) IN \((\w+\.)?apikey_hash"):
        return "'*'"
    path = f"/d{FIRST_ID % 10 + 1}/f{FIRST_ID + 1}.md"
    if stands(r"#::text::jsonb"):
        return "'{}'"
    if stands(r"#::text::vector"):
        return f"'{[1] * DIMENSIONS}'"
    if stands(r"project = ANY\(#"):
        return "'{p}'"
    if stands(r"project = #") or (place == 2 and kind in {"text", "character varying"}):
        return "'p'"
    values = {
        "character": f"'{TENANT}'",
        "boolean": "TRUE",
        "bytea": r"'\x616263'",
        "double precision": "60",
        "integer": "20",
        "bigint": str(FIRST_ID + 1),
        "smallint": "1",
        "text": f"'{path}'",
        "character varying": f"'{path}'",
        "character[]": f"'{{{sha256(str(FIRST_ID + 1).encode()).hexdigest()}}}'",
        "text[]": f"'{{{path}}}'",
        "bigint[]": f"'{{{FIRST_ID + 1}}}'",
        "integer[]": "'{1}'",
        "timestamp with time zone": "now()",
    }
    special = {
        r"(path|file_path) < #": f"'{path}0'",
        r"model = #": "'model'",
        r"#::text::jsonb": "'{}'",
        r"job\.worker = #": "'worker'",
    }
    for pattern, value in special.items():
        if stands(pattern):
            return value
    if kind not in values:
        raise AssertionError(f"no value for ${place} of type {kind}; give one in `argument`")
    return values[kind]
