"""One `mcp-filesystem` for all tests of the sandbox. Its roots are empty at the start of each test."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Generator
from pathlib import Path

import pytest

from support.client import ToolClient, connected
from support.sandbox_server import ALLOWED, Box, contract_config, make_outside
from support.server import ServerProcess
from support.trees import empty


@pytest.fixture(scope="session")
def box(tmp_path_factory: pytest.TempPathFactory) -> Generator[Box]:
    """The server. Tests use `roots`, or a fixture that depends on it."""
    base = tmp_path_factory.mktemp("armarium-host")
    make_outside(base)
    with ServerProcess.mcp_filesystem(base, contract_config(base)) as server:
        yield Box(server, base)


@pytest.fixture
def roots(box: Box) -> Generator[Box]:
    """The server with empty roots. Afterwards the directory outside must be unchanged."""
    for name in ALLOWED:
        empty(box.root(name))
    before = box.outside_picture()
    yield box
    assert box.outside_picture() == before, "something outside the roots was changed"


@pytest.fixture
def workspace(roots: Box) -> Path:
    """The root that allows all tools."""
    return roots.root("workspace")


@pytest.fixture
async def client(roots: Box) -> AsyncGenerator[ToolClient]:
    """The official client, connected."""
    async with connected(roots.server.url, never_said=roots.never_said) as tools:
        yield tools
