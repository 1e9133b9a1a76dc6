"""What does a page of `list_files` cost: first and last, under every order and every filter?

Ours is asked as a client would, with the arguments of the tool, and answers the JSON that a client gets. The peer,
filigree, defines the same listing; it is a library asked in a process of its own, and installed for the run, or left
out where it cannot be. It answers at the smaller size only: it takes long to fill at the larger. Fixed seed, CPU time,
of ours the best of several runs. `--quick` takes a twentieth of the files.
"""

from __future__ import annotations

import itertools
import json
import subprocess
import tempfile
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import orjson

from armarium.capabilities.registry.lifespan import open_registry
from armarium.capabilities.registry.model import ReportEntry, ScanReport
from armarium.capabilities.registry.tools import TOOLS
from armarium.foundation.security.identity import LOCAL
from armarium.foundation.tools import Call, ToolSpec, bind_tools
from registry_content import PEER, NotInstalled, by_source, installed_peer
from trial import report, scaled

SEED = 58
SMALL = (10_000, 50_000)
LARGE = (200_000, 1_000_000)
PAGE = 100
RUNS = 15
PEER_RUNS = 1
"""Its pages take long enough that noise does not matter."""
MOST_MS = 5.0
MOST_MS_LARGE = 20.0
PEER_DEADLINE_S = 3600

SORTS = ("updated_at", "first_seen", "path", "language")
FILTERS: dict[str, dict[str, Any]] = {
    "all": {},
    "language": {"language": "python"},
    "path_prefix": {"path_prefix": "src/area7/"},
    "min_findings": {"min_findings": 5},
    "has_severity": {"has_severity": "critical"},
    "scan_source": {"scan_source": "bandit"},
    "every filter": {
        "language": "python",
        "path_prefix": "src/area",
        "min_findings": 2,
        "has_severity": "high",
        "scan_source": "ruff",
    },
}
FIRST, LAST = 0, -1
DEFAULT_PAGE = "updated_at desc, all, first page"


def main() -> None:
    rows = anyio.run(measured, SMALL)
    large = anyio.run(measured, LARGE)
    beside_peer(rows)
    worst = max(row["cpu_ms"] for row in rows)
    (default,) = (row for row in large if row["case"] == DEFAULT_PAGE)
    met = worst <= MOST_MS and default["cpu_ms"] <= MOST_MS_LARGE
    goal = (
        f"at {SMALL[0]} files and {SMALL[1]} findings every page within {MOST_MS:g} ms of CPU (worst: {worst} ms); "
        f"at {LARGE[0]} and {LARGE[1]} the default page within {MOST_MS_LARGE:g} ms (was: {default['cpu_ms']} ms)"
    )
    report("registry_list", [*rows, *large], goal, met)


def questions() -> list[tuple[str, dict[str, Any]]]:
    """The first and last page for every order, direction and filter."""
    cases = itertools.product(SORTS, ("asc", "desc"), FILTERS.items(), (FIRST, LAST))
    return [
        (
            f"{sort} {direction}, {name}, {'first' if offset == FIRST else 'last'} page",
            {"sort": sort, "direction": direction, "limit": PAGE, "offset": offset, **wanted},
        )
        for sort, direction, (name, wanted), offset in cases
    ]


async def measured(size: tuple[int, int]) -> list[dict[str, Any]]:
    files, count = scaled(size[0]), scaled(size[1])
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as directory:
        print(f"{files} files, {count} findings")
        async with filled(Path(directory), files, count) as list_files:
            for case, question in questions():
                rows.append({"files": files, "case": case, **await page_cost(list_files, question)})
    return rows


@asynccontextmanager
async def filled(directory: Path, files: int, count: int) -> AsyncGenerator[ToolSpec]:
    """The listing tool of a registry of this size."""
    async with open_registry(directory) as registry:
        for source, findings in by_source(files, count, SEED).items():
            await registry.scan(ScanReport(source, (ReportEntry(**each) for each in findings)), "benchmark")
        yield next(tool for tool in bind_tools(TOOLS, registry) if tool.name == "list_files")


async def page_cost(list_files: ToolSpec, question: dict[str, Any]) -> dict[str, Any]:
    call = Call(LOCAL)
    if question["offset"] == LAST:
        total = (await asked(list_files, call, question | {"offset": 0, "limit": 1}))["total"]
        question = question | {"offset": max(0, total - PAGE)}
    costs_s: list[float] = []
    answer: dict[str, Any] = {}
    for _ in range(RUNS):
        # The clock is the process's, so the threads that ask the database count as well.
        started_s = time.process_time()
        answer = await asked(list_files, call, question)
        orjson.dumps(answer)
        costs_s.append(time.process_time() - started_s)
    return {"total": answer["total"], "cpu_ms": round(min(costs_s) * 1000, 3)}


async def asked(list_files: ToolSpec, call: Call, question: dict[str, Any]) -> dict[str, Any]:
    answer = await list_files.run(call, question)
    assert isinstance(answer, dict), "a local tool returns a dict"
    return answer


def beside_peer(rows: list[dict[str, Any]]) -> None:
    """Measure the peer with the default page."""
    asked_both = {case: question for case, question in questions() if case == DEFAULT_PAGE}
    with tempfile.TemporaryDirectory() as directory:
        try:
            python = installed_peer(Path(directory))
        except NotInstalled as reason:
            print(f"{PEER} {reason}; left out")
            return
        print(f"the same: {PEER}")
        job = {
            "scans": by_source(scaled(SMALL[0]), scaled(SMALL[1]), SEED),
            "imports": 1,
            "questions": list(asked_both.values()),
            "runs": PEER_RUNS,
        }
        script = str(Path(__file__).with_name("registry_peer.py"))
        ran = subprocess.run(
            [python, script], input=json.dumps(job), capture_output=True, text=True, check=True, timeout=PEER_DEADLINE_S
        )
    beside = [row for row in rows if row["case"] in asked_both]
    for row, seconds in zip(beside, json.loads(ran.stdout)["pages_s"], strict=True):
        row["peer_cpu_ms"] = round(seconds * 1000, 3)
        row["times_faster"] = round(row["peer_cpu_ms"] / row["cpu_ms"], 1) if row["cpu_ms"] else None


if __name__ == "__main__":
    main()
