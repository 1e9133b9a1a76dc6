"""The user of a command: a home, a directory to work in, and an environment in which nothing was set."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

_OURS = ("ARMARIUM_", "DIR2MCP_", "MISTRAL_", "ELEVENLABS_", "XDG_")


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """An empty home directory."""
    directory = tmp_path / "home"
    directory.mkdir()
    return directory


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """The directory commands run in, with a file."""
    directory = tmp_path / "project"
    directory.mkdir()
    (directory / "hello.txt").write_text("hello\n")
    return directory


@pytest.fixture
def environ(home: Path) -> dict[str, str]:
    """The environment of a user who set nothing, and has no keychain."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(_OURS)}
    return kept | {
        "HOME": str(home),
        "XDG_STATE_HOME": str(home / "state"),
        "NO_PROXY": "127.0.0.1",
        "PYTHON_KEYRING_BACKEND": "keyring.backends.null.Keyring",
    }


@pytest.fixture
def as_the_user(project: Path, environ: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """This process is in the user's directory and has the user's environment."""
    for name in set(os.environ) - set(environ):
        monkeypatch.delenv(name)
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(project)
    return monkeypatch
