"""Fixtures that run the installed `armarium` command, with a home directory of the test."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import ExitStack
from pathlib import Path

import pytest

from armarium.surfaces.cli.main import run
from support.command_fixtures import as_the_user, environ, home, project
from support.command_line import Command, CommandLine, InThisProcess

__all__ = ["armarium", "as_the_user", "environ", "home", "project", "quick", "start"]


@pytest.fixture
def armarium(project: Path, environ: dict[str, str]) -> CommandLine:
    """Runs `armarium …` in a process of its own, to its end."""
    return CommandLine("armarium", project, environ)


@pytest.fixture
def quick(as_the_user: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> InThisProcess:
    """Runs `armarium …` in this process, with the same directory and environment."""
    return InThisProcess(run, capsys, as_the_user)


@pytest.fixture
def start(armarium: CommandLine) -> Generator[Callable[..., Command]]:
    """Starts `armarium …` in the background; it is killed at the end of the test if it still runs."""
    with ExitStack() as running:
        yield lambda *arguments: running.enter_context(armarium.start(*arguments))
