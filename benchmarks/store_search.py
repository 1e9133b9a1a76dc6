"""How long does `file_search` take in a project of 5,000 chunks, and with 100,000 over 50 tenants in one database?

The real database, index and search; texts are made up, and so are the chunks' vectors (embedding them all would take
most of an hour), while questions are embedded by the real model. The peer is a scan of the same vectors with numpy,
which misses nothing: it tells the recall. From the plans it is read how many rows of other tenants were looked at.
`--quick` takes a twentieth.
"""

from __future__ import annotations

import secrets
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
import numpy
import orjson
from numpy.typing import NDArray

from armarium.capabilities.store.database.pool import connect
from armarium.capabilities.store.database.schema import migrate
from armarium.capabilities.store.database.transactions import StoreDatabase
from armarium.capabilities.store.index.chunker import query_terms
from armarium.capabilities.store.index.embedders import StoreModels
from armarium.capabilities.store.index.file_index import FileIndex
from armarium.capabilities.store.model import Scope
from armarium.capabilities.store.postgres.embedded import embedded_postgres
from armarium.capabilities.store.search.file_search import FileSearch
from armarium.capabilities.store.settings import FallbackSettings, SearchSettings
from armarium.foundation.sql import queries
from armarium.providers.local.embedder import LocalEmbedder
from corpus_engine import CheapVectors
from prose import Prose
from trial import report, scaled

SEED = 41
ONE_PROJECT = 5_000
TENANTS = 50
IN_EACH = 2_000
GOAL_MS = 60.0
QUESTIONS = 200
WARM_UP = 20
FILE_CHARACTERS = 26_000
PROJECT = "notes"
EVERYWHERE = ("/", "0")
"""The range of all paths."""
SCANNED = ("mcp_file_chunks", "mcp_file_chunk_embeddings", "mcp_file_chunk_bm25")
SQL = queries("armarium.capabilities.store.database.sql", "search.sql")


class SyntheticChunks(LocalEmbedder):
    """The local model for questions, and vectors that cost nothing for chunks."""

    def __init__(self, cheap: CheapVectors) -> None:
        super().__init__()
        self._cheap = cheap

    async def embed(self, texts: Sequence[str]) -> NDArray[numpy.float32]:
        return self._cheap.of(texts)


@dataclass(frozen=True, slots=True)
class Bench:
    database: StoreDatabase
    embedder: SyntheticChunks
    models: StoreModels
    prose: Prose

    def search(self, settings: SearchSettings) -> FileSearch:
        return FileSearch(self.database, self.models, settings)


async def main(cheap: CheapVectors) -> None:
    embedder = SyntheticChunks(cheap)
    async with AsyncExitStack() as stack:
        # The supervisor of the database ends a moment after its last user.
        directory = stack.enter_context(tempfile.TemporaryDirectory(ignore_cleanup_errors=True))
        dsn = await stack.enter_async_context(embedded_postgres(Path(directory) / "data"))
        pool = await connect(dsn, size=4)
        await migrate(pool, dimensions=LocalEmbedder.dimensions)
        database = StoreDatabase(pool, lock_timeout_ms=5000, on_lock_wait=lambda seconds: None)
        stack.push_async_callback(database.pool.aclose)
        models = StoreModels(local=embedder)
        stack.push_async_callback(models.aclose)
        bench = Bench(database, embedder, models, Prose(SEED))
        one = await one_project(bench)
        many = await many_tenants(bench)
    goal = f"5,000 chunks: p95 of {GOAL_MS:g} ms, recall 1.0; 50 tenants: no row of another tenant looked at"
    met = one["p95_ms"] <= GOAL_MS and one["recall_10"] == 1.0 and many["foreign_rows_read"] == 0
    report("store_search", [one, many], goal, met)


async def one_project(bench: Bench) -> dict[str, Any]:
    tenant = secrets.token_hex(32)
    filled = await fill(bench, tenant, scaled(ONE_PROJECT))
    await analyze(bench.database)
    timed = await asked(bench, [tenant])
    compared = await compared_with_scan(bench, tenant)
    return {"case": f"{filled['passages']} passages, one project", **timed, **compared, **filled}


async def many_tenants(bench: Bench) -> dict[str, Any]:
    tenants = [secrets.token_hex(32) for _ in range(scaled(TENANTS) or 2)]
    filled = [await fill(bench, tenant, scaled(IN_EACH)) for tenant in tenants]
    await analyze(bench.database)
    timed = await asked(bench, tenants)
    passages = sum(each["passages"] for each in filled)
    foreign = await foreign_rows_read(bench, tenants[0], filled[0]["passages"])
    return {"case": f"{passages} passages, {len(tenants)} tenants", **timed, "foreign_rows_read": foreign}


async def fill(bench: Bench, tenant: str, passages: int) -> dict[str, Any]:
    """Files until there are so many chunks, written to the tables and then indexed as a worker does it."""
    scope = Scope(tenant, PROJECT)
    index = FileIndex(bench.database, bench.models)
    indexed = number = 0
    taken_s = 0.0
    while indexed < passages:
        number += 1
        path = f"/docs/{number:05}.txt"
        content = bench.prose.document(FILE_CHARACTERS, headings=True).encode()
        async with bench.database.project_transaction(scope) as connection:
            await connection.execute(
                "INSERT INTO mcp_files (apikey_hash, project, path, content, size, version) "
                "VALUES ($1, $2, $3, $4::bytea, octet_length($4::bytea), $5)",
                *(tenant, PROJECT, path, content, number),
            )
        started = time.perf_counter()
        await index.write_terms(scope, path)
        await index.embed(scope, path, None)
        taken_s += time.perf_counter() - started
        async with bench.database.read_transaction(tenant) as connection:
            indexed = await connection.fetchval(
                "SELECT sum(passages) FROM mcp_file_indexed WHERE apikey_hash = $1", tenant
            )
    return {"passages": indexed, "indexed_per_s_without_embedding": round(indexed / taken_s)}


async def analyze(database: StoreDatabase) -> None:
    """What autovacuum does within a minute in a database that lives longer than this one."""
    async with database.pool.connection() as connection:
        await connection.execute("VACUUM ANALYZE")


async def asked(bench: Bench, tenants: Sequence[str]) -> dict[str, float]:
    engine = bench.search(SearchSettings())
    taken: list[float] = []
    for number in range(WARM_UP + QUESTIONS):
        question = bench.prose.question(bench.prose.random.randint(3, 9))
        tenant = tenants[number % len(tenants)]
        started = time.perf_counter()
        await engine.search(tenant, PROJECT, question, "", 5, None)
        taken.append((time.perf_counter() - started) * 1000)
    taken = sorted(taken[WARM_UP:])
    return {"p50_ms": round(taken[len(taken) // 2], 2), "p95_ms": round(taken[int(len(taken) * 0.95)], 2)}


async def compared_with_scan(bench: Bench, tenant: str) -> dict[str, Any]:
    """How much of the ten nearest the search finds, and what the search by vectors takes against numpy."""
    async with bench.database.read_transaction(tenant) as connection:
        rows = await connection.fetch(
            "SELECT chunk.file_path, chunk.start_byte, vector.embedding::text AS embedding "
            "FROM mcp_file_chunks AS chunk JOIN mcp_file_chunk_embeddings AS vector ON vector.chunk_id = chunk.id "
            "WHERE chunk.apikey_hash = $1",
            tenant,
        )
    matrix = numpy.array([orjson.loads(row["embedding"]) for row in rows], numpy.float32)
    place = {(row["file_path"], row["start_byte"]): number for number, row in enumerate(rows)}
    by_vectors = bench.search(SearchSettings(fallback=FallbackSettings(semantic_weight=1.0, lexical_weight=0.0)))
    right = 0
    ours: list[float] = []
    peers: list[float] = []
    questions = [bench.prose.question(6) for _ in range(QUESTIONS)]
    for question in questions:
        vector = await bench.embedder.embed_query(question)
        started = time.perf_counter()
        nearness = matrix @ vector
        tenth = numpy.partition(nearness, -10)[-10]
        peers.append(time.perf_counter() - started)
        found = await by_vectors.search(tenant, PROJECT, question, "", 10, None)
        right += sum(
            nearness[place[chunk["file_path"], chunk["file_seek_start_bytes"]]] >= tenth - 1e-5
            for chunk in found["chunks"]
        )
        ours.append(await nearest_s(bench, tenant, vector))
    ours_ms, peer_ms = (round(sorted(each)[len(each) // 2] * 1000, 3) for each in (ours, peers))
    return {
        "recall_10": round(right / 10 / QUESTIONS, 4),
        "vectors_p50_ms": ours_ms,
        "peer_p50_ms": peer_ms,
        "ratio": round(ours_ms / peer_ms, 2),
    }


async def nearest_s(bench: Bench, tenant: str, vector: NDArray[numpy.float32]) -> float:
    started = time.perf_counter()
    async with bench.database.read_transaction(tenant) as connection:
        arguments = (tenant, [PROJECT], *EVERYWHERE, as_text(vector), bench.models.model, 30)
        await connection.fetch(SQL["nearest_chunks"], *arguments)
    return time.perf_counter() - started


async def foreign_rows_read(bench: Bench, tenant: str, own: int) -> int:
    """Rows that the two searches looked at beyond those of the tenant itself."""
    question = "what the import statement does with a module"
    vector = as_text(await bench.embedder.embed_query(question))
    async with bench.database.read_transaction(tenant) as connection:
        plans = [
            await connection.fetchval(
                f"EXPLAIN (ANALYZE, FORMAT JSON) {SQL['nearest_chunks']}",
                *(tenant, [PROJECT], *EVERYWHERE, vector, bench.models.model, 30),
            ),
            await connection.fetchval(
                f"EXPLAIN (ANALYZE, FORMAT JSON) {SQL['chunks_by_terms']}",
                *(tenant, [PROJECT], *EVERYWHERE, query_terms(question, []), float(own), 100.0, 30),
            ),
        ]
    return sum(max(0, rows - own) for plan in plans for rows in rows_read(orjson.loads(plan)[0]["Plan"]))


def rows_read(node: dict[str, Any]) -> Iterator[float]:
    """The rows that each scan of a table of chunks looked at."""
    if node.get("Relation Name") in SCANNED:
        removed = sum(node.get(f"Rows Removed by {why}", 0) for why in ("Filter", "Index Recheck"))
        yield (node["Actual Rows"] + removed) * node["Actual Loops"]
    for child in node.get("Plans", []):
        yield from rows_read(child)


def as_text(vector: NDArray[numpy.float32]) -> str:
    return orjson.dumps(vector, option=orjson.OPT_SERIALIZE_NUMPY).decode()


if __name__ == "__main__":
    print("embedding the real texts that made-up vectors are mixed of")
    anyio.run(main, CheapVectors(SEED))
