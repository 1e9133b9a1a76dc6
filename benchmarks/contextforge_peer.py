"""The admin page of ContextForge, `mcp-contextforge-gateway` of PyPI, for `console.py`: what a browser loads of it.

It is installed into an environment of its own for the run, and serves on loopback with an empty SQLite database, its
telemetry off, and a password made for the run. Its scripts come from its own server, as its setting for machines
without a network makes it. A peer that cannot be installed or started is left out, and that is printed.
"""

from __future__ import annotations

import os
import secrets
import socket
import subprocess
import sys
import time
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
import psutil
from playwright.async_api import BrowserContext

PACKAGE = "mcp-contextforge-gateway"
INSTALL_DEADLINE_S = 900
START_DEADLINE_S = 120
PERSON = "admin@example.com"


@dataclass(frozen=True, slots=True)
class Peer:
    url: str
    process: psutil.Process
    password: str

    async def log_in(self, context: BrowserContext) -> None:
        """Log in with the form, as a person does."""
        page = await context.new_page()
        await page.goto(f"{self.url}/admin/login")
        await page.get_by_label("Email address").fill(PERSON)
        await page.locator("input[type=password]").fill(self.password)
        await page.locator("input[type=password]").press("Enter")
        await page.wait_for_url(f"{self.url}/admin/**", wait_until="load")
        await page.close()


@contextmanager
def peer_in(home: Path) -> Generator[Peer | None]:
    """The running peer; None if there is none."""
    home.mkdir(parents=True)
    environment = home / "environment"
    python = environment / "bin/python"
    commands = [
        [sys.executable, "-m", "venv", str(environment)],
        [str(python), "-m", "pip", "install", "--quiet", PACKAGE],
    ]
    try:
        for command in commands:
            subprocess.run(command, check=True, capture_output=True, timeout=INSTALL_DEADLINE_S)
    except (subprocess.SubprocessError, OSError) as error:
        print(f"{PACKAGE} is left out: it cannot be installed ({type(error).__name__})")
        yield None
        return
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    password = f"Aa1!{secrets.token_urlsafe(24)}"
    settings = {
        "DATABASE_URL": f"sqlite:///{home / 'peer.db'}",
        "CACHE_TYPE": "memory",
        "MCPGATEWAY_UI_ENABLED": "true",
        "MCPGATEWAY_UI_AIRGAPPED": "true",
        "MCPGATEWAY_ADMIN_API_ENABLED": "true",
        "PLATFORM_ADMIN_EMAIL": PERSON,
        "PLATFORM_ADMIN_PASSWORD": password,
        "PASSWORD_CHANGE_ENFORCEMENT_ENABLED": "false",
        "ADMIN_REQUIRE_PASSWORD_CHANGE_ON_BOOTSTRAP": "false",
        "SECURE_COOKIES": "false",
        "JWT_SECRET_KEY": secrets.token_urlsafe(40),
        "AUTH_ENCRYPTION_SECRET": secrets.token_urlsafe(40),
        "OTEL_ENABLE_OBSERVABILITY": "false",
    }
    command = [str(environment / "bin/mcpgateway"), "--host", "127.0.0.1", "--port", str(port)]
    process = subprocess.Popen(
        command, cwd=home, env={**os.environ, **settings}, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        url = f"http://127.0.0.1:{port}"
        if _answers(url, process):
            yield Peer(url, psutil.Process(process.pid), password)
        else:
            print(f"{PACKAGE} is left out: it does not start")
            yield None
    finally:
        process.terminate()
        process.wait(START_DEADLINE_S)


def _answers(url: str, process: subprocess.Popen[bytes]) -> bool:
    until = time.monotonic() + START_DEADLINE_S
    while time.monotonic() < until and process.poll() is None:
        try:
            if httpx.get(f"{url}/health", timeout=5).is_success:
                return True
        except httpx.TransportError:
            time.sleep(0.2)
    return False
