"""The registry's section of the settings."""

from __future__ import annotations

import re
from pathlib import Path

from pydantic import Field

from armarium.foundation.settings import Section

STATE_DIRECTORY = ".armarium"
"""Where a project's registry lives, inside the project."""
DATABASE_NAME = "registry.sqlite"


class RegistrySettings(Section):
    """What is known about every file of a project."""

    project: str
    """The project's directory; what is known is kept in `.armarium/registry.sqlite` in it."""
    prefix: str | None = Field(default=None, pattern=r"^[a-z0-9]+(-[a-z0-9]+)*$", max_length=40)
    """What new ids begin with, as in `<prefix>-f-3c1f09a2be`; kept with the registry, and at first made
    from the directory's name."""


def project_directory(project: str) -> Path:
    """The directory that the settings name."""
    return Path(project).expanduser().absolute()


def registry_file(project: Path) -> Path:
    """Where the registry of a project is."""
    return project / STATE_DIRECTORY / DATABASE_NAME


def prefix_of(directory: Path) -> str:
    """The name of a directory with nothing but a-z, 0-9 and single hyphens."""
    slug = re.sub(r"[^a-z0-9]+", "-", directory.resolve().name.lower()).strip("-")
    return slug[:40].strip("-") or "project"
