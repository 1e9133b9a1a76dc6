"""How long does one hybrid query take through MCP, and what does the server hold in memory, as the corpus grows?

A real server and a bare client. Texts are made up, and so are the chunks' vectors (embedding 100,000 would take most
of an hour); questions are embedded by the real model. The peer is a scan of the same vectors with numpy, which
misses nothing: it also tells the recall. 500,000 chunks only with `--large`; `--quick` takes a twentieth.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import numpy

from armarium.capabilities.corpus.index.state import META_FILE
from armarium.capabilities.corpus.index.vectors import unpack_vectors, vector_file
from armarium.capabilities.corpus.settings import ChunkingSettings, CorpusSettings, state_directory
from armarium.capabilities.corpus.storage.storage import Storage
from armarium.providers.local.embedder import LocalEmbedder
from armarium.retrieval.search.vector_index import VectorIndex
from corpus_engine import CheapVectors, index_with
from corpus_server import CorpusServer
from prose import Prose, paths
from trial import report, scaled

SEED = 33
GOALS_MS = {10_000: 12.0, 100_000: 15.0}
LARGE_GOALS_MS = {500_000: 25.0}
MEMORY_GOAL_MB = {100_000: 350.0}
RECALL_GOAL = 0.98
QUERIES = 200
WARM_UP = 20
CHUNKS_PER_FILE = 50
CHUNK_CHARACTERS = 380
CHUNKING = ChunkingSettings(max_chars=400, overlap_chars=0, min_chars=0)


def main() -> None:
    goals = GOALS_MS | (LARGE_GOALS_MS if "--large" in sys.argv[1:] else {})
    print("embedding the real texts that made-up vectors are mixed of")
    vectors = CheapVectors(SEED)
    measured = [measure(vectors, chunks, goal_ms) for chunks, goal_ms in goals.items()]
    rows = [row for found, _ in measured for row in found]
    goal = ", ".join(f"{goal_ms:g} ms at {chunks:,}" for chunks, goal_ms in goals.items())
    goal = f"p50 of {goal} chunks; 350 MB at 100,000; recall@10 of {RECALL_GOAL}"
    report("corpus_queries", rows, goal, all(met for _, met in measured))


def measure(vectors: CheapVectors, chunks: int, goal_ms: float) -> tuple[list[dict[str, Any]], bool]:
    size = scaled(chunks)
    with tempfile.TemporaryDirectory() as directory:
        root = Path(directory)
        prose = Prose(SEED)
        write_chunks(root, prose, size)
        print(f"indexing {size} chunks with made-up vectors")
        started = time.perf_counter()
        index_with(vectors, CorpusSettings(root=str(root), chunking=CHUNKING))
        print(f"indexed in {time.perf_counter() - started:.0f} s; asking {QUERIES} questions")
        questions = [prose.question(prose.random.randint(3, 9)) for _ in range(WARM_UP + QUERIES)]
        served = asked_of_server(root, questions)
        recalled = compared_with_scan(root, questions[WARM_UP:])
    met = (
        served["p50_ms"] <= goal_ms
        and served["server_rss_mb"] <= MEMORY_GOAL_MB.get(chunks, float("inf"))
        and recalled["recall_10"] >= RECALL_GOAL
    )
    case = f"{served['chunks']} chunks"
    return [{"case": case, **served, "goal_ms": goal_ms}, {"case": f"{case}, vectors alone", **recalled}], met


def write_chunks(root: Path, prose: Prose, chunks: int) -> None:
    """Files with one chunk to a paragraph."""
    chunking = CHUNKING.model_dump(include={"max_chars", "overlap_chars", "min_chars"})
    (root / ".dir2mcp.yaml").write_text(
        "chunking:\n" + "".join(f"  {name}: {value}\n" for name, value in chunking.items())
    )
    for path in paths(root, chunks // CHUNKS_PER_FILE, ("txt",)):
        path.write_text("\n\n".join(prose.paragraph(CHUNK_CHARACTERS) for _ in range(CHUNKS_PER_FILE)) + "\n")


def asked_of_server(root: Path, questions: list[str]) -> dict[str, Any]:
    with CorpusServer(root) as server:
        counts = server.wait_until_indexed()
        if counts["indexed"] or counts["embedded_ok"] != counts["chunks_total"]:
            raise RuntimeError(f"the server found something left to do: {counts}")
        loaded_s = time.perf_counter() - server.started_at
        for question in questions[:WARM_UP]:
            server.search(question)
        found = timed(lambda question: server.search(question), questions[WARM_UP:])
        bare = timed(lambda question: server.call("stats", {}), questions[WARM_UP:])
        return {
            "chunks": counts["chunks_total"],
            **found,
            "p50_of_an_empty_call_ms": bare["p50_ms"],
            "at_rest_after_s": round(loaded_s, 2),
            **server.memory_mb(),
        }


async def query_vectors(questions: list[str]) -> dict[str, Any]:
    embedder = LocalEmbedder()
    try:
        return {question: await embedder.embed_query(question) for question in questions}
    finally:
        await embedder.aclose()


def compared_with_scan(root: Path, questions: list[str]) -> dict[str, Any]:
    """The index's answers against those of a scan of the very same vectors; its graph alone, too, whatever its size."""
    state_dir = state_directory(root, None)
    storage = Storage(state_dir / META_FILE)
    stored = storage.embeddings.of_chunks(LocalEmbedder.model, "text")
    ids = numpy.array([chunk_id for chunk_id, _ in stored], numpy.int64)
    matrix = unpack_vectors([vector for _, vector in stored])
    storage.close()
    asked = anyio.run(query_vectors, questions)
    file = state_dir / vector_file("text")
    as_served = VectorIndex.load(file, LocalEmbedder.dimensions)
    graph = VectorIndex.load(file, LocalEmbedder.dimensions, scan_below=0)

    def scan(question: str) -> set[int]:
        scores = matrix @ asked[question]
        return set(ids[numpy.argpartition(-scores, 10)[:10]].tolist())

    def recall(index: VectorIndex) -> float:
        right = sum(len(scan(each) & set(index.search(asked[each], 100).ids[:10].tolist())) for each in questions)
        return round(right / len(questions) / 10, 4)

    ours_ms, graph_ms = (
        timed(lambda question, index=index: index.search(asked[question], 100), questions)["p50_ms"]
        for index in (as_served, graph)
    )
    peer_ms = timed(scan, questions)["p50_ms"]
    return {
        "recall_10": recall(as_served),
        "graph_recall_10": recall(graph),
        "p50_ms": ours_ms,
        "graph_p50_ms": graph_ms,
        "peer_p50_ms": peer_ms,
        "ratio": round(ours_ms / peer_ms, 3),
    }


def timed(work: Callable[[str], object], questions: list[str]) -> dict[str, float]:
    taken: list[float] = []
    for question in questions:
        started = time.perf_counter()
        work(question)
        taken.append((time.perf_counter() - started) * 1000)
    taken.sort()
    return {"p50_ms": round(taken[len(taken) // 2], 2), "p95_ms": round(taken[int(len(taken) * 0.95)], 2)}


if __name__ == "__main__":
    main()
