"""What does the web console weigh, how fast is it, and what does the server pay for it?

Sizes are those of compressed files: what a browser loads for its first page, the parts that are loaded later, and what
the files add to a wheel. Times are those of the page's own clock, on loopback, the best of several runs: loads with an
empty and with a full cache, a folder of 10,000 files, a call of a program until its row is on the screen, a citation
until its lines are marked, and the heap after as many calls as an hour has seconds, all at once. The cost of the server
is the difference of two servers in turn, with the console and without it; before the memory is read, every file of the
console was asked for. `make up` is measured without its server, in fresh clones. `load` is that of the machine in the
last minute before a case: times of a busy machine are too long.

The peer is the admin page of ContextForge (`contextforge_peer.py`). `--quick` leaves out the peer and `make up`.
"""

from __future__ import annotations

import asyncio
import gzip
import io
import json
import os
import re
import subprocess
import tempfile
import time
import zipfile
from pathlib import Path
from typing import Any

import httpx

import console_page as page
from armarium.surfaces.console.page import FILES
from console_server import Served, running_browser, served, visiting, write_directory
from contextforge_peer import peer_in
from gateway_server import cpu_s_of
from trial import QUICK, report, scaled

RUNS = 5
STARTS = 4
FILES_SHOWN = 10_000
FRAMES = 240
CALLS = 3600
ANSWERS = 2000
IDLE_S = 20
REPOSITORY = Path(__file__).parents[1]
MB = 1e6
Row = dict[str, Any]


class Figures:
    """The rows of the report, each with its goal."""

    def __init__(self) -> None:
        self.rows: list[Row] = []

    def add(self, case: str, field: str, value: float, most: float, **more: float) -> None:
        """A figure that may be at most this."""
        figure = {field: round(value, 3), "goal": most, "met": value <= most}
        others = {name: round(each, 3) for name, each in more.items()}
        self.rows.append({"case": case, **figure, **others, "load": round(os.getloadavg()[0], 1)})

    def missed(self) -> list[str]:
        return [row["case"] for row in self.rows if not row["met"]]


async def main() -> None:
    figures = Figures()
    with tempfile.TemporaryDirectory() as temporary:
        home = Path(temporary)
        directory = write_directory(home / "directory", FILES_SHOWN)
        async with running_browser() as browser:
            with served(home / "server", directory) as server:
                session = await server.session()
                ours = await page.first_page(browser, f"{server.url}/console", session, RUNS)
                theirs = {} if QUICK else await _peer_page(browser, home / "peer")
                _first_page(figures, ours, theirs)
                async with visiting(browser, session) as context:
                    await _in_use(figures, context, server)
        _sizes(figures)
        with served(home / "static", directory, corpus=False) as server:
            _static(figures, server)
        _of_the_server(figures, home, directory)
        if not QUICK:
            _make_up(figures, home)
    missed = figures.missed()
    goal = f"all goals of the cases ({len(figures.rows) - len(missed)} of {len(figures.rows)} met)"
    report("console", figures.rows, goal, not missed)


async def _peer_page(browser: Any, home: Path) -> dict[str, page.Figures]:
    with peer_in(home) as peer:
        if peer is None:
            return {}
        async with visiting(browser) as context:
            await peer.log_in(context)
            session = await context.storage_state()
        return await page.first_page(browser, f"{peer.url}/admin/", session, RUNS)


def _first_page(figures: Figures, ours: dict[str, page.Figures], theirs: dict[str, page.Figures]) -> None:
    def add(case: str, cache: str, field: str, most: float) -> None:
        # Only our page says when it can be used.
        peer = {f"peer_{field}": theirs[cache][field]} if theirs and field != "usable_ms" else {}
        figures.add(case, field, ours[cache][field], most, **peer)

    add("scripts of the first page", "cold", "scripts_kb", 60)
    add("styles of the first page", "cold", "styles_kb", 12)
    add("page itself", "cold", "page_kb", 2)
    add("first contentful paint, empty cache", "cold", "paint_ms", 600)
    add("first contentful paint, full cache", "warm", "paint_ms", 250)
    add("question can be typed, empty cache", "cold", "usable_ms", 800)


async def _in_use(figures: Figures, context: Any, server: Served) -> None:
    shown = await page.long_list(context, server, RUNS, scaled(FRAMES) or 1)
    figures.add("10,000 files: answer to rows", "shown_ms", shown["shown_ms"], 150, opened_ms=shown["opened_ms"])
    figures.add("10,000 files: row nodes", "row_nodes", shown["row_nodes"], 200)
    figures.add("10,000 files: scroll, p95 of frames", "scroll_p95_ms", shown["scroll_p95_ms"], 17)
    figures.add("10,000 files: filter as you type", "filter_ms", shown["filter_ms"], 50)
    figures.add("call to its row on the screen", "screen_ms", await page.events(context, server, 4 * RUNS), 100)
    cited = await page.citation(context, server, RUNS)
    figures.add("citation to its marked lines", "later_ms", cited["later_ms"], 200)
    figures.add("citation to its marked lines, editor not loaded", "first_ms", cited["first_ms"], 200)
    before, after = await page.tail(context, server, scaled(CALLS))
    figures.add("heap after an hour of calls", "heap_mb", after, 80, before_mb=before)


def _sizes(figures: Figures) -> None:
    manifest: dict[str, dict[str, Any]] = json.loads((FILES / ".vite/manifest.json").read_text())
    later = {name: _kb(FILES / chunk["file"]) for name, chunk in manifest.items() if chunk.get("isDynamicEntry")}
    # Chunks of third-party code are languages; pages and parts of ours are in src.
    languages = {name: kb for name, kb in later.items() if not name.startswith("src/")}
    pages = {name: kb for name, kb in later.items() if name.startswith("src/pages/")}
    figures.add("editor", "size_kb", next(kb for name, kb in later.items() if "editor" in name), 130)
    figures.add("largest language of the editor", "size_kb", max(languages.values()), 40)
    figures.add("plots", "size_kb", next(kb for name, kb in later.items() if "plot" in name), 25)
    figures.add("largest other page", "size_kb", max(pages.values()), 40)
    files = [file for file in FILES.rglob("*") if file.is_file()]
    figures.add("all files", "size_kb", sum(map(_kb, files)), 450)
    wheel = io.BytesIO()
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED) as packed:
        for file in files:
            packed.write(file, file.relative_to(FILES))
    figures.add("growth of the wheel", "size_mb", len(wheel.getvalue()) / MB, 0.6)


def _kb(file: Path) -> float:
    return len(gzip.compress(file.read_bytes())) / 1000


def _static(figures: Figures, server: Served) -> None:
    """Answers to one client, one after another; the first one reads the file."""
    script = next((FILES / "assets").glob("index-*.js")).name
    times = list[float]()
    with httpx.Client(base_url=server.url, headers={"accept-encoding": "gzip"}) as client:
        client.get(f"/console/assets/{script}").raise_for_status()
        cpu = cpu_s_of(server.process)
        count = scaled(ANSWERS)
        for _ in range(count):
            began = time.perf_counter()
            with client.stream("GET", f"/console/assets/{script}") as answer:
                for _ in answer.iter_raw():
                    pass
            times.append(time.perf_counter() - began)
        cpu = (cpu_s_of(server.process) - cpu) / count
    median = sorted(times)[count // 2]
    figures.add(
        "static answer, wall time of the client", "wall_ms", min(times) * 1e3, 1, p50_ms=median * 1e3, cpu_ms=cpu * 1e3
    )


def _of_the_server(figures: Figures, home: Path, directory: Path) -> None:
    """Two servers in turn, and the least of each."""
    found: dict[bool, list[Row]] = {False: [], True: []}
    for run in range(1 if QUICK else STARTS):
        # Whatever the first of two servers leaves in the caches of the machine helps the other one.
        for console in (run % 2 == 0, run % 2 == 1):
            with served(home / f"cost-{run}-{console}", directory, console=console, corpus=False) as server:
                found[console].append(_cost(server, console))
    least = {console: {name: min(row[name] for row in rows) for name in rows[0]} for console, rows in found.items()}
    for case, field, most in (
        ("memory of the server", "private_mb", 5),
        ("start of the server", "start_s", 0.1),
        ("CPU of the idle server in 20 s", "idle_s", 0.05),
    ):
        without, with_it = least[False][field], least[True][field]
        # Less than nothing is noise.
        more = max(0.0, with_it - without)
        figures.add(f"{case}: more with the console", f"more_{field}", more, most, without=without, with_it=with_it)


def _cost(server: Served, console: bool) -> Row:
    if console:
        for file in (FILES / "assets").iterdir():
            httpx.get(f"{server.url}/console/assets/{file.name}").raise_for_status()
        httpx.get(f"{server.url}/console").raise_for_status()
    cpu = cpu_s_of(server.process)
    time.sleep(scaled(IDLE_S) or 1)
    idle_s = cpu_s_of(server.process) - cpu
    private_mb = server.process.memory_full_info().uss / MB
    return {"private_mb": private_mb, "start_s": server.start_s, "idle_s": idle_s}


def _make_up(figures: Figures, home: Path) -> None:
    """What `make up` does before it starts the server."""
    seconds: dict[bool, list[float]] = {False: [], True: []}
    makefile = (REPOSITORY / "Makefile").read_text()
    built = re.search(r"^CONSOLE := (\S+)$", makefile, re.MULTILINE)
    assert built is not None
    for run in range(2):
        for console in (False, True):
            clone = home / f"clone-{run}-{console}"
            subprocess.run(["git", "clone", "--quiet", REPOSITORY, clone], check=True)
            targets = [".venv/.runtime", *([built[1]] if console else [])]
            began = time.perf_counter()
            subprocess.run(["make", "--jobs=2", *targets], cwd=clone, check=True, capture_output=True)
            seconds[console].append(time.perf_counter() - began)
    without, with_it = min(seconds[False]), min(seconds[True])
    figures.add("`make up` in a fresh clone: more with the console", "more_s", with_it - without, 10, without_s=without)


if __name__ == "__main__":
    asyncio.run(main())
