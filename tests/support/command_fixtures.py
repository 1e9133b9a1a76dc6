"""Fixtures for the user of a command: a home, a working directory, and an environment without settings."""

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
    """The working directory of commands, with one file."""
    directory = tmp_path / "project"
    directory.mkdir()
    (directory / "hello.txt").write_text("hello\n")
    return directory


@pytest.fixture
def environ(home: Path) -> dict[str, str]:
    """The environment of a user without settings and without a keyring."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(_OURS)}
    return kept | {
        "HOME": str(home),
        "XDG_STATE_HOME": str(home / "state"),
        "NO_PROXY": "127.0.0.1",
        "PYTHON_KEYRING_BACKEND": "keyring.backends.null.Keyring",
    }


@pytest.fixture
def as_the_user(project: Path, environ: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """Give this process the user's working directory and environment."""
    for name in set(os.environ) - set(environ):
        monkeypatch.delenv(name)
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(project)
    return monkeypatch
