"""How much CPU does it take to see which of 100,000 files changed, compared with os.walk and a stat of each?

Discovery also leaves out what is ignored, puts paths in order and opens nothing but directories. fd is shown beside
it: it obeys the same .gitignore files, but prints names only and uses all cores.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from armarium.capabilities.corpus.files.discover import DiscoveryRules, discover
from armarium.capabilities.corpus.files.exclusion import Exclusion
from armarium.foundation.concurrency.cancellation import Cancellation
from armarium.foundation.files.confine import ConfinedRoot
from measure import best_of, best_of_each, compared, report

FILES = 100_000
FILES_PER_DIRECTORY = 50
RUNS = 5
GOAL_S = 2.0
FD = shutil.which("fdfind") or shutil.which("fd")
GITIGNORE = "*.pyc\n__pycache__/\n*.egg-info/\n*.log\n/coverage\n*.so\n.idea/\n*.swp\ntarget/\n*.tmp\n"


def main() -> None:
    with tempfile.TemporaryDirectory() as directory:
        top = Path(directory)
        make_tree(top)
        (top / ".git").mkdir()  # Without it, fd takes no notice of .gitignore.
        rows = [measured("no .gitignore", top)]
        (top / ".gitignore").write_text(GITIGNORE)
        rows.append(measured("a .gitignore of ten lines at the root", top))
        for package in top.glob("pkg_*"):
            (package / ".gitignore").write_text(GITIGNORE)
        rows.append(measured("one more .gitignore in each of twenty packages", top))
    met = all(row["ours_cpu_s"] <= GOAL_S for row in rows)
    report("rescan", rows, f"walk and stat of 100,000 files in at most {GOAL_S} s of CPU", met)


def make_tree(top: Path) -> None:
    for number in range(FILES // FILES_PER_DIRECTORY):
        directory = top / f"pkg_{number % 20:02}" / f"mod_{number // 20 % 20:02}" / f"part_{number // 400}"
        directory.mkdir(parents=True)
        for file in range(FILES_PER_DIRECTORY):
            (directory / f"name_{file:03}.{'py' if file % 2 else 'md'}").touch()


def measured(case: str, top: Path) -> dict[str, Any]:
    best = best_of_each(RUNS, {"ours": lambda: ours(top), "os.walk": lambda: walked(top)})
    row = compared(case, best["ours"], best["os.walk"], files=ours(top))
    if FD is not None:
        row["fd_cpu_s"] = best_of(RUNS, lambda: fd(top), children=True).cpu_s
    return row


def ours(top: Path) -> int:
    rules = DiscoveryRules(Exclusion())
    with ConfinedRoot(str(top)) as root:
        return sum(1 for _ in discover(root, rules, Cancellation()))


def walked(top: Path) -> int:
    return sum(1 for directory, _, names in os.walk(top) for name in names if os.lstat(os.path.join(directory, name)))


def fd(top: Path) -> None:
    command = [str(FD), "--hidden", "--type", "file"]
    subprocess.run(command, cwd=top, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, check=True)


if __name__ == "__main__":
    main()
