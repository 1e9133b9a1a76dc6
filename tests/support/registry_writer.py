"""Run by registry/test_processes.py: a process that writes to a registry, or is killed while it does."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import anyio

from armarium.capabilities.registry.lifespan import open_registry
from armarium.capabilities.registry.model import ReportEntry, ScanReport
from support.registry_calls import found

ROUNDS = 25
SHARED = "shared.py"


async def write(project: Path, name: str) -> None:
    """Change its own files and a shared one, each in a separate transaction."""
    async with open_registry(project, "p") as registry:
        print("ready", flush=True)
        sys.stdin.readline()
        for number in range(ROUNDS):
            file = await registry.register_file(f"{name}/{number}.py", name)
            await registry.scan(ScanReport(name, [found(SHARED, line=line + 1) for line in range(number + 1)]), name)
            await registry.register_file(SHARED, name, metadata={"by": name, "round": number})
            await registry.scan(
                ScanReport(name, [found(file["path"]), found(file["path"], "R2", severity="high")]), name
            )


async def die(project: Path, after: int, how_many: int) -> None:
    """Start a scan that would change everything, and be killed after `after` findings, or when all are written."""

    def findings() -> Iterator[ReportEntry]:
        for number in range(how_many):
            if number == after:
                os.kill(os.getpid(), signal.SIGKILL)
            yield found(f"new/{number % 50}.py", line=number + 1)

    def at_the_very_end(done: int) -> None:
        if done == how_many:
            os.kill(os.getpid(), signal.SIGKILL)

    async with open_registry(project, "p") as registry:
        await registry.scan(ScanReport("ruff", findings(), (".",)), "victim", at_the_very_end)


def main() -> None:
    """`write PROJECT NAME`, or `die PROJECT AFTER HOW_MANY`."""
    what, project, *rest = sys.argv[1:]
    if what == "write":
        anyio.run(write, Path(project), rest[0])
    else:
        anyio.run(die, Path(project), int(rest[0]), int(rest[1]))


if __name__ == "__main__":
    main()
