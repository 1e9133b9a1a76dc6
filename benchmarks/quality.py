"""How good is hybrid search compared with lexical and with vector search alone, on judged sets?

The peers are the two parts of our own search, on the same indexes and queries. The judged sets are read from
`../shared/data/retrieval`; missing sets are skipped.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import anyio

from armarium.providers.local.embedder import LocalEmbedder
from armarium.retrieval.evaluation import Evaluation, evaluate, read_judged_set
from measure import report

SETS = Path(__file__).parent.parent.parent / "shared" / "data" / "retrieval"
WANTED = {"cranfield": 0.44, "cisi": 0.47, "cosqa-dev": 0.63, "xquad-en": 0.98, "xquad-es": None}
"""The nDCG@10 to reach. None: not below lexical search, because the model was not trained on the language."""
TOLERANCE = 0.002
"""Smaller differences of nDCG are ignored."""


def main() -> None:
    names = sys.argv[1:] or list(WANTED)
    present = [name for name in names if (SETS / name).is_dir()]
    for name in names:
        if name not in present:
            print(f"{name}: not in {SETS.parent.parent.name}/{SETS.parent.name}/{SETS.name}, skipped")
    if not present:
        return
    evaluations = anyio.run(measured, present)
    rows = [row(evaluation) for evaluation in evaluations]
    goal = "nDCG@10 of at least " + ", ".join(f"{wanted} on {name}" for name, wanted in WANTED.items() if wanted)
    report("quality", rows, f"{goal}; nowhere below the better part", all(each["met"] for each in rows))


async def measured(names: list[str]) -> list[Evaluation]:
    embedder = LocalEmbedder()
    try:
        return [await evaluate(read_judged_set(SETS / name), embedder) for name in names]
    finally:
        await embedder.aclose()


def row(evaluation: Evaluation) -> dict[str, Any]:
    ndcg = {means: round(found.ndcg_10, 4) for means, found in evaluation.measures.items()}
    better_part = max(ndcg["words"], ndcg["vectors"])
    wanted = WANTED.get(evaluation.name)
    return {
        "case": evaluation.name,
        "index": evaluation.index,
        "words": ndcg["words"],
        "vectors": ndcg["vectors"],
        "hybrid": ndcg["hybrid"],
        "gain_over_better_part": round(ndcg["hybrid"] - better_part, 4),
        "recall_100": round(evaluation.measures["hybrid"].recall_100, 4),
        "wanted": wanted,
        "met": ndcg["hybrid"] >= better_part - TOLERANCE and ndcg["hybrid"] >= (wanted or 0),
    }


if __name__ == "__main__":
    main()
