"""State that a later version wrote is refused with one clear error, and stays as it is."""

from __future__ import annotations

import asyncio
import hashlib
import shutil
import sqlite3
import subprocess
import tarfile
from collections.abc import Callable
from pathlib import Path

import asyncpg
import pytest
import yaml

from compatibility.test_frozen_state import SAMPLES, restore
from support.postgres import running_postgres
from support.server import installed_command

LATER = 4711


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    with tarfile.open(SAMPLES[-1]) as archive:
        archive.extractall(tmp_path, filter="fully_trusted")
    return tmp_path


def _set_version(file: Path) -> None:
    connection = sqlite3.connect(file)
    connection.execute(f"PRAGMA user_version = {LATER}")
    connection.close()


def _later_audit(directory: Path) -> Path:
    _set_version(directory / "state" / "audit.sqlite")
    return directory / "state" / "audit.sqlite"


def _later_registry(directory: Path) -> Path:
    _set_version(directory / "project" / ".armarium" / "registry.sqlite")
    return directory / "project" / ".armarium" / "registry.sqlite"


def _later_corpus(directory: Path) -> Path:
    file = directory / "project" / ".dir2mcp" / "meta.sqlite"
    connection = sqlite3.connect(file)
    connection.execute("UPDATE settings SET value = ? WHERE key = 'index_format_version'", (str(LATER),))
    connection.execute("DELETE FROM settings WHERE key = 'index_format_version#'")
    connection.commit()
    connection.close()
    return file


@pytest.mark.parametrize(
    ("make_later", "command"),
    [
        (_later_audit, ["armarium", "audit", "--config", "armarium.yaml"]),
        (_later_audit, ["armarium", "stdio", "--config", "armarium.yaml"]),
        (_later_registry, ["armarium", "registry", "files", "--dir", "project"]),
        (_later_registry, ["armarium", "stdio", "--config", "armarium.yaml"]),
        (_later_corpus, ["dir2mcp", "--dir", "project", "status"]),
        (_later_corpus, ["dir2mcp", "--dir", "project", "ask", "When does the ebb end?"]),
    ],
)
def test_newer_state_is_refused_and_not_changed(
    directory: Path, make_later: Callable[[Path], Path], command: list[str]
) -> None:
    settings = (directory / "armarium.yaml").read_text()
    (directory / "armarium.yaml").write_text(settings[: settings.index("store:")])
    file = make_later(directory)
    before = hashlib.sha256(file.read_bytes()).digest()
    shutil.rmtree(directory / "config")

    _refuses(directory, command)

    assert hashlib.sha256(file.read_bytes()).digest() == before


def test_a_newer_database_is_refused(directory: Path) -> None:
    with running_postgres() as dsn:
        restore(dsn, directory / "store.sql")
        asyncio.run(_make_later(dsn))
        settings = {"state_dir": str(directory / "state"), "store": {"dsn": dsn}}
        (directory / "newer.yaml").write_text(yaml.safe_dump(settings))
        _refuses(directory, ["armarium", "stdio", "--config", "newer.yaml"])


async def _make_later(dsn: str) -> None:
    connection = await asyncpg.connect(dsn)
    await connection.execute("INSERT INTO armarium_store_schema (number, name) VALUES ($1, 'later')", LATER)
    await connection.close()


def _refuses(directory: Path, command: list[str]) -> None:
    """The command ends with one clear error that names the version and the next step."""
    program = [installed_command(command[0]), *command[1:]]
    done = subprocess.run(program, cwd=directory, capture_output=True, text=True, input="", check=False)
    assert done.returncode > 0, done.stderr
    assert f"{LATER}" in done.stdout + done.stderr
    assert any(word in done.stderr for word in ("hint:", "run: ")), "a next step"
    assert "Traceback" not in done.stderr
