"""Many writers, over several processes' worth of connections: every change happens once, in one order, and whole."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator

import pytest

from armarium.capabilities.store.database.pool import connect
from armarium.capabilities.store.database.transactions import StoreDatabase
from armarium.capabilities.store.model import Scope
from support.store_calls import Files

PATIENT = {"max_project_bytes": 10_000}


@pytest.fixture
async def callers(store_dsn: str, tenant: str) -> AsyncGenerator[list[Files]]:
    """Four callers of one tenant, as in two servers on one database."""
    servers = [
        StoreDatabase(await connect(store_dsn, size=3), lock_timeout_ms=60_000, on_lock_wait=lambda seconds: None)
        for _ in range(2)
    ]
    yield [Files(server, tenant, PATIENT) for server in servers for _ in range(2)]
    for server in servers:
        await server.pool.aclose()


async def test_no_append_is_lost_and_all_agree_on_the_order(callers: list[Files]) -> None:
    done: list[tuple[int, str]] = []

    async def write(files: Files, name: str) -> None:
        for number in range(12):
            text = f"{name}{number};"
            done.append(((await files.ok("write", path="/log", content=text))["version"], text))

    await asyncio.gather(*(write(files, name) for files, name in zip(callers, "abcd", strict=True)))
    assert await callers[0].text("/log") == "".join(text for _, text in sorted(done))
    assert [version for version, _ in sorted(done)] == list(range(1, 49))


async def test_the_versions_of_writes_are_an_order_that_explains_the_result(callers: list[Files]) -> None:
    done: list[tuple[int, str, str, int]] = []

    async def write(files: Files, seed: int) -> None:
        for number in range(12):
            mode = ("APPEND", "TRUNCATE", "OVERWRITE")[(number + seed) % 3]
            text, path = f"{seed}-{number};", f"/{number % 2}"
            answer = await files.ok("write", path=path, content=text, mode=mode)
            done.append((answer["version"], path, text if mode == "TRUNCATE" else mode + text, answer["size"]))

    await asyncio.gather(*(write(files, seed) for seed, files in enumerate(callers)))
    replayed = {"/0": "", "/1": ""}
    for _, path, change, size in sorted(done):
        if change.startswith("APPEND"):
            replayed[path] += change.removeprefix("APPEND")
        elif change.startswith("OVERWRITE"):
            text = change.removeprefix("OVERWRITE")
            replayed[path] = text + replayed[path][len(text) :]
        else:
            replayed[path] = change
        assert len(replayed[path]) == size
    for path, text in replayed.items():
        assert await callers[-1].text(path) == text


async def test_if_version_loses_no_update(callers: list[Files]) -> None:
    await callers[0].put("/count", content="0")

    async def count_up(files: Files) -> None:
        added = 0
        while added < 5:
            seen = await files.ok("read", path="/count")
            next_text, version = str(int(seen["content"]) + 1), seen["version"]
            answer = await files.result("write", path="/count", content=next_text, mode="TRUNCATE", if_version=version)
            if answer.get("isError"):
                assert answer["structuredContent"]["code"] == "CONFLICT"
            else:
                added += 1

    await asyncio.gather(*(count_up(files) for files in callers))
    assert await callers[0].text("/count") == "20"


@pytest.mark.contract("S7-2")
async def test_create_only_has_one_winner(callers: list[Files]) -> None:
    results = await asyncio.gather(
        *(
            files.result("write", path="/a", content=str(number), create_only=True)
            for number, files in enumerate(callers)
        )
    )
    codes = sorted(result["structuredContent"].get("code", "won") for result in results)
    assert codes == ["ALREADY_EXISTS"] * 3 + ["won"]


async def test_a_quota_holds_however_many_write_at_once(callers: list[Files]) -> None:
    results = await asyncio.gather(
        *(
            files.result("write", path=f"/{number}-{index}", content="x" * 900)
            for index, files in enumerate(callers)
            for number in range(5)
        )
    )
    codes = [result["structuredContent"].get("code", "ok") for result in results]
    assert (codes.count("ok"), codes.count("QUOTA_EXCEEDED")) == (11, 9)
    assert await callers[0].counted_and_real_bytes() == (9900, 9900)


@pytest.mark.contract("S10-4")
async def test_a_directory_on_its_way_is_always_in_one_place(callers: list[Files]) -> None:
    names = [f"/{number}" for number in range(5)]
    await callers[0].put(*("/here" + name for name in names))
    moved = asyncio.Event()

    async def move() -> None:
        for _ in range(10):
            await callers[0].ok("rename", from_path="/here", to_path="/there")
            await callers[0].ok("rename", from_path="/there", to_path="/here")
        moved.set()

    async def watch(files: Files) -> int:
        looks = 0
        while not moved.is_set():
            seen = await files.paths(depth=2)
            assert seen in ([f"/{place}/", *(f"/{place}{name}" for name in names)] for place in ("here", "there"))
            looks += 1
        return looks

    _, *looks = await asyncio.gather(move(), *(watch(files) for files in callers[1:]))
    assert all(looks)


@pytest.mark.contract("S4-1")
async def test_a_write_whose_job_cannot_be_queued_does_not_happen(database: StoreDatabase, tenant: str) -> None:
    files = Files(database, tenant)
    await files.put("/a", content="before")

    async def too_long_for_its_column(key: str | None, scope: Scope) -> str:
        return "r" * 65

    broken = Files(database, tenant, keep=too_long_for_its_column)
    assert await broken.code("write", path="/a", content="!") == "INTERNAL"
    assert await broken.code("write", path="/b", content="!") == "INTERNAL"
    assert await broken.code("rename", from_path="/a", to_path="/c") == "INTERNAL"
    assert await files.text("/a") == "before"
    assert await files.paths() == ["/a"]
    assert await files.counted_and_real_bytes() == (6, 6)
    assert len(await files.jobs()) == 1
    assert (await files.ok("write", path="/a", content="!"))["version"] == 2
    assert {status for _, status in broken.mutations} == {"INTERNAL"}
    assert broken.wake_ups == 0
