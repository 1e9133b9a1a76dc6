"""The registry's settings, and where its file is."""

from __future__ import annotations

import re
from pathlib import Path
from typing import ClassVar

from pydantic import Field

from armarium.foundation.security.access import ADMINISTER, READ
from armarium.foundation.settings.model import RestrictedSection

STATE_DIRECTORY = ".armarium"
"""The directory of the registry's file, inside the project."""
DATABASE_NAME = "registry.sqlite"

REPORT, JUDGE = "report", "judge"
"""Roles: to report and register; to change findings and issues."""


class RegistrySettings(RestrictedSection):
    """Findings, issues and a timeline for every file of a project."""

    roles: ClassVar[tuple[str, ...]] = (READ, REPORT, JUDGE, ADMINISTER)

    project: str
    """The project's directory. It contains the registry's file, `.armarium/registry.sqlite`."""
    prefix: str | None = Field(default=None, pattern=r"^[a-z0-9]+(-[a-z0-9]+)*$", max_length=40)
    """The prefix of new ids, as in `<prefix>-f-3c1f09a2be`. It is stored in the registry; the default for a new one is
    the name of the directory."""


def project_directory(project: str) -> Path:
    return Path(project).expanduser().absolute()


def registry_file(project: Path) -> Path:
    return project / STATE_DIRECTORY / DATABASE_NAME


def prefix_of(directory: Path) -> str:
    """The name of a directory, reduced to a-z, 0-9 and single hyphens."""
    slug = re.sub(r"[^a-z0-9]+", "-", directory.resolve().name.lower()).strip("-")
    return slug[:40].strip("-") or "project"
