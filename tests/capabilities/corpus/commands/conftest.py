"""Fixtures that run `dir2mcp`."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import pytest

import support
from armarium.capabilities.corpus.commands.app import run
from armarium.surfaces.cli.host import Host
from support.command_fixtures import as_the_user, environ, home, project
from support.command_line import CommandLine, InThisProcess
from support.dir2mcp_command import TEMPLATE, Quick, Start
from support.trusted import trust

__all__ = ["as_the_user", "environ", "home", "project"]


@pytest.fixture
def template(project: Path, environ: dict[str, str]) -> Path:
    """The project's settings file, with the contract's template."""
    file = project / ".dir2mcp.yaml"
    file.write_text(TEMPLATE.read_text())
    trust(project, environ)
    return file


@pytest.fixture
def keychain(environ: dict[str, str], tmp_path: Path) -> Path:
    """The file that stores the keys of the test keychain."""
    file = tmp_path / "keychain.json"
    environ |= {
        "PYTHON_KEYRING_BACKEND": "support.file_keychain.FileKeychain",
        "PYTHONPATH": str(Path(support.__file__).parents[1]),
        "KEYCHAIN_FILE": str(file),
    }
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
