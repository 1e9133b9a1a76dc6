"""A server with a directory, a browser, and a person who is logged in to the console."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import AsyncGenerator, Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import Browser, expect

from armarium.surfaces.console.links import OwnerLinks
from support.browser import DEADLINE_MS, REPOSITORY, Visit, Visitor, chromium, running_browser, session_of, visitor
from support.server import ServerProcess, installed_command, write_config

expect.set_options(timeout=DEADLINE_MS)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if chromium() is None:
        here = Path(__file__).parent
        skip = pytest.mark.skip(reason="no Chromium on this machine; scripts/system-deps installs it")
        for item in items:
            if here in item.path.parents:
                item.add_marker(skip)


@pytest.fixture(scope="session")
def built_console() -> None:
    """The console is built from what web/ is now."""
    done = subprocess.run([sys.executable, REPOSITORY / "scripts/console", "--is-fresh"], check=False)
    assert done.returncode == 0, "the console is not built from the present sources; run `make console`"


@pytest.fixture(scope="module")
def state_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("state")


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory that the server serves. A module may put more files into it."""
    served = tmp_path_factory.mktemp("workspace")
    (served / "notes.md").write_text("# Harbour\n\nShips leave at high tide.\n")
    (served / "src").mkdir()
    (served / "src/app.py").write_text("def main() -> None:\n    print('hello')\n")
    return served


@pytest.fixture(scope="module")
def settings() -> dict[str, Any]:
    """Settings of the server besides its state and its root. A module may have others."""
    return {}


@pytest.fixture(scope="module")
def server(
    built_console: None,
    tmp_path_factory: pytest.TempPathFactory,
    state_dir: Path,
    directory: Path,
    settings: dict[str, Any],
) -> Iterator[ServerProcess]:
    """The server: the sandbox with the root `workspace`, and the registry."""
    own: dict[str, Any] = {
        "state_dir": str(state_dir),
        "server": {"port": 0},
        "sandbox": {"roots": [{"name": "workspace", "path": str(directory), "allowed_tools": ["*"]}]},
        "registry": {"project": str(directory)},
    }
    config = write_config(tmp_path_factory.mktemp("config"), own | settings)
    with ServerProcess([installed_command("armarium"), "serve", "--config", str(config)]) as process:
        yield process


@pytest.fixture(scope="session")
async def browser(anyio_backend: Any) -> AsyncGenerator[Browser]:
    """One browser for all tests of this worker."""
    async with running_browser() as running:
        yield running


@pytest.fixture
def visit(browser: Browser, server: ServerProcess) -> Visit:
    """Opens an empty browser: `async with visit(color_scheme="dark") as person`."""
    return lambda **options: visitor(browser, server.url, **options)


@pytest.fixture
async def stranger(visit: Visit) -> AsyncGenerator[Visitor]:
    """A person who is not logged in."""
    async with visit() as person:
        yield person


@pytest.fixture
async def owner(visit: Visit, server: ServerProcess, state_dir: Path) -> AsyncGenerator[Visitor]:
    """The owner, who is logged in."""
    session = await session_of(server.url, code=OwnerLinks(state_dir).create())
    async with visit(storage_state=session) as person:
        yield person
