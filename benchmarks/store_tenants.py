"""Does a write cost more when other tenants have more files?

Database CPU of one write by a tenant with one file, among 1,000, 100,000 and 400,000 files of 2,000 other tenants, on
the PostgreSQL that the store starts: before the tables were ever analysed, and after. The peer is the same function
with the tenant as TEXT, which casts the column it compares with and so cannot use an index. CPU is what the kernel
counts for the process of the database that serves the connection. `--quick` takes a twentieth.
"""

from __future__ import annotations

import secrets
import statistics
import tempfile
from contextlib import AsyncExitStack
from importlib.resources import files
from pathlib import Path
from typing import Any

import anyio
import asyncpg

from armarium.capabilities.store.database.pool import connect
from armarium.capabilities.store.database.schema import migrate
from armarium.capabilities.store.database.transactions import lock_key
from armarium.capabilities.store.files.writes import SQL
from armarium.capabilities.store.model import Scope
from armarium.capabilities.store.postgres.embedded import embedded_postgres
from armarium.capabilities.store.settings import LOCAL_DIMENSIONS
from trial import report, scaled

SIZES = (1_000, 100_000, 400_000)
TENANTS = 2_000
WRITES, ROUNDS = 40, 15
PEER_WRITES, PEER_ROUNDS = 4, 3
FLAT_WITHIN = 1.2
CONTENT = b"0123456789abcdef" * 64

PEER = "peer_file_write"
FILL = """
WITH given AS (
    SELECT number, encode(sha256((number % $3)::text::bytea), 'hex') AS tenant
    FROM generate_series($1::int, $2) AS number
)
INSERT INTO mcp_files (apikey_hash, project, path, content, size, version)
SELECT tenant, 'p', '/d' || number % 10 || '/' || number, 'some text', 9, number FROM given
"""
COUNT = """
INSERT INTO mcp_file_projects (apikey_hash, project, bytes, revision)
SELECT apikey_hash, project, sum(size), max(version) FROM mcp_files GROUP BY apikey_hash, project
ON CONFLICT DO NOTHING
"""


class Writer:
    """Writes as the store does, on one connection, for one tenant."""

    def __init__(self, connection: asyncpg.Connection, process: int) -> None:
        self._connection = connection
        self._schedule = Path(f"/proc/{process}/schedstat")
        self._scope = Scope(secrets.token_hex(32), "p")

    async def cpu_ms(self, statement: str, writes: int, rounds: int) -> float:
        """Of one write: the middle one of the rounds."""
        await self._write(statement, 6)
        taken: list[float] = []
        for _ in range(rounds):
            before = self._cpu_ns()
            await self._write(statement, writes)
            taken.append((self._cpu_ns() - before) / writes / 1e6)
        return statistics.median(taken)

    async def _write(self, statement: str, writes: int) -> None:
        limits = (2**30, 2**40, 20, True, None, 10_000)
        where = (self._scope.apikey_hash, self._scope.project, "/docs/only", ["/docs"])
        for _ in range(writes):
            given = (*where, CONTENT, "TRUNCATE", 0, False, None, *limits, lock_key(self._scope), 5000)
            row = await self._connection.fetchrow(statement, *given)
            assert row is not None
            assert row["refusal"] is None

    def _cpu_ns(self) -> int:
        return int(self._schedule.read_text().split()[0])


async def main() -> None:
    async with AsyncExitStack() as stack:
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        dsn = await stack.enter_async_context(embedded_postgres(scratch / "data"))
        pool = await connect(dsn, size=2)
        await migrate(pool, dimensions=LOCAL_DIMENSIONS)
        await pool.aclose()
        rows: list[dict[str, Any]] = []
        there = 0
        for size in SIZES:
            await fill(dsn, there, scaled(size))
            there = scaled(size)
            for analysed in (False, True):
                rows.append(await measured(dsn, there, analysed=analysed))
    least = min(row["cpu_ms"] for row in rows)
    for row in rows:
        row["of_least"] = round(row["cpu_ms"] / least, 2)
    goal = f"database CPU of a write within {FLAT_WITHIN:g} times the least, however many files others have"
    report("store_tenants", rows, goal, all(row["of_least"] <= FLAT_WITHIN for row in rows))


async def fill(dsn: str, there: int, wanted: int) -> None:
    """More files of others, and no statistics."""
    connection = await asyncpg.connect(dsn, server_settings={"armarium.tenant": "*"})
    for table in ("mcp_files", "mcp_file_projects", "mcp_file_versions", "mcp_file_index_jobs"):
        await connection.execute(f"ALTER TABLE {table} SET (autovacuum_enabled = false)")
    if not there:
        await connection.execute(peer_function())
    await connection.execute(FILL, there, wanted - 1, TENANTS, timeout=600)
    await connection.execute(COUNT)
    await connection.close()


def peer_function() -> str:
    """The function of a write with the tenant as TEXT, under another name."""
    text = files("armarium.capabilities.store.database.migrations").joinpath("0017_quota.sql").read_text("utf-8")
    function = text[text.index("CREATE FUNCTION mcp_file_write(") :]
    return function.replace("mcp_file_write", PEER).replace("tenant BPCHAR", "tenant TEXT")


async def measured(dsn: str, others: int, *, analysed: bool) -> dict[str, Any]:
    connection = await asyncpg.connect(dsn)
    if analysed:
        await connection.execute("SET armarium.tenant = '*'; ANALYZE; RESET armarium.tenant")
    writer = Writer(connection, await connection.fetchval("SELECT pg_backend_pid()"))
    ours = await writer.cpu_ms(SQL["write_file"], WRITES, ROUNDS)
    peer = await writer.cpu_ms(SQL["write_file"].replace("mcp_file_write", PEER), PEER_WRITES, PEER_ROUNDS)
    await connection.close()
    return {
        "case": f"{others} files of others, {'analysed' if analysed else 'never analysed'}",
        "cpu_ms": round(ours, 3),
        "peer_cpu_ms": round(peer, 3),
        "ratio": round(peer / ours, 1),
    }


if __name__ == "__main__":
    anyio.run(main, backend_options={"use_uvloop": True})
