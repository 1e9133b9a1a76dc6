"""One caller attacks the real server: another caller is still served, and the memory is freed afterwards."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from support.client import RawSession
from support.mcp_messages import opening
from support.server import ServerProcess
from support.soak import chance

MIB = 1024 * 1024
MOST_SESSIONS = 60
MEMORY_DEADLINE_S = 60.0
DEADLINE_S = 120.0

Attack = Callable[[str], None]


def called(session: RawSession, tool: str, **arguments: Any) -> str:
    """How a call ended: `ok`, the code of its error, or the status of a refusal."""
    answer = session.call(tool, json.dumps({"root": "work", **arguments}))
    if answer.status_code != 200:
        return str(answer.status_code)
    result = answer.json()["result"]
    return result["structuredContent"]["error"]["code"] if result.get("isError") else "ok"


def at_once(calls: int, url: str, tool: str, **arguments: Any) -> set[str]:
    """How these calls end, which one caller makes at the same time."""

    def one(_: int) -> str:
        with RawSession.opened(url) as session:
            return called(session, tool, **arguments)

    with ThreadPoolExecutor(calls) as threads:
        return set(threads.map(one, range(calls)))


def many_arguments(url: str) -> None:
    arguments = {f"k{number}": 1 for number in range(300_000)}
    assert at_once(2, url, "stat_file", path="two", **arguments) == {"413"}


def large_arguments(url: str) -> None:
    assert at_once(4, url, "stat_file", path=[f"path {number}" for number in range(190_000)]) == {"INVALID_ARGUMENT"}


def deep_arguments(url: str) -> None:
    with RawSession.opened(url) as session:
        answer = session.call("stat_file", '{"path":' + "[" * 1000 + "]" * 1000 + "}")
        assert answer.json()["result"]["structuredContent"]["error"]["code"] == "INVALID_ARGUMENT"


def answers_too_large(url: str) -> None:
    paths = [f"control/{number}.txt" for number in range(16)]
    assert at_once(20, url, "read_files", paths=paths) <= {"RESPONSE_TOO_LARGE", "TOO_MANY_CALLS"}


def large_answers(url: str) -> None:
    assert at_once(6, url, "read_file", path="large.txt", offset_bytes=0, limit_bytes=8 * MIB) == {"ok"}


def many_sessions(url: str) -> None:
    headers = {"accept": "application/json, text/event-stream"}
    with httpx.Client(base_url=url, headers=headers, timeout=DEADLINE_S) as http:
        assert {http.post("/mcp", json=opening()).status_code for _ in range(4 * MOST_SESSIONS)} == {200}


ATTACKS: list[Attack] = [
    many_arguments,
    large_arguments,
    deep_arguments,
    answers_too_large,
    large_answers,
    many_sessions,
]


@contextmanager
def served(url: str) -> Generator[list[str]]:
    """While inside, another caller works. What it was told is known afterwards."""
    begun, ended, told = threading.Event(), threading.Event(), list[str]()

    def work() -> None:
        with RawSession.opened(url) as session, httpx.Client(base_url=url, timeout=DEADLINE_S) as http:
            while not ended.is_set():
                told.append(called(session, "stat_file", path="two"))
                told.append(http.get("/health").text)
                begun.set()

    with ThreadPoolExecutor(1) as threads:
        working = threads.submit(work)
        try:
            assert begun.wait(DEADLINE_S)
            yield told
        finally:
            ended.set()
        working.result(DEADLINE_S)


@pytest.fixture
def server(tmp_path: Path) -> Generator[ServerProcess]:
    """A sandbox with small files and large ones, open to anyone on this machine."""
    root = tmp_path / "root"
    (root / "control").mkdir(parents=True)
    (root / "two").write_text("ab")
    (root / "large.txt").write_text(("words and more words\n" * 400_000)[: 8 * MIB])
    for number in range(16):
        (root / "control" / f"{number}.txt").write_text("\x01" * MIB)
    config = {
        "host": "127.0.0.1",
        "roots": [{"name": "work", "path": str(root), "allowed_tools": ["*"]}],
        "sessions": {"max_sessions_per_caller": MOST_SESSIONS},
        "limits": {"max_response_bytes": 32 * MIB},
    }
    with ServerProcess.mcp_filesystem(tmp_path, config) as running:
        yield running


def survive(server: ServerProcess, attacks: list[Attack]) -> None:
    with RawSession.opened(server.url) as session:
        called(session, "stat_file", path="two")
    before = server.memory()
    with served(server.url) as told:
        for attack in attacks:
            attack(server.url)
    assert set(told) == {"ok"}
    server.wait_for_memory(1.5 * before, deadline_s=MEMORY_DEADLINE_S)


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.__name__)
def test_one_callers_attack_leaves_other_callers_and_the_memory_as_they_were(
    server: ServerProcess, attack: Attack
) -> None:
    survive(server, [attack])


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_sixty_attacks_in_any_order_leave_other_callers_and_the_memory_as_they_were(server: ServerProcess) -> None:
    survive(server, chance("attacks").choices(ATTACKS, k=60))
