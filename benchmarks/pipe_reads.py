"""What does a pipe of ten reads cost the server, against the ten calls?

The server is `armarium stdio` on a directory of ten files of 1 KB. The peer is the same server, called ten times.
`--quick` takes a twentieth of the rounds.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from measure import Cost, compared
from stdio_client import StdioServer
from trial import report, scaled

READS = 10
ROUNDS = 1000
RUNS = 5
GOAL = 1.1


def main() -> None:
    with tempfile.TemporaryDirectory() as directory:
        root = Path(directory) / "files"
        root.mkdir()
        for number in range(READS):
            (root / f"{number}.txt").write_text("x" * 1023 + "\n")
        program = [str(Path(sys.executable).with_name("armarium")), "stdio", str(root), "--no-index", "--no-registry"]
        server = StdioServer(program, {"XDG_STATE_HOME": f"{directory}/state"})
        try:
            calls, pipe = costs_of(server)
        finally:
            server.close()
    row = compared(f"{READS} reads of 1 KB in one pipe", pipe, calls)
    report("pipe_reads", [row], f"at most {GOAL} times the CPU of the calls", pipe.cpu_s <= GOAL * calls.cpu_s)


def costs_of(server: StdioServer) -> tuple[Cost, Cost]:
    """The best cost of a round of calls, and of a pipe, in turn."""
    arguments = [{"root": "workspace", "path": f"{number}.txt"} for number in range(READS)]
    steps = [{"id": f"r{at}", "tool": "read_file", "args": given} for at, given in enumerate(arguments)]
    server.checked("mcp_pipe", {"steps": steps})

    def call_each() -> None:
        for given in arguments:
            server.call("read_file", given)

    costs = [
        (cost_of(server, call_each), cost_of(server, lambda: server.call("mcp_pipe", {"steps": steps})))
        for _ in range(RUNS)
    ]
    calls, pipes = ([pair[side] for pair in costs] for side in (0, 1))
    return best_of(calls), best_of(pipes)


def cost_of(server: StdioServer, work: Callable[[], object]) -> Cost:
    rounds = scaled(ROUNDS)
    cpu, wall = server.cpu_s(), time.perf_counter()
    for _ in range(rounds):
        work()
    return Cost((server.cpu_s() - cpu) / rounds, (time.perf_counter() - wall) / rounds)


def best_of(costs: list[Cost]) -> Cost:
    return Cost(min(cost.cpu_s for cost in costs), min(cost.wall_s for cost in costs))


if __name__ == "__main__":
    main()
