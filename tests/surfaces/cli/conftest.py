"""The commands as a user has them: installed, in a process of their own, with a home that belongs to the test."""

from __future__ import annotations

import os
from collections.abc import Callable, Generator
from contextlib import ExitStack
from pathlib import Path

import pytest
from command_line import Command, CommandLine, InThisProcess


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """An empty home directory."""
    directory = tmp_path / "home"
    directory.mkdir()
    return directory


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """The directory commands run in, with a few files."""
    directory = tmp_path / "project"
    directory.mkdir()
    (directory / "hello.txt").write_text("hello\n")
    return directory


@pytest.fixture
def environ(home: Path) -> dict[str, str]:
    """The environment of a user who set nothing."""
    ours = ("ARMARIUM_", "XDG_")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    return kept | {"HOME": str(home), "XDG_STATE_HOME": str(home / "state"), "NO_PROXY": "127.0.0.1"}


@pytest.fixture
def armarium(project: Path, environ: dict[str, str]) -> CommandLine:
    """Runs `armarium …` to its end."""
    return CommandLine("armarium", project, environ)


@pytest.fixture
def quick(
    project: Path, environ: dict[str, str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> InThisProcess:
    """Runs `armarium …` here, in the same directory and environment."""
    for name in set(os.environ) - set(environ):
        monkeypatch.delenv(name)
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(project)
    return InThisProcess(capsys, monkeypatch)


@pytest.fixture
def start(armarium: CommandLine) -> Generator[Callable[..., Command]]:
    """Starts `armarium …` and leaves it running; what still runs at the end of the test is stopped."""
    with ExitStack() as running:
        yield lambda *arguments: running.enter_context(armarium.start(*arguments))
