"""Runs within the peer's own environment: takes findings in, answers questions, and prints what both cost.

Standard input is one JSON object: `scans` by source, `questions` as arguments of a listing (`offset` -1 is the last
page), and how many `runs` each question has. Standard output is the same kind of object with CPU seconds.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from filigree.core import FiligreeDB  # type: ignore[import-not-found]


def main() -> None:
    job = json.load(sys.stdin)
    with tempfile.TemporaryDirectory() as directory:
        database = FiligreeDB(Path(directory) / "peer.db", prefix="peer", project_root=directory)
        database.initialize()
        imports_s: dict[str, list[float]] = {}
        for source, findings in job["scans"].items():
            imports_s[source] = [cpu_s(lambda: apply_report(database, source, findings)) for _ in range(job["imports"])]  # noqa: B023
        pages_s = [page_s(database, question, job["runs"]) for question in job["questions"]]
        database.close()
    json.dump({"imports_s": imports_s, "pages_s": pages_s}, sys.stdout)


def apply_report(database: Any, source: str, findings: list[dict[str, Any]]) -> None:
    database.process_scan_results(scan_source=source, findings=findings, mark_unseen=True)


def page_s(database: Any, question: dict[str, Any], runs: int) -> float:
    if question["offset"] < 0:
        total = database.list_files_paginated(**question | {"offset": 0, "limit": 1})["total"]
        question = question | {"offset": max(0, total - question["limit"])}
    return min(cpu_s(lambda: json.dumps(database.list_files_paginated(**question))) for _ in range(runs))


def cpu_s(work: Any) -> float:
    started = time.process_time()
    work()
    return time.process_time() - started


main()
