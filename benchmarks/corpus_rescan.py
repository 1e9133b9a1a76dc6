"""How long does it take to see that nothing changed in 100,000 indexed files?

The peer is os.walk and a stat of each file, which compares nothing. Opening the state, as a server does when it starts,
is shown beside it. `--quick` takes a twentieth of the files.
"""

from __future__ import annotations

import os
import tempfile
import time
from pathlib import Path
from typing import Any

from corpus_engine import WordsEngine, words_engine
from measure import best_of_each, compared, cost_of
from prose import Prose, paths
from trial import report, scaled

SEED = 32
FILES = 100_000
CHARACTERS = 120
RUNS = 3
GOAL_S = 5.0


def main() -> None:
    files = scaled(FILES)
    with tempfile.TemporaryDirectory() as directory:
        top, state_dir = Path(directory) / "root", Path(directory) / "state"
        prose = Prose(SEED)
        for path in paths(top, files, ("txt", "md", "py", "json")):
            path.write_text(prose.paragraph(CHARACTERS) + "\n")
        print(f"indexing {files} files for the first time")
        with words_engine(top, state_dir) as engine:
            first = cost_of(engine.scan)
            if engine.indexed != files:
                raise RuntimeError(f"{engine.indexed} of {files} files were indexed")
        started = time.perf_counter()
        with words_engine(top, state_dir) as engine:
            opened_s = time.perf_counter() - started
            row = rescanned(engine, top, files)
    rows: list[dict[str, Any]] = [
        row,
        {"case": "opening the state of so many files", "wall_s": round(opened_s, 3)},
        {"case": "the first scan", "wall_s": round(first.wall_s, 2), "files_a_second": round(files / first.wall_s)},
    ]
    met = row["ours_wall_s"] <= GOAL_S
    report("corpus_rescan", rows, f"100,000 unchanged files in at most {GOAL_S:g} s of wall time", met)


def rescanned(engine: WordsEngine, top: Path, files: int) -> dict[str, Any]:
    print(f"looking at {files} unchanged files {RUNS} times, in turns with os.walk")
    best = best_of_each(RUNS, {"ours": engine.scan, "os.walk": lambda: walked(top)})
    if engine.scan() != files or engine.indexed:
        raise RuntimeError(f"{engine.indexed} files were taken for changed")
    return compared(f"{files} unchanged files", best["ours"], best["os.walk"])


def walked(top: Path) -> int:
    return sum(1 for directory, _, names in os.walk(top) for name in names if os.stat(os.path.join(directory, name)))


if __name__ == "__main__":
    main()
