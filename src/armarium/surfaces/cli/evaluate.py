"""`armarium eval`: how well the search finds what people judged relevant in a set of documents and questions."""

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
    """Measure the search on a judged set, and show what came out."""
    evaluation = anyio.run(_evaluated, directory, index, limit)
    if as_json:
        show_json(_as_json(evaluation))
        return
    for line in _table(evaluation):
        show(line)


async def _evaluated(directory: Path, index: IndexOption, limit: int | None) -> Evaluation:
    from armarium.providers.local.embedder import LocalEmbedder

    judged = read_judged_set(directory, limit=limit)
    embedder = LocalEmbedder()
    try:
        return await evaluate(judged, embedder, kind=None if index == "auto" else index, progress=_told_progress())
    finally:
        await embedder.aclose()


def _told_progress() -> Any:
    """Tells a person at a terminal about every tenth of the work; a log or a pipe hears nothing."""
    if not sys.stderr.isatty():
        return None
    told: dict[str, int] = {}

    def tell(what: str, done: int, of: int) -> None:
        tenth = done * 10 // of
        if told.get(what) != tenth:
            told[what] = tenth
            say(f"{what}: {done} of {of}")

    return tell


def _as_json(evaluation: Evaluation) -> dict[str, Any]:
    return {
        "set": evaluation.name,
        "index": evaluation.index,
        "documents": evaluation.documents,
        "queries": evaluation.queries,
        "measures": {
            means: {name: round(value, 4) for name, value in asdict(measures).items()}
            for means, measures in evaluation.measures.items()
        },
    }


def _table(evaluation: Evaluation) -> list[str]:
    head = (
        f"{evaluation.name}: {evaluation.documents} documents, {evaluation.queries} queries, index {evaluation.index}"
    )
    rows = [head, f"{'':8}" + "".join(f"{name:>12}" for name in _COLUMNS.values())]
    for means, measures in evaluation.measures.items():
        values = asdict(measures)
        rows.append(f"{means:8}" + "".join(f"{values[field]:12.4f}" for field in _COLUMNS))
    return rows
