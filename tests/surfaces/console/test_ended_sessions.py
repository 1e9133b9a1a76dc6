"""What a session has begun ends with it: streams of events, streamed answers, downloads."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import httpx
import pytest

from armarium.foundation.security.identity import key_hash
from support.server import ServerProcess, installed_command, write_config
from support.waiting import DEADLINE_S

KEY = "key-of-ann"
LARGE_BYTES = 64 << 20
"""More than the buffers between server and client hold."""


@asynccontextmanager
async def served(base: Path, **console: Any) -> AsyncGenerator[httpx.AsyncClient]:
    """A server, and a browser that is logged in."""
    (base / "root").mkdir()
    for name in ("before.txt", "after.txt"):
        (base / "root" / name).write_text("content\n")
    with open(base / "root" / "large.bin", "wb") as file:
        file.truncate(LARGE_BYTES)
    settings = {
        "state_dir": str(base / "state"),
        "server": {"port": 0},
        "security": {"auth": "keys", "keys": [{"username": "ann", "groups": [], "key_sha256": key_hash(KEY)}]},
        "sandbox": {"roots": [{"name": "work", "path": str(base / "root"), "allowed_tools": ["*"]}]},
        "console": console,
    }
    with ServerProcess([installed_command("armarium"), "serve", "--config", str(write_config(base, settings))]) as each:
        async with httpx.AsyncClient(base_url=each.url, timeout=DEADLINE_S) as browser:
            opened = await browser.post("/api/session", json={"key": KEY})
            browser.headers["x-armarium-proof"] = opened.json()["proof"]
            yield browser


async def read_with_key(browser: httpx.AsyncClient, name: str) -> None:
    """A call that the streams of its caller tell."""
    async with httpx.AsyncClient(base_url=browser.base_url, timeout=DEADLINE_S) as program:
        headers = {"authorization": f"Bearer {KEY}"}
        answer = await program.get("/api/sandbox/work/file", params={"path": name}, headers=headers)
        assert answer.status_code == 200, answer.text


async def until(lines: AsyncIterator[str], wanted: str) -> None:
    async for line in lines:
        if line.startswith(wanted):
            return
    raise AssertionError(f"the stream ended before {wanted}")


@pytest.mark.parametrize("path", ["/api/session", "/api/sessions"], ids=["log out", "log out everywhere"])
async def test_logging_out_ends_the_stream_of_events(tmp_path: Path, path: str) -> None:
    async with served(tmp_path) as browser, browser.stream("GET", "/api/events") as stream:
        lines = stream.aiter_lines()
        await read_with_key(browser, "before.txt")
        await until(lines, "event: call")
        assert (await browser.delete(path)).json() == {"sessions": 1}
        await read_with_key(browser, "after.txt")
        with anyio.fail_after(DEADLINE_S):
            rest = [line async for line in lines]
        assert not [line for line in rest if "after.txt" in line]


@pytest.mark.parametrize("setting", ["inactivity_timeout", "max_lifetime"])
async def test_a_stream_of_events_ends_when_its_session_does(tmp_path: Path, setting: str) -> None:
    async with served(tmp_path, **{setting: "1s"}) as browser, browser.stream("GET", "/api/events") as stream:
        assert stream.status_code == 200
        with anyio.fail_after(DEADLINE_S):
            async for _ in stream.aiter_lines():
                pass


@pytest.mark.parametrize("by_ticket", [False, True])
async def test_logging_out_ends_a_download(tmp_path: Path, by_ticket: bool) -> None:
    async with served(tmp_path) as browser:
        path, query = "/api/raw", {"ref": "root://work/large.bin"}
        if by_ticket:
            path = (await browser.post("/api/raw/tickets", json=query)).json()["path"]
            query = {}
        async with browser.stream("GET", path, params=query) as download:
            assert download.status_code == 200
            assert (await browser.delete("/api/sessions")).status_code == 200
            with pytest.raises(httpx.RemoteProtocolError), anyio.fail_after(DEADLINE_S):
                async for _ in download.aiter_raw():
                    pass
            assert download.num_bytes_downloaded < LARGE_BYTES


async def test_a_call_that_changes_something_is_completed(tmp_path: Path) -> None:
    """The log-out itself is one."""
    async with served(tmp_path) as browser:
        assert (await browser.delete("/api/session")).json() == {"sessions": 1}
        assert (await browser.get("/api/session")).status_code == 401
