"""What does one caller's attack cost everybody else, and what does it leave behind?

Each attack meets a fresh server. While it runs, another caller asks `/health` and calls `stat_file`, and the server's
memory is read. With `--before REF` the same attacks meet the code of that commit, and some of them the official
server-filesystem, which has one caller at a time: its own `ping` takes the place of the others.

    python benchmarks/hostile.py --before a243531
    python benchmarks/hostile.py --attack "900,000 arguments" --attack "10,000 sessions"
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hostile_watch import Caller
from measure import report
from stdio_client import StdioServer
from trial import QUICK, scaled

HERE = Path(__file__).parent
BINARIES = Path(sys.executable).parent
PEER = HERE.parent / "tests/node/node_modules/@modelcontextprotocol/server-filesystem/dist/index.js"
ATTACKERS = [f"attacker-{number}" for number in range(50)]
KEYS = {name: f"{name}-key" for name in (*ATTACKERS, "other")}
MIB = 1024 * 1024
IDLE_S = 3.0
SETTLE_S = 8.0
LONG_CALLS_S = 15.0
ATTACK_DEADLINE_S = 180.0

Call = tuple[str, dict[str, Any]]


@dataclass(frozen=True)
class Attack:
    """Calls of one caller, or of several."""

    name: str
    calls: Callable[[], list[Call]]
    at_once: int = 1
    callers: int = 1
    corpus: bool = False
    until_s: float | None = None
    """Disconnect after this time, while the calls are still running."""
    peer_calls: Callable[[Path], list[Call]] | None = None
    """The same for the official server-filesystem, where it has such a tool."""


def in_root(tool: str, **arguments: Any) -> Call:
    return tool, {"root": "work", **arguments}


def many_arguments() -> list[Call]:
    return [in_root("stat_file", path="two", **{f"k{number}": 1 for number in range(scaled(900_000))})]


def read_together(kind: str) -> list[Call]:
    paths = [f"{kind}/{number}.txt" for number in range(16)]
    return [in_root("read_files", paths=paths)] * scaled(20)


def peer_reads(kind: str, root: Path) -> list[Call]:
    paths = [str(root / kind / f"{number}.txt") for number in range(16)]
    return [("read_multiple_files", {"paths": paths})] * scaled(20)


def long_calls() -> list[Call]:
    kinds: list[Call] = [
        in_root("hash_file", path="huge", algorithm="sha256"),
        in_root("grep", pattern="(a|b)*c[0-9]{2}q", path="tree"),
        in_root("glob", pattern="**/*[0-9]q*", path="tree"),
        in_root("read_files", paths=[f"text/{number}.txt" for number in range(16)]),
        in_root("stat_file", path="huge", include_sha256=True),
    ]
    copies = [in_root("copy", source_path="tree", dest_path=f"copy{number}", dest_root="work") for number in range(5)]
    for call in copies:
        call[1]["source_root"] = call[1].pop("root")
    return [kinds[number % len(kinds)] for number in range(45)] + copies


def asked(tool: str, query: str) -> list[Call]:
    return [(f"dir2mcp.{tool}", {"question" if tool == "ask" else "query": query})]


ATTACKS = [
    Attack("900,000 arguments", many_arguments),
    Attack("20 read_files of control characters", lambda: read_together("control"), 20,
           peer_calls=lambda root: peer_reads("control", root)),
    Attack("20 read_files of texts", lambda: read_together("text"), 20,
           peer_calls=lambda root: peer_reads("text", root)),
    Attack("40 reads of 8 MB, 8 at a time",
           lambda: [in_root("read_file", path="8mb.txt", offset_bytes=0, limit_bytes=8 * MIB)] * 40, 8,
           peer_calls=lambda root: [("read_text_file", {"path": str(root / "8mb.txt")})] * 40),
    Attack(r"grep (\pL{1,40}\s){1,20}Q", lambda: [in_root("grep", pattern=r"(\pL{1,40}\s){1,20}Q", path="two")]),
    Attack(r"30 greps \pL{700}\d", lambda: [in_root("grep", pattern=r"\pL{700}\d", path="two")] * 30),
    Attack(r"10 greps \pL{700}\d at once", lambda: [in_root("grep", pattern=r"\pL{700}\d", path="two")] * 10, 10),
    Attack("10,000 sessions", lambda: [("initialize", {})] * scaled(10_000), 8),
    Attack("16 hash_file of 3 GB", lambda: [in_root("hash_file", path="huge", algorithm="sha256")] * 16, 16,
           until_s=LONG_CALLS_S),
    Attack("50 long calls", long_calls, 50, until_s=LONG_CALLS_S),
    Attack("50 long calls of 50 callers", long_calls, 50, callers=50, until_s=LONG_CALLS_S),
    Attack("search for 12 MB", lambda: asked("search", "word " * 2_500_000), corpus=True),
    Attack("ask 12 MB", lambda: asked("ask", "word " * 2_500_000), corpus=True),
    Attack("search for 32,000 letters", lambda: asked("search", "x" * 32_000), corpus=True),
    Attack("search for 60,000 letters", lambda: asked("search", "x" * 60_000), corpus=True),
]  # fmt: skip


def make_files(root: Path) -> None:
    (root / "two").write_text("ab")
    with (root / "huge").open("wb") as file:
        file.truncate((100 if QUICK else 3000) * MIB)
    line = 'The quick brown fox "jumps" over the lazy dog.\n'
    (root / "8mb.txt").write_text((line * 200_000)[: 8 * MIB])
    for kind, text in (("control", "\x01" * MIB), ("text", (line * 20_000)[:830_000])):
        (root / kind).mkdir()
        for number in range(16):
            (root / kind / f"{number}.txt").write_text(text)
    for folder in range(scaled(400)):
        (root / "tree" / f"d{folder:03}").mkdir(parents=True)
        for number in range(50):
            (root / "tree" / f"d{folder:03}" / f"f{number:02}.txt").write_text("abab" * 500)
    (root / "documents").mkdir()
    for number in range(20):
        (root / "documents" / f"{number}.md").write_text(f"# Note {number}\n\n{line * 5}")


class Server:
    """A running server of this code or of another commit."""

    def __init__(self, directory: Path, root: Path, source: Path, corpus: bool) -> None:
        self.port = _free_port()
        settings: dict[str, Any] = {
            "state_dir": str(directory / "state"),
            "server": {"port": self.port},
            "security": {
                "auth": "keys",
                "keys": [
                    {"username": name, "key_sha256": hashlib.sha256(key.encode()).hexdigest()}
                    for name, key in KEYS.items()
                ],
            },
            "sandbox": {"roots": [{"name": "work", "path": str(root), "allowed_tools": ["*"]}]},
        }
        if corpus:
            settings["corpus"] = {"root": str(root / "documents"), "state_dir": str(directory / "index")}
        file = directory / "armarium.yaml"
        file.write_text(json.dumps(settings))
        self._process = subprocess.Popen(
            [str(BINARIES / "armarium"), "serve", "--config", str(file)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "PYTHONPATH": str(source)},
        )
        self.pid = self._process.pid
        _wait_until(lambda: _answers(self.port), "the server did not start")
        if corpus:
            self._wait_for_index()

    def close(self) -> None:
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(30)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _wait_for_index(self) -> None:
        caller = Caller(self.port, KEYS["other"])
        caller.open()
        _wait_until(lambda: caller.call(*asked("search", "fox")[0]) == "ok", "the corpus was not indexed")
        caller.close()


def measured(attack: Attack, root: Path, source: Path) -> dict[str, Any]:
    """Measure an attack on a new server."""
    with tempfile.TemporaryDirectory() as directory:
        server = Server(Path(directory), root, source, attack.corpus)
        try:
            idle = _watched(server.port, lambda: time.sleep(IDLE_S))
            started_mb = _memory_mb(server.pid, "VmRSS")
            Path(f"/proc/{server.pid}/clear_refs").write_text("5")  # forgets the highest figure so far
            answers: Counter[str] = Counter()
            seen = _watched(server.port, lambda: answers.update(_attack(attack, server.port)))
            time.sleep(SETTLE_S)
            return {
                "health_silence_s": max(seen["health"]),
                "health_p95_s": _p95(seen["health"]),
                "health_idle_p95_s": _p95(idle["health"]),
                "stat_p95_s": _p95(seen["stat"]),
                "stat_idle_p95_s": _p95(idle["stat"]),
                "start_mb": started_mb,
                "peak_mb": _memory_mb(server.pid, "VmHWM"),
                "remaining_mb": _memory_mb(server.pid, "VmRSS"),
                "answers": dict(answers),
            }
        finally:
            server.close()


def _attack(attack: Attack, port: int) -> Iterable[str]:
    deadline = time.monotonic() + (attack.until_s or ATTACK_DEADLINE_S)

    def send(numbered: tuple[int, Call]) -> str:
        number, call = numbered
        left = deadline - time.monotonic()
        if left <= 0:
            return "not sent"
        caller = Caller(port, KEYS[ATTACKERS[number % attack.callers]], timeout_s=left)
        try:
            opened = caller.open()
            if call[0] == "initialize" or opened != 200:
                return str(opened)
            return caller.call(*call)
        except OSError:
            return "hung up" if attack.until_s else "no answer"
        finally:
            caller.close()

    with ThreadPoolExecutor(attack.at_once) as threads:
        return list(threads.map(send, enumerate(attack.calls())))


def measured_peer(attack: Attack, root: Path) -> dict[str, Any]:
    """The same calls to the official server, one after the other as its only client sends them."""
    assert attack.peer_calls is not None
    server = StdioServer([str(BINARIES / "node"), str(PEER), str(root)])
    try:
        started_mb = _memory_mb(server.pid, "VmRSS")
        Path(f"/proc/{server.pid}/clear_refs").write_text("5")
        silence_s = 0.0
        for tool, arguments in attack.peer_calls(root):
            started = time.perf_counter()
            server.call(tool, arguments)
            silence_s = max(silence_s, time.perf_counter() - started)
        time.sleep(SETTLE_S)
        return {
            "health_silence_s": silence_s,
            "start_mb": started_mb,
            "peak_mb": _memory_mb(server.pid, "VmHWM"),
            "remaining_mb": _memory_mb(server.pid, "VmRSS"),
        }
    finally:
        server.close()


def _watched(port: int, work: Callable[[], object]) -> dict[str, list[float]]:
    watchers = {what: _watcher(what, port) for what in ("health", "stat")}
    for watcher in watchers.values():
        assert watcher.stdout is not None
        assert watcher.stdout.readline() == "ready\n"
    work()
    return {what: json.loads(watcher.communicate(timeout=ATTACK_DEADLINE_S)[0]) for what, watcher in watchers.items()}


def _watcher(what: str, port: int) -> subprocess.Popen[str]:
    command = [sys.executable, str(HERE / "hostile_watch.py"), what, str(port), KEYS["other"]]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def _p95(latencies: Sequence[float]) -> float:
    return sorted(latencies)[int(len(latencies) * 0.95)]


def _memory_mb(pid: int, field: str) -> float:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(f"{field}:"):
            return round(int(line.split()[1]) / 1024, 1)
    raise AssertionError(f"the kernel does not tell {field}")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def _answers(port: int) -> bool:
    caller = Caller(port, "", timeout_s=2)
    with suppress(OSError):
        caller.health()
        return True
    return False


def _wait_until(condition: Callable[[], bool], complaint: str) -> None:
    deadline = time.monotonic() + 120
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(complaint)
        time.sleep(0.1)


@contextmanager
def source_of(ref: str) -> Generator[Path]:
    """The sources of another commit, in a worktree of their own."""
    with tempfile.TemporaryDirectory() as directory:
        place = Path(directory) / "before"
        subprocess.run(
            ["git", "worktree", "add", "--detach", str(place), ref], cwd=HERE, check=True, capture_output=True
        )
        try:
            yield place / "src"
        finally:
            subprocess.run(["git", "worktree", "remove", "--force", str(place)], cwd=HERE, check=True)


def compared(attacks: Sequence[Attack], sources: dict[str, Path]) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as directory:
        root = Path(directory)
        make_files(root)
        for attack in attacks:
            for name, source in sources.items():
                rows.append({"case": attack.name, "server": name, **_rounded(measured(attack, root, source))})
                print(rows[-1], flush=True)
            if attack.peer_calls is not None and PEER.exists():
                found = _rounded(measured_peer(attack, root))
                rows.append({"case": attack.name, "server": "server-filesystem", **found})
                print(rows[-1], flush=True)
    return rows


def _rounded(figures: dict[str, Any]) -> dict[str, Any]:
    return {name: float(f"{value:.3g}") if name.endswith("_s") else value for name, value in figures.items()}


def is_met(row: dict[str, Any]) -> bool:
    return row["health_silence_s"] < 1 and row["remaining_mb"] <= 1.5 * row["start_mb"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--before", metavar="REF", help="also measure the code of this commit")
    parser.add_argument("--attack", action="append", choices=[attack.name for attack in ATTACKS], metavar="NAME")
    parser.add_argument("--quick", action="store_true", help="a small version, to see that it runs")
    options = parser.parse_args()
    attacks = [attack for attack in ATTACKS if not options.attack or attack.name in options.attack]
    now = {"now": HERE.parent / "src"}
    if options.before:
        with source_of(options.before) as before:
            rows = compared(attacks, {"before": before, **now})
    else:
        rows = compared(attacks, now)
    goal = "no attack silences /health for a second, and afterwards memory is within 1.5x of the start"
    met = all(is_met(row) for row in rows if row["server"] == "now")
    if len(attacks) == len(ATTACKS) and not QUICK:
        report("hostile", rows, goal, met)
    else:
        print(f"goal: {goal}: {'met' if met else 'MISSED'}; only a whole run is written down")


if __name__ == "__main__":
    main()
