"""A project with a registry: behind the real command, and opened within the test's own process."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Generator
from pathlib import Path

import pytest

from armarium.capabilities.registry.lifespan import open_registry
from armarium.capabilities.registry.service import Registry
from support.client import connected
from support.registry_calls import Calls, ServedProject


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Generator[ServedProject]:
    """A server with a registry; tests that share it keep to directories of their own."""
    with ServedProject.started(tmp_path_factory.mktemp("served")) as project:
        yield project


@pytest.fixture
async def calls(served: ServedProject) -> AsyncGenerator[Calls]:
    """A client of that server."""
    async with connected(served.server.url, never_said=(str(served.directory),)) as client:
        yield Calls(client)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """The directory of a project."""
    directory = tmp_path / "Light House"
    directory.mkdir()
    return directory


@pytest.fixture
async def registry(project: Path) -> AsyncGenerator[Registry]:
    """Its registry."""
    async with open_registry(project) as opened:
        yield opened
