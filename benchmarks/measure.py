"""Measures CPU and wall time, and writes the results of a benchmark."""

from __future__ import annotations

import json
import resource
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results"


@dataclass(frozen=True, slots=True)
class Cost:
    """CPU and wall seconds."""

    cpu_s: float
    wall_s: float

    def per(self, operations: int) -> Cost:
        return Cost(self.cpu_s / operations, self.wall_s / operations)


def cost_of(work: Callable[[], object], *, children: bool = False) -> Cost:
    """The cost of one run. `children`: includes the CPU time of finished child processes."""
    cpu, wall = _cpu_s(children), time.perf_counter()
    work()
    return Cost(_cpu_s(children) - cpu, time.perf_counter() - wall)


def best_of(runs: int, work: Callable[[], object], *, children: bool = False) -> Cost:
    """The minimum CPU and wall time of several runs, which excludes most noise of the machine."""
    return best_of_each(runs, {"": work}, children=children)[""]


def best_of_each(runs: int, works: Mapping[str, Callable[[], object]], *, children: bool = False) -> dict[str, Cost]:
    """`best_of` for several works in turn, so that load on the machine affects all of them alike."""
    costs: dict[str, list[Cost]] = {name: [] for name in works}
    for _ in range(runs):
        for name, work in works.items():
            costs[name].append(cost_of(work, children=children))
    return {
        name: Cost(min(cost.cpu_s for cost in found), min(cost.wall_s for cost in found))
        for name, found in costs.items()
    }


def compared(case: str, ours: Cost, peer: Cost, **more: Any) -> dict[str, Any]:
    """One row of a report: our cost, the peer's in the same run, and the ratio."""
    return {
        "case": case,
        "ours_cpu_s": _rounded(ours.cpu_s),
        "peer_cpu_s": _rounded(peer.cpu_s),
        "cpu_ratio": _rounded(ours.cpu_s / peer.cpu_s, 3) if peer.cpu_s else None,
        "ours_wall_s": _rounded(ours.wall_s),
        "peer_wall_s": _rounded(peer.wall_s),
        "wall_ratio": _rounded(ours.wall_s / peer.wall_s, 3) if peer.wall_s else None,
        **more,
    }


def report(name: str, rows: Sequence[Mapping[str, Any]], goal: str, met: bool) -> None:
    """Print the rows and whether the goal is met, and write the same to `results/<name>.json`."""
    for row in rows:
        print("  ".join(f"{field}={_readable(field, value)}" for field, value in row.items()))
    print(f"goal: {goal}: {'met' if met else 'MISSED'}")
    RESULTS.mkdir(exist_ok=True)
    result = {"name": name, "goal": goal, "met": met, "figures": [dict(row) for row in rows]}
    (RESULTS / f"{name}.json").write_text(json.dumps(result, indent=2) + "\n")


def _cpu_s(children: bool) -> float:
    if not children:
        return time.process_time()
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + ended.ru_utime + ended.ru_stime


def _rounded(value: float, digits: int = 4) -> float:
    return float(f"{value:.{digits}g}")


def _readable(field: str, value: Any) -> str:
    if not field.endswith("_s") or not isinstance(value, int | float):
        return str(value)
    for factor, unit in ((1, "s"), (1e3, "ms")):
        if value * factor >= 1:
            return f"{value * factor:.3g}{unit}"
    return f"{value * 1e6:.3g}µs"
