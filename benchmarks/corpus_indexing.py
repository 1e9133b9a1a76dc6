"""How fast does a directory of prose become searchable by words, from the walk to the commit?

The peer is tantivy alone, fed the same text from memory in pieces as long as our chunks: it walks nothing, reads
nothing, looks for no secrets and keeps no text. Then, with the real server: how long from its start to the first hit
in a directory it has never seen? `--quick` takes a twentieth of the files.
"""

from __future__ import annotations

import resource
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tantivy

from corpus_engine import words_engine
from corpus_server import CorpusServer
from measure import Cost, compared, cost_of
from prose import Prose, write_documents
from trial import report, scaled

SEED = 31
RUNS = 3
WANTED_MB_PER_S = 8.0
WANTED_FIRST_HIT_S = 2.0
FIRST_HIT_FILES = 10_000
FIRST_HIT_DEADLINE_S = 120.0
CHUNK_CHARACTERS = 2500
HEAP_BYTES = 24_000_000
"""What our own writer has."""


@dataclass(frozen=True)
class Case:
    """A directory of prose."""

    files: int
    characters: int


CASES = [Case(2_000, 15_600), Case(10_000, 2_700)]


def main() -> None:
    prose = Prose(SEED)
    rows = [throughput(prose, Case(scaled(case.files), case.characters)) for case in CASES]
    first = first_hit(prose, scaled(FIRST_HIT_FILES))
    met = all(row["ours_mb_a_second"] >= WANTED_MB_PER_S for row in rows) and first["first_hit_s"] <= WANTED_FIRST_HIT_S
    goal = f"{WANTED_MB_PER_S:g} MB of text a second; first hit within {WANTED_FIRST_HIT_S:g} s of the server's start"
    report("corpus_indexing", [*rows, first], goal, met)


def throughput(prose: Prose, case: Case) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as directory:
        top = Path(directory) / "root"
        megabytes = write_documents(top, prose, case.files, case.characters) / 1e6
        texts = [path.read_text() for path in sorted(top.rglob("*")) if path.is_file()]
        print(f"indexing {case.files} files, {megabytes:.1f} MB, {RUNS} times, in turns with tantivy alone")
        ours: list[Cost] = []
        workers: list[float] = []
        peer: list[Cost] = []
        for run in range(RUNS):
            before_s = ended_children_cpu_s()
            ours.append(index_ours(top, Path(directory) / f"state_{run}", case.files))
            workers.append(ended_children_cpu_s() - before_s)
            peer.append(cost_of(lambda: index_bare(texts)))
    best_ours, best_peer = least(ours), least(peer)
    return compared(
        f"{case.files} files of {megabytes * 1000 / case.files:.1f} kB",
        best_ours,
        best_peer,
        ours_mb_a_second=round(megabytes / best_ours.wall_s, 1),
        ours_mb_a_cpu_second=round(megabytes / best_ours.cpu_s, 1),
        peer_mb_a_second=round(megabytes / best_peer.wall_s, 1),
        of_it_workers_cpu_s=round(min(workers), 3),
        ours_files_a_second=round(case.files / best_ours.wall_s),
    )


def index_ours(top: Path, state_dir: Path, files: int) -> Cost:
    """Workers' CPU is in it, and the time they take to start; opening and closing the state is not in the wall time."""
    wall_s = 0.0

    def index() -> None:
        nonlocal wall_s
        with words_engine(top, state_dir) as engine:
            started = time.perf_counter()
            engine.scan()
            wall_s = time.perf_counter() - started
            if engine.indexed != files:
                raise RuntimeError(f"{engine.indexed} of {files} files were indexed")

    return Cost(cost_of(index, children=True).cpu_s, wall_s)


def index_bare(texts: list[str]) -> None:
    schema = tantivy.SchemaBuilder().add_integer_field("chunk", indexed=True, fast=True)
    schema = schema.add_text_field("body", tokenizer_name="en_stem", index_option="freq").build()
    with tempfile.TemporaryDirectory() as directory:
        writer = tantivy.Index(schema, path=directory).writer(HEAP_BYTES, num_threads=1)
        number = 0
        for text in texts:
            for start in range(0, len(text), CHUNK_CHARACTERS):
                number += 1
                writer.add_document(tantivy.Document(chunk=number, body=text[start : start + CHUNK_CHARACTERS]))
        writer.commit()


def first_hit(prose: Prose, files: int) -> dict[str, Any]:
    print(f"starting the server on {files} files it has never seen")
    with tempfile.TemporaryDirectory() as directory:
        top = Path(directory)
        write_documents(top, prose, files, CASES[1].characters)
        with CorpusServer(top) as server:
            answered_s = time.perf_counter() - server.started_at
            server.search_until(prose.question(6), lambda hit: True, FIRST_HIT_DEADLINE_S)
            hit_s = time.perf_counter() - server.started_at
    case = f"from the start of the server to the first hit, {files} new files"
    return {"case": case, "session_open_s": round(answered_s, 3), "first_hit_s": round(hit_s, 3)}


def ended_children_cpu_s() -> float:
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    return ended.ru_utime + ended.ru_stime


def least(costs: list[Cost]) -> Cost:
    return Cost(min(cost.cpu_s for cost in costs), min(cost.wall_s for cost in costs))


if __name__ == "__main__":
    main()
