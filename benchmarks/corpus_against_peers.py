"""How do we compare with Chroma and mcp-local-rag: how fast do 300 files become searchable, and how fast is a query?

Each peer is installed for the run, from wherever pip and npm are set up to look. No model is downloaded: Chroma, which
is a library, is asked in its own process and embeds with our model on as many threads, so what differs is storing and
finding; it has vectors only. mcp-local-rag is asked over stdio and embeds with a model of the shape of its own and
random weights, which costs the same; what it finds means nothing. A peer that cannot be installed is left out.
`--quick` takes a twentieth of the files.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import armarium
from armarium.capabilities.corpus.settings import state_directory
from corpus_server import CorpusServer
from prose import Prose, write_documents
from stand_in_model import write_stand_in
from stdio_client import StdioServer
from trial import report, scaled

SEED = 36
FILES = 300
CHARACTERS = 1500
QUESTIONS = 100
WARM_UP = 10
CHROMA = "chromadb==1.5.9"
CHROMA_CHUNK_CHARACTERS = 1000
LOCAL_RAG = "mcp-local-rag@0.19.1"
LOCAL_RAG_MODEL = "Xenova/all-MiniLM-L6-v2"
INSTALL_DEADLINE_S = 600
INDEX_DEADLINE_S = 3600
BIN = Path(sys.executable).parent


@dataclass(frozen=True)
class Measured:
    """One contender's figures."""

    indexed_s: float
    asked_s: list[float]

    @property
    def query_ms(self) -> float:
        return median(self.asked_s[WARM_UP:]) * 1000


class NotInstalled(Exception):
    """The peer could not be had here."""


def main() -> None:
    files = scaled(FILES)
    prose = Prose(SEED)
    questions = [prose.question(prose.random.randint(4, 9)) for _ in range(WARM_UP + QUESTIONS)]
    peers: dict[str, Callable[[Path, list[str], Path], Measured]] = {CHROMA: of_chroma, LOCAL_RAG: of_local_rag}
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as directory:
        root, scratch = Path(directory) / "root", Path(directory)
        write_documents(root, prose, files, CHARACTERS)
        print(f"{files} files: ours")
        ours = of_ours(root, questions)
        shutil.rmtree(state_directory(root, None))
        rows.append({"case": "ours, a process of its own, over HTTP", **figures(ours, files)})
        for name, measure in peers.items():
            print(f"{files} files: {name}, installed first")
            try:
                theirs = measure(root, questions, scratch)
            except NotInstalled as reason:
                rows.append({"case": name, "ran": False, "why": str(reason)})
                continue
            rows.append(
                {
                    "case": name,
                    **figures(theirs, files),
                    "ours_indexes_times_faster": round(theirs.indexed_s / ours.indexed_s, 2),
                    "ours_answers_times_faster": round(theirs.query_ms / ours.query_ms, 2),
                }
            )
    ran = [row for row in rows if "ours_indexes_times_faster" in row]
    met = all(row["ours_indexes_times_faster"] >= 1 for row in ran) and bool(ran)
    report("corpus_against_peers", rows, "300 files are searchable sooner than with either peer", met)


def figures(measured: Measured, files: int) -> dict[str, Any]:
    return {
        "files_a_second": round(files / measured.indexed_s, 1),
        "indexed_s": round(measured.indexed_s, 2),
        "query_p50_ms": round(measured.query_ms, 2),
    }


def of_ours(root: Path, questions: list[str]) -> Measured:
    """From the start of the process, its imports included, until everything is found by words and by meaning."""
    with CorpusServer(root) as server:
        server.wait_until_indexed()
        indexed_s = time.perf_counter() - server.started_at
        return Measured(indexed_s, each_s(server.search, questions))


def of_chroma(root: Path, questions: list[str], scratch: Path) -> Measured:
    """From an empty store, model and libraries loaded."""
    home = scratch / "chroma"
    install([sys.executable, "-m", "venv", str(home)])
    python = str(home / "bin" / "python")
    install([python, "-m", "pip", "install", "--quiet", CHROMA])
    assert armarium.__file__ is not None
    ours = [str(Path(armarium.__file__).parent.parent), sysconfig.get_path("purelib")]
    script = str(Path(__file__).with_name("chroma_peer.py"))
    ran = subprocess.run(
        [python, script, str(root), str(CHROMA_CHUNK_CHARACTERS), *ours],
        input="\n".join(questions),
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        timeout=INDEX_DEADLINE_S,
    )
    found = json.loads(ran.stdout)
    return Measured(found["indexed_s"], found["asked_s"])


def of_local_rag(root: Path, questions: list[str], scratch: Path) -> Measured:
    """From the request to index, server and libraries loaded."""
    home = scratch / "local_rag"
    home.mkdir()
    # Its runtime would fetch libraries for graphics cards, which are no part of this.
    environment = {"PATH": f"{BIN}:{os.environ['PATH']}", "ONNXRUNTIME_NODE_INSTALL": "skip"}
    npm = [str(BIN / "npm"), "install", "--no-audit", "--no-fund", "--silent", "--prefix", str(home)]
    install([*npm, LOCAL_RAG], environment | {"ONNXRUNTIME_NODE_INSTALL_CUDA": "skip"})
    texts = [path.read_text() for path in sorted(root.rglob("note_*"))]
    write_stand_in(home / "models" / LOCAL_RAG_MODEL, texts, SEED)
    places = {"BASE_DIR": str(root), "DB_PATH": str(home / "db"), "CACHE_DIR": str(home / "models")}
    command = [str(BIN / "node"), str(home / "node_modules" / "mcp-local-rag" / "dist" / "index.js")]
    server = StdioServer(command, env=places)
    try:
        started = time.perf_counter()
        job = told(server.checked("sync_start", {}))
        while (state := told(server.checked("sync_status", {"jobId": job["jobId"]})))["state"] == "running":
            time.sleep(0.05)
        indexed_s = time.perf_counter() - started
        if state["state"] != "succeeded":
            raise RuntimeError(f"mcp-local-rag could not index: {state}")
        asked_s = each_s(lambda query: server.checked("query_documents", {"query": query, "limit": 10}), questions)
    finally:
        server.close()
    return Measured(indexed_s, asked_s)


def told(result: dict[str, Any]) -> dict[str, Any]:
    return json.loads(result["content"][0]["text"])


def install(command: list[str], environment: dict[str, str] | None = None) -> None:
    env = {**os.environ, **(environment or {})}
    try:
        subprocess.run(command, check=True, env=env, capture_output=True, timeout=INSTALL_DEADLINE_S)
    except (OSError, subprocess.SubprocessError) as error:
        raise NotInstalled(f"could not be installed ({type(error).__name__})") from error


def each_s(ask: Callable[[str], object], questions: list[str]) -> list[float]:
    """Seconds for each question."""
    taken: list[float] = []
    for question in questions:
        started = time.perf_counter()
        ask(question)
        taken.append(time.perf_counter() - started)
    return taken


if __name__ == "__main__":
    main()
