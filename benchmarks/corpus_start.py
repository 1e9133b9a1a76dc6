"""How long from starting the server on an indexed directory to its first answered call, and to its first search?

The peer is a bare interpreter that imports the MCP SDK and ends. `--quick` takes a twentieth of the files.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from armarium.capabilities.corpus.settings import CorpusSettings
from corpus_engine import CheapVectors, index_with
from corpus_server import CorpusServer
from prose import Prose, write_documents
from trial import report, scaled

SEED = 34
FILES = 1000
CHARACTERS = 4000
RUNS = 7
GOAL_S = 1.5


def main() -> None:
    files = scaled(FILES)
    with tempfile.TemporaryDirectory() as directory:
        root = Path(directory)
        prose = Prose(SEED)
        write_documents(root, prose, files, CHARACTERS)
        print(f"indexing {files} files, then starting the server on them {2 * RUNS} times")
        index_with(CheapVectors(SEED), CorpusSettings(root=str(root)))
        question = prose.question(6)
        stats_s: list[float] = []
        search_s: list[float] = []
        bare_s: list[float] = []
        for _ in range(RUNS):
            stats_s.append(first_answer(root, lambda server: server.call("stats", {})))
            search_s.append(first_answer(root, lambda server: server.search(question)))
            bare_s.append(first_exit([sys.executable, "-c", "import mcp.server"]))
    peer_s = min(bare_s)
    rows = [row("first answered call", stats_s, peer_s), row("first answered search", search_s, peer_s)]
    met = min(stats_s) <= GOAL_S
    report("corpus_start", rows, f"first answered call in at most {GOAL_S} s", met)


def row(case: str, taken_s: list[float], peer_s: float) -> dict[str, Any]:
    best_s = min(taken_s)
    return {
        "case": case,
        "ours_wall_s": round(best_s, 3),
        "slowest_wall_s": round(max(taken_s), 3),
        "peer_wall_s": round(peer_s, 3),
        "wall_ratio": round(best_s / peer_s, 2),
    }


def first_answer(root: Path, ask: Callable[[CorpusServer], object]) -> float:
    with CorpusServer(root) as server:
        if not ask(server):
            raise RuntimeError("the first answer was empty")
        return time.perf_counter() - server.started_at


def first_exit(command: list[str]) -> float:
    started = time.perf_counter()
    subprocess.run(command, check=True)
    return time.perf_counter() - started


if __name__ == "__main__":
    main()
