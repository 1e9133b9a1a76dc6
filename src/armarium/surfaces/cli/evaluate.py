"""`armarium eval`: measures retrieval quality on a set of documents, queries and relevance judgements."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Literal

import anyio

from armarium.command_line.output import progress_lines, show, show_json
from armarium.retrieval.evaluation import Evaluation, evaluate, read_judged_set

IndexOption = Literal["auto", "text", "code"]

_COLUMNS = {"ndcg_10": "nDCG@10", "recall_10": "recall@10", "recall_100": "recall@100", "mrr_10": "MRR@10"}


def evaluate_set(directory: Path, *, index: IndexOption = "auto", limit: int | None = None, as_json: bool) -> None:
    evaluation = anyio.run(_evaluate, directory, index, limit)
    if as_json:
        measured = {
            method: {name: round(value, 4) for name, value in asdict(measures).items()}
            for method, measures in evaluation.measures.items()
        }
        counts = {"documents": evaluation.documents, "queries": evaluation.queries}
        show_json({"set": evaluation.name, "index": evaluation.index, **counts, "measures": measured})
        return
    counts = f"{evaluation.documents} documents, {evaluation.queries} queries"
    show(f"{evaluation.name}: {counts}, index {evaluation.index}")
    show(f"{'':8}" + "".join(f"{name:>12}" for name in _COLUMNS.values()))
    for method, measures in evaluation.measures.items():
        values = asdict(measures)
        show(f"{method:8}" + "".join(f"{values[field]:12.4f}" for field in _COLUMNS))


async def _evaluate(directory: Path, index: IndexOption, limit: int | None) -> Evaluation:
    from armarium.providers.local.embedder import LocalEmbedder

    judged = read_judged_set(directory, limit=limit)
    embedder = LocalEmbedder()
    try:
        return await evaluate(judged, embedder, kind=None if index == "auto" else index, progress=progress_lines())
    finally:
        await embedder.aclose()
