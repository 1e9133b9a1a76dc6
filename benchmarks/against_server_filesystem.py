"""How do we compare with @modelcontextprotocol/server-filesystem over stdio?

Both serve the same directory to the same client. Ours runs as users run it: audit trail, log and confinement on.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from measure import Cost, compared, report
from stdio_client import StdioServer

NODE_MODULES = Path(__file__).parent.parent / "tests" / "node" / "node_modules"
ROUNDS = 7


@dataclass(frozen=True)
class Case:
    """The same call to both servers."""

    name: str
    ours: tuple[str, dict[str, Any]]
    theirs: tuple[str, dict[str, Any]]
    calls: int
    goal: float
    """Required speed-up in wall time."""


def main() -> None:
    with tempfile.TemporaryDirectory() as directory:
        root = Path(directory)
        make_files(root)
        ours = StdioServer(
            [str(Path(sys.executable).parent / "armarium"), "stdio", str(root)],
            env={"XDG_STATE_HOME": str(root.parent / f"{root.name}-state")},
        )
        theirs = StdioServer(
            [
                str(Path(sys.executable).parent / "node"),
                str(NODE_MODULES / "@modelcontextprotocol/server-filesystem/dist/index.js"),
                str(root),
            ]
        )
        try:
            measured = [measure(case, ours, theirs) for case in cases(root)]
        finally:
            ours.close()
            theirs.close()
    rows = [row for row, _ in measured]
    goal = "1 KB read no slower, 1 MB read 3x, list of 10,000 1.2x, name search over 50,000 20x (times faster, wall)"
    report("against_server_filesystem", rows, goal, all(met for _, met in measured))


def cases(root: Path) -> list[Case]:
    return [
        Case("read 1 KB", read("small.txt"), their_read(root / "small.txt"), 400, 1.0),
        Case("read 1 MB", read("large.txt"), their_read(root / "large.txt"), 20, 3.0),
        # The peer's listing that, like ours, has sizes and times; its other one has names only.
        Case(
            "list 10,000 with sizes",
            ("list_folder", {"root": "workspace", "path": "many"}),
            ("list_directory_with_sizes", {"path": str(root / "many")}),
            3,
            1.2,
        ),
        Case(
            "search names of 50,000",
            ("glob", {"root": "workspace", "pattern": "**/*_042.py", "max_results": 10_000}),
            ("search_files", {"path": str(root / "tree"), "pattern": "**/*_042.py"}),
            1,
            20.0,
        ),
    ]


def read(path: str) -> tuple[str, dict[str, Any]]:
    return "read_file", {"root": "workspace", "path": path}


def their_read(path: Path) -> tuple[str, dict[str, Any]]:
    return "read_text_file", {"path": str(path)}


def measure(case: Case, ours: StdioServer, theirs: StdioServer) -> tuple[dict[str, Any], bool]:
    ours.checked(*case.ours)
    theirs.checked(*case.theirs)
    costs: dict[str, list[Cost]] = {"ours": [], "theirs": []}
    for _ in range(ROUNDS):
        costs["ours"].append(cost(ours, case.calls, lambda: ours.call(*case.ours)))
        costs["theirs"].append(cost(theirs, case.calls, lambda: theirs.call(*case.theirs)))
    best = {
        name: Cost(min(each.cpu_s for each in found), min(each.wall_s for each in found))
        for name, found in costs.items()
    }
    faster = best["theirs"].wall_s / best["ours"].wall_s
    row = compared(case.name, best["ours"], best["theirs"], times_faster=round(faster, 2), wanted=case.goal)
    return row, faster >= case.goal


def cost(server: StdioServer, calls: int, call: Callable[[], object]) -> Cost:
    cpu, wall = server.cpu_s(), time.perf_counter()
    for _ in range(calls):
        call()
    return Cost(server.cpu_s() - cpu, time.perf_counter() - wall).per(calls)


def make_files(root: Path) -> None:
    line = 'The quick brown fox "jumps" over the lazy dog.\n'
    (root / "small.txt").write_text((line * 22)[:1024])
    (root / "large.txt").write_text((line * 22_400)[: 1024 * 1024])
    (root / "many").mkdir()
    for number in range(10_000):
        (root / "many" / f"file_{number:05}.txt").write_text(line)
    for folder in range(500):
        (root / "tree" / f"d{folder % 20:02}" / f"e{folder:03}").mkdir(parents=True)
        for number in range(100):
            (root / "tree" / f"d{folder % 20:02}" / f"e{folder:03}" / f"module_{number:03}.py").touch()


if __name__ == "__main__":
    main()
