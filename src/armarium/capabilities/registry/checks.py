"""The registry's checks for `armarium doctor`."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

from armarium.capabilities.registry.errors import RegistryUnusable
from armarium.capabilities.registry.ownership import require_own_registry
from armarium.capabilities.registry.settings import RegistrySettings, project_directory, registry_file
from armarium.capabilities.registry.storage.database import SCHEMA_VERSION, check_version
from armarium.capabilities.registry.storage.file import connect_to_read, is_writable
from armarium.capability import CheckResult, Facilities
from armarium.foundation.sqlite import is_empty, is_intact, schema_version

_RESTORE = "restore the file, or move it away to begin again"


def check(section: RegistrySettings | None, facilities: Facilities) -> Iterator[CheckResult]:
    """Check the project and its registry's file, without changing anything."""
    if section is None:
        return
    project = project_directory(section.project)
    file = registry_file(project)
    if not project.is_dir():
        problem = "is not a directory" if project.exists() else "does not exist"
        yield CheckResult("registry project", "fail", f"{project} {problem}", "create it, or correct `project`")
        return
    try:
        require_own_registry(file)
    except RegistryUnusable as error:
        yield CheckResult("registry database", "fail", error.message, error.hint)
        return
    if is_writable(file):
        yield CheckResult("registry project", "ok", str(project))
    elif file.exists():
        message = f"{file} cannot be written, so the registry is open for reading only"
        yield CheckResult("registry project", "warn", message, "let this user write there")
    else:
        yield CheckResult("registry project", "fail", f"{project} cannot be written", "let this user write there")
        return
    if file.exists():
        yield problem_of(file, thorough=True) or CheckResult("registry database", "ok", f"version {SCHEMA_VERSION}")


def file_problem(file: Path) -> CheckResult | None:
    """Why the registry's file cannot be used; None if it can, or does not exist yet."""
    return problem_of(file) if file.exists() else None


def problem_of(file: Path, *, thorough: bool = False) -> CheckResult | None:
    """The problem of a registry's file, if it has one. A thorough check reads all of it."""
    try:
        with closing(connect_to_read(file)) as connection:
            version = schema_version(connection)
            if version or not is_empty(connection):
                check_version(version)
            if thorough and not is_intact(connection):
                return CheckResult("registry database", "fail", f"{file} is damaged", _RESTORE)
    except RegistryUnusable as error:
        return CheckResult("registry database", "fail", f"{file}: {error.message}", error.hint)
    except sqlite3.Error:
        return CheckResult("registry database", "fail", f"{file} cannot be read", _RESTORE)
    return None
