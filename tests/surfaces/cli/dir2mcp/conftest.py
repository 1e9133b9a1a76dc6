"""The `dir2mcp` command as a user has it, with a home and a directory that belong to the test."""

from __future__ import annotations

import os
from collections.abc import Generator
from contextlib import ExitStack
from pathlib import Path

import pytest
from command_line import CommandLine, Outcome
from dir2mcp_command import TEMPLATE, Quick, Start

from armarium.surfaces.cli.dir2mcp.main import run


@pytest.fixture
def environ(home: Path) -> dict[str, str]:
    """The environment of a user who set nothing."""
    ours = ("ARMARIUM_", "DIR2MCP_", "MISTRAL_", "ELEVENLABS_", "XDG_")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    return kept | {
        "HOME": str(home),
        "XDG_STATE_HOME": str(home / "state"),
        "NO_PROXY": "127.0.0.1",
        "PYTHON_KEYRING_BACKEND": "keyring.backends.null.Keyring",
    }


@pytest.fixture
def template(project: Path) -> Path:
    """The contract's template as the project's file of settings."""
    file = project / ".dir2mcp.yaml"
    file.write_text(TEMPLATE.read_text())
    return file


@pytest.fixture
def dir2mcp(project: Path, environ: dict[str, str]) -> CommandLine:
    """Runs `dir2mcp …` to its end."""
    return CommandLine("dir2mcp", project, environ)


@pytest.fixture
def here(
    project: Path, environ: dict[str, str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Quick:
    """Runs `dir2mcp …` in this process, for tables of cases."""
    for name in set(os.environ) - set(environ):
        monkeypatch.delenv(name)
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(project)

    def call(*arguments: str | Path, **variables: str) -> Outcome:
        with monkeypatch.context() as patched:
            for name, value in variables.items():
                patched.setenv(name, value)
            code = run([str(argument) for argument in arguments])
        said = capsys.readouterr()
        return Outcome(code, said.out, said.err)

    return call


@pytest.fixture
def serve(dir2mcp: CommandLine) -> Generator[Start]:
    """Starts `dir2mcp …` and leaves it running; what still runs at the end of the test is stopped."""
    with ExitStack() as running:
        yield lambda *arguments: running.enter_context(dir2mcp.start(*arguments))
