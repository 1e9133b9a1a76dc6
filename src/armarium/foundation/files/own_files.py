"""Finds the server's own files inside the directories that it serves, for instance if one is a home directory."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from pathlib import Path

from armarium.foundation.errors import ConfigError
from armarium.foundation.files.path_rules import fold
from armarium.foundation.files.state_files import user_state_directories


def private_places(private_paths: Iterable[Path], root: str) -> list[str]:
    """Where private paths are in a root, with the state of all servers of this user: it has their tokens, keys and
    confirmations, wherever this server keeps its own. Raise `ConfigError` if the root has nothing else."""
    top, shared = os.path.expanduser(root), user_state_directories()
    if any(places_in(str(each), [Path(top)]) for each in shared if each.is_dir()):
        raise _reserved(root)
    places = places_in(top, [*shared, *private_paths])
    if "." in places:
        raise _reserved(root)
    return places


def places_in(directory: str, paths: Iterable[Path]) -> list[str]:
    """Where paths are in a directory, as they are given and with links resolved. Directories are compared by identity,
    because one may be mounted twice."""
    try:
        wanted = os.stat(directory)
    except OSError:
        return []
    spellings = [Path(each) for path in paths for each in (os.path.abspath(path), os.path.realpath(path))]
    return list(
        dict.fromkeys(
            str(spelling.relative_to(above))
            for spelling in spellings
            for above in (spelling, *spelling.parents)
            if _is(above, wanted)
        )
    )


def lines_hiding(private_paths: Iterable[Path], root: str) -> list[str]:
    """Patterns in .gitignore syntax that hide private paths inside a root."""
    return [as_line(place) for place in private_places(private_paths, root)]


def lines_in_every_spelling(places: Iterable[str]) -> list[str]:
    """Patterns of `PathRules` for paths relative to a root."""
    return [as_line(fold(place)) for place in places]


def as_line(place: str) -> str:
    """The pattern that matches exactly this path, relative to a root."""
    return "/" + re.sub(r"([\\*?\[ ])", r"\\\1", place)


def _is(path: Path, wanted: os.stat_result) -> bool:
    try:
        return os.path.samestat(os.stat(path), wanted)
    except OSError:
        return False


def _reserved(root: str) -> ConfigError:
    return ConfigError(f"{root} is reserved for the server itself", hint="serve another directory")
