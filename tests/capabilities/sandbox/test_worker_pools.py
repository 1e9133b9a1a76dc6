"""Threads serve callers in turn, and long work never takes the threads that short calls wait for."""

from __future__ import annotations

import asyncio
import itertools
import sys
import threading
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import anyio
import httpx
import pytest

from armarium.capabilities.sandbox.threads.pool import Pool, expect_bytes
from armarium.capabilities.sandbox.threads.workers import Workers
from support.client import ToolClient
from support.sandbox_server import Box
from support.waiting import eventually

FAR_S = 60.0
HUGE = 1 << 42
NUMBERS = itertools.count()


def nothing() -> None:
    return


def threads_of(pool: Pool) -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name.startswith(f"{pool.name}-")]


@asynccontextmanager
async def attacking(url: str) -> AsyncGenerator[Callable[[str, dict[str, object]], Awaitable[object]]]:
    """Calls tools in a session of its own over bare HTTP, and hangs up at the end."""
    headers = {"accept": "application/json, text/event-stream"}
    async with httpx.AsyncClient(base_url=url, headers=headers, timeout=FAR_S, limits=httpx.Limits()) as http:
        client_info = {"name": "attacker", "version": "1"}
        params = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": client_info}
        begun = await http.post("/mcp", json={"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params})
        session = {"mcp-session-id": begun.headers["mcp-session-id"], "mcp-protocol-version": "2025-11-25"}
        numbers = itertools.count(1)

        async def call(tool: str, arguments: dict[str, object]) -> object:
            message = {"jsonrpc": "2.0", "id": next(numbers), "method": "tools/call"}
            message["params"] = {"name": tool, "arguments": arguments}
            return await http.post("/mcp", json=message, headers=session)

        await http.post("/mcp", json={"jsonrpc": "2.0", "method": "notifications/initialized"}, headers=session)
        yield call
        await http.delete("/mcp", headers=session)


@asynccontextmanager
async def opened(size: int, *, idle_s: float = FAR_S) -> AsyncGenerator[Pool]:
    pool = Pool(f"test{next(NUMBERS)}", size, nothing, idle_s=idle_s)
    try:
        yield pool
    finally:
        for thread in pool.close():
            thread.join(FAR_S)
            assert not thread.is_alive()


async def test_threads_switch_more_often_only_while_there_is_long_work() -> None:
    usual_s = sys.getswitchinterval()
    workers = Workers([], [], confine="off")
    assert sys.getswitchinterval() == usual_s
    assert await workers.search("one", sys.getswitchinterval) < usual_s
    with pytest.raises(ZeroDivisionError):
        await workers.long("one", lambda: 1 // 0)
    assert await workers.run("one", sys.getswitchinterval) == usual_s
    assert workers.close()


async def test_a_caller_with_many_jobs_leaves_threads_for_the_next_callers() -> None:
    release = threading.Event()
    async with opened(8) as pool:
        try:
            held = [pool.submit("greedy", release.wait) for _ in range(50)]
            held += [pool.submit("second", release.wait) for _ in range(50)]
            for number in range(3):
                assert await asyncio.wait_for(pool.submit(f"caller {number}", lambda: "served"), FAR_S) == "served"
        finally:
            release.set()
        await asyncio.wait_for(asyncio.gather(*held), FAR_S)


async def test_jobs_that_wait_are_taken_from_one_caller_after_the_other() -> None:
    order: list[str] = []
    release = threading.Event()
    async with opened(1) as pool:
        held = pool.submit("first", release.wait)
        waiting = [pool.submit("many", order.append, ("many",)) for _ in range(50)]
        waiting += [pool.submit("few", order.append, ("few",)) for _ in range(2)]
        waiting += [pool.submit("one", order.append, ("one",))]
        release.set()
        await asyncio.wait_for(asyncio.gather(held, *waiting), FAR_S)
    assert order[:6] == ["many", "few", "one", "many", "few", "many"]
    assert order.count("many") == 50


async def test_all_work_is_done_whatever_the_number_of_threads_and_callers() -> None:
    for size in (1, 2, 3, 7):
        async with opened(size) as pool:
            answers = [pool.submit(f"{number % 5}", lambda number=number: number) for number in range(500)]
            assert await asyncio.wait_for(asyncio.gather(*answers), FAR_S) == list(range(500))
            await eventually(lambda pool=pool: pool.is_idle)
            assert len(threads_of(pool)) <= size


async def test_threads_start_on_demand_and_idle_ones_end() -> None:
    async with opened(8, idle_s=0.05) as pool:
        assert not threads_of(pool)
        for _ in range(3):
            await asyncio.wait_for(pool.submit("a", nothing), FAR_S)
            assert 1 <= len(threads_of(pool)) <= 4
            await eventually(lambda: not threads_of(pool))


async def test_a_job_whose_caller_left_while_it_waited_is_never_begun() -> None:
    release = threading.Event()
    begun: list[str] = []
    async with opened(1) as pool:
        held = pool.submit("a", release.wait)
        left = pool.submit("b", begun.append, ("left",))
        stays = pool.submit("b", begun.append, ("stays",))
        left.cancel()
        release.set()
        await asyncio.wait_for(asyncio.gather(held, stays), FAR_S)
    assert begun == ["stays"]


async def test_what_waits_is_given_up_when_the_pool_closes() -> None:
    release = threading.Event()
    pool = Pool("test", 1, nothing)
    held = pool.submit("a", release.wait)
    waiting = pool.submit("a", nothing)
    threads = pool.close()
    assert waiting.cancelled()
    release.set()
    assert await asyncio.wait_for(held, FAR_S) is True
    for thread in threads:
        thread.join(FAR_S)
    with pytest.raises(RuntimeError, match="closed"):
        pool.submit("a", nothing)


async def test_a_retired_pool_finishes_what_it_was_given() -> None:
    release = threading.Event()
    pool = Pool(f"test{next(NUMBERS)}", 2, nothing)
    held = [pool.submit("a", release.wait) for _ in range(10)]
    pool.retire()
    release.set()
    assert await asyncio.wait_for(asyncio.gather(*held), FAR_S) == [True] * 10
    await eventually(lambda: not threads_of(pool))


async def test_work_that_turns_out_to_be_long_begins_anew_in_a_thread_for_long_work() -> None:
    workers = Workers((), (), confine="off")
    threads: list[str] = []

    def work() -> str:
        threads.append(threading.current_thread().name.rpartition("-")[0])
        expect_bytes(100)
        expect_bytes(1 << 30)
        return "done"

    try:
        assert await workers.run("a", work) == "done"
        assert await workers.change("a", work) == "done"
    finally:
        assert workers.close()
    assert threads == ["sandbox", "sandbox-long", "sandbox-change", "sandbox-long"]
    expect_bytes(1 << 60)  # outside a pool nothing is too much


async def test_work_in_new_threads_goes_on_after_the_old_ones_are_renewed() -> None:
    workers = Workers((), (), confine="off")
    workers.confined = True  # as if the kernel confined them
    release = threading.Event()
    prepared: list[object] = []
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(
                "armarium.foundation.files.landlock.restrict_current_thread",
                lambda writable, readable: prepared.append(tuple(writable)),
            )
            held = asyncio.ensure_future(workers.run("a", release.wait))
            await eventually(lambda: len(prepared) == 1)
            workers.renew([cast(Any, SimpleNamespace(descriptor_path="/new"))], [])
            assert await asyncio.wait_for(workers.run("a", lambda: "new"), FAR_S) == "new"
            release.set()
            assert await asyncio.wait_for(held, FAR_S)
    finally:
        workers.close()
    assert prepared == [(), ("/new",)]


async def test_a_change_whose_caller_left_before_it_began_is_not_made() -> None:
    workers = Workers((), (), confine="off", finish_timeout_s=0.05)
    release = threading.Event()
    begun: list[str] = []
    try:
        held = [asyncio.ensure_future(workers.change("a", release.wait)) for _ in range(40)]
        await asyncio.sleep(0)
        left = asyncio.ensure_future(workers.change("a", lambda: begun.append("left")))
        await asyncio.sleep(0)
        left.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asyncio.wait_for(left, FAR_S)
        release.set()
        await asyncio.wait_for(asyncio.gather(*held), FAR_S)
    finally:
        assert workers.close()
    assert begun == []


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        pytest.param("hash_file", {"algorithm": "sha256"}, id="hash_file"),
        pytest.param("stat_file", {"include_sha256": True}, id="stat_file with a hash"),
        pytest.param("read_file", {"offset_lines": 5}, id="read_file by lines"),
        pytest.param("write_file", {"content": "x", "if_match": "0" * 64}, id="write_file with if_match"),
        pytest.param("remove_file", {"if_match": "0" * 64}, id="remove_file with if_match"),
    ],
)
async def test_fifty_calls_that_never_end_keep_no_tool_from_answering_others(
    client: ToolClient, roots: Box, workspace: Path, tool: str, arguments: dict[str, object]
) -> None:
    """NFR-005. A sparse file of four terabytes stands for any work that outlasts the test."""
    with (workspace / "huge").open("wb") as file:
        file.truncate(HUGE)
    (workspace / "small").write_text("needle\n")

    async with attacking(roots.server.url) as attack, anyio.create_task_group() as busy:
        for _ in range(50):
            busy.start_soon(attack, tool, {"root": "workspace", "path": "huge", **arguments})
        await anyio.sleep(0.2)
        with anyio.fail_after(FAR_S):
            for _ in range(3):
                assert (await client.call("stat_file", root="workspace", path="small"))["size"] == 7
                await client.call("list_folder", root="workspace", path="")
                await client.call("read_file", root="workspace", path="small")
                await client.call("hash_file", root="workspace", path="small", algorithm="md5")
                await client.call("write_file", root="workspace", path="other", content="x")
                await client.call("glob", root="workspace", pattern="*")
                await client.call("grep", root="workspace", path="small", pattern="needle")
            # Long work of another caller has its turn as well.
            (workspace / "medium").write_bytes(b"x" * 5_000_000)
            await client.call("hash_file", root="workspace", path="medium", algorithm="sha1")
        busy.cancel_scope.cancel()
