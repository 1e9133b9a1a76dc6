"""How long does a SARIF report of 50,000 findings take to come in: new, once more, and how does it grow?

From the bytes of the report to what it changed, as `armarium registry import` does it. The peer, filigree, reads no
SARIF; it is handed the same findings as it wants them, in a process of its own, and installed for the run, or left out
where it cannot be. Fixed seed. `--quick` takes a twentieth of the findings.
"""

from __future__ import annotations

import json
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import anyio
import orjson

from armarium.capabilities.registry.commands.project import RegistryProject
from armarium.surfaces.cli.host import Host
from measure import Cost, cost_of
from registry_content import PEER, NotInstalled, findings, installed_peer
from trial import report, scaled

SEED = 59
FINDINGS = 50_000
FILES = 5_000
SIZES = (12_500, 25_000, 50_000, 100_000)
MOST_S = 10.0
MOST_GROWTH = 1.3
"""How many times more a finding may cost in the largest report than in the smallest."""
PEER_DEADLINE_S = 3600
_LEVELS = {"critical": "error", "high": "error", "medium": "warning", "low": "note", "info": "none"}


def main() -> None:
    rows = [imported(scaled(size)) for size in SIZES]
    beside_peer(next(row for row in rows if row["findings"] == scaled(FINDINGS)))
    wanted = next(row for row in rows if row["findings"] == scaled(FINDINGS))
    growth = rows[-1]["new_us_a_finding"] / rows[0]["new_us_a_finding"]
    met = max(wanted["new_cpu_s"], wanted["again_cpu_s"]) <= MOST_S and growth <= MOST_GROWTH
    goal = (
        f"{FINDINGS} findings in {MOST_S:g} s of CPU, new ({wanted['new_cpu_s']} s) and again "
        f"({wanted['again_cpu_s']} s); a finding of the largest report costs {growth:.2f} times one of the smallest"
    )
    report("registry_import", rows, goal, met)


def imported(count: int) -> dict[str, Any]:
    """The same report twice: first everything is new, then everything is known."""
    data = sarif(count)
    with tempfile.TemporaryDirectory() as directory:
        new, created = taken_in(Path(directory), data)
        again, unchanged = taken_in(Path(directory), data)
    if (created["findings_created"], unchanged["findings_unchanged"]) != (count, count):
        raise RuntimeError(f"not every finding came in: {created}, {unchanged}")
    print(f"{count} findings, {len(data) / 1e6:.0f} MB: {new.cpu_s:.2f} s new, {again.cpu_s:.2f} s again")
    return {
        "findings": count,
        "megabytes": round(len(data) / 1e6, 1),
        "new_cpu_s": round(new.cpu_s, 2),
        "new_wall_s": round(new.wall_s, 2),
        "again_cpu_s": round(again.cpu_s, 2),
        "new_us_a_finding": round(new.cpu_s / count * 1e6, 1),
    }


def taken_in(directory: Path, data: bytes) -> tuple[Cost, dict[str, Any]]:
    registry = RegistryProject(Host(), directory)
    command = {"file": "-", "format": "auto"}
    answers: list[Any] = []

    async def import_report() -> list[Any]:
        return (await registry.import_report(data, command, lambda done, total: None))["scans"]

    cost = cost_of(lambda: answers.extend(anyio.run(import_report)))
    return cost, answers[0]


def sarif(count: int) -> bytes:
    """A report as scanners write it, with a snippet of code in each result."""
    results = [
        {
            "ruleId": each["rule_id"],
            "level": _LEVELS[each["severity"]],
            "message": {"text": each["message"]},
            "locations": [
                {
                    "physicalLocation": {
                        "artifactLocation": {"uri": each["path"], "uriBaseId": "%SRCROOT%"},
                        "region": {
                            "startLine": each["line_start"],
                            "endLine": each["line_end"],
                            "startColumn": 5,
                            "endColumn": 60,
                            "snippet": {"text": "    value = compute(first, second, third)  # as it was\n" * 3},
                        },
                    }
                }
            ],
            "properties": {"precision": "high", "tags": ["correctness", "security"]},
        }
        for each in findings(FILES, count, SEED)
    ]
    rules = [{"id": f"R{number:03}", "helpUri": "https://example.org/rules"} for number in range(300)]
    run = {"tool": {"driver": {"name": "Probe", "rules": rules}}, "results": results}
    return orjson.dumps({"version": "2.1.0", "runs": [run]}, option=orjson.OPT_INDENT_2)


def beside_peer(row: dict[str, Any]) -> None:
    """Put what the peer takes for the same findings beside ours."""
    with tempfile.TemporaryDirectory() as directory:
        try:
            python = installed_peer(Path(directory))
        except NotInstalled as reason:
            print(f"{PEER} {reason}; left out")
            return
        print(f"the same: {PEER}")
        scans = {"probe": list(findings(FILES, row["findings"], SEED))}
        job = json.dumps({"scans": scans, "imports": 2, "questions": [], "runs": 1})
        script = str(Path(__file__).with_name("registry_peer.py"))
        ran = subprocess.run(
            [python, script], input=job, capture_output=True, text=True, check=True, timeout=PEER_DEADLINE_S
        )
    new_s, again_s = json.loads(ran.stdout)["imports_s"]["probe"]
    row |= {
        "peer_new_cpu_s": round(new_s, 2),
        "peer_again_cpu_s": round(again_s, 2),
        "times_faster": round(new_s / row["new_cpu_s"], 1),
    }


if __name__ == "__main__":
    main()
