"""While another process swaps directories and files for links to the outside, no tool reads or changes the outside."""

from __future__ import annotations

import hashlib
import logging
import os
import subprocess
import sys
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, get_args

import anyio
import orjson
import pytest

from armarium.capabilities.sandbox.reads.file_content import ReadLimits
from armarium.capabilities.sandbox.roots import Root, Roots
from armarium.capabilities.sandbox.service import ChangeEvents, Sandbox
from armarium.capabilities.sandbox.threads.workers import Workers
from armarium.capabilities.sandbox.tools import TOOLS
from armarium.foundation.events import Events
from armarium.foundation.files.confine import ConfinedRoot, Resolver
from armarium.foundation.security.identity import LOCAL
from armarium.foundation.telemetry import Metrics
from armarium.foundation.tools import bind_tools
from armarium.surfaces.dispatch import Caller, Dispatcher
from support.client import connected
from support.server import ServerProcess
from support.trees import make_tree, picture

CALLS = 11_000
"""For each of the two resolvers: 22,000 in all."""
CALLS_OF_A_CLIENT = 1_000
TASKS = 4
DEADLINE_S = 400

pytestmark = [pytest.mark.alone, pytest.mark.timeout(600)]

CANARY = "canary-c0ffee"
OUTSIDE = (CANARY + "\n") * 301
OUTSIDE_MODE = 0o604

EXPECTED_FAILURES = {
    "PATH_ESCAPES_ROOT", "NOT_FOUND", "NOT_A_DIRECTORY", "IS_A_DIRECTORY", "ALREADY_EXISTS", "PATCH_FAILED", "CONFLICT",
}  # fmt: skip

ATTACKER = """
import ctypes, select, sys
libc = ctypes.CDLL(None)
swaps = 0
def swap(one, other):
    global swaps
    swaps += libc.renameat2(-100, one, -100, other, 2) == 0
while not select.select([sys.stdin], [], [], 0)[0]:
    for _ in range(50):
        swap(b"dir", b"link")
        swap(b"flat/file.txt", b"flat/link.txt")
    if swaps and "told" not in globals():
        told = print("swapping", flush=True)
print(swaps)
"""

Answer = dict[str, Any]
Invoke = Callable[[str, dict[str, Any]], Awaitable[Answer]]


@contextmanager
def swapping(root: Path) -> Generator[list[int]]:
    """Swap a directory and a file with links out for as long as the block runs; the list then holds how often."""
    swaps: list[int] = []
    command = [sys.executable, "-c", ATTACKER]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=root) as attacker:
        assert attacker.stdout is not None
        try:
            assert attacker.stdout.readline() == "swapping\n"
            yield swaps
            output, _ = attacker.communicate(timeout=DEADLINE_S)
            swaps.append(int(output))
        finally:
            attacker.kill()


def make_battlefield(base: Path) -> None:
    """A root whose `dir` and `flat/file.txt` get swapped, a second root, and an outside with the same names in it."""
    inside: dict[str, str | bytes | None] = {
        "sub/file.txt": "inside\n" * 10,
        "sub/victim.txt": "inside\n",
        "sub/tree/leaf.txt": "inside\n",
    }
    make_tree(base / "root/dir", inside)
    make_tree(base / "root", {"flat/file.txt": "inside\n", "stash/tree/leaf.txt": "inside\n"})
    make_tree(base / "other", {"kept.txt": "inside\n"})
    make_tree(base / "outside", dict.fromkeys(inside, OUTSIDE))
    make_tree(base / "outside", {f"sub/{CANARY}.txt": OUTSIDE, f"sub/tree/{CANARY}": None})
    for path in (base / "outside").rglob("*.txt"):
        path.chmod(OUTSIDE_MODE)
    (base / "root/link").symlink_to(base / "outside")
    (base / "root/flat/link.txt").symlink_to(base / "outside/sub/file.txt")


def never_said(base: Path) -> list[str]:
    """What an answer that saw the outside would contain: names, content, hashes, sizes, modes, the place itself."""
    hashes = [hashlib.new(name, OUTSIDE.encode()).hexdigest() for name in ("md5", "sha1", "sha256")]
    return [CANARY, str(base), f'"size":{len(OUTSIDE)}', f'"mode":"{OUTSIDE_MODE:04o}"', *hashes]


def round_of_calls(task: int) -> list[tuple[str, dict[str, Any]]]:
    """Every tool through the swapped directory or file, leaving the tree as it was."""

    def at(path: str, **more: Any) -> dict[str, Any]:
        return {"root": "root", "path": path, **more}

    def between(source: str, dest: str, *, roots: tuple[str, str] = ("root", "root")) -> dict[str, Any]:
        return {"source_root": roots[0], "source_path": source, "dest_root": roots[1], "dest_path": dest}

    creation = "--- /dev/null\n+++ b\n@@ -0,0 +1 @@\n+inside\n"
    return [
        ("list_folder", at("dir/sub")),
        ("read_file", at("dir/sub/file.txt")),
        ("read_file", at("flat/file.txt", tail_lines=3)),
        ("read_files", {"root": "root", "paths": ["dir/sub/file.txt", "flat/file.txt"]}),
        ("write_file", at("dir/sub/victim.txt", content="inside\n")),
        ("write_file", at("flat/file.txt", content="inside\n")),
        ("write_file", at(f"dir/sub/log-{task}.txt", content="inside\n", mode="append")),
        ("write_file", at(f"dir/sub/new-{task}/new.txt", content="inside\n", mode="create_only")),
        ("remove_file", at(f"dir/sub/new-{task}/new.txt")),
        ("patch_file", at(f"dir/sub/made-{task}.txt", patch=creation)),
        ("remove_file", at(f"dir/sub/made-{task}.txt")),
        ("remove_file", at(f"dir/sub/log-{task}.txt")),
        ("create_folder", at(f"dir/sub/folder-{task}/deep")),
        ("remove_folder", at(f"dir/sub/folder-{task}")),
        ("stat_file", at("dir/sub/file.txt", include_sha256=True)),
        ("stat_file", at("flat/file.txt", include_sha256=True)),
        ("hash_file", at("dir/sub/file.txt", algorithm="md5")),
        ("hash_file", at("flat/file.txt", algorithm="sha256")),
        ("permissions_file", at("dir/sub/file.txt")),
        ("copy", between("dir/sub/file.txt", f"stash/file-{task}.txt")),
        ("copy", between("flat/file.txt", f"stash/flat-{task}.txt")),
        ("copy", between("dir", f"stash/copy-{task}")),
        ("remove_folder", at(f"stash/copy-{task}")),
        ("copy", between("stash/tree", f"dir/sub/tree-{task}")),
        ("move", between(f"dir/sub/tree-{task}", f"stash/tree-{task}")),
        ("move", between(f"stash/tree-{task}", f"dir/sub/tree-{task}")),
        ("remove_folder", at(f"dir/sub/tree-{task}")),
        ("move", between(f"stash/file-{task}.txt", f"dir/sub/moved-{task}.txt")),
        ("move", between(f"dir/sub/moved-{task}.txt", f"moved-{task}.txt", roots=("root", "other"))),
        ("move", between(f"moved-{task}.txt", f"dir/sub/back-{task}.txt", roots=("other", "root"))),
        ("remove_file", at(f"dir/sub/back-{task}.txt")),
        ("grep", at("dir", pattern=".")),
        ("grep", at(".", pattern="canary|inside", max_results=1000)),
        ("glob", at("dir/sub", pattern="**", max_results=1000)),
        ("glob", at("", regex=".", max_results=1000)),
    ]


async def race(base: Path, invoke: Invoke, calls: int) -> dict[str, Counter[str]]:
    """Let several tasks make rounds of calls against the attacker; returns how the calls of each tool ended."""
    outcomes: dict[str, Counter[str]] = {tool: Counter() for tool, _ in round_of_calls(0)}
    secrets = [secret.encode() for secret in never_said(base)]

    def enough() -> bool:
        total = sum(each.total() for each in outcomes.values())
        return total >= calls and all(each["success"] and each["PATH_ESCAPES_ROOT"] for each in outcomes.values())

    async def attack(task: int) -> None:
        while not enough():
            for tool, arguments in round_of_calls(task):
                answer = await invoke(tool, arguments)
                said = orjson.dumps(answer)
                for secret in secrets:
                    assert secret not in said, f"{tool} {arguments} told of the outside: {said!r}"
                error = answer.get("error") or answer.get("files", [{}])[0].get("error")
                outcomes[tool][error["code"] if error else "success"] += 1

    with anyio.move_on_after(DEADLINE_S):
        async with anyio.create_task_group() as tasks:
            for task in range(TASKS):
                tasks.start_soon(attack, task)
    return outcomes


def require_no_escape(base: Path, before: object, outcomes: dict[str, Counter[str]], calls: int) -> None:
    """The outside is as it was, nothing of it came in, and both ways of a race were taken by every tool."""
    assert picture(base / "outside") == before
    for root in ("root", "other"):
        for parent, _, files in os.walk(base / root):
            for name in files:
                path = Path(parent, name)
                assert CANARY not in name
                assert path.is_symlink() or CANARY not in path.read_text()
    assert sum(each.total() for each in outcomes.values()) >= calls
    for tool, each in outcomes.items():
        assert set(each) <= {"success", *EXPECTED_FAILURES}, f"{tool}: {each}"
        assert each["success"] > 0, f"{tool}: {each}"
        assert each["PATH_ESCAPES_ROOT"] > 0, f"{tool}: {each}"


@asynccontextmanager
async def sandbox(base: Path, resolver: Resolver) -> AsyncGenerator[Invoke]:
    """The sandbox in this process with one way of resolving, and without Landlock, which would hide its faults."""
    roots = Roots(
        Root(name, "", allowed_tools=["*"], confined=ConfinedRoot(str(base / name), resolver=resolver))
        for name in ("root", "other")
    )
    workers = Workers([], [], confine="off")
    tools = bind_tools(TOOLS, Sandbox(roots, workers, ChangeEvents(Events()), ReadLimits(1 << 20, 8 << 20), 3600))
    dispatcher = Dispatcher(
        [("sandbox", tool) for tool in tools], metrics=Metrics(), audit=None, default_deadline_s=30, check_answers=True
    )
    caller = Caller(LOCAL, "test")

    async def invoke(tool: str, arguments: dict[str, Any]) -> Answer:
        result = (await dispatcher.outcome(caller, tool, arguments)).result
        return result["structuredContent"]

    try:
        yield invoke
    finally:
        workers.close()
        roots.close()


async def race_in_process(base: Path, resolver: Resolver, calls: int) -> None:
    make_battlefield(base)
    before = picture(base / "outside")
    async with sandbox(base, resolver) as invoke:
        with swapping(base / "root") as swaps:
            outcomes = await race(base, invoke, calls)
    require_no_escape(base, before, outcomes, calls)
    assert swaps[0] > 100


@pytest.fixture(autouse=True)
def _few_log_records(caplog: pytest.LogCaptureFixture) -> None:
    # Every refusal is a warning; the test would keep thousands of them.
    caplog.set_level(logging.CRITICAL, logger="armarium.calls")


@pytest.mark.parametrize("resolver", get_args(Resolver))
async def test_no_tool_is_raced_out_of_its_root(tmp_path: Path, resolver: Resolver) -> None:
    await race_in_process(tmp_path, resolver, CALLS)


async def test_the_real_server_is_not_raced_out_of_its_root(tmp_path: Path) -> None:
    make_battlefield(tmp_path)
    before = picture(tmp_path / "outside")
    roots = [{"name": name, "path": str(tmp_path / name), "allowed_tools": ["*"]} for name in ("root", "other")]
    with ServerProcess.mcp_filesystem(tmp_path, {"host": "127.0.0.1", "landlock": "off", "roots": roots}) as server:
        async with connected(server.url) as client:

            async def invoke(tool: str, arguments: dict[str, Any]) -> Answer:
                return (await client.result(tool, arguments)).structured_content

            with swapping(tmp_path / "root") as swaps:
                outcomes = await race(tmp_path, invoke, CALLS_OF_A_CLIENT)
    require_no_escape(tmp_path, before, outcomes, CALLS_OF_A_CLIENT)
    assert swaps[0] > 100


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("resolver", get_args(Resolver))
async def test_no_tool_is_raced_out_of_its_root_in_a_long_run(
    tmp_path: Path, resolver: Resolver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.modules[__name__], "DEADLINE_S", 3500)
    await race_in_process(tmp_path, resolver, 50 * CALLS)
