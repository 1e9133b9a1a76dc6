"""A server with the console for benchmarks: its address, its process, and browsers that are logged in to it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import psutil
import yaml
from playwright.async_api import Browser, BrowserContext, async_playwright

from armarium.surfaces.console.links import OwnerLinks
from gateway_server import TIMEOUT_S, address_in

ROOT = "workspace"
FOLDER = "many"
QUESTION = "What does rotate_lens run?"
_LAMP = '''"""The lamp of the lighthouse."""


class Lamp:
    """Turns at night."""

    def rotate_lens(self) -> None:
        """Run the clockwork that turns the lens once in thirty seconds."""
        self.clockwork.wind()
        self.lens.turn(seconds=30)
'''


@dataclass(frozen=True, slots=True)
class Served:
    """A running server."""

    url: str
    process: psutil.Process
    state: Path
    start_s: float
    """From the command to the first answer."""

    def api(self) -> httpx.AsyncClient:
        """A program with the token of the owner."""
        headers = {"authorization": f"Bearer {(self.state / 'secret.token').read_text().strip()}"}
        return httpx.AsyncClient(base_url=self.url, headers=headers, timeout=TIMEOUT_S)

    async def session(self) -> Any:
        """What a browser keeps of a session of the owner."""
        async with httpx.AsyncClient(base_url=self.url, timeout=TIMEOUT_S) as client:
            answer = await client.post("/api/session", json={"code": OwnerLinks(self.state).create()})
        [(name, value)] = answer.raise_for_status().cookies.items()
        cookie = {"name": name, "value": value, "url": self.url, "httpOnly": True, "sameSite": "Strict"}
        proof = {"name": "armarium.proof", "value": answer.json()["proof"]}
        return {"cookies": [cookie], "origins": [{"origin": self.url, "localStorage": [proof]}]}


def write_directory(directory: Path, files: int) -> Path:
    """A directory with a file to ask about, and a folder with so many files."""
    (directory / FOLDER).mkdir(parents=True)
    (directory / "lamp.py").write_text(_LAMP)
    (directory / "handbook.md").write_text("# Lamp\n\nThe lens turns once in thirty seconds.\n" * 20)
    for number in range(files):
        (directory / FOLDER / f"file {number:05}.txt").touch()
    return directory


@contextmanager
def served(home: Path, directory: Path, *, console: bool = True, corpus: bool = True) -> Generator[Served]:
    """`armarium serve` on the directory, with its state in `home`."""
    home.mkdir(parents=True)
    settings: dict[str, Any] = {
        "state_dir": str(home / "state"),
        "server": {"host": "127.0.0.1", "port": 0},
        "console": {"enabled": console},
        "sandbox": {"roots": [{"name": ROOT, "path": str(directory), "allowed_tools": ["*"]}]},
        "registry": {"project": str(directory)},
    }
    if corpus:
        settings["corpus"] = {"root": str(directory), "path_excludes": [f"{FOLDER}/**"]}
    config, log = home / "armarium.yaml", home / "log"
    config.write_text(yaml.safe_dump(settings))
    command = [str(Path(sys.executable).with_name("armarium")), "serve", "--config", str(config)]
    began = time.perf_counter()
    with log.open("wb") as said, subprocess.Popen(command, stderr=said, stdin=subprocess.DEVNULL) as process:
        try:
            url = address_in(log, process)
            httpx.get(f"{url}/health", timeout=TIMEOUT_S).raise_for_status()
            yield Served(url, psutil.Process(process.pid), home / "state", time.perf_counter() - began)
        finally:
            process.terminate()


@asynccontextmanager
async def running_browser() -> AsyncGenerator[Browser]:
    """The Chromium of this machine, without a window."""
    options = ["--disable-gpu", "--disable-dev-shm-usage"]
    # A browser of root has no sandbox.
    if os.geteuid() == 0:
        options.append("--no-sandbox")
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=shutil.which("chromium"), args=options)
        try:
            yield browser
        finally:
            await browser.close()


@asynccontextmanager
async def visiting(browser: Browser, session: Any = None) -> AsyncGenerator[BrowserContext]:
    """A browser with an empty cache."""
    context = await browser.new_context(storage_state=session, viewport={"width": 1440, "height": 900})
    try:
        yield context
    finally:
        await context.close()
