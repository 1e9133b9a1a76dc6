"""Several processes with one registry: concurrent writers lose nothing, and a killed one changes nothing."""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from armarium.capabilities.registry.lifespan import open_registry
from support.client import connected
from support.registry_calls import ACTOR, Calls, ServedProject, all_files, file_at, found, scanned, summary
from support.registry_writer import ROUNDS, SHARED

DEADLINE_S = 100
HOW_MANY = 5050
"""Not a whole number of batches: the last word on progress comes when everything is written but not committed."""
WRITERS = ("one", "two", "three")


def writer(*arguments: str) -> subprocess.Popen[str]:
    tests = Path(__file__).parents[2]
    script = tests / "support" / "registry_writer.py"
    return subprocess.Popen(
        [sys.executable, str(script), *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(tests)},
    )


async def test_processes_that_write_at_once_lose_nothing(project: Path) -> None:
    # The first to come makes the file, and all come at once.
    processes = [writer("write", str(project), name) for name in WRITERS]
    try:
        for process in processes:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
        for process in processes:
            assert process.stdin is not None
            process.stdin.write("go\n")
            process.stdin.flush()
        for process in processes:
            process.communicate(timeout=DEADLINE_S)
            assert process.returncode == 0
    finally:
        for process in processes:
            process.kill()
            process.communicate()

    async with open_registry(project, "p") as registry:
        files = {file["path"]: file for file in await all_files(registry)}
        assert set(files) == {f"{name}/{number}.py" for name in WRITERS for number in range(ROUNDS)} | {SHARED}
        own = [file for path, file in files.items() if path != SHARED]
        assert all(file["summary"] == summary(2, 2, high=1, info=1) for file in own)
        shared = files[SHARED]
        assert shared["summary"] == summary(ROUNDS * 3, ROUNDS * 3, info=ROUNDS * 3)
        page = await registry.list_findings(file_id=shared["id"], limit=10000)
        assert Counter(finding["scan_source"] for finding in page["results"]) == dict.fromkeys(WRITERS, ROUNDS)
        # Line n was reported by every scan from the n-th on.
        assert all(finding["seen_count"] == ROUNDS + 1 - (finding["line_start"] or 0) for finding in page["results"])
        changes = (await registry.timeline(shared["id"], kind="file_metadata_update", limit=10000))["results"]
        assert {(event["data"]["new_value"]["by"], event["data"]["new_value"]["round"]) for event in changes} == {
            (name, number) for name in WRITERS for number in range(ROUNDS)
        }
        # Each change began where the one before had ended: no update was made from what was old already.
        oldest_first = [event["data"] for event in reversed(changes)]
        assert all(later["old_value"] == earlier["new_value"] for earlier, later in itertools.pairwise(oldest_first))


@pytest.mark.parametrize("after", [0, 999, 1000, 3500, HOW_MANY])
async def test_a_killed_scan_leaves_the_previous_state(project: Path, after: int) -> None:
    async with open_registry(project, "p") as registry:
        await scanned(registry, found("a.py", severity="high"), found("b.py"))
        before = (
            await all_files(registry),
            (await registry.timeline((await file_at(registry, "a.py"))["id"]))["results"],
        )

    victim = writer("die", str(project), str(after), str(HOW_MANY))
    victim.communicate(timeout=DEADLINE_S)
    assert victim.returncode == -signal.SIGKILL

    async with open_registry(project, "p") as registry:
        after_death = (
            await all_files(registry),
            (await registry.timeline((await file_at(registry, "a.py"))["id"]))["results"],
        )
        assert after_death == before
        assert (await registry.list_findings())["total"] == 2
        assert (await registry.register_file("c.py", ACTOR))["path"] == "c.py"


async def test_events_have_the_same_ids_after_a_restart(tmp_path: Path) -> None:
    timelines: list[object] = []
    for _ in range(2):
        with ServedProject.started(tmp_path) as served:
            async with connected(served.server.url) as client:
                calls = Calls(client)
                file = await calls.ok("register_file", path="a.py")
                if not timelines:
                    finding = {"path": "a.py", "rule_id": "R1", "message": "bad"}
                    await calls.ok("report_findings", scan_source="ruff", findings=[finding])
                    await calls.ok("register_file", path="a.py", language="jython", file_type="module")
                timelines.append((await calls.ok("get_file_timeline", file_id=file["id"]))["results"])
    before, after = timelines
    assert isinstance(before, list)
    assert len(before) == 3
    assert after == before
