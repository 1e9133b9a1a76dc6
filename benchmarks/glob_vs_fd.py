"""How much CPU does glob take on 200,000 files, compared with fd, and are the results the same?

fd prints names; glob also tells type, size and time, which takes a stat of each entry found and of no other. fd uses
all cores and we use one thread, so CPU seconds are compared and wall seconds are only shown.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from armarium.capabilities.sandbox.search.glob import GlobResult, NameQuery, glob
from armarium.foundation.concurrency.cancellation import Cancellation
from armarium.foundation.files.walk import Bounds
from measure import best_of_each, compared, report
from source_tree import make_name_tree

RUNS = 15
NO_LIMIT = 10**9
FD = shutil.which("fdfind") or shutil.which("fd") or "fd"


@dataclass(frozen=True)
class Case:
    """A pattern, the arguments of fd for it, and the maximum CPU ratio; None: no limit."""

    kind: str
    pattern: str
    peer: tuple[str, ...]
    goal: float | None = 1.2
    max_results: int = NO_LIMIT


CASES = [
    Case("name with a wildcard", "**/*_042.py", ("--glob", "*_042.py", ".")),
    Case("name with a wildcard, by path", "**/*_042.py", ("--full-path", "--glob", "**/*_042.py", ".")),
    Case("suffix", "**/*.rs", ("--extension", "rs", ".", ".")),
    Case("two wildcards, 10,000 found", "**/name_*_04?.py", ("--glob", "name_*_04?.py", ".")),
    Case("two wildcards, 2,000 found", "**/*_4_04?.py", ("--glob", "*_4_04?.py", ".")),
    Case("below a directory", "pkg_03/**/*_042.py", ("--glob", "*_042.py", "pkg_03")),
    Case("half of all files", "**/*.py", ("--extension", "py", ".", "."), goal=None),
    Case("half of all files, the first hundred", "**/*.py", ("--extension", "py", ".", "."), None, 100),
]


def main() -> None:
    with tempfile.TemporaryDirectory() as directory:
        top = Path(directory) / "tree"
        print(f"{make_name_tree(top)} files")
        rows = [measured(case, top, Path(directory) / "fd.out") for case in CASES]
    met = all(row["same_paths"] and (row["goal"] is None or row["cpu_ratio"] <= row["goal"]) for row in rows)
    report("glob_vs_fd", rows, "at most 1.2 times the CPU of fd -u on 200,000 files, the same paths", met)


def measured(case: Case, top: Path, output: Path) -> dict[str, Any]:
    contenders = {"ours": lambda: ours(case, top), "fd": lambda: fd(case, top, output)}
    best = best_of_each(RUNS, contenders, children=True)
    found = ours(case, top)
    fd(case, top, output)
    actual = [entry.path for entry in found.matches]
    expected = sorted(line.removeprefix("./") for line in output.read_text().splitlines())
    same = actual == (expected[: len(actual)] if found.truncated else expected)
    name = f"{case.kind}: {case.pattern} / fd -u {' '.join(case.peer)}"
    return compared(name, best["ours"], best["fd"], goal=case.goal, found=len(actual), same_paths=same)


def ours(case: Case, top: Path) -> GlobResult:
    top_fd = os.open(top, os.O_RDONLY | os.O_DIRECTORY)
    try:
        query = NameQuery(case.pattern, max_results=case.max_results)
        return glob(top_fd, "", query, bounds=Bounds(time.monotonic() + 600), cancellation=Cancellation())
    finally:
        os.close(top_fd)


def fd(case: Case, top: Path, output: Path) -> None:
    with output.open("wb") as stdout:
        subprocess.run([FD, "-u", *case.peer], cwd=top, stdin=subprocess.DEVNULL, stdout=stdout, check=True)


if __name__ == "__main__":
    main()
