"""Fixtures that run `dir2mcp`."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import pytest

from armarium.capabilities.corpus.commands.app import run
from armarium.surfaces.cli.host import Host
from support.command_fixtures import as_the_user, environ, home, project
from support.command_line import CommandLine, InThisProcess
from support.dir2mcp_command import TEMPLATE, Quick, Start

__all__ = ["as_the_user", "environ", "home", "project"]


@pytest.fixture
def template(project: Path) -> Path:
    """The project's settings file, with the contract's template."""
    file = project / ".dir2mcp.yaml"
    file.write_text(TEMPLATE.read_text())
    return file


@pytest.fixture
def dir2mcp(project: Path, environ: dict[str, str]) -> CommandLine:
    """Runs `dir2mcp …` and waits for its end."""
    return CommandLine("dir2mcp", project, environ)


@pytest.fixture
def here(as_the_user: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Quick:
    """Runs `dir2mcp …` in this process, for parametrized tests."""
    return InThisProcess(partial(run, host=Host()), capsys, as_the_user)


@pytest.fixture
def serve(dir2mcp: CommandLine) -> Generator[Start]:
    """Starts `dir2mcp …` in the background, and stops it at the end of the test."""
    with ExitStack() as running:
        yield lambda *arguments: running.enter_context(dir2mcp.start(*arguments))
