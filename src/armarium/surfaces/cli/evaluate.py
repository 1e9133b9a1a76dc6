"""`armarium eval`: measures retrieval quality on a set of documents, queries and relevance judgements."""

from __future__ import annotations

import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any, Literal

import anyio

from armarium.command_line.output import say, show, show_json
from armarium.retrieval.evaluation import Evaluation, evaluate, read_judged_set

IndexOption = Literal["auto", "text", "code"]

_COLUMNS = {"ndcg_10": "nDCG@10", "recall_10": "recall@10", "recall_100": "recall@100", "mrr_10": "MRR@10"}


def evaluate_set(directory: Path, *, index: IndexOption = "auto", limit: int | None = None, as_json: bool) -> None:
    evaluation = anyio.run(_evaluate, directory, index, limit)
    if as_json:
        show_json(_as_json(evaluation))
        return
    for line in _table(evaluation):
        show(line)


async def _evaluate(directory: Path, index: IndexOption, limit: int | None) -> Evaluation:
    from armarium.providers.local.embedder import LocalEmbedder

    printed: dict[str, int] = {}

    def show_progress(phase: str, done: int, total: int) -> None:
        """Print a line for every tenth of the work, at a terminal only."""
        tenth = done * 10 // total
        if sys.stderr.isatty() and printed.get(phase) != tenth:
            printed[phase] = tenth
            say(f"{phase}: {done} of {total}")

    judged = read_judged_set(directory, limit=limit)
    embedder = LocalEmbedder()
    try:
        return await evaluate(judged, embedder, kind=None if index == "auto" else index, progress=show_progress)
    finally:
        await embedder.aclose()


def _as_json(evaluation: Evaluation) -> dict[str, Any]:
    return {
        "set": evaluation.name,
        "index": evaluation.index,
        "documents": evaluation.documents,
        "queries": evaluation.queries,
        "measures": {
            method: {name: round(value, 4) for name, value in asdict(measures).items()}
            for method, measures in evaluation.measures.items()
        },
    }


def _table(evaluation: Evaluation) -> list[str]:
    counts = f"{evaluation.documents} documents, {evaluation.queries} queries"
    head = f"{evaluation.name}: {counts}, index {evaluation.index}"
    rows = [head, f"{'':8}" + "".join(f"{name:>12}" for name in _COLUMNS.values())]
    for method, measures in evaluation.measures.items():
        values = asdict(measures)
        rows.append(f"{method:8}" + "".join(f"{values[field]:12.4f}" for field in _COLUMNS))
    return rows
