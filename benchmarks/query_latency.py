"""How long does one search take in a large index, and what would a plain scan with numpy and SQLite's FTS5 take?

Made-up passages and vectors from a fixed seed; embedding the question is not in it. `query_latency.py N` sets how many
passages.
"""

from __future__ import annotations

import resource
import sqlite3
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy
from numpy.typing import NDArray

from armarium.retrieval.hybrid import Question, Restriction, search
from armarium.retrieval.lexical import WordIndex, WordPassage
from armarium.retrieval.vectors import VectorIndex
from measure import report

PASSAGES = 100_000
DIMENSIONS = 384
QUERIES = 60
WORDS_IN_A_PASSAGE = 120
VOCABULARY = 30_000
SUBJECTS = 2_000
WANTED_P95_MS = 25.0
WANTED_RECALL = 0.98


class Corpus:
    """Passages on subjects: a few words and a direction each, among words and directions of no meaning."""

    def __init__(self, passages: int) -> None:
        self.random = numpy.random.default_rng(7)
        self.passages = passages
        self._frequency = 1 / (numpy.arange(VOCABULARY) + 3)
        self._frequency /= self._frequency.sum()
        self._subjects = self.random.normal(size=(SUBJECTS, DIMENSIONS)).astype(numpy.float32)
        self.of_passage = self.random.integers(0, SUBJECTS, passages)

    def vectors(self, subjects: NDArray[numpy.int64]) -> NDArray[numpy.float32]:
        noise = self.random.normal(size=(len(subjects), DIMENSIONS)).astype(numpy.float32)
        rows = self._subjects[subjects] + noise
        return rows / numpy.linalg.norm(rows, axis=1, keepdims=True)

    def text(self, subject: int, words: int) -> str:
        drawn = self.random.choice(VOCABULARY, words, p=self._frequency)
        own = [f"subject{subject}", f"term{subject * 7 % 5000}"]
        return " ".join([*own, *(f"word{number}" for number in drawn)])


def main() -> None:
    passages = int(sys.argv[1]) if len(sys.argv) > 1 else PASSAGES
    corpus = Corpus(passages)
    matrix = corpus.vectors(corpus.of_passage)
    with tempfile.TemporaryDirectory() as directory:
        words, fts, vectors = build(corpus, matrix, Path(directory))
        rows = measure(corpus, words, fts, vectors, matrix)
        words.close()
    peak = round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
    rows.append({"case": "memory at its highest, with the peers'", "peak_mb": peak})
    slow = [row for row in rows if row.get("p95_ms", 0) > WANTED_P95_MS]
    missed = [row for row in rows if row.get("recall_10", 1) < WANTED_RECALL]
    goal = f"p95 within {WANTED_P95_MS:g} ms at {passages} passages, recall@10 of {WANTED_RECALL} against a scan"
    report("query_latency", rows, goal, not slow and not missed)


def build(
    corpus: Corpus, matrix: NDArray[numpy.float32], directory: Path
) -> tuple[WordIndex, sqlite3.Connection, VectorIndex]:
    vectors = VectorIndex(DIMENSIONS)
    started = time.perf_counter()
    vectors.add(numpy.arange(corpus.passages, dtype=numpy.int64), matrix)
    print(f"vectors added at {(time.perf_counter() - started) / corpus.passages * 1e6:.0f} µs each")
    words = WordIndex.open(directory / "words")
    fts = sqlite3.connect(directory / "fts.sqlite")
    fts.execute("CREATE VIRTUAL TABLE passages USING fts5(body, content='', tokenize='porter unicode61')")
    for start in range(0, corpus.passages, 5000):
        numbers = range(start, min(start + 5000, corpus.passages))
        texts = [corpus.text(int(corpus.of_passage[number]), WORDS_IN_A_PASSAGE) for number in numbers]
        words.add(
            WordPassage(number, number // 10, "code" if number % 4 == 0 else "text", "", "", text)
            for number, text in zip(numbers, texts, strict=True)
        )
        fts.executemany("INSERT INTO passages(rowid, body) VALUES (?, ?)", zip(numbers, texts, strict=True))
    words.commit()
    fts.commit()
    return words, fts, vectors


def measure(
    corpus: Corpus, words: WordIndex, fts: sqlite3.Connection, vectors: VectorIndex, matrix: NDArray[numpy.float32]
) -> list[dict[str, Any]]:
    subjects = corpus.random.integers(0, SUBJECTS, QUERIES)
    questions = [corpus.text(int(subject), 6) for subject in subjects]
    asked = corpus.vectors(subjects)
    few = Restriction(set(range(50)), numpy.arange(500, dtype=numpy.int64))
    half = Restriction(set(range(corpus.passages // 20)), numpy.arange(corpus.passages // 2, dtype=numpy.int64))

    def hybrid(number: int, only: Restriction | None = None) -> object:
        question = Question(questions[number], ("text",), {"text": asked[number]})
        return search(words, {"text": vectors}, question, only=only)

    def with_fts(number: int) -> object:
        match = " OR ".join(questions[number].split())
        return fts.execute(
            "SELECT rowid FROM passages WHERE passages MATCH ? ORDER BY bm25(passages) LIMIT 100", (match,)
        ).fetchall()

    def by_scan(number: int) -> NDArray[numpy.int64]:
        scores = matrix @ asked[number]
        best = numpy.argpartition(-scores, 100)[:100]
        return best[numpy.argsort(-scores[best])]

    found = [set(vectors.search(vector, 100).ids[:10].tolist()) for vector in asked]
    right = sum(len(ids & set(by_scan(number)[:10].tolist())) for number, ids in enumerate(found))
    return [
        {"case": "words", **timed(lambda number: words.search(questions[number], 100))},
        {"case": "words, one kind", **timed(lambda number: words.search(questions[number], 100, kind="text"))},
        {"case": "words, peer: FTS5", **timed(with_fts, peer=True)},
        {
            "case": "vectors",
            **timed(lambda number: vectors.search(asked[number], 100)),
            "recall_10": right / QUERIES / 10,
        },
        {"case": "vectors, peer: numpy scan", **timed(by_scan, peer=True)},
        {"case": "both", **timed(hybrid)},
        {"case": "both, 500 passages allowed", **timed(lambda number: hybrid(number, few))},
        {"case": "both, half of all allowed", **timed(lambda number: hybrid(number, half))},
    ]


def timed(work: Callable[[int], object], *, peer: bool = False) -> dict[str, float]:
    work(0)
    taken: list[float] = []
    for number in range(QUERIES):
        started = time.perf_counter()
        work(number)
        taken.append((time.perf_counter() - started) * 1000)
    taken.sort()
    name = "peer_p95_ms" if peer else "p95_ms"
    return {"p50_ms": round(taken[len(taken) // 2], 2), name: round(taken[int(len(taken) * 0.95)], 2)}


if __name__ == "__main__":
    main()
