"""What does it cost to open a file confined to its root, compared with opening it with no check at all?"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from pathlib import Path

from armarium.foundation.files.confine import ConfinedRoot, normalise
from measure import best_of_each, compared, report

PATH = "src/pkg/module/file.txt"
# Many short runs: on a busy machine a few of them still pass undisturbed.
OPENS = 2_000
RUNS = 100
GOAL = 2.0


def main() -> None:
    with tempfile.TemporaryDirectory() as directory:
        base = os.path.realpath(directory)
        file = Path(base, PATH)
        file.parent.mkdir(parents=True)
        file.write_text("x")
        with ConfinedRoot(base, resolver="openat2") as kernel, ConfinedRoot(base, resolver="walk") as walk:
            contenders = {
                "raw": lambda: raw(kernel.fd),
                "confined": lambda: confined(kernel),
                "walk": lambda: confined(walk),
                "realpath": lambda: realpath_then_open(base),
            }
            best = {name: cost.per(OPENS) for name, cost in best_of_each(RUNS, contenders).items()}
    rows = [
        compared("confined open (openat2) / os.open(dir_fd=)", best["confined"], best["raw"]),
        compared("component walk, for kernels without openat2 / os.open(dir_fd=)", best["walk"], best["raw"]),
        compared("confined open (openat2) / realpath, then open (racy)", best["confined"], best["realpath"]),
    ]
    met = rows[0]["cpu_ratio"] <= GOAL and rows[0]["wall_ratio"] <= GOAL
    report("confined_open", rows, f"a confined open costs at most {GOAL:g} times a raw one, CPU and wall", met)


def raw(root_fd: int) -> None:
    open_, close = os.open, os.close
    for _ in range(OPENS):
        close(open_(PATH, os.O_RDONLY, dir_fd=root_fd))


def confined(root: ConfinedRoot) -> None:
    open_: Callable[[str, int], int] = root.open
    close = os.close
    for _ in range(OPENS):
        close(open_(normalise(PATH), os.O_RDONLY))


def realpath_then_open(base: str) -> None:
    """Check a path by name, then open it: correct only if the tree does not change in between."""
    inside = base + os.sep
    for _ in range(OPENS):
        real = os.path.realpath(os.path.join(base, PATH))
        if not real.startswith(inside):
            raise PermissionError(real)
        os.close(os.open(real, os.O_RDONLY))


if __name__ == "__main__":
    main()
