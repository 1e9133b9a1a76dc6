"""Several servers on one directory, some of them killed: no acknowledged change is lost or mixed with another."""

from __future__ import annotations

import fcntl
import logging
import os
import random
import secrets
import time
from contextlib import suppress
from pathlib import Path

import anyio
import anyio.abc
import httpx
import pytest

from armarium.foundation.files.directory_locks import DirectoryBusy, DirectoryLocks
from support.sandbox_in_process import sandbox
from support.sandbox_processes import Client, config_of, far_directory, run_campaign
from support.server import ServerProcess
from support.trees import empty, make_tree, picture

pytestmark = pytest.mark.anyio

SOAKING = os.environ.get("SOAK") == "1"
FILES = 60
KILLS = 150
DEADLINE_S = 60.0


@pytest.mark.timeout(300)
async def test_two_processes_lose_no_change_of_each_other(tmp_path: Path) -> None:
    with far_directory(tmp_path) as far:
        campaign = await run_campaign(tmp_path, far, 1, processes=2, clients=4, rounds=6)
    assert campaign.done.increments > 0
    assert campaign.done.moves["file"] > 0


@pytest.mark.soak
@pytest.mark.timeout(7200)
async def test_four_processes_with_eight_clients_each_lose_no_change(tmp_path: Path) -> None:
    seed = secrets.randbits(32) if SOAKING else 1
    with far_directory(tmp_path) as far:
        campaign = await run_campaign(tmp_path, far, seed, processes=4, clients=8, rounds=60)
    print(f"seed {seed}: {campaign.told()}")


async def test_a_directory_that_another_process_holds_is_reported_as_busy_and_changes_nothing(tmp_path: Path) -> None:
    make_tree(tmp_path, {"held/a.txt": "a", "free/b.txt": "b"})
    fd = os.open(tmp_path / "held", os.O_RDONLY)
    async with sandbox({"root": tmp_path}, tmp_path / "state", max_lock_seconds=0.5) as tools:
        fcntl.flock(fd, fcntl.LOCK_EX)
        try:
            errors: list[str] = []

            async def write(number: int) -> None:
                error = await tools.fails("write_file", root="root", path=f"held/{number}", content="x", mode="append")
                errors.append(error.code)

            async with anyio.create_task_group() as writers:
                for number in range(40):
                    writers.start_soon(write, number)
                # More calls wait than there are threads; others are served meanwhile.
                with anyio.fail_after(DEADLINE_S):
                    await tools.call("write_file", root="root", path="free/b.txt", content="c")
                    await tools.call("read_file", root="root", path="held/a.txt")
        finally:
            os.close(fd)
        assert errors == ["RESOURCE_BUSY"] * 40
        assert os.listdir(tmp_path / "held") == ["a.txt"]
        await tools.call("write_file", root="root", path="held/1", content="x")


async def test_a_call_goes_on_as_soon_as_the_directory_is_free(tmp_path: Path) -> None:
    (tmp_path / "held").mkdir()
    fd = os.open(tmp_path / "held", os.O_RDONLY)
    async with sandbox({"root": tmp_path}, tmp_path / "state", max_lock_seconds=60) as tools:
        fcntl.flock(fd, fcntl.LOCK_EX)
        done = 0

        async def write(number: int) -> None:
            nonlocal done
            await tools.call("write_file", root="root", path=f"held/{number}", content="x")
            done += 1

        async with anyio.create_task_group() as writers:
            for number in range(40):
                writers.start_soon(write, number)
            await anyio.sleep(1)  # long enough that all of them have met the lock
            assert done == 0
            os.close(fd)
    assert len(os.listdir(tmp_path / "held")) == 40


def test_two_directories_are_locked_in_one_order(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    fds = [[os.open(tmp_path / name, os.O_RDONLY) for name in "ab"] for _ in range(2)]
    locks = [DirectoryLocks(0.01), DirectoryLocks(0.01)]
    try:
        with locks[0].holding(fds[0][0], fds[0][1]):
            for order in (fds[1], fds[1][::-1], [fds[1][0]]):
                with pytest.raises(DirectoryBusy), locks[1].holding(*order):
                    pass
        with locks[1].holding(fds[1][1], fds[1][0]), pytest.raises(DirectoryBusy), locks[0].holding(fds[0][1]):
            pass
        with locks[0].holding(fds[0][0], fds[1][0]):  # one directory twice is one lock
            pass
    finally:
        for fd in [*fds[0], *fds[1]]:
            os.close(fd)


def test_a_file_system_without_locks_is_warned_of_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def unsupported(_: int, __: int) -> None:
        raise OSError(37, "No locks available")

    monkeypatch.setattr(fcntl, "flock", unsupported)
    locks = DirectoryLocks(0.01)
    fd = os.open(tmp_path, os.O_RDONLY)
    again = os.open(tmp_path, os.O_RDONLY)
    try:
        for _ in range(3):
            with locks.holding(fd), pytest.raises(DirectoryBusy), locks.holding(again):
                pass  # the threads of this process still take turns
    finally:
        os.close(fd)
        os.close(again)
    assert [record.levelno for record in caplog.records] == [logging.WARNING]


async def kill_in_the_middle(base: Path, far: Path, kills: int, seed: int) -> dict[str, int]:
    """Kill servers that copy, move and append; returns how often the work had not been acknowledged."""
    chance = random.Random(seed)
    roots = {"w": base / "w", "far": far}
    roots["w"].mkdir()
    files: dict[str, str | bytes | None] = {f"tree/{n % 7}/{n}.txt": os.urandom(20_000).hex() for n in range(FILES)}
    interrupted = dict.fromkeys(("copy", "move", "append"), 0)
    (base / "server").mkdir()
    for number in range(kills):
        how = ("copy", "move", "append")[number % 3]
        server = ServerProcess.mcp_filesystem(base / "server", config_of(roots))
        try:
            await wait_for_sweep(roots)
            for root in roots.values():
                empty(root)
            make_tree(roots["w"], {**files, "log": ""})
            tree = picture(roots["w"] / "tree")
            acknowledged: list[str] = []
            async with anyio.create_task_group() as tasks:
                await tasks.start(_work_until_killed, server, how, acknowledged)
                # The moment of the kill, not a wait for something. Mostly early: a fast machine copies in milliseconds.
                await anyio.sleep(0.2 * chance.random() ** 4)
                server.kill()
        finally:
            server.kill()
        interrupted[how] += how == "append" or not acknowledged
        verify_after_kill(roots, tree, how, acknowledged)
    with ServerProcess.mcp_filesystem(base / "server", config_of(roots)):
        await wait_for_sweep(roots)
    return interrupted


async def _work_until_killed(
    server: ServerProcess, how: str, acknowledged: list[str], *, task_status: anyio.abc.TaskStatus[None]
) -> None:
    places = {"source_root": "w", "source_path": "tree", "dest_root": "far", "dest_path": "tree"}
    # What a client meets when its server is killed; a refusal would be an error of the server.
    with suppress(httpx.HTTPError):
        async with Client.connected(server) as client:
            task_status.started()
            while how == "append":
                line = f"line {len(acknowledged)} {'x' * 3000}\n"
                await client.call("write_file", root="w", path="log", content=line, mode="append")
                acknowledged.append(line)
            await client.call(how, **places)
            acknowledged.append(how)


def verify_after_kill(roots: dict[str, Path], tree: object, how: str, acknowledged: list[str]) -> None:
    source, dest = roots["w"] / "tree", roots["far"] / "tree"
    if how == "append":
        assert (roots["w"] / "log").read_text().startswith("".join(acknowledged))
        return
    assert not dest.exists() or picture(dest) == tree, "the destination is there in part"
    if how == "copy" or not dest.exists():
        assert picture(source) == tree, "the source is not what it was"
    if acknowledged:
        assert dest.exists()


async def wait_for_sweep(roots: dict[str, Path]) -> None:
    """The start of a server removes what was half done."""
    until = time.monotonic() + DEADLINE_S
    while left := [path for root in roots.values() for path in root.rglob(".armarium-*")]:
        assert time.monotonic() < until, f"not removed: {left[:3]}"
        await anyio.sleep(0.05)


@pytest.mark.timeout(300)
async def test_killed_servers_leave_source_and_destination_whole(tmp_path: Path) -> None:
    with far_directory(tmp_path) as far:
        await kill_in_the_middle(tmp_path, far, 3, seed=1)


@pytest.mark.soak
@pytest.mark.timeout(7200)
async def test_many_killed_servers_leave_source_and_destination_whole(tmp_path: Path) -> None:
    seed = secrets.randbits(32) if SOAKING else 1
    with far_directory(tmp_path) as far:
        interrupted = await kill_in_the_middle(tmp_path, far, KILLS, seed)
    print(f"seed {seed}: {KILLS} kills; in the middle: {interrupted}")
    assert min(interrupted.values()) > 0
