"""How well does each choice of `index` find code, and is `auto` as good as `both`?

The judged queries and the metric are those of `../shared/data/codesearch` (its ORIGIN.md). The sources come from the
package registries: `pip download` for wheels, `npm pack` for tarballs. Peers: the published figures of two other search
tools on the same packages.

    code_search.py [--data DIR] [--keep DIR] [PACKAGE...]

`--data` is where the judged queries are; `--keep` leaves sources and indexes in a directory, and uses what is there:
index times are measured only where there was no index.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import subprocess
import sys
import tarfile
import tempfile
import time
import zipfile
from pathlib import Path
from typing import Any, Final

import anyio

from armarium.capabilities.corpus.life import open_service
from armarium.capabilities.corpus.searching import Filters, Hit
from armarium.capabilities.corpus.service import Corpus
from armarium.capabilities.corpus.settings import CorpusSettings
from armarium.foundation.events import Events
from armarium.retrieval.search.index_choice import IndexChoice
from armarium.retrieval.spans import LineSpan
from measure import report

JUDGED = Path(__file__).parent.parent.parent / "shared" / "data" / "codesearch"
CHOICES: Final[tuple[IndexChoice, ...]] = ("auto", "both", "code", "text")
HITS = 10
INDEX_DEADLINE_S = 3600.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("packages", nargs="*")
    parser.add_argument("--data", type=Path, default=JUDGED)
    parser.add_argument("--keep", type=Path)
    options = parser.parse_args()
    if not options.data.is_dir():
        print(f"{JUDGED.name}: not in {JUDGED.parent.parent.name}/{JUDGED.parent.name}, skipped")
        return
    known = json.loads((options.data / "packages.json").read_text())
    chosen = [package for package in known if not options.packages or package["name"] in options.packages]
    with tempfile.TemporaryDirectory(prefix="armarium-code-search-") as scratch:
        rows = [measured(package, options.data, options.keep or Path(scratch)) for package in chosen]
    queries = sum(row["queries"] for row in rows)
    mean = {name: round(sum(row[name] * row["queries"] for row in rows) / queries, 4) for name in CHOICES}
    met = all(row["auto"] >= row["both"] for row in rows)
    report("code_search", [*rows, {"case": "all", "queries": queries, **mean}], "auto at least as good as both", met)


def measured(package: dict[str, Any], data: Path, directory: Path) -> dict[str, Any]:
    source = directory / package["name"] / "source"
    if not source.is_dir():
        fetch(package, source)
    top = next(path for path in (source / package["root"], source / "package" / package["root"]) if path.is_dir())
    judged = json.loads((data / f"{package['name']}.json").read_text())
    state_dir = directory / package["name"] / "state"
    fresh = not state_dir.is_dir()
    settings = CorpusSettings(root=str(top), state_dir=str(state_dir))
    paths = [path.relative_to(top).as_posix() for path in top.rglob("*")]
    row = anyio.run(asked, package, settings, judged, paths)
    return row if fresh else row | {"index_cpu_s": None, "index_wall_s": None}


def fetch(package: dict[str, Any], target: Path) -> None:
    """The sources that a registry ships."""
    name, version = package["name"], package["version"]
    with tempfile.TemporaryDirectory() as downloads:
        if package["registry"] == "npm":
            command = ["npm", "pack", "--silent", "--pack-destination", downloads, f"{name}@{version}"]
        else:
            pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary", ":all:"]
            command = [*pip, "--dest", downloads, f"{name}=={version}"]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        (archive,) = Path(downloads).iterdir()
        target.mkdir(parents=True)
        if package["registry"] == "npm":
            with tarfile.open(archive) as tar:
                tar.extractall(target, filter="data")
        else:
            with zipfile.ZipFile(archive) as wheel:
                wheel.extractall(target)


async def asked(
    package: dict[str, Any], settings: CorpusSettings, judged: list[dict[str, Any]], paths: list[str]
) -> dict[str, Any]:
    cpu, wall = time.process_time(), time.perf_counter()
    async with open_service(settings, Events(), indexing="background") as corpus:
        with anyio.fail_after(INDEX_DEADLINE_S):
            await corpus.until_indexed()
        index_cpu_s, index_wall_s = time.process_time() - cpu, time.perf_counter() - wall
        gains: dict[str, float] = {}
        times: list[float] = []
        for choice in CHOICES:
            gains[choice] = statistics.fmean([await ndcg(corpus, choice, each, paths, times) for each in judged])
    return {
        "case": package["name"],
        "queries": len(judged),
        **{choice: round(gain, 4) for choice, gain in gains.items()},
        **{f"published_{peer}": figure for peer, figure in package["published"].items()},
        "index_cpu_s": round(index_cpu_s, 2),
        "index_wall_s": round(index_wall_s, 2),
        "query_p50_s": statistics.median(times),
    }


async def ndcg(
    corpus: Corpus, choice: IndexChoice, judged: dict[str, Any], paths: list[str], times: list[float]
) -> float:
    """The metric for one query; queries of `auto` are timed."""
    began = time.perf_counter()
    results = await corpus.search(judged["query"], HITS, choice, Filters())
    if choice == "auto":
        times.append(time.perf_counter() - began)
    targets = [target if isinstance(target, dict) else {"path": target} for target in all_targets(judged)]
    present = [target for target in targets if any(same_path(target["path"], path) for path in paths)]
    ranks = [
        next((rank for rank, hit in enumerate(results.hits, 1) if covers(hit, target)), None) for target in present
    ]
    ideal = sum(1 / math.log2(rank + 1) for rank in range(1, min(len(present), HITS) + 1))
    return sum(1 / math.log2(rank + 1) for rank in ranks if rank) / ideal if ideal else 0.0


def all_targets(judged: dict[str, Any]) -> list[Any]:
    return [*judged["relevant"], *judged.get("secondary", ())]


def covers(hit: Hit, target: dict[str, Any]) -> bool:
    """Whether a hit is of the target's file and, where the target has lines, overlaps them."""
    if not same_path(hit.chunk.rel_path, target["path"]):
        return False
    start, end = target.get("start_line"), target.get("end_line")
    if start is None or end is None or not isinstance(hit.chunk.span, LineSpan):
        return True
    return hit.chunk.span.start <= end and start <= hit.chunk.span.end


def same_path(one: str, other: str) -> bool:
    return one == other or one.endswith(f"/{other}") or other.endswith(f"/{one}")


if __name__ == "__main__":
    main()
