"""Measures the quality of lexical, vector and hybrid search on a judged set (nDCG, recall, MRR).

Each document of a set is one chunk of one index: neither the chunker nor the fusion of two indexes is measured.
"""

from __future__ import annotations

import json
import math
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

import anyio.to_thread

from armarium.foundation.errors import ArmariumError
from armarium.providers.interfaces import Embedder, embedding_input
from armarium.retrieval.chunks import IndexKind
from armarium.retrieval.search.fusion import CANDIDATES, Ranking
from armarium.retrieval.search.hybrid import embed_query, hybrid_search
from armarium.retrieval.search.index_choice import looks_like_code
from armarium.retrieval.search.lexical_index import LexicalChunk, LexicalIndex
from armarium.retrieval.search.vector_index import VectorIndex

_EMBED_BATCH: Final = 64
_SAMPLED_DOCUMENTS: Final = 100

Means = Literal["words", "vectors", "hybrid"]
Progress = Callable[[str, int, int], None]
"""Called with the stage, the number of items done, and their total."""


class UnreadableSet(ArmariumError, code="EVAL_SET_UNREADABLE"):
    """The directory does not contain a valid judged set."""


@dataclass(frozen=True, slots=True)
class JudgedDocument:
    id: str
    title: str
    text: str


@dataclass(frozen=True, slots=True)
class JudgedSet:
    """Documents, queries, and human relevance grades."""

    name: str
    documents: Sequence[JudgedDocument]
    queries: Sequence[tuple[str, str]]
    """Id and text of each query with at least one relevant document."""
    grades: Mapping[str, Mapping[str, int]]
    """The judged documents of each query; 0 is not relevant."""


@dataclass(frozen=True, slots=True)
class Measures:
    """The quality of rankings, averaged over the queries, 0 to 1."""

    ndcg_10: float
    """Normalised discounted cumulative gain; the gain of a document is its grade."""
    recall_10: float
    recall_100: float
    mrr_10: float


@dataclass(frozen=True, slots=True)
class Evaluation:
    name: str
    index: IndexKind
    documents: int
    queries: int
    measures: Mapping[Means, Measures]


def read_judged_set(directory: Path, *, limit: int | None = None) -> JudgedSet:
    """Read `docs.jsonl` (id, title, text), `queries.jsonl` (id, text) and `qrels.tsv` (query, document, grade)."""
    try:
        documents = [
            JudgedDocument(str(row["id"]), str(row.get("title") or ""), str(row["text"]))
            for row in _json_lines(directory / "docs.jsonl")
        ]
        grades: dict[str, dict[str, int]] = {}
        for line in _lines(directory / "qrels.tsv"):
            query, document, grade = line.split("\t")
            grades.setdefault(query, {})[document] = int(grade)
        queries = [(str(row["id"]), str(row["text"])) for row in _json_lines(directory / "queries.jsonl")]
    except FileNotFoundError as error:
        missing = Path(error.filename).name
        raise UnreadableSet(
            f"{directory.name} has no {missing}", hint="a set is docs.jsonl, queries.jsonl and qrels.tsv"
        ) from None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UnreadableSet(f"{directory.name} cannot be read: {error}") from error
    judged = [(name, text) for name, text in queries if any(grade > 0 for grade in grades.get(name, {}).values())]
    if not documents or not judged:
        raise UnreadableSet(f"{directory.name} has no query with a relevant document")
    return JudgedSet(directory.resolve().name, documents, judged[:limit], grades)


def _no_progress(stage: str, done: int, total: int) -> None: ...


async def evaluate(
    judged: JudgedSet, embedder: Embedder, *, kind: IndexKind | None = None, progress: Progress = _no_progress
) -> Evaluation:
    """Index the set, by default as code if most of it looks like code, and run every query in three ways."""
    sample = judged.documents[:_SAMPLED_DOCUMENTS]
    kind = kind or ("code" if sum(looks_like_code(each.text) for each in sample) * 2 > len(sample) else "text")
    vectors = await _vectors(judged, kind, embedder, progress)
    rankings: dict[Means, list[list[str]]] = {"words": [], "vectors": [], "hybrid": []}

    def add(means: Means, found: Ranking) -> None:
        rankings[means].append([judged.documents[int(place)].id for place in found.ids[:100]])

    with (
        tempfile.TemporaryDirectory(prefix="armarium-eval-") as directory,
        closing(await anyio.to_thread.run_sync(_lexical_index, judged, kind, Path(directory))) as lexical,
    ):
        for number, (_, text) in enumerate(judged.queries, 1):
            query = await embed_query(text, (kind,), {kind: embedder})
            add("words", lexical.search(text, CANDIDATES, kind=kind))
            add("vectors", vectors.search(query.vectors[kind], CANDIDATES))
            add("hybrid", hybrid_search(lexical, {kind: vectors}, query))
            progress("questions", number, len(judged.queries))
    grades = [judged.grades[name] for name, _ in judged.queries]
    measures: dict[Means, Measures] = {means: measured(ranked, grades) for means, ranked in rankings.items()}
    return Evaluation(judged.name, kind, len(judged.documents), len(judged.queries), measures)


def measured(rankings: Sequence[Sequence[str]], grades: Sequence[Mapping[str, int]]) -> Measures:
    """The measures of rankings (document ids, best first) against the grades of their queries."""
    each = [_of_one(ranking, judged) for ranking, judged in zip(rankings, grades, strict=True)]
    return Measures(*(sum(column) / len(each) for column in zip(*each, strict=True)))


def _of_one(ranking: Sequence[str], grades: Mapping[str, int]) -> tuple[float, float, float, float]:
    gains = [max(0, grades.get(document, 0)) for document in ranking[:100]]
    ideal = sorted((grade for grade in grades.values() if grade > 0), reverse=True)
    first = next((place for place, gain in enumerate(gains[:10], 1) if gain), None)
    return (
        _discounted(gains[:10]) / _discounted(ideal[:10]),
        sum(gain > 0 for gain in gains[:10]) / len(ideal),
        sum(gain > 0 for gain in gains) / len(ideal),
        1 / first if first else 0.0,
    )


def _discounted(gains: Sequence[int]) -> float:
    return sum(gain / math.log2(place + 1) for place, gain in enumerate(gains, 1))


async def _vectors(judged: JudgedSet, kind: IndexKind, embedder: Embedder, progress: Progress) -> VectorIndex:
    import numpy

    is_code = kind == "code"
    texts = [embedding_input(embedder, each.title, each.text, is_code=is_code) for each in judged.documents]
    index: VectorIndex | None = None
    for start in range(0, len(texts), _EMBED_BATCH):
        rows = await embedder.embed(texts[start : start + _EMBED_BATCH])
        index = index or VectorIndex(rows.shape[1])
        ids = numpy.arange(start, start + len(rows), dtype=numpy.int64)
        await anyio.to_thread.run_sync(index.add, ids, rows)
        progress("documents", start + len(rows), len(texts))
    assert index is not None  # A set always has documents.
    return index


def _lexical_index(judged: JudgedSet, kind: IndexKind, directory: Path) -> LexicalIndex:
    index = LexicalIndex.open(directory)
    index.add(
        LexicalChunk(number, number, kind, document.title, "", document.text)
        for number, document in enumerate(judged.documents)
    )
    index.commit()
    return index


def _json_lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in _lines(path)]


def _lines(path: Path) -> list[str]:
    """The non-empty lines of a file. Only `\\n` ends a line: JSON strings may contain U+2028."""
    return [line for line in path.read_text(encoding="utf-8").split("\n") if line.strip()]
