"""How should the store weigh meaning against words, and how well does it find what people judged relevant?

Real database, index and model; each set is a project, each document a file, and a file ranks as its best chunk does.
The peers are the two sides alone. Every question is asked once with each weight of the sweep. The judged sets are read
from `../shared/data/retrieval`; a set that is not there is skipped. `--quick` takes a twentieth of the questions.
"""

from __future__ import annotations

import secrets
import sys
import tempfile
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio

from armarium.capabilities.store.database.pool import connect
from armarium.capabilities.store.database.schema import migrate
from armarium.capabilities.store.database.transactions import StoreDatabase
from armarium.capabilities.store.index.embedders import StoreModels
from armarium.capabilities.store.index.file_index import FileIndex
from armarium.capabilities.store.model import Scope
from armarium.capabilities.store.postgres.embedded import embedded_postgres
from armarium.capabilities.store.search.file_search import FileSearch
from armarium.capabilities.store.settings import FallbackSettings, SearchSettings
from armarium.capabilities.store.validation import MAX_QUERY_LENGTH
from armarium.providers.local.embedder import LocalEmbedder
from armarium.retrieval.evaluation import JudgedSet, measured, read_judged_set
from trial import QUICK, SHARE, report

SETS = Path(__file__).parent.parent.parent / "shared" / "data" / "retrieval"
NAMES = ("cranfield", "cisi", "xquad-en", "cosqa-dev")
SWEEP = (0.0, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 1.0)
MOST_QUESTIONS = 225
CHUNKS = 60
"""Of each question: all candidates, since several may be of one file."""
TOLERANCE = 0.01


@dataclass(frozen=True, slots=True)
class Bench:
    database: StoreDatabase
    models: StoreModels
    tenant: str


async def main(names: list[str]) -> None:
    async with AsyncExitStack() as stack:
        directory = stack.enter_context(tempfile.TemporaryDirectory())
        dsn = await stack.enter_async_context(embedded_postgres(Path(directory) / "data"))
        pool = await connect(dsn, size=4)
        await migrate(pool, dimensions=LocalEmbedder.dimensions)
        database = StoreDatabase(pool, lock_timeout_ms=5000, on_lock_wait=lambda seconds: None)
        stack.push_async_callback(database.pool.aclose)
        models = StoreModels()
        stack.push_async_callback(models.aclose)
        bench = Bench(database, models, secrets.token_hex(32))
        rows = [await row(bench, name) for name in names]
    best = max(SWEEP, key=lambda weight: sum(each[f"meaning_{weight}"] for each in rows))
    met = all(each["default"] >= max(each["words"], each["vectors"]) - TOLERANCE for each in rows)
    print(f"best weight of meaning over all sets: {best}")
    report("store_quality", rows, f"nDCG@10 no more than {TOLERANCE} below the better side, with the defaults", met)


async def row(bench: Bench, name: str) -> dict[str, Any]:
    judged = read_judged_set(SETS / name, limit=MOST_QUESTIONS // SHARE if QUICK else MOST_QUESTIONS)
    paths = await indexed(bench, judged)
    by_weight = {weight: await quality(bench, judged, paths, weight) for weight in SWEEP}
    fallback = FallbackSettings()
    default = round(fallback.semantic_weight / (fallback.semantic_weight + fallback.lexical_weight), 3)
    return {
        "case": name,
        "documents": len(judged.documents),
        "questions": len(judged.queries),
        "words": by_weight[0.0],
        "vectors": by_weight[1.0],
        "default": by_weight[default] if default in by_weight else await quality(bench, judged, paths, default),
        **{f"meaning_{weight}": ndcg for weight, ndcg in by_weight.items()},
    }


async def indexed(bench: Bench, judged: JudgedSet) -> dict[str, str]:
    """Every document as a file that a worker made searchable; the documents by path."""
    scope = Scope(bench.tenant, judged.name)
    index = FileIndex(bench.database, bench.models)
    paths: dict[str, str] = {}
    for number, document in enumerate(judged.documents, 1):
        path = f"/{number:05}.txt"
        content = f"{document.title}\n\n{document.text}".strip().encode()
        async with bench.database.project_transaction(scope) as connection:
            await connection.execute(
                "INSERT INTO mcp_files (apikey_hash, project, path, content, size, version) "
                "VALUES ($1, $2, $3, $4::bytea, octet_length($4::bytea), $5)",
                *(bench.tenant, judged.name, path, content, number),
            )
        await index.write_terms(scope, path)
        await index.embed(scope, path, None)
        paths[path] = document.id
        if number % 250 == 0:
            print(f"{judged.name}: {number} of {len(judged.documents)} documents", file=sys.stderr)
    return paths


async def quality(bench: Bench, judged: JudgedSet, paths: dict[str, str], weight: float) -> float:
    fallback = FallbackSettings(semantic_weight=weight, lexical_weight=1 - weight)
    search = FileSearch(bench.database, bench.models, SearchSettings(fallback=fallback))
    rankings: list[list[str]] = []
    for _, text in judged.queries:
        found = await search.search(bench.tenant, judged.name, text.strip()[:MAX_QUERY_LENGTH], "", CHUNKS, None)
        rankings.append([paths[path] for path in dict.fromkeys(chunk["file_path"] for chunk in found["chunks"])])
    return round(measured(rankings, [judged.grades[name] for name, _ in judged.queries]).ndcg_10, 4)


if __name__ == "__main__":
    present = [name for name in NAMES if (SETS / name).is_dir()]
    for absent in sorted(set(NAMES) - set(present)):
        print(f"{absent}: not in shared/data/retrieval, skipped")
    if present:
        anyio.run(main, present, backend_options={"use_uvloop": True})
