"""How much CPU does grep take on a gigabyte of source, compared with ripgrep, and are the hits the same?

`rg -uu` uses all cores and we use one thread, so CPU seconds are compared and wall seconds are only shown.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from armarium.capabilities.sandbox.search.grep import GrepResult, Query, grep
from armarium.foundation.concurrency.cancellation import Cancellation
from armarium.foundation.files.walk import Bounds
from measure import best_of_each, compared, report
from source_tree import make_source_tree

TOTAL_BYTES = 1_100_000_000
SEED = 20
NO_LIMIT = 10**9


@dataclass(frozen=True)
class Case:
    """A pattern, and the maximum ratio to ripgrep's CPU; None: no limit."""

    kind: str
    pattern: str
    goal: float | None
    fold: bool = False
    runs: int = 5
    max_results: int = NO_LIMIT


CASES = [
    Case("literal", "zebra_quota_exceeded", 1.5),
    Case("literal of common letters, no hit", "internal_reader_not", 1.5),
    Case("case-insensitive literal", "zebra_quota_exceeded", 1.5, fold=True),
    Case("case-insensitive literal of common letters", "systempanic", 1.5, fold=True),
    Case("alternation of literals, ten thousand hits", "TODO|FIXME", 1.5),
    Case("the same, case-insensitive", "todo|fixme", 1.5, fold=True),
    Case("alternation of literals, few hits", "HACK|KLUDGE", 1.5),
    Case("the same, case-insensitive", "hack|kludge", 1.5, fold=True),
    Case("regex with a literal", r"\w+Panic\(", 1.5),
    Case("regex with a literal", r"raise System\w+\(", 1.5),
    Case("regex with a literal, anchored", r"^\s+raise SystemPanic\(.*\)$", 1.5),
    Case("regex without a literal", r"[0-9]{4}, *$", 4, runs=3),
    Case("regex without a literal", r"\([a-z]+, [A-Z]+_[A-Z]{14}\)", 4, runs=3),
    Case("regex without a literal, anchored", r"^ {4}[a-z]{3,4}\[[A-Z]{4}_", 4, runs=3),
    Case("tens of thousands of hits", "timeout", None),
    Case("the same, the first hundred", "timeout", None, max_results=100),
]


def main() -> None:
    with tempfile.TemporaryDirectory() as directory:
        top = Path(directory) / "tree"
        top.mkdir()
        files = make_source_tree(top, TOTAL_BYTES, SEED)
        print(f"{files} files, {TOTAL_BYTES / 1e9:g} GB")
        rows = [row for case in CASES for row in measured(case, top, Path(directory) / "rg.out")]
    met = all(row["same_hits"] and (row["goal"] is None or row["cpu_ratio"] <= row["goal"]) for row in rows)
    report("grep_vs_ripgrep", rows, "at most 1.5 (without a literal: 4) times the CPU of rg -uu, the same hits", met)


def measured(case: Case, top: Path, output: Path) -> list[dict[str, Any]]:
    contenders = {
        "ours": lambda: ours(case, top),
        "rg": lambda: ripgrep(case, top, output),
        "rg -j1": lambda: ripgrep(case, top, output, "-j1"),
    }
    best = best_of_each(case.runs, contenders, children=True)
    found = ours(case, top)
    ripgrep(case, top, output)
    same = same_hits(found, output)
    name = f"{case.kind}: {'(?i)' if case.fold else ''}{case.pattern}"
    shared = {"hits": len(found.matches), "same_hits": same}
    return [
        compared(f"{name} / rg -uu", best["ours"], best["rg"], goal=case.goal, **shared),
        compared(f"{name} / rg -uu -j1", best["ours"], best["rg -j1"], goal=None, **shared),
    ]


def ours(case: Case, top: Path) -> GrepResult:
    query = Query(case.pattern, case_insensitive=case.fold, max_results=case.max_results)
    fd = os.open(top, os.O_RDONLY | os.O_DIRECTORY)
    try:
        return grep(fd, "", query, bounds=Bounds(time.monotonic() + 600), cancellation=Cancellation())
    finally:
        os.close(fd)


def ripgrep(case: Case, top: Path, output: Path, *options: str) -> None:
    fold = ["-i"] if case.fold else []
    command = ["rg", "-uu", "-n", "--no-heading", *fold, *options, "-e", case.pattern, "."]
    with output.open("wb") as stdout:
        subprocess.run(command, cwd=top, stdin=subprocess.DEVNULL, stdout=stdout, check=False)


def same_hits(found: GrepResult, output: Path) -> bool:
    """Whether the results equal those of ripgrep, or the first of them if the search stopped early."""
    expected: list[tuple[str, int, str]] = []
    for row in output.read_bytes().splitlines():
        file, number, text = row.decode("utf-8", "replace").split(":", 2)
        expected.append((file.removeprefix("./"), int(number), text))
    actual = [(hit.file, hit.line_number, hit.line_content) for hit in found.matches]
    expected.sort(key=lambda hit: hit[:2])
    return actual == (expected[: len(actual)] if found.truncated else expected)


if __name__ == "__main__":
    main()
