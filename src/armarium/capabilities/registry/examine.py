"""What `armarium doctor` finds out about the registry before a start."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

from armarium.capabilities.registry.settings import (
    DATABASE_NAME,
    STATE_DIRECTORY,
    RegistrySettings,
    project_directory,
)
from armarium.capabilities.registry.storage.database import SCHEMA_VERSION, schema_version
from armarium.capability import Facilities, Finding

_BEGIN_AGAIN = "restore the file, or move it away to begin again"


def examine(section: RegistrySettings | None, facilities: Facilities) -> Iterator[Finding]:
    """Look at the project and at the file of its registry; change nothing."""
    if section is None:
        return
    project = project_directory(section.project)
    if not project.is_dir():
        problem = "is not a directory" if project.exists() else "does not exist"
        yield Finding("registry project", "fail", f"{project} {problem}", "create it, or correct `project`")
        return
    state = project / STATE_DIRECTORY
    writable = state if state.is_dir() else project
    if not os.access(writable, os.W_OK | os.X_OK):
        yield Finding("registry project", "fail", f"{writable} cannot be written", "let this user write there")
        return
    yield Finding("registry project", "ok", str(project))
    database = state / DATABASE_NAME
    if database.exists():
        yield _database(database)


def _database(path: Path) -> Finding:
    try:
        with closing(sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True)) as connection:
            version = schema_version(connection)
            tables = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
    except sqlite3.Error:
        return Finding("registry database", "fail", f"{path} cannot be read", _BEGIN_AGAIN)
    if version != SCHEMA_VERSION and tables:
        told = f"{path} has version {version}, this program reads {SCHEMA_VERSION}"
        return Finding("registry database", "fail", told, "use the Armarium that made it")
    return Finding("registry database", "ok", f"version {SCHEMA_VERSION}")
