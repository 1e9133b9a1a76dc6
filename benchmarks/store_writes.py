"""How much of what PostgreSQL can do is left when 32 clients write through the store, and what does a write cost us?

The store as a server opens it, on a PostgreSQL that flushes every commit to the disk. The peer is `pgbench` on the
same server, with as many connections and the very statement of a write, which locks, looks, applies and commits. The
two take turns. One project for each client, files of 1 kB created and appended to; then one project that all 32 share,
where waiting for each other must not leave anybody behind. `--quick` takes a twentieth.
"""

from __future__ import annotations

import re
import resource
import secrets
import subprocess
import tempfile
import time
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
from anyio import to_thread
from prometheus_client import CollectorRegistry
from pydantic import SecretStr

from armarium.capabilities.store.arguments import WriteArgs
from armarium.capabilities.store.files.writes import SQL
from armarium.capabilities.store.lifespan import open_store
from armarium.capabilities.store.postgres.embedded import embedded_postgres, fitting_installation, installations
from armarium.capabilities.store.service import Store
from armarium.capabilities.store.settings import IndexSettings, RateSettings, StoreSettings
from armarium.foundation.security.identity import Principal
from armarium.foundation.tools import Call
from trial import report, scaled

CLIENTS = 32
ROUNDS = 3
RATE_GOAL = 0.6
CPU_GOAL_MS = 0.35
SPREAD_GOAL = 3.0
CONTENT = "0123456789abcdef" * 64
FILES_APPENDED_TO = 50
"""Of each client, in turn: no file grows so much that copying it is what is measured."""
WARM_UP = 10
FIRST_PATH = 1_000_000_000
PATHS_OF_A_CLIENT = 1_000_000

_TPS = re.compile(r"^tps = ([\d.]+) \(without initial connection time\)", re.MULTILINE)
_ARGUMENTS = (
    *(":tenant", ":project", ":path", ":parents", ":content", "'APPEND'", "0", "false", "NULL"),
    *(":max_file_bytes", ":max_project_bytes", ":versions", ":searchable", "NULL", ":max_projects", ":project"),
    ":lock_timeout_ms",
)


@dataclass(frozen=True, slots=True)
class Case:
    name: str
    writes: int
    appending: bool = False
    shared: bool = False

    @property
    def writes_each(self) -> int:
        return scaled(self.writes) // CLIENTS

    def path(self, client: int, number: int) -> str:
        """pgbench can make numbers and no words, so paths are numbers in both."""
        place = number % FILES_APPENDED_TO if self.appending else number
        return f"/docs/{FIRST_PATH + client * PATHS_OF_A_CLIENT + place}"


CASES = (
    Case("files created", 8_000),
    Case("files appended to", 8_000, appending=True),
    Case("files created in one project", 4_000, shared=True),
)


@dataclass(frozen=True, slots=True)
class Round:
    """What one contender did; its latencies in milliseconds."""

    per_s: float
    cpu_ms: float
    taken_ms: list[float]


@dataclass(frozen=True, slots=True)
class Bench:
    store: Store
    settings: StoreSettings
    dsn: str
    pgbench: Path
    scratch: Path


async def main() -> None:
    async with AsyncExitStack() as stack:
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        dsn = await stack.enter_async_context(embedded_postgres(scratch / "data"))
        settings = StoreSettings(
            dsn=SecretStr(dsn),
            pool_size=CLIENTS,
            rate=RateSettings(calls_per_second=1e6, burst=1_000_000),
            index=IndexSettings(workers=0),
        )
        store = await stack.enter_async_context(open_store(settings, scratch, CollectorRegistry()))
        binaries = fitting_installation(list(installations()), None).binaries
        bench = Bench(store, settings, dsn, binaries / "pgbench", scratch)
        await write(bench, Case("warming up", 0), WARM_UP)
        rows = [await measured(bench, case) for case in CASES]
    *apart, together = rows
    met = (
        all(row["ratio"] >= RATE_GOAL and row["cpu_ms"] <= CPU_GOAL_MS for row in apart)
        and together["spread"] <= SPREAD_GOAL
    )
    goal = (
        f"{CLIENTS} clients: {RATE_GOAL} of pgbench's rate, {CPU_GOAL_MS} ms of our CPU for a write; "
        f"in one project p99 at most {SPREAD_GOAL:g} times p50"
    )
    report("store_writes", rows, goal, met)


async def measured(bench: Bench, case: Case) -> dict[str, Any]:
    ours: list[Round] = []
    peers: list[Round] = []
    for _ in range(ROUNDS):
        ours.append(await write(bench, case, case.writes_each))
        peers.append(await to_thread.run_sync(pgbench, bench, case))
    our_rate, peer_rate = (max(each.per_s for each in rounds) for rounds in (ours, peers))
    our_spread, peer_spread = spread(ours), spread(peers)
    return {
        "case": case.name,
        "clients": CLIENTS,
        "writes_per_second": round(our_rate),
        "peer_writes_per_second": round(peer_rate),
        "ratio": round(our_rate / peer_rate, 3),
        "cpu_ms": round(min(each.cpu_ms for each in ours), 3),
        "peer_cpu_ms": round(min(each.cpu_ms for each in peers), 3),
        **our_spread,
        **{f"peer_{name}": value for name, value in peer_spread.items()},
        "writes_per_second_of_each_round": [round(each.per_s) for each in ours],
        "peer_writes_per_second_of_each_round": [round(each.per_s) for each in peers],
    }


def spread(rounds: list[Round]) -> dict[str, float]:
    """Over all rounds: how long most writes took, and how much longer the slowest."""
    taken = sorted(each for one in rounds for each in one.taken_ms)
    p50, p99 = taken[len(taken) // 2], taken[int(len(taken) * 0.99)]
    return {"p50_ms": round(p50, 2), "p99_ms": round(p99, 2), "spread": round(p99 / p50, 2)}


async def write(bench: Bench, case: Case, writes_each: int) -> Round:
    """Every client writes one file after the other, for a tenant that has none yet."""
    call = Call(Principal("bench", (), secrets.token_hex(32)))
    taken_ms: list[float] = []

    async def client(client: int, writes: int) -> None:
        project = "shared" if case.shared else str(client)
        for number in range(writes):
            started = time.perf_counter()
            path = case.path(client, number)
            await bench.store.write(call, WriteArgs(project=project, path=path, content=CONTENT))
            taken_ms.append((time.perf_counter() - started) * 1000)

    async def all_clients(writes: int) -> None:
        async with anyio.create_task_group() as tasks:
            for number in range(CLIENTS):
                tasks.start_soon(client, number, writes)

    if case.appending:
        await all_clients(FILES_APPENDED_TO)
        taken_ms.clear()
    cpu, wall = time.process_time(), time.perf_counter()
    await all_clients(writes_each)
    wall_s, cpu_s = time.perf_counter() - wall, time.process_time() - cpu
    writes = CLIENTS * writes_each
    return Round(writes / wall_s, cpu_s * 1000 / writes, taken_ms)


def pgbench(bench: Bench, case: Case) -> Round:
    """The same writes by pgbench, also for a tenant of their own."""
    tenant = secrets.token_hex(32)
    if case.appending:
        run_pgbench(bench, script(case), tenant, FILES_APPENDED_TO)
    return run_pgbench(bench, script(case), tenant, case.writes_each)


def run_pgbench(bench: Bench, script: str, tenant: str, writes_each: int) -> Round:
    with tempfile.TemporaryDirectory(dir=bench.scratch) as directory:
        file = Path(directory, "write.sql")
        file.write_text(script)
        variables = {
            "tenant": tenant,
            "parents": "{/docs}",
            "content": CONTENT,
            "max_file_bytes": bench.settings.max_file_bytes,
            "max_project_bytes": bench.settings.max_project_bytes,
            "max_projects": bench.settings.max_projects,
            "versions": bench.settings.history.versions,
            "lock_timeout_ms": bench.settings.lock_timeout_ms,
            "searchable": "true",
            "number": -1,
        }
        defined = [argument for name, value in variables.items() for argument in ("-D", f"{name}={value}")]
        cpu_s = children_cpu_s()
        ran = subprocess.run(
            [
                *(bench.pgbench, "--no-vacuum", "--protocol=prepared", f"--client={CLIENTS}", "--jobs=1"),
                *(f"--transactions={writes_each}", f"--file={file}", *defined),
                *("--log", f"--log-prefix={directory}/log", bench.dsn),
            ],
            capture_output=True,
            text=True,
            check=False,
        )
        cpu_s = children_cpu_s() - cpu_s
        rate = _TPS.search(ran.stdout)
        if ran.returncode or rate is None:
            raise RuntimeError(f"pgbench ended with {ran.returncode}: {ran.stderr[-2000:]}")
        logged = [line.split() for log in Path(directory).glob("log.*") for line in log.read_text().splitlines()]
    # The third field is the time a transaction took, in microseconds.
    taken_ms = [int(fields[2]) / 1000 for fields in logged]
    return Round(float(rate[1]), cpu_s * 1000 / (CLIENTS * writes_each), taken_ms)


def script(case: Case) -> str:
    """A write as the store does it. The number of a project's lock is its own number here."""
    place = f":number % {FILES_APPENDED_TO}" if case.appending else ":number"
    lines = [line for line in SQL["write_file"].splitlines() if not line.startswith("--")]
    return "\n".join(
        [
            "\\set number :number + 1",
            f"\\set path {FIRST_PATH} + :client_id * {PATHS_OF_A_CLIENT} + {place}",
            f"\\set project {0 if case.shared else ':client_id'}",
            re.sub(r"\$(\d+)", lambda match: _ARGUMENTS[int(match[1]) - 1], "\n".join(lines)),
            "",
        ]
    )


def children_cpu_s() -> float:
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    return ended.ru_utime + ended.ru_stime


if __name__ == "__main__":
    anyio.run(main, backend_options={"use_uvloop": True})
