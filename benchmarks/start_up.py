"""How long from starting the server to its first answered call?"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from measure import report
from stdio_client import StdioServer

RUNS = 7
GOAL_S = 1.5


def main() -> None:
    with tempfile.TemporaryDirectory() as directory:
        root = Path(directory) / "root"
        root.mkdir()
        (root / "hello.txt").write_text("hello\n")
        environment = {"XDG_STATE_HOME": str(Path(directory) / "state")}
        armarium = str(Path(sys.executable).parent / "armarium")
        first_calls = [first_answer([armarium, "stdio", str(root)], environment) for _ in range(RUNS)]
        bare = [first_exit([sys.executable, "-c", "import mcp.server"]) for _ in range(RUNS)]
    rows: list[dict[str, Any]] = [
        {"case": "start to first answered call (stdio)", "wall_s": round(min(first_calls), 3)},
        {"case": "for comparison: Python importing the MCP SDK alone", "wall_s": round(min(bare), 3)},
    ]
    report("start_up", rows, f"first answered call in under {GOAL_S} s", min(first_calls) < GOAL_S)


def first_answer(command: list[str], environment: dict[str, str]) -> float:
    started = time.perf_counter()
    server = StdioServer(command, env=environment)
    server.checked("read_file", {"root": "workspace", "path": "hello.txt"})
    seconds = time.perf_counter() - started
    server.close()
    return seconds


def first_exit(command: list[str]) -> float:
    started = time.perf_counter()
    subprocess.run(command, check=True, env=os.environ)
    return time.perf_counter() - started


if __name__ == "__main__":
    main()
