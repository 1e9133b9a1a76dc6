"""What is the throughput of the local embedder compared with the bare runtime, and what is the latency of a query?

The peer is the bare runtime: the same graph on the same inputs, tokenised beforehand, on as many threads. The rows on
batches show that batching does not help; the rows on queries show the latency, alone and while chunks are embedded.
"""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pydoc_data.topics import topics
from statistics import median
from typing import Any

import anyio
import numpy as np
from anyio.from_thread import start_blocking_portal

from armarium.providers.local.embedder import LocalEmbedder
from armarium.providers.local.encoder import Encoder
from measure import best_of_each, compared, report

CHUNK_CHARACTERS = 1000
CHUNKS = 64
RUNS = 5
QUERY = "how does a context manager suppress an exception it was given"
QUERIES = 200

MEMORY = """
import anyio, psutil
process = psutil.Process()
bare = process.memory_info().rss
from armarium.providers.local.embedder import LocalEmbedder
async def main():
    embedder = LocalEmbedder()
    await embedder.embed_query("first query")
    await embedder.embed(["a first chunk of some words " * 30] * 16)
    print(process.memory_info().rss - bare)
anyio.run(main)
"""


def main() -> None:
    texts = chunks()
    encoder, embedder, threads = Encoder(), LocalEmbedder(), min(os.cpu_count() or 1, 4)
    words = [encoder.words(text) for text in texts]

    def bare_runtime() -> None:
        with ThreadPoolExecutor(threads) as pool:
            list(pool.map(encoder.run, words))

    with start_blocking_portal() as portal:
        portal.call(embedder.embed, texts[:4])
        costs = best_of_each(RUNS, {"ours": lambda: portal.call(embedder.embed, texts), "peer": bare_runtime})
    size = sum(len(text.encode()) for text in texts)
    tokens = sum(text.shape[1] for text in words)
    row = compared(
        f"{CHUNKS} chunks / bare runtime, {threads} threads",
        costs["ours"],
        costs["peer"],
        kilobytes_a_second=round(size / 1000 / costs["ours"].wall_s, 1),
        tokens_a_cpu_second=round(tokens / costs["ours"].cpu_s),
    )
    rows = [row, *(batching(encoder, tokens) for tokens in (32, 128, 256))]
    alone_s, busy_s = anyio.run(query_latencies, texts)
    rows += [{"case": "query, alone", "p50_s": alone_s}, {"case": "query, among chunks", "p50_s": busy_s}]
    rows.append({"case": "memory over a bare interpreter", "megabytes": memory_megabytes()})
    met = row["cpu_ratio"] <= 1 / 0.9 and alone_s <= 0.005 and rows[-1]["megabytes"] <= 170
    goal = "90 % of the bare runtime's throughput for the same CPU; a query in 5 ms; 170 MB"
    report("embedding_throughput", rows, goal, met)


def chunks() -> list[str]:
    prose = "\n".join(topics[name] for name in sorted(topics))
    starts = itertools.islice(range(0, len(prose), CHUNK_CHARACTERS), CHUNKS)
    return [prose[start : start + CHUNK_CHARACTERS] for start in starts]


def batching(encoder: Encoder, tokens: int) -> dict[str, Any]:
    words = np.concatenate([encoder.words("word " * 600)[:, :tokens]] * 16)

    def one_by_one() -> None:
        for text in words:
            encoder.run(text[None])

    costs = best_of_each(RUNS, {"alone": one_by_one, "batch": lambda: encoder.run(words)})
    return compared(f"16 texts of {tokens} tokens one by one / as a batch", costs["alone"], costs["batch"])


async def query_latencies(texts: list[str]) -> tuple[float, float]:
    embedder = LocalEmbedder()
    await embedder.embed(texts[:4])
    alone_s = await query_p50(embedder)
    async with anyio.create_task_group() as group:

        async def chunks_meanwhile() -> None:
            while True:
                await embedder.embed(texts)

        group.start_soon(chunks_meanwhile)
        busy_s = await query_p50(embedder)
        group.cancel_scope.cancel()
    await embedder.aclose()
    return alone_s, busy_s


async def query_p50(embedder: LocalEmbedder) -> float:
    latencies: list[float] = []
    for _ in range(QUERIES):
        started = anyio.current_time()
        await embedder.embed_query(QUERY)
        latencies.append(anyio.current_time() - started)
    return median(latencies)


def memory_megabytes() -> float:
    measured = subprocess.run([sys.executable, "-c", MEMORY], check=True, capture_output=True, text=True)
    return round(int(measured.stdout) / 1e6, 1)


if __name__ == "__main__":
    main()
